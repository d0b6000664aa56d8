"""The command `postmortem`: a group whose commands are imported when they are asked for.

stdout is data, stderr is narration. Exit codes: 0 ok, 1 nothing found or failed, 2 usage, 3 the
store is busy or does not answer (trying again can help), 130 interrupted.
"""

from __future__ import annotations

import importlib

import click

# By name: where the command is, and what it is for.
COMMANDS: dict[str, tuple[str, str]] = {
    "report": ("postmortem.report_cli:report", "Who took the pool, whom it hurt, since when."),
    "find": ("postmortem.find_cli:find", "Which incidents there were in a span, worst first."),
    "compare": ("postmortem.compare_cli:compare", "Two windows side by side: what changed most."),
    "whatif": ("postmortem.whatif_cli:whatif", "What would have prevented it, by replay."),
    "watch": ("postmortem.watch_cli:watch", "Write a draft when an incident closes."),
    "import": ("postmortem.import_cli:import_log", "Read others' request logs into a store."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name][0]} is no click command: {command!r}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(cls=_Lazy)
def postmortem() -> None:
    """Explain an incident from what was stored.

    \b
    Example, the morning after:
      tenantscope postmortem find --store demo-store
      tenantscope postmortem report --store demo-store --from 17:00 --to 17:30
      tenantscope postmortem whatif --store demo-store --from 17:00 --to 17:30
    """
