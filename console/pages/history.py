"""One tenant's buckets as values: what the strips of its page are drawn from. Pure.

A bucket in which no engine was heard is a gap (None), one beside an engine without the tenant is
idle (0). Figures of "now" are of the last five minutes that were observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.panels import over, total
from telemetry.conventions import REJECT_REASONS, WAIT_REASONS

RECENT_S = 300.0
SHORT = 0.9  # observed for less than this part of its length, a bucket is told to be partial
Told = Mapping[str, Any]
FOUND = ("device", "loading", "host", "disk")


@dataclass(frozen=True, slots=True)
class History:
    """`buckets`: one place a bucket from `start` on, None where nothing was heard."""

    buckets: tuple[Told | None, ...]
    bucket_s: float

    @classmethod
    def of(cls, rows: Sequence[Told], start: float, end: float, bucket_s: float) -> History:
        """Rows of `tenant_history` on the grid of buckets from `start` to `end`, but for the time
        before the first one: nothing is known to be missing there."""
        begun = min((r["bucket_start"] for r in rows), default=end)
        start = max(start, begun)
        places = max(0, round(-(-(end - start) // bucket_s)))
        grid: list[Told | None] = [None] * places
        for row in rows:
            at = int((row["bucket_start"] - start) // bucket_s)
            if 0 <= at < places:
                grid[at] = row
        return cls(tuple(grid), bucket_s)

    @property
    def recent(self) -> tuple[Told, ...]:
        """The buckets of the last minutes in which an engine was heard."""
        n = max(1, round(RECENT_S / self.bucket_s))
        return tuple(b for b in self.buckets[-n:] if b is not None)

    @property
    def newest(self) -> Told | None:
        return next((b for b in reversed(self.buckets) if b is not None), None)

    @property
    def gaps(self) -> int:
        return sum(b is None for b in self.buckets)

    @property
    def short(self) -> int:
        """Closed buckets that were observed only in part."""
        return sum(
            b is not None and not b["provisional"]
            and (b["observed_s"] or 0.0) < SHORT * b["bucket_s"]
            for b in self.buckets
        )  # fmt: skip

    @property
    def provisional(self) -> bool:
        return self.newest is not None and bool(self.newest["provisional"])

    def series(self, value: Callable[[Told], float | None]) -> tuple[float | None, ...]:
        """Bucket by bucket; None for a gap."""
        return tuple(None if b is None else value(b) for b in self.buckets)

    @property
    def observed_s(self) -> float:
        """Of the recent buckets."""
        return float(sum(b["observed_s"] or 0.0 for b in self.recent))

    def summed(self, *columns: str) -> float | None:
        """Over the recent buckets; idle ones count as 0, None where nothing was heard."""
        if not self.recent:
            return None
        found = total([b[c] for b in self.recent for c in columns])
        idle = all(not b["there"] for b in self.recent)
        return 0.0 if found is None and idle else found

    def last(self, column: str) -> float | None:
        """The newest value that is known, of the recent buckets."""
        known = [b[column] for b in self.recent if b[column] is not None]
        return float(known[-1]) if known else None


def share(b: Told) -> float | None:
    """Of the pool's service; of an idle pool nothing."""
    return (b["service"] or 0.0) / b["pool_service"] if b["pool_service"] else 0.0


def waited_s(b: Told) -> float:
    return float(sum(b[f"wait_{r}_s"] or 0.0 for r in WAIT_REASONS))


def kv_share(b: Told) -> float | None:
    return over(b["kv_bytes_avg"] or 0.0, b["pool_bytes"])


def hit_rate(b: Told) -> float | None:
    """Adapters found on the device, of those looked up; None where none was."""
    return over(float(b["found_device"] or 0), b["adapter_lookups"])


def missed(b: Told) -> float | None:
    """Of those judged; where misses of requests that still wait are more, of those."""
    eligible, misses = b["slo_eligible"] or 0, b["slo_missed"] or 0
    return misses / max(eligible, misses) if max(eligible, misses) else 0.0


def refused(h: History) -> dict[str, int]:
    """Refusals of the recent buckets, by reason; only those that there were."""
    counts = {r: h.summed(f"rejected_{r}_requests") for r in REJECT_REASONS}
    return {r: int(n) for r, n in counts.items() if n}
