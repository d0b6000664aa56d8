"""One pool: a page is in one place, floors hold, shared pages are charged in equal parts."""

from __future__ import annotations

import pytest

from engine.memory.pool import PagePool, Short
from tests.engine.memory.brute import Summing


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


def test_a_shared_prefix_page_is_charged_in_equal_parts_to_those_who_use_it_now():
    told = Summing()
    pool = PagePool(10, 300, listener=told)
    pages = pool.try_take_kv("a", 2)
    pool.share_kv("a", pages)
    pool.refer_kv("b", pages)
    pool.refer_kv("b", pages)
    assert told.kv == {"a": 300.0, "b": 300.0}
    pool.refer_kv("c", pages[:1])
    assert told.kv == pytest.approx({"a": 250.0, "b": 250.0, "c": 100.0})
    assert pool.release_kv("b", pages) == []
    assert pool.release_kv("a", pages) == []
    assert pool.release_kv("b", pages) == [pages[1]], "the other one is still used by c"
    assert told.kv == {"c": 300.0}
    assert pool.release_kv("c", pages[:1]) == pages[:1]
    assert (told.kv, pool.cached_bytes) == ({}, 600)


@pytest.mark.parametrize("tenants", [3, 7, 49, 1000])
def test_parts_that_do_not_divide_leave_nothing_behind_when_all_have_gone(tenants):
    told = Summing()
    pool = PagePool(1 << 12, (1 << 20) + 1, listener=told)
    pool.try_take_adapter("x", 3)
    names = [str(i) for i in range(tenants)]
    for tenant in names:
        pool.refer("x", tenant)
    assert sum(told.adapters.values()) == pytest.approx(3 * ((1 << 20) + 1), rel=1e-9)
    pool.check_integrity()
    for tenant in names[::2] + names[1::2]:
        pool.release("x", tenant)
    assert told.adapters == {}, "not even a rounding error"


def test_neither_kind_takes_the_floor_of_the_other():
    pool = PagePool(10, 100, kv_floor_pages=3, adapter_floor_pages=2)
    assert pool.unused_floor_bytes == 500
    assert pool.try_take_adapter("x", 8) == Short(1)
    assert pool.try_take_kv("a", 9) == Short(1)
    pool.try_take_adapter("x", 5)
    assert (pool.room_for_adapters, pool.room_for_kv) == (2, 5)
    pool.try_take_kv("a", 4)
    assert (pool.room_for_adapters, pool.room_for_kv) == (1, 1)
    assert pool.unused_floor_bytes == 0
    assert len(pool.try_take_kv("a", 1)) == 1
    assert pool.try_take_kv("a", 1) == Short(1)


def test_floors_in_bytes_are_rounded_up_to_whole_pages():
    pool = PagePool.of_bytes(1099, 100, kv_floor_bytes=201, adapter_floor_bytes=100)
    assert (pool.pages, pool.kv_floor_pages, pool.adapter_floor_pages) == (10, 3, 1)


@pytest.mark.parametrize(("kv", "adapters"), [(-1, 0), (0, -1), (6, 5)])
def test_floors_that_do_not_fit_are_refused_with_their_numbers(kv, adapters):
    with pytest.raises(ValueError, match=rf"{kv} .*{adapters}"):
        PagePool(10, 100, kv_floor_pages=kv, adapter_floor_pages=adapters)


def test_nobody_gives_back_what_is_not_its_own_and_a_refused_return_frees_nothing():
    pool = PagePool(10, 100)
    mine, yours = pool.try_take_kv("a", 2), pool.try_take_kv("b", 1)
    for pages in (mine + yours, mine + mine[:1], [pool.pages - 1 - 5]):
        with pytest.raises(ValueError, match="not its own"):
            pool.give_back_kv("a", pages)
    pool.check_integrity()
    assert pool.held_bytes("a") == 200.0
    pool.share_kv("a", mine)
    with pytest.raises(ValueError, match="not its own"):
        pool.give_back_kv("a", mine)
    with pytest.raises(ValueError, match="in use by"):
        pool.give_back_shared(mine[0])


def test_an_adapter_in_use_keeps_its_pages():
    pool = PagePool(10, 100)
    pool.try_take_adapter("x", 4)
    pool.refer("x", "a")
    with pytest.raises(ValueError, match="in use"):
        pool.give_back_adapter("x")
    with pytest.raises(ValueError, match="already"):
        pool.try_take_adapter("x", 1)
    pool.release("x", "a")
    assert pool.give_back_adapter("x") == 4
    assert pool.free_pages == 10


def test_a_listener_is_not_changed_while_somebody_holds_pages():
    pool = PagePool(10, 100)
    pool.listener = Summing()
    pool.try_take_kv("a", 1)
    with pytest.raises(ValueError, match="holds pages"):
        pool.listener = Summing()


BREAK = {
    "free twice": lambda p, m: p._free.append(p._free[0]),
    "free and held": lambda p, m: p._free.append(m[0]),
    "lost": lambda p, m: p._free.pop(),
    "held twice": lambda p, m: p._adapters["x"].__setattr__("pages", (m[0], m[1])),
    "mismarked": lambda p, m: p._holder.__setitem__(m[0], None),
    "another's": lambda p, m: p._holder.__setitem__(m[0], "b"),
    "references": lambda p, m: p._adapters["x"].references.update(b=1),
    "books": lambda p, m: p._books.kv.__setitem__("a", 1.0),
    "cached": lambda p, m: setattr(p, "_cached", p._cached + 1),
    "used": lambda p, m: setattr(p, "_kv_used", p._kv_used + 1),
    "floor": lambda p, m: setattr(p, "_kv_cap", 1),
}


@pytest.mark.parametrize("damage", BREAK)
def test_the_integrity_check_sees(damage):
    pool = PagePool(10, 100)
    mine = pool.try_take_kv("a", 3)
    pool.share_kv("a", mine[2:])
    pool.try_take_adapter("x", 2)
    pool.refer("x", "a")
    pool.check_integrity()
    BREAK[damage](pool, mine)
    with pytest.raises(ValueError, match=r"page|book|reference|floor"):
        pool.check_integrity()
