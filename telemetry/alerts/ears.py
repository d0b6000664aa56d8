"""When each engine was last heard, and how far its clock has come. Hears deliveries; reads no rows.

Silence is counted by a clock that nobody sets. One entry an engine and pool, bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from telemetry.records import Batch, EngineMinute, EventRecord
from telemetry.store.shelf import STORE

MOST = 1000
FORGOTTEN_S = 86_400.0  # an engine silent for so long was taken away for good
NEWS_S = 900.0  # what was refused or lost before is not added to what is now
_SHORT_AFTER_S = 1.0  # rows that end so little after a stop belong to what stopped


@dataclass(slots=True)
class Ear:
    """`until`: end of the newest interval heard, on the engine's clock."""

    heard_mono: float
    until: float
    skew_s: float | None = None
    stopped_at: float | None = None
    refused: int = 0
    refused_mono: float | None = None
    lost: int = 0
    lost_mono: float | None = None


class Ears:
    """Listens to the committed deliveries (`telemetry.service.hearing`). Thread-safe."""

    def __init__(self, mono: Callable[[], float]) -> None:
        self._mono = mono
        self._gate = threading.Lock()
        self._ears: dict[tuple[str, str], Ear] = {}

    def recall(self, engine: str, pool: str, until: float, stopped_at: float | None) -> None:
        """Known from the store: counts as heard now, so that it has time to speak."""
        with self._gate:
            self._ears.setdefault((engine, pool), Ear(self._mono(), until, stopped_at=stopped_at))

    def hear(self, batches: Sequence[Batch], now: float, refused: int = 0) -> None:
        mono = self._mono()
        with self._gate:
            for batch in batches:
                if batch.engine == STORE:
                    continue
                ends = [
                    r.bucket_start + min(r.bucket_s, r.bucket_s if r.observed_seconds is None
                                         else r.observed_seconds)
                    for r in batch.minutes if type(r) is EngineMinute
                ]  # fmt: skip
                lost = sum(
                    r.value or 1.0
                    for r in batch.logs
                    if type(r) is EventRecord and r.kind == "lost"
                )
                stops = [r.at for r in batch.logs if type(r) is EventRecord and r.kind == "stop"]
                key = (batch.engine, batch.pool)
                if lost:
                    self._lost(key, int(lost), mono, now)
                if ends or stops:
                    self._note(key, mono, now, max(ends, default=None), max(stops, default=None))
            if refused:
                self._refused(batches, refused, mono, now)

    def _note(
        self, key: tuple[str, str], mono: float, now: float, end: float | None, stop: float | None
    ) -> None:
        ear = self._ears.get(key)
        if ear is None:
            if len(self._ears) >= MOST:
                del self._ears[min(self._ears, key=lambda k: self._ears[k].heard_mono)]
            ear = self._ears[key] = Ear(mono, end if end is not None else now)
        ear.heard_mono = mono
        if end is not None and end >= ear.until:
            ear.until, ear.skew_s = end, end - now
            if ear.stopped_at is not None and end > ear.stopped_at + _SHORT_AFTER_S:
                ear.stopped_at = None
        if stop is not None and stop + _SHORT_AFTER_S >= ear.until:
            ear.stopped_at = stop

    def _refused(self, batches: Sequence[Batch], refused: int, mono: float, now: float) -> None:
        """Whose they were is known only where something of the delivery could be taken."""
        key = next(((b.engine, b.pool) for b in batches), (STORE, STORE))
        # Of whom no interval was heard nothing is expected: it is not silent later.
        ear = self._ears.setdefault(key, Ear(mono, now, stopped_at=now))
        fresh = ear.refused_mono is None or mono - ear.refused_mono > NEWS_S
        ear.refused = refused if fresh else ear.refused + refused
        ear.refused_mono = mono

    def _lost(self, key: tuple[str, str], lost: int, mono: float, now: float) -> None:
        ear = self._ears.setdefault(key, Ear(mono, now, stopped_at=now))
        fresh = ear.lost_mono is None or mono - ear.lost_mono > NEWS_S
        ear.lost = lost if fresh else ear.lost + lost
        ear.lost_mono = mono

    def forgive(self, seconds: float) -> None:
        """The store's own process did not run for so long: nobody was silent meanwhile."""
        with self._gate:
            for ear in self._ears.values():
                ear.heard_mono += seconds

    def pools(self) -> dict[str, dict[str, Ear]]:
        """pool -> engine -> its ear, copies; who was taken away for good is left out."""
        mono = self._mono()
        with self._gate:
            for key in [k for k, e in self._ears.items() if mono - e.heard_mono > FORGOTTEN_S]:
                del self._ears[key]
            out: dict[str, dict[str, Ear]] = {}
            for (engine, pool), e in self._ears.items():
                out.setdefault(pool, {})[engine] = replace(e)
        return out
