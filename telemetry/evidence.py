"""Evidence that misleads: gauges that never move, numbers below zero, clocks that disagree, rows
still open. Pure functions of a window; each doubt is a sentence, and what is doubted counts as
missing elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from telemetry.conventions import WAIT_REASONS
from telemetry.plain import percent, span_s
from telemetry.window import Bucket, Window

OPEN = "open"
ENOUGH = 6  # buckets before a level that never moved is no chance
GAUGES = ("kv_bytes_avg", "adapter_bytes_avg", "free_bytes_avg", "running_avg", "waiting_avg",
          "last_token_age_max_s")  # fmt: skip
_SKEW_S = 2.0  # from here on a jump of the wall clock is an event
_LATE_S = 1.0  # an outcome so long before the arrival is two clocks
# Columns that verdicts rest on, and that nothing makes negative.
_COUNTED = (
    "offered_tokens", "service", "kv_bytes_avg", "slo_missed", "slo_eligible",
    *(f"wait_{r}_s" for r in WAIT_REASONS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Doubt:
    """Evidence not to be taken at its word. `kind` is stuck, negative, clocks, missing or open;
    `sentence` is for a person and says what counts as missing."""

    kind: str
    sentence: str


def stuck(window: Window, column: str) -> bool:
    """Whether an engine's gauge reads the same in every bucket of the record, six or more, while
    the count of steps does not: then it is not measured."""
    rows = [b.engine for b in window.buckets if b.engine is not None]
    values = [v for r in rows if (v := getattr(r, column)) is not None]
    if len(values) < ENOUGH or len(set(values)) > 1:
        return False
    steps = {r.steps for r in rows if r.steps is not None}
    # Nothing waiting all day is a fact; nothing held while steps are done is none.
    idle = values[0] == 0 and not column.endswith("_bytes_avg")
    return len(steps) > 1 and not idle and (values[0] != 0 or column == "kv_bytes_avg")


def doubts(window: Window, judged: Sequence[Bucket]) -> tuple[Doubt, ...]:
    """What in the judged buckets, and in the record they stand in, is not to be believed."""
    return (*_stuck(window), *_negative(window, judged), *_clocks(window, judged), *_open(judged))


def _stuck(window: Window) -> list[Doubt]:
    found = [c for c in GAUGES if stuck(window, c)]
    if not found:
        return []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    verb = "never move and count" if more else "never moves and counts"
    return [Doubt("stuck", f"MISSING: {found[0]}{more} {verb} as not measured")]


def _negative(window: Window, judged: Sequence[Bucket]) -> list[Doubt]:
    part = window.part(judged)
    count = sum(int(part.grid.below_zero(c)[part.at].sum()) for c in _COUNTED)
    if not count:
        return []
    plural = "numbers are" if count > 1 else "number is"
    return [Doubt("negative", f"MISSING: {count} {plural} below zero and counted as not there")]


def _clocks(window: Window, judged: Sequence[Bucket]) -> list[Doubt]:
    out: list[Doubt] = []
    jumps = [abs(e.value or 0.0) for e in window.events if e.kind == "clock"
             and window.start <= e.at < window.end]  # fmt: skip
    if jumps and max(jumps) >= _SKEW_S:
        out.append(Doubt("clocks", f"CLOCK jumped by {span_s(max(jumps))}; times are the engine's"))
    crossed = sum(a.end > b.start + 1e-6 for a, b in pairwise(judged))
    if crossed:
        out.append(Doubt("clocks", f"MIXED: {crossed} buckets overlap; engines' clocks or lengths "
                                   "differ"))  # fmt: skip
    early = sum(
        r.ended is not None and r.ended < r.arrived - _LATE_S
        for r in window.requests
        if window.start <= r.arrived < window.end
    )
    if early:
        out.append(Doubt("clocks", f"MIXED CLOCKS: {early} requests end before they arrive"))
    return out


def _open(judged: Sequence[Bucket]) -> list[Doubt]:
    last = judged[-1] if judged else None
    if last is None or not last.short:
        return []
    part = percent(last.observed_s / last.length_s)
    return [Doubt(OPEN, f"PROVISIONAL: {part} of the last bucket was observed")]
