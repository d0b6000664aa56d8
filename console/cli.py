"""The command `tenantscope`: mounts every room's commands lazily and words their errors.

Imports nothing but click until a command is invoked, so that `--help` is quick. Exit codes:
0 ok, 1 failed, 2 usage or settings, 3 worth trying again, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

OK, FAILED, USAGE, RETRY, INTERRUPTED = 0, 1, 2, 3, 130

# Where these come without a file's name it is the output that cannot take more.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Packages whose own exceptions are worded for people; whatever else is raised is a bug.
OURS = ("engine", "telemetry", "postmortem", "console", "kernels", "sample_incidents")
# By class name, so that no module is imported only to be compared with.
CODES: Mapping[str, int] = {
    "ConfigError": USAGE,
    "SettingsError": USAGE,
    "WorkloadError": USAGE,
    "IncidentError": USAGE,
    "PoolChoice": USAGE,
    "QueryError": USAGE,
    "StoreBusy": RETRY,
    "StoreUnreachable": RETRY,
}


class Lazy(NamedTuple):
    """A command that is imported when it is called: where it is, and one line about it."""

    target: str  # "module:attribute"
    help: str


COMMANDS: Mapping[str, Lazy] = {
    "demo": Lazy(
        "console.demo.command:demo", "See a noisy neighbour found: engine, load, table, report."
    ),
    "console": Lazy("console.command:console", "Who holds the pool, who is hurt, since when."),
    "simulate": Lazy(
        "engine.simulate_cli:simulate", "Try a pool, a policy or a limit in virtual time."
    ),
    "serve": Lazy("engine.cli:serve", "Run the engine: OpenAI-compatible, fair, accounted."),
    "generate": Lazy("engine.generate_cli:generate", "Answer one prompt, without a server."),
    "bench": Lazy("engine.bench_cli:bench", "How fast the engine is on this machine."),
    "admin": Lazy("engine.admin.cli:admin", "Change a running engine: limits, adapters, policy."),
    "adapters": Lazy("engine.adapters_cli:adapters", "LoRA adapters: inspect a folder, make some."),
    "config": Lazy("engine.config_cli:config", "Check a settings file, explain its keys."),
    "keys": Lazy("engine.cli:keys", "Make API keys for tenants."),
    "postmortem": Lazy(
        "postmortem.cli:postmortem", "Explain what happened: who, whom, since when."
    ),
    "store": Lazy("telemetry.cli:store", "A store: what it covers, sizes, backup, forget."),
    "collect": Lazy(
        "telemetry.commands.collect:collect", "Gather many engines' telemetry: a store of its own."
    ),
    "doctor": Lazy(
        "telemetry.commands.doctor:doctor", "Is telemetry in order, and if not, what to do."
    ),
    "incidents": Lazy(
        "telemetry.commands.alerts:incidents", "What is wrong: list, show, ack, note."
    ),
    "silence": Lazy("telemetry.commands.silence:silence", "Deliver no alerts for a while."),
    "alerts": Lazy("telemetry.commands.delivery:alerts", "Try the delivery of alerts."),
    "query": Lazy("telemetry.cli:query", "Ask a store one of the named questions."),
    "sql": Lazy("telemetry.commands.questions:ask_sql", "Ask a store one SELECT of your own."),
    "watch": Lazy(
        "telemetry.commands.watch:watch", "The tenants now, ranked: who holds, who waits."
    ),
    "events": Lazy(
        "telemetry.commands.watch:events", "What happened, and what happens: -f follows."
    ),
    "explain": Lazy("telemetry.commands.questions:explain", "One request's life: who held it up."),
    "usage": Lazy(
        "telemetry.commands.questions:usage", "Tokens and engine time a tenant, reconciled."
    ),
    "export": Lazy(
        "telemetry.commands.questions:export", "Write a window: Parquet, CSV, Perfetto."
    ),
}


class LazyGroup(click.Group):
    """A group that lists its commands from the mapping and imports only the one invoked."""

    def __init__(
        self, *args: object, lazy: Mapping[str, Lazy] | None = None, **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.lazy = COMMANDS if lazy is None else lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.lazy[cmd_name].target} is no click command: {command!r}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self.lazy.items()])


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("tenantscope")
    except PackageNotFoundError:
        number = "(not installed)"
    click.echo(f"tenantscope {number}")
    ctx.exit()


def _token_file(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """By the environment, so that every command and every process it starts shows the token."""
    if value is not None and not ctx.resilient_parsing:
        os.environ["TENANTSCOPE_TOKEN_FILE"] = os.path.abspath(value)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    expose_value=False,
    callback=_token_file,
    help="The token to show to a store at an address (--connect).",
)
def tenantscope() -> None:
    """Who took the pool, whom it hurt, since when.

    An engine that serves many tenants' LoRA adapters on one model, writes down who waited behind
    whom, and explains it.

    \b
    Begin with one of these:
      tenantscope demo --replay                a recorded incident, in the console
      tenantscope demo                         the same, live, on this machine
      tenantscope postmortem report --help     how to explain what was stored
    """


def exit_code(error: BaseException) -> int | None:
    """The code for an error that is worded for people; None for one that is a bug.

    An exception class of ours may carry `exit_code`; else the nearest name in CODES decides, and
    the rest of our trees is FAILED.
    """
    kinds = [k for k in type(error).__mro__ if k.__module__.partition(".")[0] in OURS]
    for kind in kinds:
        own = kind.__dict__.get("exit_code")
        if isinstance(own, int):
            return own
        if kind.__name__ in CODES:
            return CODES[kind.__name__]
    if kinds:
        return FAILED
    if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL):
        return FAILED
    return None


def sentence(error: BaseException) -> str:
    """What an error says, without its class."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        if error.errno in FULL:
            return f"the output cannot be written: {error.strerror}"
    # A library's words inside ours may come in several lines.
    said = " ".join(line.strip() for line in str(error).splitlines())
    return said or type(error).__name__


def printed(text: str) -> str:
    """An error repeats what it was given: a terminal is to print that, and not to obey it."""
    from telemetry.plain import safe

    return "\n".join(map(safe, text.split("\n")))


def invoke(args: Sequence[str] | None = None, group: click.Command = tenantscope) -> int:
    """Run the command line and give its exit code; errors are one sentence on stderr."""
    try:
        result = group.main(
            args=None if args is None else list(args),
            prog_name="tenantscope",
            standalone_mode=False,
        )
        _flush()  # what cannot be written is found out here, not after the exit code is given
    except click.ClickException as e:
        told = io.StringIO()
        e.show(told)
        click.echo(printed(told.getvalue()), err=True, nl=False)
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader left (`| head`): no error to tell
        return FAILED
    except Exception as e:
        code = exit_code(e)
        if code is None:
            raise
        if isinstance(e, OSError) and e.filename is None:
            _drop_output()
        click.echo(printed(f"tenantscope: {sentence(e)}"), err=True)
        return code
    return result if isinstance(result, int) else OK


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_output() -> None:
    """What is left in stdout's buffer must not be flushed at exit, where it would fail again."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def keep_three_open() -> None:
    """Who is started without stdin, stdout or stderr would be given their numbers for the next file
    or socket it opens, and write its words there, or hand its children the wrong one."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free
    # Python has None in their place, which no reader and no writer below expects.
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(fd, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - kept
            setattr(sys, name, stream)


def main() -> None:
    """The console script."""
    keep_three_open()
    # gRPC's own lines on stderr say again, at greater length, what our sentences say.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    code = invoke()
    if any(t.name in ("feed", "handover") and t.is_alive() for t in threading.enumerate()):
        # A feed that hangs in native code would abort the interpreter on its way out.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
