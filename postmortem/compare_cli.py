"""The command `postmortem compare`: reads arguments, prints two windows side by side.

Exit codes: 0 compared, 1 nothing there, 2 usage, 3 the store is busy or does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from postmortem.asking import (
    NOTHING,
    USAGE,
    asked,
    bounds_of,
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
    from postmortem.compare import Changed, Comparison, Side, Span
    from postmortem.report.document import Part

MOST_CHANGES = 20
MOST_TENANTS = 20
LEAST_SCORE = 0.05


@click.command()
@span_options
@click.option("--against-from", "base_begin", default=None,
              help="When the other window begins; default: as long before --from.",
              )  # fmt: skip
@click.option("--against-to", "base_end", default=None,
              help="When the other window ends; default: where --from begins.")  # fmt: skip
@where_options
@pool_option
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of the tables.")
def compare(
    begin: str,
    end: str,
    base_begin: str | None,
    base_end: str | None,
    folder: str | None,
    address: str | None,
    pool: str | None,
    as_json: bool,
) -> None:
    """A window against another, what changed most first: demand, service, waits by reason, TTFT,
    misses, and who held.

    \b
    Examples:
      tenantscope postmortem compare --store demo-store --from 17:00 --to 17:30
      tenantscope postmortem compare --store demo-store --from 17:00 --to 17:30 \\
          --against-from 16:00 --against-to 16:30
      tenantscope postmortem compare --store demo-store --from 'last 30m' --json | jq '.changed[0]'
    """
    from postmortem.compare import compare as compared
    from telemetry.window import PoolChoice

    place = where(folder, address)
    with asked(place) as source:
        span = span_of(source, place)
        after = bounds_of(begin, end, span)
        before = _other(base_begin, base_end, after, span)
        try:
            found = compared(source, before, after, pool=pool)
        except PoolChoice as e:
            raise stop(USAGE, f"{e} (--pool)") from None
    for side, name in ((found.before, "the window compared with"), (found.after, "the window")):
        if not side.engine.buckets:
            raise stop(NOTHING, f"no bucket was heard in {name}: nothing can be compared")
    say(_json(found) if as_json else _text(found))


def _other(
    begin: str | None,
    end: str | None,
    after: tuple[float, float],
    span: tuple[float, float],
) -> tuple[float, float]:
    if begin is None and end is None:
        length = after[1] - after[0]
        first = max(span[0], after[0] - length)
        if first >= after[0]:
            raise stop(USAGE, "nothing is stored before the window: give --against-from and "
                       "--against-to")  # fmt: skip
        return bounds_of(repr(first), repr(after[0]), span, what="against")
    if begin is None or end is None:
        raise stop(USAGE, "give --against-from and --against-to, both or neither")
    return bounds_of(begin, end, span, what="against")


def _json(found: Comparison) -> str:
    import json

    from postmortem.report.json import plain

    return json.dumps({"format": 1, **plain(found)}, indent=2, allow_nan=False) + "\n"


def _text(found: Comparison) -> str:
    from postmortem.report.document import Grid
    from postmortem.report.terminal import lines_of

    changed = [c for c in found.changed if c.score >= LEAST_SCORE][:MOST_CHANGES]
    parts: list[tuple[str, Part]] = [
        (
            "WHAT CHANGED, MOST FIRST",
            Grid(
                ("who", "what", "before", "after", "times"),
                tuple(_change(c) for c in changed),
                frozenset((2, 3, 4)),
            )
            if changed
            else "Nothing changed that matters.",
        ),
        ("TENANTS: before > after", _tenants(found)),
        ("WAITING FOR, in requests on average: before > after", _reasons(found)),
    ]
    out = [_title(found)]
    for heading, part in parts:
        out += ["", heading, *lines_of(part, width())]
    return "\n".join(out) + "\n"


def _title(found: Comparison) -> str:
    from telemetry.plain import clock, safe, span_s
    from telemetry.verdict import when

    def one(s: Span) -> str:
        return f"{when(s.start)} to {clock(s.end)} ({span_s(s.engine.observed_s)} observed)"

    return f"Pool {safe(found.pool)}\n  before: {one(found.before)}\n  after:  {one(found.after)}"


def _change(c: Changed) -> tuple[str, ...]:
    from telemetry.plain import times

    return (
        "(pool)" if c.tenant is None else c.tenant or '""',
        c.what,
        _value(c.before, c.unit),
        _value(c.after, c.unit),
        "-" if c.ratio is None else times(c.ratio),
    )


def _value(value: float | None, unit: str) -> str:
    from telemetry.plain import percent, span_s

    if value is None:
        return "-"
    if unit == "s":
        return span_s(value)
    if unit == "1":
        return percent(value) if value <= 1.0 else f"{value:.2f}"
    said = f"{value:.2f}" if value < 9.95 else f"{value:,.0f}"
    return said + ("/s" if unit == "1/s" else "")


def _tenants(found: Comparison) -> Part:
    from postmortem.report.document import Grid

    rows = []
    for tenant, a, b in _pairs(found):
        rows.append(
            (
                tenant or '""',
                _pair(_of(a, lambda s: s.offered), _of(b, lambda s: s.offered), "1/s"),
                _pair(_of(a, lambda s: s.service_share), _of(b, lambda s: s.service_share), "1"),
                _pair(_of(a, lambda s: s.miss_share), _of(b, lambda s: s.miss_share), "1"),
                _pair(_p99(a), _p99(b), "s"),
                _pair(_of(a, lambda s: s.held), _of(b, lambda s: s.held), "requests"),
            )
        )
    head = ("tenant", "offered", "share", "missed", "TTFT p99", "held")
    return Grid(head, tuple(rows), frozenset(range(1, 6)))


def _waits(side: Side | None) -> Sequence[float | None]:
    from telemetry.conventions import WAIT_REASONS

    return (None,) * len(WAIT_REASONS) if side is None else side.waits


def _of(side: Side | None, get: Callable[[Side], float | None]) -> float | None:
    return None if side is None else get(side)


def _p99(side: Side | None) -> float | None:
    return None if side is None else side.ttft_p99_s if side.ttft_p99_s else side.ttft_max_s


def _reasons(found: Comparison) -> Part:
    from postmortem.report.document import Grid
    from telemetry.conventions import WAIT_REASONS

    def row(name: str, a: Side | None, b: Side | None) -> tuple[str, ...]:
        return (
            name,
            *(_pair(x, y, "requests") for x, y in zip(_waits(a), _waits(b), strict=True)),
        )

    rows = [row("(pool)", found.before.pool, found.after.pool)]
    rows += [row(t or '""', a, b) for t, a, b in _pairs(found)]
    return Grid(("tenant", *WAIT_REASONS), tuple(rows), frozenset(range(1, 5)))


def _pairs(found: Comparison) -> Sequence[tuple[str, Side | None, Side | None]]:
    """Tenants in the order of what changed most about them."""
    was = {s.tenant: s for s in found.before.tenants}
    now = {s.tenant: s for s in found.after.tenants}
    score: dict[str, float] = {t: 0.0 for t in (*was, *now) if t is not None}
    for c in found.changed:
        if c.tenant is not None:
            score[c.tenant] = max(score[c.tenant], c.score)
    names = sorted(score, key=lambda t: (-score[t], t))[:MOST_TENANTS]
    return [(t, was.get(t), now.get(t)) for t in names]


def _pair(a: float | None, b: float | None, unit: str) -> str:
    return f"{_value(a, unit)} > {_value(b, unit)}"
