"""What the charts show: shares of the service over time, waits by reason, who waited behind whom.
Pure numbers; draws nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from postmortem.report.parts import Curve, CurvePoint, Heat, HeatCell, ReasonWait
from telemetry.attribution import STALL_REASONS, Line
from telemetry.case import Case
from telemetry.conventions import WAIT_REASONS
from telemetry.grid import Part
from telemetry.window import Bucket, observed_s, total

MOST_TENANTS = 7  # with a colour of their own
MOST_POINTS = 240  # drawn
MOST_VICTIMS = 12
MOST_HOLDERS = 8
MOST_WAITING = 20


def curve(case: Case, named: str | None) -> Curve:
    """The largest tenants' shares of the service, bucket by bucket; who is named comes first."""
    asked = case.window.asked
    part = case.window.part(asked)
    names = part.active()
    service = {t: part.total(t, "service") or 0.0 for t in names}
    ranked = sorted(names, key=lambda t: (t != named, -service[t], t))
    shown = tuple(ranked[:MOST_TENANTS])
    return Curve(
        shown,
        len(names) - len(shown),
        tuple(_point(case, part, i, some, shown) for i, some in _groups(asked)),
    )


def _groups(buckets: Sequence[Bucket]) -> Iterator[tuple[int, Sequence[Bucket]]]:
    """Buckets one by one, with their place; of more than can be drawn, as few together as will
    do."""
    each = max(1, -(-len(buckets) // MOST_POINTS))
    for i in range(0, len(buckets), each):
        yield i, buckets[i : i + each]


def _point(
    case: Case, part: Part, i: int, some: Sequence[Bucket], shown: tuple[str, ...]
) -> CurvePoint:
    start, end = some[0].start, some[-1].end
    inside = case.incident is not None and any(case.start <= b.start < case.end for b in some)
    known = [b for b in some if b.known]
    if not known:
        return CurvePoint(start, end - start, (None,) * (len(shown) + 1), None, inside)
    grid, at = part.grid, part.at[i : i + len(some)][[b.known for b in some]]
    service = np.nansum(grid.column("service")[at], axis=0)
    missed = float(np.nansum(grid.column("slo_missed")[at]))
    whole = float(service.sum())
    own = [float(service[grid.place[t]]) / whole if whole else 0.0 for t in shown]
    rest = max(0.0, 1.0 - sum(own)) if whole else 0.0
    return CurvePoint(start, end - start, (*own, rest), int(missed), inside)


def heat(case: Case) -> Heat:
    """The victims' excess by holder. Cells left out are counted, so that all of it adds up."""
    hurt = case.victims or case.hurt
    accounts = [case.basis.accounts[v.tenant] for v in hurt if v.tenant in case.basis.accounts]
    whole = sum(a.excess_s for a in accounts)
    if not whole:
        return Heat((), 0, 0, 0.0, 0.0)
    rows = sorted(accounts, key=lambda a: (-a.excess_s, a.tenant))
    shown = rows[:MOST_VICTIMS]
    pool = case.basis.pool([a.tenant for a in accounts])
    tenants = [x.holder for x in pool if x.holder.is_tenant and x.excess_s]
    holders = {*tenants[:MOST_HOLDERS], *(x.holder for x in pool if not x.holder.is_tenant)}
    cells = tuple(
        HeatCell(a.tenant, x.holder.kind, x.holder.name, x.excess_s, x.charged_s)
        for a in shown
        for x in a.lines
        if x.holder in holders and _matters(x)
    )
    return Heat(
        cells,
        len(rows) - len(shown),
        max(0, len(tenants) - MOST_HOLDERS),
        max(0.0, whole - sum(c.excess_s for c in cells)),
        whole,
    )


def _matters(line: Line) -> bool:
    return line.excess_s > 0


def reasons(case: Case) -> tuple[ReasonWait, ...]:
    """The hurt tenants' waits by reason, now and as they would usually have been."""
    seen, base = observed_s(case.buckets), case.baseline
    out = []
    for v in (case.victims or case.hurt)[:MOST_WAITING]:
        now = [total(case.buckets, v.tenant, f"wait_{r}_s") or 0.0 for r in WAIT_REASONS]
        usual = [(base.rate(v.tenant, f"wait_{r}_s") or 0.0) * seen for r in WAIT_REASONS]
        stall = total(case.buckets, v.tenant, "stall_s") or 0.0
        out.append(ReasonWait(v.tenant, tuple(now), tuple(usual), stall))
    return tuple(sorted(out, key=lambda w: (-sum(w.now), w.tenant)))


def stalls(case: Case) -> bool:
    """Whether the accounts are over stalls, not waits."""
    return case.basis.reasons == STALL_REASONS
