"""Options that the commands of `tenantscope admin` share. Owns no command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

F = Callable[..., Any]


def connect(command: F) -> F:
    """Which engines are asked, and how the answer looks."""
    return click.option(
        "--connect",
        "addresses",
        metavar="ADDR",
        multiple=True,
        help="The operator's address: unix:/path/admin.sock or host:port; several times for "
        "several engines. Default: TENANTSCOPE_ADMIN, else the one engine that runs here.",
    )(click.option("--json", "as_json", is_flag=True, help="JSON.")(command))


def acting(command: F) -> F:
    """The options of every act; the command gets them as one `target`."""

    @functools.wraps(command)
    def run(
        addresses: tuple[str, ...],
        who: str | None,
        reason: str,
        if_version: int,
        ttl: str | None,
        permanent: bool,
        dry_run: bool,
        engine: str,
        on_pool: str,
        as_json: bool,
        **own: Any,
    ) -> None:
        from engine.admin.words import Target, seconds, whoever
        from telemetry.proto import tenantscope_pb2 as pb

        act = pb.Act(
            who=who or whoever(),
            why=reason,
            if_version=if_version,
            ttl_s=0.0 if ttl is None else seconds(ttl),
            permanent=permanent,
            dry_run=dry_run,
            engine=engine,
            pool=on_pool,
        )
        command(Target(addresses, act, as_json), **own)

    options = [
        click.option("--dry-run", is_flag=True, help="Say what it would do, and do nothing."),
        click.option("--reason", default="", metavar="TEXT", help="Why; written down beside it."),
        click.option("--ttl", metavar="SPAN", help="Until it reverts: 90s, 30m, 4h. Default 1h."),
        click.option("--permanent", is_flag=True, help="Never revert; needs --reason."),
        click.option(
            "--if-version",
            type=click.IntRange(0),
            default=0,
            help="Refuse when another version is in force than the one you looked at.",
        ),
        click.option("--who", metavar="NAME", help="Who does it. Default: you at this machine."),
        click.option("--engine", default="", metavar="NAME", help="Only if it is this engine."),
        click.option("--on-pool", default="", metavar="NAME", help="Only if it is this pool."),
    ]
    decorated: F = run
    for option in reversed(options):
        decorated = option(decorated)
    return connect(decorated)
