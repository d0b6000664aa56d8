"""Numbers as the report's tables print them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from postmortem.report.model import Latency
from telemetry.plain import percent, span_s


def count(value: int | None) -> str:
    return "-" if value is None else str(value)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < abs(value) < 9.95 else f"{value:.0f}"


def seconds(value: float | None) -> str:
    return "-" if value is None else span_s(value)


def percent1(value: float) -> str:
    """One decimal, so that columns close visibly."""
    return f"{100 * value:.1f}%"


def rate(value: float, unit: str) -> str:
    if unit == "By":
        return f"{value / 2**20:.2f} MiB"
    return (
        f"{number(value)}{unit.removeprefix('1')}"
        if unit.startswith("1")
        else (f"{number(value)} {unit}")
    )


def ttft(x: Latency) -> str:
    if x.max_s is None:
        return "-"
    if x.p50_s is None or x.p99_s is None:
        return f"max {span_s(x.max_s)} ({x.n})"
    return f"{span_s(x.p50_s)}/{span_s(x.p99_s)}"


def share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def share1(value: float | None) -> str:
    return "-" if value is None else percent1(value)


def big(value: float) -> str:
    """A count with thousands apart."""
    return f"{value:,.0f}"


BARS = " ▁▂▃▄▅▆▇█"
MOST_BARS = 40


def bars(values: Sequence[float | None]) -> str:
    """Parts of 1 as a row of bars, at most 40: of several buckets in one the highest counts, and
    one that is not known makes it not known. Something never looks like nothing."""
    each = max(1, -(-len(values) // MOST_BARS))
    out = ""
    for i in range(0, len(values), each):
        some = values[i : i + each]
        known = [v for v in some if v is not None]
        if len(known) < len(some):
            out += "?"
            continue
        top = max(known)
        out += BARS[max(1, min(8, round(8 * top)))] if top > 0 else "."
    return out
