"""A core that is one of several replicas: what it tells and when, and what it is told."""

from __future__ import annotations

from itertools import pairwise

from tests.engine.worlds import Pool, make_pool


def run(pool: Pool) -> list[tuple[float, dict[str, float]]]:
    """Steps until nothing is left; (instant, charges) of each step that told some."""
    told = []
    while not pool.world.empty or pool.core.wait_for_work(0):
        if pool.core.wait_for_work(0):
            result = pool.core.step()
            if result.charges is not None:
                told.append((pool.clock.now(), dict(result.charges)))
        else:
            pool.world.run_next()
    return told


def test_charges_are_told_at_most_every_fifty_milliseconds_and_at_the_last_all() -> None:
    pool = make_pool(share_every_s=0.05, prefix_cache=False)
    for i in range(12):
        pool.ask(0.02 * i, "ab"[i % 2], prompt=30, out=20)
    told = run(pool)
    gaps = [b - a for (a, _), (b, _) in pairwise(told[:-1])]
    assert len(told) > 5
    assert min(gaps) >= 0.05
    sums = {t: sum(c.get(t, 0.0) for _, c in told) for t in "ab"}
    assert sums == dict.fromkeys("ab", 6 * (30 + 2 * 20))


def test_a_pool_of_one_tells_nobody() -> None:
    pool = make_pool()
    pool.ask(0.0, "a", prompt=30, out=5)
    assert run(pool) == []
    pool.core.charged_elsewhere({"a": 1e6})
    assert pool.core.scheduler.counters.value("a") == 40.0


def test_what_others_charged_decides_who_goes_next_here() -> None:
    pool = make_pool(share_every_s=0.05, slots=1)
    first = [pool.ask(0.0, "a", prompt=10, out=2), pool.ask(0.0, "a", prompt=10, out=2)]
    last = pool.ask(0.001, "b", prompt=10, out=2)
    pool.world.at(0.0005, lambda: pool.core.charged_elsewhere({"a": 0.0, "b": 1e4}))
    run(pool)
    pool.batches += pool.core.ledger.collect(pool.clock.now())
    ended = {r.request_id: r.ended for r in pool.requests()}
    assert max(ended[r] for r in first) < ended[last]


def test_a_core_with_nothing_to_do_is_not_woken_by_what_others_charged() -> None:
    pool = make_pool(share_every_s=0.05)
    pool.core.charged_elsewhere({"a": 5.0})
    assert not pool.core.wait_for_work(0)
