"""One pool: pages are in exactly one place, shared adapters are charged in equal parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from engine.memory.packing import lay_out, padded_row_bytes
from engine.memory.pool import PagePool, Short
from engine.memory.residency import LoadOrder, Place, Residency


class PoolMachine(RuleBasedStateMachine):
    """Any order of takes and gives leaves a whole pool."""

    held = Bundle("held")

    def __init__(self):
        super().__init__()
        self.pool = PagePool(40, 128)
        self.taken: dict[str, list[list[int]]] = {}
        self.adapters: dict[str, list[str]] = {}

    @rule(tenant=st.sampled_from("ab"), count=st.integers(0, 15))
    def take(self, tenant, count):
        free = self.pool.free_pages
        got = self.pool.try_take_kv(tenant, count)
        if count > free:
            assert got == Short(count - free)
        else:
            assert len(got) == count
            self.taken.setdefault(tenant, []).append(got)

    @rule(tenant=st.sampled_from("ab"))
    def give(self, tenant):
        if self.taken.get(tenant):
            self.pool.give_back_kv(tenant, self.taken[tenant].pop())

    @rule(key=st.sampled_from("xyz"), count=st.integers(1, 10))
    def load(self, key, count):
        if key not in self.adapters:
            got = self.pool.try_take_adapter(key, count)
            if not isinstance(got, Short):
                self.adapters[key] = []

    @rule(key=st.sampled_from("xyz"), tenant=st.sampled_from("ab"))
    def refer(self, key, tenant):
        if key in self.adapters:
            self.pool.refer(key, tenant)
            self.adapters[key].append(tenant)

    @rule(key=st.sampled_from("xyz"))
    def release(self, key):
        if self.adapters.get(key):
            self.pool.release(key, self.adapters[key].pop())

    @rule(key=st.sampled_from("xyz"))
    def evict(self, key):
        if key not in self.adapters:
            return
        if self.adapters[key]:
            with pytest.raises(ValueError, match="in use"):
                self.pool.give_back_adapter(key)
        else:
            self.pool.give_back_adapter(key)
            del self.adapters[key]

    @invariant()
    def whole(self):
        self.pool.check_integrity()
        h = self.pool.holdings()
        total = sum(h.kv.values()) + sum(h.adapters.values()) + h.cached + h.free
        assert total == pytest.approx(40 * 128)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_shared_adapter_is_charged_in_equal_parts_to_those_who_use_it_now():
    pool = PagePool(10, 100)
    pool.try_take_adapter("x", 6)
    assert pool.holdings().cached == 600
    pool.refer("x", "a")
    pool.refer("x", "a")
    pool.refer("x", "b")
    assert pool.holdings().adapters == {"a": 300.0, "b": 300.0}
    pool.release("x", "b")
    assert pool.holdings().adapters == {"a": 600.0}


def residency(pages=20, **adapters):
    pool = PagePool(pages, 100)
    r = Residency(pool)
    for key, size in adapters.items():
        r.register(key, size, in_host=True)
    return pool, r


def bring(r, key, tenant, now):
    order, evictions = r.try_order(key, tenant, now)
    assert isinstance(order, LoadOrder), order
    r.arrived(key, now + 0.1)
    return evictions


def test_the_least_recently_used_idle_adapter_goes_first():
    _, r = residency(x=6, y=6, z=6, u=6)
    for now, key in enumerate("xyz"):
        bring(r, key, "a", now)
    r.acquire("x", "a", 10)
    r.release("x", "a", 11)
    gone = bring(r, "u", "b", 12)
    assert [(e.key, e.cause, e.suffered) for e in gone] == [("y", "b", "a")]
    assert r.place("y") is Place.HOST


def test_adapters_in_use_or_pinned_stay_and_a_hopeless_try_evicts_nobody():
    _, r = residency(x=8, y=8, z=8)
    bring(r, "x", "a", 0)
    bring(r, "y", "a", 1)
    r.acquire("x", "a", 2)
    r.pin("y")
    order, gone = r.try_order("z", "b", 3)
    assert order == Short(4)
    assert gone == []
    r.keep_only(set())
    order, gone = r.try_order("z", "b", 4)
    assert isinstance(order, LoadOrder)
    assert [e.key for e in gone] == ["y"]


def test_loading_twice_is_one_load_and_a_failed_load_gives_its_pages_back():
    pool, r = residency(x=8)
    r.try_order("x", "a", 0)
    assert r.try_order("x", "b", 0) == (None, [])
    assert r.arrived("x", 1, "bad bytes").error == "bad bytes"
    assert pool.free_pages == 20
    assert r.place("x") is Place.DISK
    assert r.broken("x", 2) == "bad bytes"
    assert r.try_order("x", "a", 2) == (None, []), "a broken adapter evicts nobody, for a while"
    assert isinstance(r.try_order("x", "a", 32)[0], LoadOrder)


def test_a_reload_is_charged_to_the_evictor_a_cold_load_to_the_waiter():
    _, r = residency(x=12, y=12)
    r.try_order("x", "a", 0)
    assert r.blame("x", 0) == {None: 1.0}
    r.arrived("x", 1)
    bring(r, "y", "b", 2)
    r.evict("y", "a", 3)
    r.try_order("x", "a", 4)
    assert r.blame("x", 4) == {"b": 1.0}
    r.arrived("x", 5)
    r.evict("x", "a", 6)
    r.try_order("y", "b", 3 + 601)
    assert r.blame("y", 3 + 601) == {None: 1.0}, "an eviction is forgotten after ten minutes"


def test_a_busy_link_is_charged_to_the_owners_of_the_bytes_ahead():
    _, r = residency(x=6, y=2)
    r.try_order("x", "a", 0)
    r.try_order("y", "b", 0)
    assert r.blame("y", 0) == {"a": 0.75, None: 0.25}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([128, 256, 384])), max_size=20))
def test_blocks_are_contiguous_unless_larger_than_a_page(blocks):
    page_bytes = 1024
    layout = lay_out(blocks, page_bytes)
    taken = set()
    for index, (rows, row_bytes) in enumerate(blocks):
        spans = [s for s in layout.spans if s.block == index]
        assert sum(s.rows for s in spans) == rows
        if rows * row_bytes <= page_bytes:
            assert len(spans) <= 1
        for s in spans:
            assert s.page < layout.pages
            assert s.offset + s.rows * row_bytes <= page_bytes
            for byte in range(s.offset, s.offset + s.rows * row_bytes, 128):
                assert (s.page, byte) not in taken
                taken.add((s.page, byte))


def test_rows_are_padded_to_128_bytes_and_a_row_larger_than_a_page_is_refused():
    assert padded_row_bytes(1, 2) == 128
    assert padded_row_bytes(576, 2) == 1152
    with pytest.raises(ValueError, match="does not fit a page"):
        lay_out([(1, 4096)], 1024)
