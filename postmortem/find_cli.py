"""The command `postmortem find`: reads arguments, prints candidates. Judges nothing itself.

Exit codes: 0 found some, 1 none, 2 usage, 3 the store is busy or does not answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from postmortem.asking import (
    NOTHING,
    USAGE,
    Where,
    asked,
    bounds_of,
    narrate,
    pool_option,
    say,
    span_of,
    span_options,
    stop,
    where,
    where_options,
    width,
)

if TYPE_CHECKING:
    from postmortem.find import Candidate


@click.command()
@span_options
@where_options
@pool_option
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of the table.")
def find(
    begin: str, end: str, folder: str | None, address: str | None, pool: str | None, as_json: bool
) -> None:
    """Which incidents there were, worst first: since when, whom it hurt, who held.

    \b
    Examples:
      tenantscope postmortem find --store demo-store
      tenantscope postmortem find --store demo-store --from 'last 1d'
      tenantscope postmortem find --store demo-store --json | jq '.incidents[0].report'
    """
    from postmortem.find import find_incidents
    from telemetry.window import PoolChoice

    place = where(folder, address)
    with asked(place) as source:
        span = span_of(source, place)
        bounds = bounds_of(begin, end, span, what="span")
        try:
            found = find_incidents(source, *bounds, pool=pool, hear=_told)
        except PoolChoice as e:
            raise stop(USAGE, f"{e} (--pool)") from None
    several = len({c.pool for c in found}) > 1 or pool is not None
    commands = [report_command(c, place, several) for c in found]
    say(_json(found, commands, bounds) if as_json else _text(found, commands))
    if not found:
        narrate("no incident in this span")
        raise SystemExit(NOTHING)


def _told(part: float) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{100 * part:.0f}%\r", err=True, nl=False)


def report_command(candidate: Candidate, place: Where, with_pool: bool) -> str:
    """The command that reports on it, with calm on both sides."""
    import shlex

    from postmortem.report.appendix import iso

    side_s = 3 * candidate.bucket_s
    option = "--connect" if place.live else "--store"
    pool = f" --pool {shlex.quote(candidate.pool)}" if with_pool else ""
    return (
        f"tenantscope postmortem report {option} {shlex.quote(place.place)}{pool} "
        f"--from {iso(candidate.onset - side_s)} --to {iso(candidate.end + side_s)}"
    )


def _text(found: Sequence[Candidate], commands: Sequence[str]) -> str:
    from postmortem.report.document import Code, Grid
    from postmortem.report.terminal import lines_of
    from telemetry.plain import clock, local, percent, span_s

    if not found:
        return ""
    zone = local(found[0].onset).tzname() or ""
    head = ("#", f"onset ({zone})", "end", "kind", "hurt", "missed", "excess", "held by")
    rows = tuple(
        (
            f"{i}",
            local(c.onset).strftime("%Y-%m-%d %H:%M:%S"),
            "ongoing" if c.ongoing else clock(c.end),
            c.kind.replace("_", " "),
            str(len(c.hurt)),
            str(c.missed),
            span_s(c.excess_s),
            ", ".join(f"{h.tenant} {percent(h.share)} ({h.called})" for h in c.holders) or "-",
        )
        for i, c in enumerate(found, start=1)
    )
    out = lines_of(Grid(head, rows, frozenset((0, 4, 5, 6))), width())
    for i, (c, command) in enumerate(zip(found, commands, strict=True), start=1):
        out += ["", *lines_of(f"{i}. {c.headline}", width()), *lines_of(Code((command,)), width())]
    return "\n".join(out) + "\n"


def _json(found: Sequence[Candidate], commands: Sequence[str], bounds: tuple[float, float]) -> str:
    import json

    from postmortem.report.json import plain

    body = {
        "format": 1,
        "start": bounds[0],
        "end": bounds[1],
        "incidents": [
            plain(c) | {"report": command} for c, command in zip(found, commands, strict=True)
        ],
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"
