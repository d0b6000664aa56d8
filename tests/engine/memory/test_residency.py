"""Residency: who goes first, who stays, what is loading, draining, or kept in host memory."""

from __future__ import annotations

import pytest

from engine.memory.host import HostCopies
from engine.memory.pool import PagePool, Short
from engine.memory.prefix import PrefixCache
from engine.memory.residency import LoadOrder, Place, Residency


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


# -- host memory


def test_beyond_the_host_cap_the_least_recently_used_copy_goes_and_the_library_is_told():
    pool = PagePool(20, 100)
    r = Residency(pool, host_cap=2)
    for key in "xyz":
        r.register(key, 4, in_host=True)
    assert [r.place(k) for k in "xyz"] == [Place.DISK, Place.HOST, Place.HOST]
    assert r.take_dropped() == ("x",)
    assert r.take_dropped() == (), "each is told once"
    order, _ = r.try_order("x", "a", 0)
    assert order.from_disk
    assert r.take_dropped() == ("y",), "the copy that is being made counts"
    assert r.place("y") is Place.DISK, "and the next lookup finds y on disk"
    order, _ = r.try_order("z", "a", 0)
    assert not order.from_disk


def test_copies_of_adapters_on_the_device_go_last_and_those_are_then_found_on_disk():
    pool = PagePool(20, 100)
    r = Residency(pool, host_cap=2)
    r.register("x", 4, in_host=True)
    bring(r, "x", "a", 0)
    r.register("y", 4, in_host=True)
    r.register("z", 4, in_host=True)
    assert r.take_dropped() == ("y",)
    bring(r, "z", "a", 1)
    bring(r, "y", "a", 2)
    assert r.take_dropped() == ("x",), "all three are on the device: the first loaded goes"
    r.evict("x", "a", 3)
    r.evict("z", "a", 3)
    assert (r.place("x"), r.place("z")) == (Place.DISK, Place.HOST)
    r.check_integrity()


def test_bytes_of_host_copies_have_a_cap_of_their_own():
    copies = HostCopies(None, 1000)
    copies.rest("x", 600)
    assert copies.trim() == []
    copies.copy("y", 900)
    assert copies.trim() == ["x"]
    copies.copy("z", 900)
    assert copies.trim() == [], "none that is being copied is dropped"
    copies.double("y", 900)
    assert copies.trim() == ["y"]
    assert ("z" in copies, len(copies), copies.bytes) == (True, 1, 900)
    with pytest.raises(ValueError, match="-1 adapters"):
        HostCopies(-1)


# -- unloading


def test_an_unused_adapter_leaves_at_once():
    pool, r = residency(x=8)
    bring(r, "x", "a", 0)
    assert r.unload("x", 1)
    assert (pool.free_pages, r.known, r.take_left()) == (20, 0, ("x",))
    assert r.broken("x", 1) == "it has been unloaded"
    assert r.try_order("x", "a", 1) == (None, [])
    assert r.unload("x", 2), "unloading twice is unloading once"


def test_an_adapter_in_use_drains_no_one_else_starts_with_it_and_the_last_one_lets_it_go():
    pool, r = residency(x=8)
    bring(r, "x", "a", 0)
    r.acquire("x", "a", 1)
    r.acquire("x", "b", 1)
    assert not r.unload("x", 2)
    assert r.place("x") is Place.DRAINING
    assert r.place("x").found == "device"
    assert not r.knows("x")
    with pytest.raises(ValueError, match="draining"):
        r.acquire("x", "c", 3)
    r.release("x", "a", 4)
    assert (pool.free_pages, r.take_left()) == (12, ())
    r.check_integrity()
    r.release("x", "b", 5)
    assert (pool.free_pages, r.take_left()) == (20, ("x",))
    r.check_integrity()


def test_an_adapter_unloaded_on_its_way_leaves_when_it_arrives():
    pool, r = residency(x=8)
    r.try_order("x", "a", 0)
    r.pin("x")
    assert not r.unload("x", 1)
    assert r.pinned_bytes() == 0
    assert pool.free_pages == 12, "its pages are being written to"
    r.arrived("x", 2)
    assert (pool.free_pages, r.take_left()) == (20, ("x",))


def test_loading_again_what_drains_keeps_it():
    _, r = residency(x=8, y=8)
    bring(r, "x", "a", 0)
    r.acquire("x", "a", 1)
    r.unload("x", 2)
    r.try_order("y", "a", 2)
    r.unload("y", 2)
    for key in "xy":
        r.register(key, 8, in_host=True)
    assert (r.place("x"), r.place("y")) == (Place.DEVICE, Place.LOADING)
    r.release("x", "a", 3)
    r.arrived("y", 3)
    assert (r.place("x"), r.place("y"), r.take_left()) == (Place.DEVICE, Place.DEVICE, ())
    r.check_integrity()


# -- room


def test_adapters_and_prefix_pages_make_room_in_the_order_in_which_they_went_out_of_use():
    pool = PagePool(12, 100)
    prefix = PrefixCache(pool, 2)
    r = Residency(pool, prefix)
    for key in "xy":
        r.register(key, 4, in_host=True)
    bring(r, "x", "a", 0)
    keys = prefix.keys("a", None, (1, 2, 3, 4))
    pages = pool.try_take_kv("a", 2)
    prefix.publish(keys, pages, 0, "a", 1)
    prefix.release(pages, "a", 1)
    bring(r, "y", "a", 2)
    assert r.make_room(2, "b", 3) == (None, [])
    short, gone = r.make_room(3, "b", 3)
    assert (short, [e.key for e in gone], len(prefix.match(keys))) == (None, ["x"], 2)
    assert r.make_room(7, "b", 3) == (None, [])
    assert len(prefix.match(keys)) == 1, "the end of a prompt goes before its beginning"
    short, gone = r.make_room(12, "b", 3)
    assert ([e.key for e in gone], len(prefix.match(keys))) == (["y"], 0)


def test_room_that_a_floor_keeps_comes_from_ones_own_kind_only():
    pool = PagePool(12, 100, kv_floor_pages=4)
    prefix = PrefixCache(pool, 2)
    r = Residency(pool, prefix)
    for key in "xyz":
        r.register(key, 4, in_host=True)
    keys = prefix.keys("a", None, (1, 2, 3, 4))
    pages = pool.try_take_kv("a", 2)
    prefix.publish(keys, pages, 0, "a", 0)
    prefix.release(pages, "a", 0)
    bring(r, "x", "a", 1)
    bring(r, "y", "a", 2)
    assert r.policy_bytes == 200, "two pages that only KV may take"
    gone = bring(r, "z", "a", 3)
    assert [e.key for e in gone] == ["x"], "the older prefix pages would have been no help"
    assert len(prefix.match(keys)) == 2


def test_the_room_that_a_head_needs_stays_free_beside_an_adapter():
    pool, r = residency(x=8, y=8)
    bring(r, "x", "a", 0)
    assert r.try_order("y", "a", 1, keep_free=13) == (Short(9), [])
    order, gone = r.try_order("y", "a", 1, keep_free=6)
    assert isinstance(order, LoadOrder)
    assert [e.key for e in gone] == ["x"]
    assert pool.free_pages == 12


class Counted(dict):
    """A dict that may be asked, and not gone through."""

    def __iter__(self):
        raise AssertionError("went through all known adapters")

    values = items = keys = __iter__


def test_no_decision_goes_through_all_known_adapters():
    pool = PagePool(64, 100)
    r = Residency(pool, host_cap=50)
    names = [f"k{i}" for i in range(2000)]
    for key in names:
        r.register(key, 4, in_host=True)
    r._entries = Counted(r._entries)
    for now, key in enumerate(names):
        r.pin(key)
        order, gone = r.try_order(key, "a", now)
        assert isinstance(order, LoadOrder)
        assert len(gone) == (1 if now >= 16 else 0)
        r.arrived(key, now)
        r.acquire(key, "a", now)
        r.keep_only(())
        r.release(key, "a", now)
        r.pinned_bytes()
    assert r.unload(names[-1], 3000)


def test_pins_are_counted_only_while_nobody_runs_with_them():
    _, r = residency(x=3, y=4)
    r.pin("x")
    assert r.pinned_bytes() == 0, "it is not on the device"
    bring(r, "x", "a", 0)
    r.try_order("y", "a", 0)
    r.pin("y")
    assert r.pinned_bytes() == 700, "one on the device, one on its way"
    r.acquire("x", "a", 1)
    assert r.pinned_bytes() == 400
    r.release("x", "a", 2)
    r.arrived("y", 2, "bad bytes")
    assert r.pinned_bytes() == 300
    r.check_integrity()
    r.keep_only(())
    assert r.pinned_bytes() == 0
    r.pin("unheard of")
    r.check_integrity()


BREAK = {
    "idle": lambda r: r._idle.clear(),
    "idle pages": lambda r: setattr(r, "_idle_pages", 1),
    "pinned": lambda r: r._pinned.clear(),
    "kept pages": lambda r: setattr(r, "_kept_pages", 0),
    "loading": lambda r: r._loading.clear(),
    "host": lambda r: r._host.remove("u"),
    "host sums": lambda r: setattr(r._host, "bytes", 1),
    "place": lambda r: setattr(r._entries["z"], "place", Place.HOST),
    "order of disuse": lambda r: r._idle.move_to_end("x"),
    "unknown": lambda r: r._entries.pop("u"),
    "gone": lambda r: r._entries.pop("w"),
}


@pytest.mark.parametrize("damage", BREAK)
def test_the_integrity_check_sees(damage):
    _, r = residency(x=2, y=2, z=3, w=4, u=1, v=1)
    for now, key in enumerate("xywz"):
        bring(r, key, "a", now)
    r.pin("w")
    r.try_order("v", "a", 9)
    r.check_integrity()
    BREAK[damage](r)
    with pytest.raises(ValueError, match=r"adapter|copies|pages|copy"):
        r.check_integrity()
