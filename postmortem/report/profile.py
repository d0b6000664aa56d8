"""The profile of tenants: who got what part, who held what part, how bursty each is; one line for
all the rest, so that the columns add up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from postmortem.report.parts import Profile, ProfileRow
from telemetry.attribution import Line
from telemetry.case import Case
from telemetry.grid import Part
from telemetry.window import Bucket

MOST = 20  # tenants with a line of their own


def profile(case: Case, most: int = MOST) -> Profile:
    """Over the window asked for; what each held of the victims' excess over the judged buckets."""
    asked = case.window.asked
    part = case.window.part(asked)
    held = {x.holder.name: x for x in case.lines if x.holder.is_tenant}
    names = tuple(dict.fromkeys((*part.active(), *sorted(held))))
    service = {t: part.total(t, "service") or 0.0 for t in names}
    bursts = variance_to_mean(asked, part)
    whole = sum(service.values())
    excess = sum(x.excess_s for x in case.lines)

    def place(tenant: str) -> tuple[float, float, str]:
        line = held.get(tenant)
        return -(line.excess_s if line else 0.0), -service[tenant], tenant

    ranked = sorted(names, key=place)
    rows = [
        _row(part, i, t, service[t], whole, held.get(t), excess, bursts.get(t))
        for i, t in enumerate(ranked, start=1)
    ]
    shown, left = rows[:most], rows[most:]
    outside = tuple(
        ProfileRow(0, x.holder.kind, 0, None, 0.0, None, x.excess_s, _share(x.excess_s, excess),
                   None, 0)
        for x in case.lines
        if not x.holder.is_tenant
    )  # fmt: skip
    return Profile(
        tuple(shown),
        _sum("MISC", left, whole, excess) if left else None,
        outside,
        _sum("total", [*rows, *outside], whole, excess),
    )


def _row(
    part: Part, rank: int, tenant: str, service: float, whole: float, line: Line | None,
    excess: float, vmr: float | None,
) -> ProfileRow:  # fmt: skip
    offered = part.total(tenant, "offered_requests")
    held = line.excess_s if line else 0.0
    return ProfileRow(
        rank,
        tenant,
        1,
        None if offered is None else int(offered),
        service,
        _share(service, whole),
        held,
        _share(held, excess),
        vmr,
        int(part.total(tenant, "slo_missed") or 0),
    )


def variance_to_mean(buckets: Sequence[Bucket], part: Part) -> dict[str, float]:
    """Of the requests offered in a bucket, by tenant; whole buckets of one length only. A tenant is
    not there where they are fewer than three, the front's counts are missing, or nothing was
    offered. `part`: the same buckets."""
    length = max((b.length_s for b in buckets), default=0.0)
    whole = [b.known and not b.short and b.length_s == length for b in buckets]
    grid = part.grid
    counts = grid.column("offered_requests")[part.at[np.array(whole, dtype=bool)]]
    known = ~np.isnan(counts)
    n = known.sum(axis=0)
    mean = np.nansum(counts, axis=0) / np.maximum(n, 1)
    variance = np.nansum(np.where(known, (counts - mean) ** 2, 0.0), axis=0) / np.maximum(n, 1)
    good = np.flatnonzero((n >= MIN_BUCKETS) & (mean > 0))
    return {grid.names[i]: float(variance[i] / mean[i]) for i in good.tolist()}


MIN_BUCKETS = 3


def _sum(name: str, rows: Sequence[ProfileRow], whole: float, excess: float) -> ProfileRow:
    offered = [r.offered for r in rows if r.offered is not None]
    service, held = sum(r.service for r in rows), sum(r.excess_s for r in rows)
    return ProfileRow(
        0,
        name,
        sum(r.tenants for r in rows),
        sum(offered) if offered else None,
        service,
        _share(service, whole),
        held,
        _share(held, excess),
        None,
        sum(r.missed for r in rows),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
