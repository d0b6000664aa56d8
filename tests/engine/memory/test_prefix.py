"""The prefix cache: keys never meet, pages are shared from the start of a prompt, ends go first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.pool import PagePool
from engine.memory.prefix import PrefixCache

TOKENS = tuple(range(8))
NAMES = st.text(alphabet="ab\0é", max_size=3)
ADAPTERS = st.one_of(st.none(), NAMES)


def cache(pages=12, page_tokens=2):
    pool = PagePool(pages, 100)
    return pool, PrefixCache(pool, page_tokens)


def cached(pool, prefix, keys, tenant="a"):
    """A sequence of `tenant` that has computed and published the pages of `keys`."""
    held = len(prefix.match(keys))
    pages = prefix.hold(keys[:held], tenant, 0) + pool.try_take_kv(tenant, len(keys) - held)
    assert prefix.publish(keys, pages, held, tenant, 0) == len(keys)
    return pages


def test_one_key_for_each_whole_page():
    _, prefix = cache()
    assert [len(prefix.keys("s", None, TOKENS[:n])) for n in range(6)] == [0, 0, 1, 1, 2, 2]
    assert prefix.keys("s", None, TOKENS[:6]) == prefix.keys("s", None, range(7))
    assert prefix.keys("s", None, TOKENS)[:2] == prefix.keys("s", None, list(TOKENS[:4]))


def test_a_then_bc_never_meets_ab_then_c():
    _, prefix = cache()
    met = {
        prefix.keys(salt, adapter, TOKENS)[0]
        for salt, adapter in [("a", "bc"), ("ab", "c"), ("abc", ""), ("abc", None), ("", "abc")]
    }
    assert len(met) == 5


@given(NAMES, ADAPTERS, NAMES, ADAPTERS, st.lists(st.integers(0, 1), min_size=2, max_size=6))
def test_keys_are_equal_only_for_the_same_salt_adapter_and_tokens(
    salt, adapter, salt2, adapter2, t
):
    _, prefix = cache()
    one, two = prefix.keys(salt, adapter, t), prefix.keys(salt2, adapter2, t)
    assert (one == two) is ((salt, adapter) == (salt2, adapter2))
    assert not set(one) & set(two) or one == two
    other = [1 - t[0], *t[1:]]
    assert not set(one) & set(prefix.keys(salt, adapter, other)), "a key stands for all before it"


def test_the_same_tokens_at_another_place_are_another_page():
    _, prefix = cache()
    keys = prefix.keys("s", None, (1, 1, 1, 1, 1, 1))
    assert len(set(keys)) == 3


def test_a_published_prefix_is_found_and_shared():
    pool, prefix = cache()
    keys = prefix.keys("group", "x", TOKENS)
    pages = cached(pool, prefix, keys)
    longer = prefix.keys("group", "x", (*TOKENS[:4], 9, 9))
    assert prefix.match(longer) == tuple(pages[:2])
    assert prefix.hold(longer[:2], "b", 1) == pages[:2]
    assert pool.held_bytes("b") == 100.0, "half of two pages"
    assert pool.held_bytes("a") == 300.0
    prefix.release(pages[:2], "b", 2)
    prefix.release(pages, "a", 3)
    assert (pool.held_bytes("a"), pool.cached_bytes, prefix.unused_pages) == (0.0, 400, 4)
    assert prefix.match(keys) == tuple(pages), "out of use is not out of reach"


def test_publishing_stops_where_another_page_stands_already():
    pool, prefix = cache()
    keys = prefix.keys("s", None, TOKENS)
    pages = cached(pool, prefix, keys[:2], "a")
    twin = pool.try_take_kv("b", 4)
    assert prefix.publish(keys, twin, 0, "b", 0) == 0, "b computed the same at the same time"
    assert prefix.publish(keys, pages + pool.try_take_kv("a", 2), 2, "a", 0) == 4
    pool.give_back_kv("b", twin)
    prefix.check_integrity()
    pool.check_integrity()


def test_pages_that_do_not_stand_for_the_keys_are_refused():
    pool, prefix = cache()
    keys = prefix.keys("s", None, TOKENS)
    pages = cached(pool, prefix, keys[:2])
    mine = pool.try_take_kv("a", 2)
    with pytest.raises(ValueError, match="one page each"):
        prefix.publish(keys, pages, 2, "a", 0)
    with pytest.raises(ValueError, match="does not stand for"):
        prefix.publish(keys, [*pages[::-1], *mine], 2, "a", 0)
    with pytest.raises(ValueError, match="its own"):
        prefix.publish(keys, pages + pool.try_take_kv("b", 2), 2, "a", 0)
    with pytest.raises(ValueError, match="not cached"):
        prefix.hold(keys, "b", 0)
    with pytest.raises(ValueError, match="from the start"):
        prefix.hold(keys[1:2], "b", 0)
    prefix.check_integrity()
    pool.check_integrity()


def test_ends_go_before_beginnings_and_the_longest_unused_before_others():
    pool, prefix = cache()
    one, two = prefix.keys("s", None, TOKENS[:6]), prefix.keys("s", None, (0, 1, 7, 7))
    first = cached(pool, prefix, one)
    second = cached(pool, prefix, two)
    prefix.release(first, "a", 1)
    prefix.release(second, "a", 2)
    seen = []
    while prefix.unused_pages:
        prefix.evict()
        prefix.check_integrity()
        pool.check_integrity()
        seen.append((len(prefix.match(one)), len(prefix.match(two))))
    assert seen == [(2, 2), (1, 2), (1, 1), (0, 0)]
    assert prefix.evicted_pages == 4
    with pytest.raises(ValueError, match="in use"):
        prefix.evict()


def test_a_page_used_again_is_no_longer_the_next_to_go():
    pool, prefix = cache()
    one, two = prefix.keys("s", None, (1, 1)), prefix.keys("s", None, (2, 2))
    for keys in (one, two):
        prefix.release(cached(pool, prefix, keys), "a", 1)
    again = prefix.hold(one, "a", 2)
    assert prefix.unused_among(again) == 0
    prefix.release(again, "a", 3)
    prefix.evict()
    assert (len(prefix.match(one)), len(prefix.match(two))) == (1, 0)
    assert prefix.clear() == 1
    assert pool.free_pages == 12


BREAK = {
    "child": lambda p, n: setattr(n[0], "children", 5),
    "orphan": lambda p, n: p._nodes.pop(n[0].key),
    "page": lambda p, n: p._by_page.pop(n[2].page),
    "unused": lambda p, n: p._unused.pop(n[2].page),
    "stamps": lambda p, n: setattr(n[2], "stamp", 10**6),
    "used by more": lambda p, n: p._pool._shared[n[1].page].update(b=1),
    "parent": lambda p, n: setattr(n[1], "parent", None),
}


@pytest.mark.parametrize("damage", BREAK)
def test_the_integrity_check_sees(damage):
    pool, prefix = cache()
    keys = prefix.keys("s", None, TOKENS[:6])
    pages = cached(pool, prefix, keys)
    prefix.hold(keys[:1], "a", 0)
    prefix.release(pages, "a", 1)
    prefix.check_integrity()
    BREAK[damage](prefix, [prefix._nodes[k] for k in keys])
    with pytest.raises(ValueError, match="page"):
        prefix.check_integrity()
