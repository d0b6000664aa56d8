"""Tenants by minutes: how much of one figure each had in each bucket, in five steps. Pure.

Values and their levels; lines are `console.pages.heat`'s. Absent is not zero: a bucket in which no
engine was heard has no value for anybody, in one that was heard a tenant without a row was idle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from console.formats import duration, percent, quantity, span
from console.wide_columns import byte_count
from telemetry.watch.frame import percentiles

STEPS = 5
FEWEST_USUAL = 3  # closed buckets; of fewer none is said to be usual
OTHERS = None  # the name of those that have no line of their own
Show = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. `share`: part of a whole; `adds`: values of several tenants add up; `top`: what
    the darkest step stands for, None = the most that is shown."""

    key: str
    title: str
    show: Show
    share: bool = False
    adds: bool = True
    top: float | None = None


METRICS: Mapping[str, Metric] = {
    m.key: m
    for m in (
        Metric("wait", "wait beyond its usual minute", span),
        Metric("miss", "targets missed", percent, share=True, adds=False, top=1.0),
        Metric("ttft", "TTFT p99", duration, adds=False),
        Metric("share", "share of service", percent, share=True),
        Metric("kv", "KV bytes", byte_count),
        Metric("swap", "adapter bytes moved", byte_count),
        Metric("refused", "429", quantity),
    )
}


@dataclass(frozen=True, slots=True)
class Column:
    """One bucket: when it starts, whether an engine was heard, whether it is still open."""

    start: float
    known: bool
    open: bool


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A tenant (None: all others, `tenants` of them) with a value a column, None = not known or
    nothing to judge. `weight` is what it is sorted by."""

    tenant: str | None
    tenants: int
    values: tuple[float | None, ...]
    weight: float

    @property
    def peak(self) -> float | None:
        return max((v for v in self.values if v is not None), default=None)


@dataclass(frozen=True, slots=True)
class Heat:
    """`rows`: worst first, the others last. `top`: what the darkest step stands for. `usual`: waits
    are beyond each tenant's own median, else they are all there was."""

    metric: Metric
    bucket_s: float
    columns: tuple[Column, ...]
    rows: tuple[HeatRow, ...]
    top: float
    usual: bool

    def level(self, value: float | None) -> int | None:
        """0 (nothing) to STEPS; None where nothing is known."""
        if value is None:
            return None
        if value <= 0.0 or self.top <= 0.0:
            return 0
        return min(STEPS, max(1, math.ceil(STEPS * value / self.top - 1e-9)))


def columns_of(heard: Iterable[Mapping[str, Any]], pool: str, most: int) -> tuple[Column, ...]:
    """The last `most` buckets of a pool up to the newest one heard, gaps among them. `heard` are
    rows of `pool_minutes`."""
    there: dict[float, bool] = {}
    length = 0.0
    for r in heard:
        if r["pool"] == pool:
            at = float(r["bucket_start"])
            there[at] = there.get(at, False) or bool(r["provisional"])
            length = max(length, float(r["bucket_s"]))
    if not there or length <= 0.0:
        return ()
    newest, oldest = max(there), min(there)
    n = min(most, round((newest - oldest) / length) + 1)
    grid = [newest - length * i for i in reversed(range(n))]
    # Buckets of engines that start at odd instants are put where they mostly lie.
    found = {round((at - newest) / length): at for at in there}
    places = [found.get(round((g - newest) / length)) for g in grid]
    return tuple(
        Column(g if at is None else at, at is not None, at is not None and there[at])
        for g, at in zip(grid, places, strict=True)
    )


def heat_of(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], metric: Metric, bucket_s: float
) -> Heat:
    """`rows` are those of `heat_minutes`."""
    at = {c.start: i for i, c in enumerate(columns)}
    parts: dict[str | None, list[Mapping[str, Any] | None]] = {}
    crowd = 0
    for r in rows:
        i = at.get(float(r["bucket_start"]))
        if i is None:
            continue
        tenant = r["tenant"]
        parts.setdefault(tenant, [None] * len(columns))[i] = r
        crowd = max(crowd, int(r["tenants"])) if tenant is OTHERS else crowd
    usual = metric.key == "wait" and sum(c.known and not c.open for c in columns) >= FEWEST_USUAL
    made = []
    for tenant, of in parts.items():
        values = _values(of, columns, metric)
        if usual:
            values = _beyond_usual(values, columns)
        crowd_of = crowd if tenant is OTHERS else 1
        made.append(HeatRow(tenant, crowd_of, values, _weight(of, values, metric)))
    made.sort(key=lambda r: (r.tenant is OTHERS, -r.weight, r.tenant or ""))
    peaks = [r.peak or 0.0 for r in made if r.tenant is not OTHERS]
    top = metric.top if metric.top is not None else max(peaks, default=0.0)
    return Heat(metric, bucket_s, tuple(columns), tuple(made), top, usual)


def _values(
    of: Sequence[Mapping[str, Any] | None], columns: Sequence[Column], metric: Metric
) -> tuple[float | None, ...]:
    if metric.key == "ttft":
        return _p99(of)
    out: list[float | None] = []
    for row, column in zip(of, columns, strict=True):
        part = None if row is None else row["part"]
        if row is None or part is None:
            # Beside an engine's row whoever has none was idle; of no targets there is no share.
            out.append(0.0 if column.known and metric.adds else None)
        elif not metric.share:
            out.append(float(part))
        else:
            whole = row["whole"]
            out.append(float(part) / float(whole) if whole else None)
    return tuple(out)


def _p99(of: Sequence[Mapping[str, Any] | None]) -> tuple[float | None, ...]:
    counted = [(i, row["ttft"]) for i, row in enumerate(of) if row is not None and row["ttft"]]
    out: list[float | None] = [None] * len(of)
    if counted:
        counts = np.array([[n or 0 for n in c] for _, c in counted], dtype=np.float64)
        _, _, p99 = percentiles(counts)
        for (i, _), value in zip(counted, p99.tolist(), strict=True):
            out[i] = None if value != value else value
    return tuple(out)


def _beyond_usual(
    values: Sequence[float | None], columns: Sequence[Column]
) -> tuple[float | None, ...]:
    """What is above the median of the closed buckets."""
    closed = [
        v for v, c in zip(values, columns, strict=True) if v is not None and c.known and not c.open
    ]
    usual = median(closed) if closed else 0.0
    return tuple(None if v is None else max(0.0, v - usual) for v in values)


def _weight(
    of: Sequence[Mapping[str, Any] | None], values: Sequence[float | None], metric: Metric
) -> float:
    known = [v for v in values if v is not None]
    if metric.key == "miss":  # a lone miss of one request is no worse than a thousand of two
        return sum(float(r["part"] or 0.0) for r in of if r is not None)
    if not metric.adds:
        return max(known, default=0.0)
    return sum(known)


def fold(heat: Heat, lines: int) -> tuple[HeatRow, ...]:
    """At most `lines` rows; those that have no line are with the others where values add up. Where
    they do not, the others' line tells the highest of what it stands for."""
    rows = heat.rows
    named = [r for r in rows if r.tenant is not OTHERS]
    rest = [r for r in rows if r.tenant is OTHERS]
    if len(rows) <= lines:
        return rows
    shown, more = named[: max(0, lines - 1)], named[max(0, lines - 1) :]
    folded = [*more, *rest]
    values = tuple(_together(heat.metric, column) for column in zip(*(r.values for r in folded),
                                                                    strict=True))  # fmt: skip
    crowd = sum(r.tenants for r in folded)
    return (*shown, HeatRow(OTHERS, crowd, values, sum(r.weight for r in folded)))


def _together(metric: Metric, values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    if not known:
        return None
    return sum(known) if metric.adds else max(known)
