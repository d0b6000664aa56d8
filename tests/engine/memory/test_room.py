"""Pool, prefix cache and residency together do what a brute-force model of them does, whatever the
order of takes, gives, loads, evictions, uses, publishings and unloads."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.memory.moves import LoadOrder
from engine.memory.pool import PagePool, Short
from engine.memory.prefix import PrefixCache
from engine.memory.residency import Residency
from tests.engine.memory.brute import Brute, Summing

PAGES, PAGE_BYTES, PAGE_TOKENS = 30, 384, 2
TENANTS = st.sampled_from("abc")
KEYS = st.sampled_from("uvwxyz")
NEED = dict(zip("uvwxyz", (1, 2, 3, 5, 8, 13), strict=True))
FLOORS = st.integers(0, 8)
PROMPTS = st.sampled_from([(1,) * 4, (1,) * 7, (1, 1, 1, 1, 2, 2), (1, 1, 2, 2), (2,) * 5, (3,)])


class RoomMachine(RuleBasedStateMachine):
    @initialize(
        kv_floor=FLOORS, adapter_floor=FLOORS, host_cap=st.one_of(st.none(), st.integers(0, 4))
    )
    def begin(self, kv_floor, adapter_floor, host_cap):
        self.told = Summing()
        self.pool = PagePool(
            PAGES,
            PAGE_BYTES,
            kv_floor_pages=kv_floor,
            adapter_floor_pages=adapter_floor,
            listener=self.told,
        )
        self.prefix = PrefixCache(self.pool, PAGE_TOKENS)
        self.room = Residency(self.pool, self.prefix, host_cap=host_cap)
        self.brute = Brute(PAGES, kv_floor, adapter_floor, host_cap)
        self.sequences = []  # [tenant, salt, prompt, keys, pages, shared, adapter]
        self.library = set()
        self.now = 0.0
        for key in NEED:
            self.register(key, True)
        for key in "wu":
            self.order(key, "a", 0, lands=True)

    def tick(self):
        self.now += 1.0
        return self.now

    def follow(self):
        self.library -= {*self.room.take_dropped(), *self.room.take_left()}

    # -- adapters

    @rule(key=KEYS, in_host=st.booleans())
    def register(self, key, in_host):
        if in_host and key not in self.brute.place:  # a known one is not read again
            self.library.add(key)
        self.room.register(key, NEED[key], in_host=in_host)
        self.brute.register(key, NEED[key], in_host)

    @rule(
        key=KEYS,
        tenant=TENANTS,
        keep_free=st.sampled_from([0, 0, 2, 6]),
        lands=st.booleans(),
    )
    def order(self, key, tenant, keep_free, lands):
        now = self.tick()
        outcome, evictions = self.room.try_order(key, tenant, now, keep_free=keep_free)
        if self.brute.place.get(key) not in ("disk", "host") or self.room.broken(key, now):
            assert (outcome, evictions) == (None, [])
            return
        missing, gone = self.brute.make_room(NEED[key], False, key, keep_free)
        assert [e.key for e in evictions] == gone
        assert all(e.cause == tenant for e in evictions)
        if missing:
            assert outcome == Short(missing)
            return
        assert isinstance(outcome, LoadOrder)
        assert len(outcome.pages) == NEED[key]
        assert outcome.from_disk is (self.brute.place[key] == "disk")
        self.follow()  # drops first, then the order begins
        self.library.add(key)
        self.brute.order(key)
        if lands:
            self.land(key, True)

    @precondition(lambda self: self.brute.loading)
    @rule(data=st.data(), ok=st.sampled_from([True, True, True, False]))
    def arrive(self, data, ok):
        self.land(data.draw(st.sampled_from(self.brute.loading)), ok)

    def land(self, key, ok):
        arrived = self.room.arrived(key, self.tick(), None if ok else "bad bytes")
        assert arrived.bytes == NEED[key] * PAGE_BYTES
        self.now += 31.0  # long enough for a failed one to be tried again
        self.brute.arrived(key, ok)

    @rule(key=KEYS)
    def pin(self, key):
        self.room.pin(key)
        self.brute.pin(key)

    @rule(keys=st.sets(KEYS))
    def keep_only(self, keys):
        self.room.keep_only(keys)
        self.brute.keep_only(keys)

    @rule(key=KEYS)
    def evict(self, key):
        if key not in self.brute.place:
            return
        if self.brute.place[key] == "device" and not self.brute.users[key]:
            assert self.room.evict(key, "a", self.tick()).key == key
            self.brute.evict(key)
        else:
            with pytest.raises(ValueError, match=r"not on the device|in use"):
                self.room.evict(key, "a", self.tick())

    @rule(key=st.sampled_from("uw"))
    def unload(self, key):
        known = key in self.brute.place
        if known:
            self.brute.unload(key)
        assert self.room.unload(key, self.tick()) is (key not in self.brute.place)
        assert not self.room.knows(key)

    # -- sequences

    @rule(
        tenant=TENANTS,
        shared=st.sampled_from([True, True, False]),
        prompt=PROMPTS,
        among=st.sampled_from([0, 0, 1, 2, 3]),
        computed=st.sampled_from([0, 4]),
    )
    def start(self, tenant, shared, prompt, among, computed):
        now = self.tick()
        there = [None, *(k for k, place in self.brute.place.items() if place == "device")]
        adapter = there[among % len(there)]
        salt = "group" if shared else tenant
        keys = self.prefix.keys(salt, adapter, prompt)
        matched = self.prefix.match(keys)
        prefixes = self.brute.match(salt, adapter, prompt, PAGE_TOKENS)
        assert len(matched) == len(prefixes)
        pages = self.prefix.hold(keys[: len(matched)], tenant, now)
        assert tuple(pages) == matched
        self.brute.hold(prefixes, tenant)
        more = -(-len(prompt) // PAGE_TOKENS) - len(pages)
        short, evictions = self.room.make_room(more, tenant, now, sparing=adapter)
        missing, gone = self.brute.make_room(more, True, adapter)
        assert [e.key for e in evictions] == gone
        if missing:
            assert short == Short(missing)
            self.prefix.release(pages, tenant, now)
            self.brute.let_go(prefixes, tenant)
            return
        assert short is None
        own = self.pool.try_take_kv(tenant, more)
        assert isinstance(own, list), "room that was made can be taken"
        self.brute.private[tenant] = self.brute.private.get(tenant, 0) + more
        if adapter is not None:
            self.room.acquire(adapter, tenant, now)
            self.brute.acquire(adapter, tenant)
        self.sequences.append([tenant, salt, prompt, keys, pages + own, len(pages), adapter])
        self.publish(len(self.sequences) - 1, computed)

    @precondition(lambda self: self.sequences)
    @rule(index=st.integers(0, 20), count=st.integers(0, 3))
    def grow(self, index, count):
        sequence = self.sequences[index % len(self.sequences)]
        got = self.pool.try_take_kv(sequence[0], count)
        room = self.brute.room(kv=True)
        if count > max(room, 0):
            assert got == Short(count - room)
        else:
            assert len(got) == count
            sequence[4] = sequence[4] + got
            self.brute.private[sequence[0]] = self.brute.private.get(sequence[0], 0) + count

    @precondition(lambda self: self.sequences)
    @rule(index=st.integers(0, 20), computed=st.integers(0, 4))
    def publish(self, index, computed):
        sequence = self.sequences[index % len(self.sequences)]
        tenant, salt, prompt, keys, pages, shared, adapter = sequence
        keys = keys[: max(shared, computed)]
        now_shared = self.prefix.publish(keys, pages, shared, tenant, self.tick())
        expected = shared
        while expected < len(keys):
            name = (salt, adapter, prompt[: (expected + 1) * PAGE_TOKENS])
            if name in self.brute.cache:
                break
            self.brute.cache[name] = [tenant]
            self.brute.private[tenant] -= 1
            expected += 1
        assert now_shared == expected
        sequence[5] = now_shared

    @precondition(lambda self: self.sequences)
    @rule(index=st.integers(0, 20))
    def end(self, index):
        now = self.tick()
        sequence = self.sequences.pop(index % len(self.sequences))
        tenant, salt, prompt, _, pages, shared, adapter = sequence
        self.prefix.release(pages[:shared], tenant, now)
        ends = range(PAGE_TOKENS, shared * PAGE_TOKENS + 1, PAGE_TOKENS)
        self.brute.let_go([(salt, adapter, prompt[:end]) for end in ends], tenant)
        self.pool.give_back_kv(tenant, pages[shared:])
        self.brute.private[tenant] -= len(pages) - shared
        if adapter is not None:
            self.room.release(adapter, tenant, now)
            self.brute.release(adapter, tenant)

    @rule(pages=st.integers(0, 15), kv=st.booleans(), keep_free=st.integers(0, 4))
    def make_room(self, pages, kv, keep_free):
        lacks = self.room.lacks(pages, kv=kv, keep_free=keep_free)
        short, evictions = self.room.make_room(pages, "b", self.tick(), kv=kv, keep_free=keep_free)
        assert (lacks == 0) is (short is None)
        missing, gone = self.brute.make_room(pages, kv, None, keep_free)
        assert short == (Short(missing) if missing else None)
        assert [e.key for e in evictions] == gone
        if short is None:
            room = self.pool.room_for_kv if kv else self.pool.room_for_adapters
            assert room >= pages

    # -- always

    @invariant()
    def whole(self):
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        self.prefix.check_integrity()
        self.room.check_integrity()

    @invariant()
    def as_the_model_says(self):
        if not hasattr(self, "pool"):
            return
        brute, pool = self.brute, self.pool
        assert pool.free_pages == brute.free
        assert pool.room_for_kv == brute.room(kv=True)
        assert pool.room_for_adapters == brute.room(kv=False)
        assert pool.cached_bytes == brute.cached * PAGE_BYTES
        assert self.room.pinned_bytes() == brute.pinned_pages * PAGE_BYTES
        for key in NEED:
            assert self.room.place(key).value == brute.place.get(key, "disk")
            assert pool.references(key) == len(brute.users.get(key, ()))
        holdings = pool.holdings()
        assert (self.told.kv, self.told.adapters) == (holdings.kv, holdings.adapters)
        for counted, exact in zip(
            (holdings.kv, holdings.adapters), brute.charged(PAGE_BYTES), strict=True
        ):
            assert counted == pytest.approx({t: float(b) for t, b in exact.items()}, rel=1e-12)
        total = sum(holdings.by_tenant().values()) + holdings.cached + holdings.free
        assert total == pytest.approx(PAGES * PAGE_BYTES, rel=1e-12)
        assert {t: pool.held_bytes(t) for t in pool.holders()} == holdings.by_tenant()

    @invariant()
    def the_library_follows(self):
        """It drops what it is told to drop, and has what is said to be in host memory."""
        if not hasattr(self, "pool"):
            return
        self.follow()
        copies = {*self.brute.resting, *self.brute.doubled, *self.brute.copying}
        assert self.library == copies
        if self.brute.host_cap is not None:
            assert len(copies) <= max(self.brute.host_cap, len(self.brute.copying))


TestRoom = RoomMachine.TestCase
TestRoom.settings = settings(stateful_step_count=60, deadline=None)
