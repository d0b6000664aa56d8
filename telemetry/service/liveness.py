"""Which engines are heard, and up to when all is told. Pure bookkeeping of instants; no sockets.

Counts since the process began. What a caller names is bounded: the engine, or the sender of an
engine, that has been silent longest gives way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from telemetry.ask.reading import Result
from telemetry.conventions import Emitter
from telemetry.otlp.decode import Decoded
from telemetry.records import Batch

ENGINES, STORE, LISTENERS = "live.engines", "live.store", "live.listeners"
EXPORTS = "live.exports"

# A sender says something every 10 s. One that has said nothing for so long no longer holds the
# watermark back; what it delivers later changes minutes that were taken for final.
SILENT_S = 180.0
# A front without requests sends nothing, so it cannot be waited for; what it has to say of a
# minute is on its way within 10 s of the minute's end.
SETTLE_S = 15.0
_MOST_ENGINES, _MOST_SENDERS = 1_000, 64
_LONGEST_REASON = 300

_Sender = tuple[str, str, str]  # run, pool, emitter


@dataclass(slots=True)
class _Told:
    """One sender: until when it has sealed, and the bucket it has begun since."""

    last_heard_s: float
    sealed_end_s: float | None = None
    open_start_s: float | None = None

    def mark_s(self) -> float | None:
        """Nothing before it will be told any more; None while that is not known."""
        return self.open_start_s if self.open_start_s is not None else self.sealed_end_s


@dataclass(slots=True)
class _Engine:
    first_heard_s: float
    last_heard_s: float
    batches: int = 0
    refused: int = 0
    denied: int = 0
    senders: dict[_Sender, _Told] = field(default_factory=dict)

    def sealed_end_s(self) -> float | None:
        return max((s.sealed_end_s for s in self.senders.values() if s.sealed_end_s), default=None)


class Liveness:
    """Hears what is committed, refused and failed. Any thread may call."""

    def __init__(self, clock: Callable[[], float], silent_s: float = SILENT_S) -> None:
        self._clock = clock
        self._silent_s = silent_s
        self._lock = threading.Lock()
        self._engines: dict[str, _Engine] = {}
        self._started_s = clock()
        self._denied = self._failures = self._put_off = self._forgotten = 0
        self._last_denial = self._last_failure = ""
        self._last_failure_s: float | None = None

    # --- in ---

    def took(self, decoded: Decoded) -> None:
        """A request is committed: what the store made of it."""
        now = self._clock()
        with self._lock:
            for batch in decoded.packed:
                if batch.emitter is not Emitter.STORE:
                    self._hear(batch, now)
            names = {b.engine for b in decoded.packed}
            if decoded.refused and len(names) == 1 and (one := self._engines.get(names.pop())):
                one.refused += decoded.refused

    def denied(self, why: str, engine: str | None = None) -> None:
        """A caller was turned away; `engine` when it spoke for one already heard."""
        with self._lock:
            self._denied += 1
            self._last_denial = why[:_LONGEST_REASON]
            if engine is not None and engine in self._engines:
                self._engines[engine].denied += 1

    def failed(self, why: str) -> None:
        """A request could not be committed (a full disk, say); its sender keeps it."""
        with self._lock:
            self._failures += 1
            self._last_failure = why[:_LONGEST_REASON]
            self._last_failure_s = self._clock()

    def put_off(self) -> None:
        """A request was told to come again: more comes than can be written."""
        with self._lock:
            self._put_off += 1

    def _hear(self, batch: Batch, now: float) -> None:
        engine = self._engines.get(batch.engine)
        if engine is None:
            self._forgotten += _make_room(self._engines, _MOST_ENGINES)
            engine = self._engines[batch.engine] = _Engine(now, now)
        engine.last_heard_s = now
        engine.batches += 1
        who = (batch.run_id, batch.pool, batch.emitter.value)
        sender = engine.senders.get(who)
        if sender is None:
            _make_room(engine.senders, _MOST_SENDERS)
            sender = engine.senders[who] = _Told(now)
        sender.last_heard_s = now
        if not batch.minutes:
            return
        end = max(m.bucket_start + m.bucket_s for m in batch.minutes)
        # Sums that a generic sender adds to come as sealed while their minute still runs.
        if batch.sealed and end <= now:
            sender.sealed_end_s = max(end, sender.sealed_end_s or end)
            if sender.open_start_s is not None and sender.open_start_s < sender.sealed_end_s:
                sender.open_start_s = None
        else:
            start = min(m.bucket_start for m in batch.minutes)
            if sender.sealed_end_s is None or start >= sender.sealed_end_s:
                sender.open_start_s = start

    # --- out ---

    def watermark_s(self) -> float | None:
        """Buckets that end at or before it are final, unless an engine that is silent now comes
        back with more; None before any minute was heard."""
        with self._lock:
            return self._watermark(self._clock())

    def _watermark(self, now: float) -> float | None:
        marks = [
            sender.mark_s()
            for engine in self._engines.values()
            for sender in engine.senders.values()
            if now - sender.last_heard_s <= self._silent_s
        ]
        known = [m for m in marks if m is not None]
        return min((*known, now - SETTLE_S)) if known else None

    def engines(self) -> Result:
        """A row an engine heard since the process began, the longest silent first."""
        now = self._clock()
        with self._lock:
            rows = [
                (
                    name,
                    now - e.last_heard_s <= self._silent_s,
                    e.first_heard_s,
                    e.last_heard_s,
                    e.sealed_end_s(),
                    e.batches,
                    sum(now - s.last_heard_s <= self._silent_s for s in e.senders.values()),
                    e.refused,
                    e.denied,
                )
                for name, e in sorted(
                    self._engines.items(), key=lambda item: (item[1].last_heard_s, item[0])
                )
            ]
        return Result(ENGINE_COLUMNS, tuple(rows))

    def store(self, **now_known: Any) -> Result:
        """One row about the process: the watermark, and what was not taken. `now_known` are
        columns that others know."""
        now = self._clock()
        with self._lock:
            live = sum(now - e.last_heard_s <= self._silent_s for e in self._engines.values())
            row = {
                "started_unix_s": self._started_s,
                "now_unix_s": now,
                "watermark_unix_s": self._watermark(now),
                "engines": len(self._engines),
                "live_engines": live,
                "forgotten_engines": self._forgotten,
                "denied": self._denied,
                "last_denial": self._last_denial or None,
                "put_off": self._put_off,
                "failures": self._failures,
                "last_failure": self._last_failure or None,
                "last_failure_unix_s": self._last_failure_s,
                **now_known,
            }
        return Result(tuple(row), (tuple(row.values()),))


ENGINE_COLUMNS = (
    "engine", "live", "first_heard_unix_s", "last_heard_unix_s", "last_sealed_end_unix_s",
    "batches", "senders", "refused", "denied",
)  # fmt: skip


def _make_room(heard: dict[Any, Any], most: int) -> int:
    """Drop the longest silent where one more would be too many; how many went."""
    if len(heard) < most:
        return 0
    del heard[min(heard, key=lambda name: heard[name].last_heard_s)]
    return 1
