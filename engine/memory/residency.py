"""Which adapters are where: DISK -> HOST -> LOADING -> DEVICE, with LRU eviction and pins.

Owns residency states and the order of loads; pages come from the pool, bytes are moved by
whoever executes the load orders. Decides with the clock passed in; imports no scheduling.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from engine.memory.pool import PagePool, Short

BROKEN_S = 30.0  # a load that failed is not tried again before
EVICTION_MEMORY_S = 600.0  # how long an eviction is remembered when a reload is charged


class Place(enum.Enum):
    DISK = "disk"
    HOST = "host"
    LOADING = "loading"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Copy the adapter into these pages. Executed outside the step."""

    key: str
    pages: tuple[int, ...]
    tenant: str
    number: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """An adapter left the device. `suffered` used it last, `cause` needed the room."""

    key: str
    suffered: str | None
    cause: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """A load ended. `error` is the reason when it failed; its pages are free again then."""

    key: str
    tenant: str
    bytes: int
    load_s: float
    error: str | None


@dataclass(slots=True)
class _Entry:
    key: str
    pages_needed: int
    place: Place = Place.DISK
    last_used_s: float = 0.0
    last_tenant: str | None = None
    pinned: bool = False  # fetched ahead for a head of the queue
    evicted_by: str | None = None
    evicted_s: float | None = None
    order: LoadOrder | None = None
    ordered_s: float = 0.0
    broken: str | None = None
    broken_s: float = 0.0


class Residency:
    """The states of all adapters of one worker."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._entries: dict[str, _Entry] = {}
        self._loading: dict[str, _Entry] = {}  # in order of their load
        self._pinned: set[str] = set()
        self._numbers = 0

    def register(self, key: str, pages: int, *, in_host: bool) -> None:
        """Make an adapter known. Registering the same key twice changes nothing."""
        if key not in self._entries:
            place = Place.HOST if in_host else Place.DISK
            self._entries[key] = _Entry(key, pages, place)

    def knows(self, key: str) -> bool:
        return key in self._entries

    def place(self, key: str) -> Place:
        return self._entries[key].place

    def pages_needed(self, key: str) -> int:
        return self._entries[key].pages_needed

    def broken(self, key: str, now: float) -> str | None:
        """Why the adapter could not be loaded lately; None once it may be tried again."""
        entry = self._entries[key]
        return entry.broken if now - entry.broken_s < BROKEN_S else None

    def try_order(
        self, key: str, tenant: str, now: float, *, keep_free: int = 0
    ) -> tuple[LoadOrder | Short | None, list[Eviction]]:
        """Begin to bring an adapter in, leaving `keep_free` pages. None: it is there, on its way,
        or broken. Short: no pages."""
        entry = self._entries[key]
        if entry.place in (Place.DEVICE, Place.LOADING) or self.broken(key, now):
            return None, []
        short, evictions = self.make_room(entry.pages_needed + keep_free, tenant, now, sparing=key)
        if short is not None:
            return short, evictions
        pages = self._pool.try_take_adapter(key, entry.pages_needed)
        if isinstance(pages, Short):
            return pages, evictions
        self._numbers += 1
        entry.order = LoadOrder(key, tuple(pages), tenant, self._numbers)
        entry.place, entry.ordered_s, entry.broken = Place.LOADING, now, None
        self._loading[key] = entry
        return entry.order, evictions

    def arrived(self, key: str, now: float, error: str | None = None) -> Arrived:
        """Book the end of a load."""
        entry = self._loading.pop(key)
        order = entry.order
        if order is None:
            raise ValueError(f"adapter {key} was not ordered")
        entry.order = None
        size = len(order.pages) * self._pool.page_bytes
        if error is None:
            entry.place, entry.last_used_s, entry.last_tenant = Place.DEVICE, now, order.tenant
        else:
            self._pool.give_back_adapter(key)
            entry.place, entry.broken, entry.broken_s = Place.DISK, error, now
        return Arrived(key, order.tenant, size, now - entry.ordered_s, error)

    def pin(self, key: str) -> None:
        """Keep it until `keep_only` says otherwise: a head of the queue is about to need it."""
        self._entries[key].pinned = True
        self._pinned.add(key)

    def keep_only(self, keys: set[str]) -> None:
        """Pins on all other adapters go."""
        for key in self._pinned - keys:
            self._entries[key].pinned = False
        self._pinned &= keys

    def pinned_bytes(self) -> int:
        """Bytes on the device or on their way there that nobody runs with but a pin keeps."""
        return sum(
            e.pages_needed * self._pool.page_bytes
            for e in map(self._entries.__getitem__, self._pinned)
            if e.place in (Place.DEVICE, Place.LOADING) and not self._pool.references(e.key)
        )

    def acquire(self, key: str, tenant: str, now: float) -> None:
        """A sequence starts to use it: it cannot be evicted until released."""
        entry = self._entries[key]
        if entry.place is not Place.DEVICE:
            raise ValueError(f"adapter {key} is {entry.place.value}, not on the device")
        self._pool.refer(key, tenant)
        entry.last_used_s, entry.last_tenant = now, tenant

    def release(self, key: str, tenant: str, now: float) -> None:
        self._pool.release(key, tenant)
        self._entries[key].last_used_s = now

    def make_room(
        self, pages: int, cause: str, now: float, *, sparing: str | None = None
    ) -> tuple[Short | None, list[Eviction]]:
        """Evict least-recently-used adapters nobody uses until `pages` are free.

        Nothing is evicted when even that would not be enough: a hopeless try must cost nobody.
        """
        missing = pages - self._pool.free_pages
        if missing <= 0:
            return None, []
        idle = [
            e
            for e in self._entries.values()
            if e.place is Place.DEVICE
            and not e.pinned
            and e.key != sparing
            and not self._pool.references(e.key)
        ]
        if sum(e.pages_needed for e in idle) < missing:
            return Short(missing), []
        evictions = []
        for entry in sorted(idle, key=lambda e: e.last_used_s):
            if missing <= 0:
                break
            missing -= self._pool.give_back_adapter(entry.key)
            evictions.append(self._left(entry, cause, now))
        return None, evictions

    def evict(self, key: str, cause: str, now: float) -> Eviction:
        """Evict one adapter by name. Raises ValueError when it is in use or not there."""
        entry = self._entries[key]
        if entry.place is not Place.DEVICE:
            raise ValueError(f"adapter {key} is {entry.place.value}, not on the device")
        self._pool.give_back_adapter(key)
        return self._left(entry, cause, now)

    def blame(self, key: str, now: float) -> Mapping[str | None, float]:
        """Whom a wait for this load is charged to, as shares of 1. None = the waiter itself.

        The transfer's own part goes to the tenant whose allocation evicted it lately, else to
        the waiter (cold); the part of the bytes ahead on the link goes to their owners.
        """
        entry = self._entries[key]
        evictor: str | None = None
        if entry.evicted_s is not None and now - entry.evicted_s <= EVICTION_MEMORY_S:
            evictor = entry.evicted_by
        weights: dict[str | None, float] = {}
        for other in self._loading.values():
            if other.order is None:
                continue
            owner = evictor if other is entry else other.order.tenant
            weights[owner] = weights.get(owner, 0.0) + other.pages_needed
            if other is entry:
                break
        total = sum(weights.values())
        if not total:
            return {evictor: 1.0}
        return {owner: part / total for owner, part in weights.items()}

    def _left(self, entry: _Entry, cause: str, now: float) -> Eviction:
        entry.place = Place.HOST
        entry.evicted_by, entry.evicted_s = cause, now
        size = entry.pages_needed * self._pool.page_bytes
        return Eviction(entry.key, entry.last_tenant, cause, size)
