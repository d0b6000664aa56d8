"""A rise is more than chance, more than what all share, and of what is asked for or got."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.baseline import choose_baseline
from telemetry.growth import growth_of
from telemetry.rising import RESOURCES, Rise, rises
from tests.telemetry.synthetic_rows import Pool


def rose(pool: Pool, first: int, last: int) -> dict[str, set[str]]:
    """Resources that rose, by tenant."""
    out: dict[str, set[str]] = {}
    for r in found(pool, first, last):
        if r.rose:
            out.setdefault(r.tenant, set()).add(r.resource)
    return out


def found(pool: Pool, first: int, last: int) -> tuple[Rise, ...]:
    window = pool.window(first, last)
    base = choose_baseline(window)
    return rises(window.asked, base, growth_of(window.asked, base, ()))


def played(now: dict[str, int], usual: dict[str, int], buckets: int = 4, **more: float) -> Pool:
    """Eight calm buckets and some after them, by requests a bucket. `more`: of those after."""
    pool = Pool()
    for i in range(8 + buckets):
        pool.engine(i)
        for t, n in (usual if i < 8 else now).items():
            values = more if i >= 8 else {}
            pool.tenant(i, t, **{"offered": n, "service": 100.0 * n, **values})
    return pool


def test_half_as_much_again_of_three_requests_is_noise():
    assert rose(played({"y": 4}, {"y": 3}, buckets=1), 8, 9) == {}
    assert rose(played({"y": 5}, {"y": 3}, buckets=1), 8, 9) == {}


def test_half_as_much_again_of_a_hundred_is_none():
    assert "requests offered" in rose(played({"y": 150}, {"y": 100}), 8, 12)["y"]


def test_a_fifth_more_of_many_is_no_rise_however_sure():
    assert rose(played({"y": 12_000}, {"y": 10_000}), 8, 12) == {}


def test_pages_held_longer_are_no_rise_of_whoever_asks_for_what_it_always_did():
    assert rose(played({"y": 10}, {"y": 10}, kv=500.0), 8, 12) == {}


def test_fewer_requests_that_are_far_larger_are_a_rise():
    pool = played({"y": 20}, {"y": 20}, service=40_000.0, offered_tokens=40_000)
    assert {"tokens offered", "service"} <= rose(pool, 8, 12)["y"]
    assert "requests offered" not in rose(pool, 8, 12)["y"]


def test_what_the_others_grew_by_is_no_rise_where_three_can_be_asked():
    names = ("a", "b", "c", "y")
    pool = played(dict.fromkeys(names, 60), dict.fromkeys(names, 30))
    assert rose(pool, 8, 12) == {}
    assert "y" in rose(played({"y": 60, "a": 60, "b": 60}, {"y": 30, "a": 30, "b": 30}), 8, 12)


def test_a_newcomer_that_asks_for_what_the_others_do_is_one_tenant_more_and_no_rise():
    usual = dict.fromkeys(("a", "b", "c", "d"), 10)
    assert rose(played(usual | {"new": 11}, usual), 8, 12) == {}
    assert {"requests offered", "service"} <= rose(played(usual | {"new": 60}, usual), 8, 12)["new"]


def test_a_newcomer_while_all_doubled_has_doubled_with_them():
    usual = dict.fromkeys(("a", "b", "c", "d"), 20)
    now = dict.fromkeys(usual, 40)
    assert rose(played(now | {"new": 42}, usual), 8, 12) == {}
    assert set(rose(played(now | {"new": 200}, usual), 8, 12)) == {"new"}


def test_one_short_request_before_says_little_of_how_long_the_next_ones_are():
    pool = Pool()
    for i in range(12):
        pool.engine(i)
        for t in ("a", "b", "c"):
            pool.tenant(i, t, offered=5, offered_tokens=1250, service=1500.0)
        if i == 3:
            pool.tenant(i, "y", offered=1, offered_tokens=60, service=70.0)
        if i in (9, 10):
            pool.tenant(i, "y", offered=2, offered_tokens=500, service=600.0)
    assert rose(pool, 8, 12) == {}


def test_where_requests_are_not_counted_service_alone_may_say_so():
    pool = Pool()
    for i in range(12):
        pool.engine(i)
        for t in ("x", "y"):
            pool.tenant(i, t, offered_requests=None, offered_tokens=None,
                        service=9000.0 if t == "x" and i >= 8 else 1000.0)  # fmt: skip
    assert set(rose(pool, 8, 12)) == {"x"}


counts = st.integers(0, 200)


@given(usual=counts, now=counts, more=st.integers(1, 300))
def test_who_asks_for_more_has_risen_no_less(usual: int, now: int, more: int):
    few = rose(played({"y": now}, {"y": usual}), 8, 12)
    many = rose(played({"y": now + more}, {"y": usual}), 8, 12)
    assert not few or "y" in many


@settings(max_examples=40, deadline=None)
@given(usual=st.lists(counts, min_size=1, max_size=5), now=st.lists(counts, min_size=1, max_size=5))
def test_levels_never_rise_alone_and_what_fell_has_not_risen(usual: list[int], now: list[int]):
    after, before = ({f"t{i}": n for i, n in enumerate(of)} for of in (now, usual))
    pool = played(after, before, kv=900.0)
    flows = set(RESOURCES[:3])
    for tenant, resources in rose(pool, 8, 12).items():
        assert resources & flows, tenant
    for r in found(pool, 8, 12):
        assert not r.rose or r.ratio is None or r.ratio > 1.0
