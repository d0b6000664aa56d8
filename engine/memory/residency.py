"""Which adapters are where, with LRU eviction, pins, a cap on host copies, and draining.

Owns residency states and the order of loads; pages come from the pool, bytes are moved by whoever
executes the load orders, host copies are kept by a library that is told which to drop. Decides
with the clock passed in; imports no scheduling. Nothing here costs more because more adapters are
known: what can be evicted stands in order of disuse.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping

from engine.memory.entries import Entry, check_entries
from engine.memory.host import HostCopies
from engine.memory.moves import Arrived, Eviction, LoadOrder, Place
from engine.memory.pool import PagePool, Short
from engine.memory.prefix import PrefixCache

__all__ = ["Arrived", "Eviction", "LoadOrder", "Place", "Residency"]

GRACE_LOADS = 4  # an adapter used less than so many load times ago does not go for another's load
BROKEN_S = 30.0  # a load that failed is not tried again before
EVICTION_MEMORY_S = 600.0  # how long an eviction is remembered when a reload is charged
UNLOADED = "it has been unloaded"


class Residency:
    """The states of all adapters of one worker.

    `host_cap` adapters and `host_cap_bytes` bytes are kept in host memory; None = no cap. `prefix`
    is the cache whose unused pages make room beside unused adapters.
    """

    def __init__(
        self,
        pool: PagePool,
        prefix: PrefixCache | None = None,
        *,
        host_cap: int | None = None,
        host_cap_bytes: int | None = None,
    ) -> None:
        self._pool = pool
        self._prefix = prefix
        self._host = HostCopies(host_cap, host_cap_bytes)
        self._entries: dict[str, Entry] = {}
        self._loading: dict[str, Entry] = {}  # in order of their load
        self._pinned: dict[str, Entry] = {}
        self._held: set[str] = set()  # of them those that a person pinned
        self._idle: OrderedDict[str, Entry] = OrderedDict()  # evictable, longest unused first
        self._idle_pages = 0
        self._kept_pages = 0  # on the device or loading, used by nobody, kept by a pin
        self._dropped: list[str] = []
        self._left: list[str] = []
        self._numbers = 0
        self._now_s = 0.0  # as last passed in
        self._load_s = 0.0  # how long the link takes for an adapter, lately
        self._arrived_s = 0.0

    # -- what is known

    def register(self, key: str, pages: int, *, in_host: bool) -> None:
        """Make an adapter known. Registering a key twice changes nothing; one that drains stays."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry.place is Place.DRAINING:
                loading = entry.order is not None
                entry.place = Place.LOADING if loading else Place.DEVICE
            return
        self._entries[key] = entry = Entry(key, pages)
        if in_host:
            entry.place = Place.HOST
            self._host.rest(key, self._bytes(entry))
            self._trim()

    def unload(self, key: str, now: float) -> bool:
        """Make it unknown. True: it has left at once. False: it drains until the last sequence
        that uses it ends, and no other may start with it. Unknown keys have left already."""
        entry = self._entries.get(key)
        if entry is None:
            return True
        self._held.discard(key)
        self._unpin(entry)
        if entry.order is not None or self._pool.references(key):
            entry.place = Place.DRAINING
            return False
        if entry.place is Place.DEVICE:
            self._from_rest(entry)
            self._pool.give_back_adapter(key)
        self._gone(entry)
        return True

    @property
    def known(self) -> int:
        """How many adapters are known, draining ones included."""
        return len(self._entries)

    @property
    def everything_on_device(self) -> bool:
        """All that is known is there: nothing can be fetched, nothing was evicted."""
        return not self._loading and self._pool.adapters == len(self._entries)

    def knows(self, key: str) -> bool:
        """Whether new requests may name it."""
        entry = self._entries.get(key)
        return entry is not None and entry.place is not Place.DRAINING

    def place(self, key: str) -> Place:
        """DISK for one that is not known, or has left: no sequence can start with it."""
        entry = self._entries.get(key)
        return Place.DISK if entry is None else entry.place

    def pages_needed(self, key: str) -> int:
        return self._entries[key].pages_needed

    def broken(self, key: str, now: float) -> str | None:
        """Why no sequence can start with it: its load failed lately, or it was unloaded. None once
        it may be tried (again)."""
        entry = self._entries.get(key)
        if entry is None or entry.place is Place.DRAINING:
            return UNLOADED
        return entry.broken if now - entry.broken_s < BROKEN_S else None

    # -- loads

    @property
    def loading(self) -> int:
        """Loads ordered and not yet arrived."""
        return len(self._loading)

    def is_coming(self, key: str) -> bool:
        """Whether it is on the device or on its way there."""
        return self.place(key) in (Place.LOADING, Place.DEVICE)

    @property
    def load_s(self) -> float:
        """How long the link takes for one adapter, lately; 0 = none was loaded yet."""
        return self._load_s

    def try_order(
        self, key: str, tenant: str, now: float, *, keep_free: int = 0, grace: bool = False
    ) -> tuple[LoadOrder | Short | None, list[Eviction]]:
        """Begin to bring an adapter in, leaving `keep_free` pages. None: it is there, on its way,
        or broken. Short: no pages.

        `grace`: adapters in use a moment ago stay. Where more adapters are asked for than there is
        room, each would else go at its first idle moment, and the link would carry nothing but
        what it has just thrown away: one that a tenant uses all the time keeps its place."""
        if self.broken(key, now):
            return None, []
        entry = self._entries[key]
        if entry.place is Place.DEVICE or entry.place is Place.LOADING:
            return None, []
        short, evictions = self.make_room(
            entry.pages_needed,
            tenant,
            now,
            sparing=key,
            kv=False,
            keep_free=keep_free,
            grace_s=GRACE_LOADS * self._load_s if grace else 0.0,
        )
        if short is not None:
            return short, evictions
        pages = self._pool.try_take_adapter(key, entry.pages_needed)
        if isinstance(pages, Short):
            return pages, evictions
        self._numbers += 1
        from_disk = entry.place is Place.DISK
        entry.order = LoadOrder(key, tuple(pages), tenant, self._numbers, from_disk)
        entry.place, entry.ordered_s, entry.broken = Place.LOADING, now, None
        self._loading[key] = entry
        if entry.pinned:
            self._kept_pages += entry.pages_needed
        self._host.copy(key, self._bytes(entry))
        self._trim()
        return entry.order, evictions

    def arrived(self, key: str, now: float, error: str | None = None) -> Arrived:
        """Book the end of a load. One that was unloaded meanwhile leaves at once."""
        entry = self._loading.pop(key)
        order = entry.order
        if order is None:
            raise ValueError(f"adapter {key} was not ordered")
        entry.order = None
        self._now_s = now
        size = self._bytes(entry)
        if error is None:
            took_s = now - max(entry.ordered_s, self._arrived_s)
            self._load_s = 0.75 * self._load_s + 0.25 * took_s if self._load_s else took_s
        self._arrived_s = now
        if error is None and entry.place is Place.LOADING:
            entry.place, entry.last_tenant = Place.DEVICE, order.tenant
            if not entry.pinned:
                self._to_rest(entry)
            self._host.double(key, size)
        else:
            if entry.pinned:
                self._kept_pages -= entry.pages_needed
            self._pool.give_back_adapter(key)
            if entry.place is Place.DRAINING:
                self._gone(entry)
            else:
                entry.place, entry.broken, entry.broken_s = Place.DISK, error, now
                self._host.remove(key)
                self._dropped.append(key)
        self._trim()
        return Arrived(key, order.tenant, size, now - entry.ordered_s, error)

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

    # -- pins

    def pin(self, key: str) -> None:
        """Keep it until `keep_only` says otherwise: a head of the queue is about to need it. One
        that was unloaded is not kept."""
        entry = self._entries.get(key)
        if entry is None or entry.pinned or entry.place is Place.DRAINING:
            return
        if entry.place is Place.LOADING:
            self._kept_pages += entry.pages_needed
        elif self._rests(entry):
            self._from_rest(entry)
            self._kept_pages += entry.pages_needed
        entry.pinned = True
        self._pinned[key] = entry

    def keep_only(self, keys: Container[str]) -> None:
        """Pins on all other adapters go; to be about to be needed was a use of them. Those that a
        person pinned (`hold`) stay."""
        held = self._held
        for entry in [e for k, e in self._pinned.items() if k not in keys and k not in held]:
            self._unpin(entry)

    def hold(self, key: str) -> None:
        """Pin it until `let_go` says otherwise."""
        self.pin(key)
        if key in self._pinned:
            self._held.add(key)

    def let_go(self, key: str) -> None:
        """The end of a `hold`; the next `keep_only` decides whether it stays."""
        self._held.discard(key)

    def let_go_of_pins(self) -> bool:
        """All pins go, also a person's: a running sequence could not go on for them. False: they
        kept no page."""
        if not self._kept_pages:
            return False
        self._held.clear()
        self.keep_only(())
        return True

    @property
    def held(self) -> frozenset[str]:
        """Adapters that a person pinned."""
        return frozenset(self._held)

    def pinned_bytes(self) -> int:
        """Bytes on the device or on their way there that nobody runs with but a pin keeps."""
        return self._kept_pages * self._pool.page_bytes

    @property
    def policy_bytes(self) -> int:
        """Bytes that are withheld by decision: pins, and floors that their kind does not use."""
        return self.pinned_bytes() + self._pool.unused_floor_bytes

    # -- use

    def acquire(self, key: str, tenant: str, now: float) -> None:
        """A sequence starts to use it: it cannot be evicted until released. O(1), unless a tenant
        comes to share it (`PagePool.refer`)."""
        entry = self._entries[key]
        if entry.place is not Place.DEVICE:
            raise ValueError(f"adapter {key} is {entry.place.value}, not on the device")
        if self._pool.refer(key, tenant):
            self._from_rest(entry)
        entry.last_tenant = tenant

    def release(self, key: str, tenant: str, now: float) -> None:
        """A sequence ends its use. The last one of a draining adapter lets it go."""
        entry = self._entries[key]
        self._now_s = now
        if not self._pool.release(key, tenant):
            return
        if entry.place is Place.DRAINING:
            self._pool.give_back_adapter(key)
            self._gone(entry)
        else:
            self._to_rest(entry)

    # -- room

    def lacks(
        self, pages: int, *, sparing: str | None = None, kv: bool = True, keep_free: int = 0
    ) -> int:
        """Pages that would be missing still if all went that `make_room` may evict; 0 = it would
        make the room. O(1), changes nothing."""
        short, own_short = self._shortfalls(pages, kv, keep_free)
        adapters = self._idle_pages
        if sparing is not None and sparing in self._idle:
            adapters -= self._idle[sparing].pages_needed
        unused = self._prefix.unused_pages if self._prefix is not None else 0
        return max(0, short - adapters - unused, own_short - (unused if kv else adapters))

    def make_room(
        self,
        pages: int,
        cause: str,
        now: float,
        *,
        sparing: str | None = None,
        kv: bool = True,
        keep_free: int = 0,
        grace_s: float = 0.0,
    ) -> tuple[Short | None, list[Eviction]]:
        """Evict what nobody uses, longest unused first, until `pages` can be taken for KV (or, not
        `kv`, for an adapter) within the floors and `keep_free` are free beside. O(evicted).

        Adapters and prefix pages are evicted alike; where the other kind's floor is in the way,
        only room of one's own kind helps. Nothing is evicted when even all of it would not be
        enough: a hopeless try must cost nobody. Adapters that were in use less than `grace_s` ago
        stay.
        """
        self._now_s = now
        short, own_short = self._shortfalls(pages, kv, keep_free)
        if short <= 0 and own_short <= 0:
            return None, []
        if self.lacks(pages, sparing=sparing, kv=kv, keep_free=keep_free):
            return Short(max(short, own_short)), []
        prefix = self._prefix
        if grace_s > 0 and not kv:
            unused = prefix.unused_pages if prefix is not None else 0
            needed = max(short - unused, own_short)
            if self._ripe_pages(needed, now - grace_s, sparing) < needed:
                return Short(max(short, own_short)), []
        evictions: list[Eviction] = []
        while short > 0 or own_short > 0:
            entry = self._longest_idle(sparing) if own_short <= 0 or not kv else None
            stamp = None
            if prefix is not None and (own_short <= 0 or kv):
                stamp = prefix.oldest_stamp
            if entry is not None and (stamp is None or entry.stamp < stamp):
                freed, own = entry.pages_needed, not kv
                evictions.append(self._evict(entry, cause, now))
            elif prefix is not None:
                prefix.evict()
                freed, own = 1, kv
            short -= freed
            own_short -= freed if own else 0
        return None, evictions

    def evict(self, key: str, cause: str, now: float) -> Eviction:
        """Evict one adapter by name. Raises ValueError when it is in use or not there."""
        entry = self._entries[key]
        if entry.place is not Place.DEVICE:
            raise ValueError(f"adapter {key} is {entry.place.value}, not on the device")
        return self._evict(entry, cause, now)

    # -- what others must be told

    def take_dropped(self) -> tuple[str, ...]:
        """Keys whose host copy is to be dropped. Tell the library before it sees later orders."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def take_left(self) -> tuple[str, ...]:
        """Keys that were unloaded and are nowhere any more: forget their views and files."""
        left, self._left = tuple(self._left), []
        return left

    # -- the whole

    def check_integrity(self) -> None:
        """States, lists, host copies and the pool's adapters agree; pool and prefix cache check
        themselves. O(adapters). Raises ValueError naming the first thing that does not."""
        self._host.check_integrity()
        idle, kept = check_entries(
            self._entries, self._loading, self._pinned, self._idle, self._pool, self._host
        )
        if (idle, kept) != (self._idle_pages, self._kept_pages):
            raise ValueError(
                f"{self._idle_pages} evictable and {self._kept_pages} pinned pages booked, "
                f"{idle} and {kept} found"
            )

    # -- parts

    def _bytes(self, entry: Entry) -> int:
        return entry.pages_needed * self._pool.page_bytes

    def _rests(self, entry: Entry) -> bool:
        """On the device, and nobody uses it."""
        return entry.place is Place.DEVICE and not self._pool.references(entry.key)

    def _to_rest(self, entry: Entry) -> None:
        """Nobody uses it any more."""
        if entry.pinned:
            self._kept_pages += entry.pages_needed
            return
        entry.stamp = self._pool.stamp()
        entry.rested_s = self._now_s
        self._idle[entry.key] = entry
        self._idle_pages += entry.pages_needed

    def _from_rest(self, entry: Entry) -> None:
        if entry.pinned:
            self._kept_pages -= entry.pages_needed
            return
        del self._idle[entry.key]
        self._idle_pages -= entry.pages_needed

    def _unpin(self, entry: Entry) -> None:
        if not entry.pinned:
            return
        counted = entry.place is Place.LOADING or self._rests(entry)
        if counted:
            self._kept_pages -= entry.pages_needed
        entry.pinned = False
        del self._pinned[entry.key]
        if counted and entry.place is Place.DEVICE:
            self._to_rest(entry)

    def _shortfalls(self, pages: int, kv: bool, keep_free: int) -> tuple[int, int]:
        """Pages that are not free, and pages by which the kind would pass the other's floor."""
        pool = self._pool
        below = pool.below_kv_cap if kv else pool.below_adapter_cap
        return pages + keep_free - pool.free_pages, pages - below

    def _ripe_pages(self, needed: int, until_s: float, sparing: str | None) -> int:
        """Pages of adapters out of use since `until_s` or longer, counted up to `needed`."""
        pages = 0
        for key, entry in self._idle.items():
            if pages >= needed or entry.rested_s > until_s:
                break
            if key != sparing:
                pages += entry.pages_needed
        return pages

    def _longest_idle(self, sparing: str | None) -> Entry | None:
        for key, entry in self._idle.items():
            if key != sparing:
                return entry
        return None

    def _evict(self, entry: Entry, cause: str, now: float) -> Eviction:
        self._pool.give_back_adapter(entry.key)
        self._from_rest(entry)
        size = self._bytes(entry)
        if entry.key in self._host:
            entry.place = Place.HOST
            self._host.rest(entry.key, size)
            self._trim()
        else:
            entry.place = Place.DISK
        entry.evicted_by, entry.evicted_s = cause, now
        return Eviction(entry.key, entry.last_tenant, cause, size)

    def _gone(self, entry: Entry) -> None:
        self._host.remove(entry.key)
        del self._entries[entry.key]
        self._left.append(entry.key)

    def _trim(self) -> None:
        for key in self._host.trim():
            entry = self._entries[key]
            if entry.place is Place.HOST:
                entry.place = Place.DISK
            self._dropped.append(key)
