"""The window bucket by bucket: one row each, and one for every gap. Pure numbers."""

from __future__ import annotations

import numpy as np

from postmortem.report.model import Minute
from telemetry.case import Case
from telemetry.conventions import REJECT_REASONS, WAIT_REASONS
from telemetry.findings.frozen import age_s
from telemetry.grid import Grid, Part
from telemetry.window import Bucket, Gap


def minutes(case: Case, part: Part, top: str | None) -> tuple[Minute, ...]:
    """`part` are the buckets asked for; `top` is the tenant whose share is told. One row a bucket,
    and one for every gap in which not even the front was heard."""
    asked = case.window.asked
    usual = {b.start for b in case.baseline.buckets}
    rows = [
        _minute(case, b, part.grid, int(at), top, b.start in usual)
        for b, at in zip(asked, part.at, strict=True)
    ]
    for gap in case.window.gaps():
        if not any(b.start < gap.end and b.end > gap.start for b in asked):
            rows.append(_nothing(gap))
    return tuple(sorted(rows, key=lambda m: m.start))


def _nothing(gap: Gap) -> Minute:
    return Minute(
        start=gap.start,
        length_s=gap.end - gap.start,
        state="gap",
        offered=None,
        rejected=None,
        share=None,
        waits=tuple((r, None) for r in WAIT_REASONS),
        missed=None,
        kv_share=None,
        step_s=None,
        expected_step_s=None,
        last_token_age_s=None,
        in_incident=False,
        in_baseline=False,
    )


def _minute(case: Case, bucket: Bucket, grid: Grid, at: int, top: str | None, calm: bool) -> Minute:
    e = bucket.engine

    def whole(column: str) -> float:
        return float(np.nansum(grid.column(column)[at]))

    offered = grid.column("offered_requests")[at]
    # A front's row alone still tells what was offered.
    front = e is not None or bool((~np.isnan(offered)).any())
    service = whole("service")
    own = 0.0
    if top is not None and top in grid.place:
        own = float(np.nan_to_num(grid.column("service")[at, grid.place[top]]))
    steps = e.steps if e is not None else None
    return Minute(
        start=bucket.start,
        length_s=bucket.length_s,
        state="gap" if e is None else "short" if bucket.short else "observed",
        offered=int(np.nansum(offered)) if front else None,
        rejected=int(sum(whole(f"rejected_{r}_requests") for r in REJECT_REASONS))
        if front
        else None,
        share=own / service if service else None,
        waits=tuple((r, None if e is None else whole(f"wait_{r}_s")) for r in WAIT_REASONS),
        missed=None if e is None else int(whole("slo_missed")),
        kv_share=_ratio(e.kv_bytes_avg, e.pool_bytes) if e is not None else None,
        step_s=_ratio(e.busy_s, steps) if e is not None else None,
        expected_step_s=_ratio(e.predicted_s, steps) if e is not None else None,
        last_token_age_s=age_s(bucket),
        in_incident=case.incident is not None and case.start <= bucket.start < case.end,
        in_baseline=calm,
    )


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
