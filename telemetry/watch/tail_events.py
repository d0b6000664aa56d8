"""Events and policies as they are committed, for whoever follows. Owns bounded queues; no socket.

A follower subscribes first and reads the store after that: what is committed in between is in
both, and is told apart by its id, so the seam has no gap and nothing twice.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from telemetry.ask import pacing
from telemetry.conventions import Emitter
from telemetry.errors import QueryError
from telemetry.records import Batch, EventRecord, PolicyRecord
from telemetry.source import Source
from telemetry.tables import TABLE_OF, TABLES
from telemetry.watch.wire import Dropped, Tailed

MOST_QUEUED = 10_000
MOST_FOLLOWERS = 32
_REMEMBERED = 65_536  # ids; a batch that is delivered again comes within minutes
LOOK_EVERY_S = 5.0
_LATE_S = 60.0  # from the instant of a store's own event to its commit, at most
_MICROSECOND_S = 2e-6
POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`kinds` of events, "policy" for policies too; `tenants` that an event concerns, or whose
    demand caused it. Empty = all. A policy concerns every tenant."""

    kinds: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()

    def takes(self, row: Any) -> bool:
        if type(row) is PolicyRecord:
            return not self.kinds or POLICY in self.kinds
        if type(row) is not EventRecord or (self.kinds and row.kind not in self.kinds):
            return False
        return not self.tenants or not self.tenants.isdisjoint((row.tenant, row.cause_tenant))


class Follower:
    """One reader's queue: the newest `most` rows; what falls out at the front is counted."""

    def __init__(self, wanted: Wanted, most: int = MOST_QUEUED) -> None:
        self.wanted = wanted
        self._most = most
        self._rows: deque[Any] = deque()
        self._dropped = 0
        self._closed = False
        self._change = threading.Condition()

    def put(self, row: Any) -> None:
        with self._change:
            self._rows.append(row)
            if len(self._rows) > self._most:
                self._rows.popleft()
                self._dropped += 1
            self._change.notify()

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify()

    def take(self, timeout_s: float) -> Tailed | None:
        """The next row, or how many were dropped before it (none of them when nothing came in
        `timeout_s`); None when closed."""
        with self._change:
            self._change.wait_for(lambda: self._closed or self._rows, timeout_s)
            if self._closed:
                return None
            if not self._rows:
                return Dropped(0)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                return Dropped(dropped)
            row: Tailed = self._rows.popleft()
            return row


class Tail:
    """The followers of one process; a listener of its deliveries. Thread-safe."""

    def __init__(self, most_queued: int = MOST_QUEUED) -> None:
        self._most = most_queued
        self._followers: tuple[Follower, ...] = ()
        self._lock = threading.Lock()

    def hear(self, batches: Sequence[Batch], now: float, refused: int = 0) -> None:
        followers = self._followers
        if not followers:
            return
        for batch in batches:
            for row in batch.logs:
                if type(row) is EventRecord or type(row) is PolicyRecord:
                    for follower in followers:
                        if follower.wanted.takes(row):
                            follower.put(row)

    def follow(self, wanted: Wanted) -> Follower | None:
        """A new follower; None when there are as many as there may be."""
        with self._lock:
            if len(self._followers) >= MOST_FOLLOWERS:
                return None
            follower = Follower(wanted, self._most)
            self._followers = (*self._followers, follower)
            return follower

    def leave(self, follower: Follower) -> None:
        follower.close()
        with self._lock:
            self._followers = tuple(f for f in self._followers if f is not follower)

    def close(self) -> None:
        """Every follower's stream ends."""
        for follower in self._followers:
            follower.close()


def stream(
    follower: Follower,
    source: Source,
    since: float | None,
    going: Callable[[], bool],
    *,
    wall: Callable[[], float] = time.time,
    look_every_s: float = LOOK_EVERY_S,
) -> Iterator[Tailed]:
    """Rows in order: the stored ones from `since` (unix seconds; None = none of them), then what
    the follower hears, until it is closed. What the store writes of itself is delivered by nobody:
    the store is looked into for that every `look_every_s`. Raises StoreError as the source does."""
    seen = _Seen()
    begun = looked = wall()
    if since is not None:
        for row in stored(source, follower.wanted, since):
            if not going():
                return
            if seen.first_time(row):
                yield row
    while (item := follower.take(look_every_s)) is not None:
        if isinstance(item, Dropped):
            if item.count:
                yield item
        elif seen.first_time(item):
            yield item
        if wall() - looked >= look_every_s or item == Dropped(0):
            own, looked = _of_the_store(source, max(begun, looked - _LATE_S)), wall()
            yield from (r for r in own if follower.wanted.takes(r) and seen.first_time(r))


def _of_the_store(source: Source, since: float) -> list[Any]:
    """The events that the store's own process wrote since then, by the clock that is read here."""
    rows = source.read("event", since, float("inf"))
    return [r for r in rows if r.engine == Emitter.STORE.value]


def stored(source: Source, wanted: Wanted, since: float) -> Iterator[Any]:
    """What is stored of events and policies from `since` on, in order of time, piece by piece."""
    known, _ = pacing.extent(source, since, float("inf"))
    tables = (_rows(source, table, known, since) for table in ("event", POLICY))
    for row in heapq.merge(*tables, key=attrgetter("at")):
        if wanted.takes(row):
            yield row


def _rows(source: Source, table: str, known: pacing.Extent, since: float) -> Iterator[Any]:
    if table in known:
        _, first, last = known[table]
        for some in pacing.pieces(source, table, max(since, first), last + _MICROSECOND_S):
            yield from some


def wanted(kinds: Iterable[str], tenants: Iterable[str]) -> Wanted:
    """Raises QueryError for more names than anybody types."""
    chosen = Wanted(frozenset(kinds), frozenset(tenants))
    if len(chosen.kinds) > 100 or len(chosen.tenants) > 1000:
        raise QueryError(
            f"{len(chosen.kinds)} kinds and {len(chosen.tenants)} tenants: 100 and 1000 at most"
        )
    return chosen


class _Seen:
    """The ids of the rows that went out last."""

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[Any, ...], None] = OrderedDict()
        self._key_of = {
            row: (name, attrgetter(*TABLES[name].key)) for row, name in _FOLLOWED.items()
        }

    def first_time(self, row: Any) -> bool:
        name, key_of = self._key_of[type(row)]
        key = (name, *key_of(row))
        known = key in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > _REMEMBERED:
            self._keys.popitem(last=False)
        return not known


_FOLLOWED: dict[type[Any], str] = {row: TABLE_OF[row].name for row in (EventRecord, PolicyRecord)}
