"""Which recorded buckets a picture is made of, and how long they lasted. Knows no tenants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from console.rows import Rows
from telemetry.records import EngineMinute, TenantMinute

Key = tuple[str, str, float]  # engine, run_id, bucket_start


class Span:
    """Which buckets count: the window's, the newest of each engine, and how long they lasted."""

    def __init__(self, rows: Rows, now: float, window_s: float) -> None:
        started = {(r.engine, r.run_id): r.started for r in rows.runs}
        self.engines: dict[Key, EngineMinute] = {
            (r.engine, r.run_id, r.bucket_start): r for r in rows.engines if r.bucket_start <= now
        }
        self.observed: dict[Key, float] = {
            k: min(r.bucket_s, now - r.bucket_start)
            if r.observed_seconds is None
            else r.observed_seconds
            for k, r in self.engines.items()
        }
        # A run that began inside a bucket was observed from then on, not from the boundary.
        ends = {
            k: min(k[2] + r.bucket_s, max(k[2], started.get(k[:2], k[2])) + self.observed[k], now)
            for k, r in self.engines.items()
        }
        self.data_at = max(ends.values(), default=None)
        self.end = now if self.data_at is None else self.data_at
        self.start = self.end - window_s
        self.window = [k for k, r in self.engines.items() if k[2] + r.bucket_s > self.start]
        self.window_keys = frozenset(self.window)
        latest: dict[str, Key] = {}
        for k in self.window:
            if k[0] not in latest or (k[2], ends[k]) > (latest[k[0]][2], ends[latest[k[0]]]):
                latest[k[0]] = k
        self.newest = tuple(latest.values())
        self.covered_s = self.seconds(self.window)

    def seconds(self, keys: Iterable[Key]) -> float:
        """Length of some buckets: runs of one engine add, engines run side by side."""
        lasted: dict[tuple[float, str], float] = defaultdict(float)
        for k in keys:
            lasted[k[2], k[0]] += self.observed[k]
        longest: dict[float, float] = defaultdict(float)
        for (bucket, _), s in lasted.items():
            longest[bucket] = max(longest[bucket], s)
        return sum(longest.values())


def key(row: TenantMinute) -> Key:
    return (row.engine, row.run_id, row.bucket_start)
