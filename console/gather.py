"""The console's rows: asked of any source, kept, and asked again only where something is new.

Owns what was read and what the source said of itself (`notes`); builds no picture. Without
requests: percentiles come from the minutes' histograms, so a pool's size and not its traffic
decides what a look costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from console.rows import Rows
from telemetry.ask.reading import READ, Result, to_rows
from telemetry.records import EngineMinute

LONGEST_HISTORY_S = 3900.0  # an hour of baseline and the five minutes that are looked at
MOST_ROWS = 16_000  # of tenants: more of them are looked at over a shorter time
FEWEST_BUCKETS, MOST_BUCKETS = 12, 65
NEAR_S = 150.0  # what is younger may still change
WHOLE_EVERY_S = 120.0  # what is older hardly does, and is asked for again so often
AHEAD_S = 2.0  # clocks of the engine and of this machine may differ by a little
USUAL_BUCKET_S = 60.0
STORE_DOWN = "the store is not answering"  # how a fallback's note begins


class Asked(Protocol):
    """Whatever answers named questions and says what an answer lacks."""

    def query(self, name: str, **parameters: Any) -> Result: ...

    def span(self) -> tuple[float, float] | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of the last while before an instant, and what the source says they lack. `revision`
    counts up when they change."""

    rows: Rows
    notes: tuple[str, ...]
    bucket_s: float
    revision: int

    @property
    def store_down(self) -> bool:
        return any(n.startswith(STORE_DOWN) for n in self.notes)


class _Question:
    """One round of questions to one source; remembers what the answers lack."""

    def __init__(self, source: Asked) -> None:
        self._source = source
        self.notes: dict[str, None] = {}

    def read(self, table: str, start: float, end: float) -> tuple[Any, ...]:
        answer = self._source.query(READ + table, start=start, end=end)
        self.notes.update(dict.fromkeys(answer.partial))
        return tuple(to_rows(table, answer))

    def rows(self, start: float, end: float, engines: tuple[EngineMinute, ...]) -> Rows:
        return Rows(
            tenants=self.read("tenant_minute", start, end),
            engines=tuple(e for e in engines if start <= e.bucket_start < end),
            interference=self.read("interference_minute", start, end),
            events=self.read("event", start, end),
        )


class Gatherer:
    """Keeps the rows of one source. For one thread. `monotonic` counts seconds.

    Raises whatever the source raises; what was kept stays.
    """

    def __init__(self, source: Asked, monotonic: Callable[[], float]) -> None:
        self._source = source
        self._monotonic = monotonic
        self._kept: Gathered | None = None
        self._whole_at = 0.0
        self._at = 0.0
        self._seen: frozenset[Any] = frozenset()

    def now(self, at: float, *, still: bool = False) -> Gathered:
        """The rows up to `at`, which moves forward; where nothing is new, the same as before.
        `still`: of a record that has ended nothing is new until `at` moves."""
        kept, end = self._kept, at + AHEAD_S
        if still and kept is not None and at == self._at:
            return kept
        asked = _Question(self._source)
        self._at = at
        if kept is None or not 0.0 <= self._monotonic() - self._whole_at < WHOLE_EVERY_S:
            rows, bucket_s = _whole(asked, at, end)
            self._whole_at = self._monotonic()
        else:
            cut = _bucket_edge(at - NEAR_S - kept.bucket_s, kept)
            engines = asked.read("engine_minute", cut, end)
            events = asked.read("event", cut, end)
            if self._seen.issuperset(_marks(engines, events)):
                self._kept = replace(kept, notes=tuple(asked.notes))
                return self._kept
            near = replace(asked.rows(cut, end, engines), events=events)
            old = kept.rows.before(cut)
            held = {"policies": asked.read("policy", 0.0, end),
                    "runs": asked.read("engine_run", 0.0, end)}  # fmt: skip
            bucket_s = kept.bucket_s
            rows = replace(old.then(near), **held).since(at - _history_s(near, bucket_s))
        self._seen = _marks(rows.engines, rows.events)
        revision = 0 if kept is None else kept.revision + 1
        self._kept = Gathered(rows, tuple(asked.notes), bucket_s, revision)
        return self._kept

    def past(self, at: float) -> Gathered:
        """What had been recorded for good by `at`; asked for anew, kept by nobody."""
        asked = _Question(self._source)
        rows, bucket_s = _whole(asked, at, at + 1e-3)
        return Gathered(rows.as_of(at), tuple(asked.notes), bucket_s, -1)


def _whole(asked: _Question, at: float, end: float) -> tuple[Rows, float]:
    """All that a picture at `at` needs: an hour, or as much of it as a crowd of tenants leaves."""
    engines = asked.read("engine_minute", at - LONGEST_HISTORY_S, end)
    bucket_s = max((e.bucket_s for e in engines), default=USUAL_BUCKET_S)
    cut = at - NEAR_S - bucket_s
    near = asked.rows(cut, end, engines)
    first = at - _history_s(near, bucket_s)
    far = asked.rows(first, cut, engines)
    rows = replace(
        far.then(near),
        policies=asked.read("policy", 0.0, end),
        runs=asked.read("engine_run", 0.0, end),
    )
    return rows, bucket_s


def _history_s(near: Rows, bucket_s: float) -> float:
    crowd = len({(r.pool, r.tenant) for r in near.tenants})
    buckets = min(MOST_BUCKETS, max(FEWEST_BUCKETS, MOST_ROWS // max(1, crowd)))
    return min(LONGEST_HISTORY_S, buckets * bucket_s if bucket_s >= 30.0 else 900.0)


def _bucket_edge(cut: float, kept: Gathered) -> float:
    """Where the rows kept can be parted without cutting a bucket in two."""
    return max((e.bucket_start for e in kept.rows.engines if e.bucket_start <= cut), default=cut)


def _marks(engines: tuple[EngineMinute, ...], events: tuple[Any, ...]) -> frozenset[Any]:
    """A delivery brings one that was not there: each moves on what its engine has observed."""
    heard = {(e.bucket_start, e.engine, e.run_id, e.pool, e.observed_seconds, e.steps)
             for e in engines}  # fmt: skip
    return frozenset({*heard, *((e.run_id, e.event_id) for e in events)})
