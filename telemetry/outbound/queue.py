"""What waits to be sent to one third party: a bounded queue, or one snapshot that is replaced.

Owns the bound and what it drops; does not send. Thread-safe: one side puts, one lane takes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LIMIT_BYTES = 16 << 20  # of one queue, whatever its entries are
_AT_ONCE_BYTES = 1 << 20  # joined into one request; collectors take 4 MiB


@dataclass(frozen=True, slots=True)
class Payload:
    """An encoded export request, and the points or spans in it."""

    data: bytes
    items: int


class Queue:
    """First in, first out. Full, it lets go of the oldest: after an outage the newest matter."""

    def __init__(self, limit: int, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._waiting: deque[Payload] = deque()
        self._bytes = 0
        self._dropped = 0
        self._lock = threading.Lock()

    def put(self, payload: Payload) -> None:
        with self._lock:
            self._waiting.append(payload)
            self._bytes += len(payload.data)
            while len(self._waiting) > self._limit or self._bytes > self._limit_bytes:
                gone = self._waiting.popleft()
                self._bytes -= len(gone.data)
                self._dropped += gone.items

    def take(self, now: float) -> Payload | None:
        """The oldest, as many as one request holds. Requests of OTLP join by their bytes: each is
        one repeated field."""
        with self._lock:
            parts: list[Payload] = []
            size = 0
            while self._waiting and (
                not parts or size + len(self._waiting[0].data) <= _AT_ONCE_BYTES
            ):
                parts.append(self._waiting.popleft())
                size += len(parts[-1].data)
            self._bytes -= size
        if not parts:
            return None
        return Payload(b"".join(p.data for p in parts), sum(p.items for p in parts))

    def due_s(self, now: float) -> float | None:
        """Seconds until there is something by itself; None = only when somebody puts it."""
        return None

    def newer(self, now: float) -> Payload | None:
        """What replaces an unsent payload: nothing does."""
        return None

    def waiting(self) -> int:
        """Points or spans."""
        with self._lock:
            return sum(p.items for p in self._waiting)

    def discard(self) -> int:
        """Let go of all that waits; returns how many points or spans."""
        with self._lock:
            gone = sum(p.items for p in self._waiting)
            self._waiting.clear()
            self._bytes = 0
            return gone

    def dropped(self) -> int:
        """Points or spans that found no room, since the start."""
        with self._lock:
            return self._dropped


class Snapshots:
    """The newest state, every so often. An unsent one is replaced, so nothing piles up.

    `now` is monotonic seconds; `make` encodes the state as it is when called.
    """

    def __init__(self, every_s: float, make: Callable[[], Sequence[Payload]]) -> None:
        self._every_s = every_s
        self._make = make
        self._next: float | None = None
        self._rest: deque[Payload] = deque()

    def take(self, now: float) -> Payload | None:
        """The next part of the newest state, when it is time. Raises what `make` raises."""
        if self._next is None or now >= self._next:
            # A turn that was missed is not made up for: the next one holds it.
            self._next = now + self._every_s
            self._rest = deque(self._make())
        return self._rest.popleft() if self._rest else None

    def due_s(self, now: float) -> float | None:
        return 0.0 if self._next is None else max(0.0, self._next - now)

    def newer(self, now: float) -> Payload | None:
        return self.take(now) if self._next is not None and now >= self._next else None

    def last(self) -> None:
        """The next `take` makes a snapshot, whatever the time."""
        self._next = None

    def waiting(self) -> int:
        return sum(p.items for p in tuple(self._rest))

    def dropped(self) -> int:
        return 0


Feed = Queue | Snapshots
