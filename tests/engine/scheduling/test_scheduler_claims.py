"""What the scheduler promises tenants: timeouts, bounded gaps, shared prefixes, room, endings."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import Slo, Tenant
from engine.costs import CostModel
from engine.scheduling.request import Ask, Outcome
from telemetry.records import EventRecord
from tests.engine.worlds import make_pool


def submit(pool, at, tenant, prompt, out, **kw):
    """As Pool.ask, with a prompt of one's own."""
    name = f"{tenant}-{len(pool._asked)}"
    pool._asked.append(name)
    ask = Ask(name, tenant, prompt, out, at, at, **kw)
    pool.world.at(at, lambda: pool.core.submit(ask))
    return name


def by_id(pool):
    return {r.request_id: r for r in pool.requests()}


# -- timeouts


def test_a_queue_timeout_ends_who_has_not_begun_and_spares_who_has():
    pool = make_pool(slots=1, slo=Slo(ttft_s=30.0))
    begun = pool.ask(0.0, "a", 20, 400, queue_timeout_s=1.0)
    waits = pool.ask(0.1, "b", 20, 4, queue_timeout_s=1.0)
    pool.run(until=20.0, ticks=0.25)
    rows = by_id(pool)
    assert rows[begun].outcome == "finished"
    assert rows[waits].outcome == "timed_out"
    assert rows[waits].first_token is None
    assert rows[waits].ended - rows[waits].arrived == pytest.approx(1.0, abs=0.05)
    assert rows[waits].wait_slot_s == pytest.approx(1.0, abs=0.06)
    assert pool.total("timed_out", "b") == 1
    assert pool.total("slo_missed", "b") == 1  # a timeout is a miss, whatever its target


def test_a_deadline_ends_a_request_wherever_it_is_and_gives_everything_back():
    pool = make_pool(slots=2)
    runs = pool.ask(0.0, "a", 50, 4000, deadline_s=2.0, adapter=None)
    pool.run(until=10.0, ticks=0.25)
    row = by_id(pool)[runs]
    assert row.outcome == "timed_out"
    assert 0 < row.output_tokens < 4000
    assert row.ended - row.arrived == pytest.approx(2.0, abs=0.05)
    assert pool.core.scheduler.running == 0
    assert pool.core._pool.holdings().kv == {}


def test_a_timeout_and_a_deadline_that_pass_together_end_a_request_once():
    pool = make_pool(slots=1)
    pool.ask(0.0, "a", 20, 400)
    both = pool.ask(0.1, "b", 20, 4, queue_timeout_s=1.0, deadline_s=1.0)
    pool.run(until=20.0)
    assert [r.outcome for r in pool.requests() if r.request_id == both] == ["timed_out"]


def test_a_long_deadline_does_not_keep_who_has_ended():
    pool = make_pool(pages=1000)
    pool.ask(0.0, "b", 4, 4000, deadline_s=3_600.0)  # lives on, and its deadline is the first
    for i in range(300):
        pool.ask(0.1 * i, "a", 4, 1, deadline_s=36_000.0)
    pool.run(until=40.0)
    assert len(pool.requests()) == 300
    assert len(pool.core.scheduler._waiting._due) <= 80


def test_an_idle_core_wakes_for_a_timeout():
    pool = make_pool(adapters={"x": 200}, pages=260, link_bytes_per_s=1e5)
    stuck = pool.ask(0.0, "a", 20, 4, "x", queue_timeout_s=1.0)  # its load takes two minutes
    pool.world.every(0.5, 5.0, lambda: None)
    pool.run(until=5.0)
    assert by_id(pool)[stuck].outcome == "timed_out"
    assert by_id(pool)[stuck].wait_adapter_s == pytest.approx(1.0, abs=0.6)


def test_endings_say_which_of_the_two_it_was():
    pool = make_pool(slots=1)
    pool.ask(0.0, "a", 20, 4000, deadline_s=1.0)
    pool.ask(0.0, "b", 20, 4, queue_timeout_s=0.5)
    said = {}
    while pool.world.clock.now() < 5.0:
        if pool.core.wait_for_work(0):
            for e in pool.core.step().ended:
                said[e.request_id] = (e.outcome, e.reason.split(":")[0])
        elif pool.world.empty:
            break
        else:
            pool.world.run_next()
    assert said == {
        "a-0": (Outcome.TIMED_OUT, "deadline"),
        "b-1": (Outcome.TIMED_OUT, "queue_timeout"),
    }


# -- gaps

DEEP = CostModel(0.005, 5e-5, 1e-4, 5e-9, 0.0)


@pytest.mark.parametrize("prompts", [1, 4])
def test_a_decoding_tenants_gap_is_bounded_beside_any_number_of_long_prompts(prompts):
    def longest_gap(step_s):
        pool = make_pool(
            costs=DEEP, pages=6000, step_tokens=4096, step_s=step_s, max_context=80_000
        )
        light = pool.ask(0.0, "a", 32, 3000)
        for i in range(prompts):
            pool.ask(0.5, "b", 16_000 + i, 2)
        pool.run(until=120.0)
        row = by_id(pool)[light]
        long = [r for r in pool.requests() if r.tenant == "b"]
        assert all(r.outcome == "finished" for r in [row, *long])
        assert sum(r.stall_s for r in [row]) > 0
        return row.max_gap_s

    bound = 0.03
    # The first chunk of a step gets a page at least, whatever the batch leaves.
    least = 16 * (DEEP.prefill_token_s + DEEP.context_token_s * 16_100)
    assert longest_gap(bound) <= bound + least
    assert longest_gap(None) > 5 * bound


def test_nobody_is_admitted_into_a_step_that_has_no_time_left():
    pool = make_pool(slots=16, step_tokens=512, step_s=0.03, pages=2000)
    pool.ask(0.0, "a", 10, 200)
    for _ in range(10):
        pool.ask(0.1, "b", 500, 3)
    seen = []
    pool.world.at(0.25, lambda: seen.append(pool.core.scheduler.running))
    pool.run(until=0.3)
    assert seen == [2]  # the decoding row, and the first prompt: the only one with tokens computed


def test_prefill_goes_on_beside_a_batch_that_has_no_time_to_spare():
    pool = make_pool(costs=DEEP, pages=2000, step_tokens=4096, step_s=0.001, max_context=20_000)
    pool.ask(0.0, "a", 32, 2000)
    long = pool.ask(0.1, "b", 4000, 2)
    pool.run(until=60.0)
    assert by_id(pool)[long].outcome == "finished"


# -- shared prefixes


def test_a_repeated_prompt_is_computed_once_and_charged_once():
    pool = make_pool()
    pool.ask(0.0, "a", 100, 4)
    pool.ask(5.0, "a", 100, 4)
    pool.run()
    first, second = pool.requests()
    assert (first.cached_tokens, second.cached_tokens) == (0, 96)  # six whole pages of 16
    assert pool.total("prompt_tokens", "a") == 104
    assert pool.total("cached_tokens", "a") == 96
    service = 104 + 2 * 8
    assert pool.core.scheduler.counters.unlifted("a") == service
    assert pool.total("service", "a") == service


def test_a_prompt_of_whole_pages_still_computes_its_last():
    pool = make_pool()
    pool.ask(0.0, "a", 96, 2)
    pool.ask(5.0, "a", 96, 2)
    pool.run()
    assert [r.cached_tokens for r in pool.requests()] == [0, 80]


@pytest.mark.parametrize(
    ("groups", "cached"), [((None, None), 0), (("g", "g"), 96), (("g", "h"), 0), (("b", None), 0)]
)
def test_prefixes_are_shared_inside_a_tenant_or_a_group_and_nowhere_else(groups, cached):
    pool = make_pool(
        tenants=tuple(
            Tenant(name, prefix_group=group) for name, group in zip("ab", groups, strict=True)
        )
    )
    pool.ask(0.0, "a", 100, 4)
    pool.ask(5.0, "b", 100, 4)
    pool.run()
    assert pool.requests()[1].cached_tokens == cached


def test_a_prefix_is_of_its_adapter():
    pool = make_pool(adapters={"x": 2, "y": 2})
    for at, adapter in ((0.0, "x"), (5.0, "y"), (10.0, None), (15.0, "x")):
        pool.ask(at, "a", 100, 4, adapter)
    pool.run()
    assert [r.cached_tokens for r in pool.requests()] == [0, 0, 0, 96]


def test_pages_in_common_are_held_in_equal_parts_while_both_use_them():
    tenants = tuple(Tenant(t, prefix_group="g") for t in "ab")
    pool = make_pool(tenants=tenants)
    pool.ask(0.0, "a", 96, 300)
    pool.ask(1.0, "b", 96, 300)
    pool.run(until=1.5)
    memory = pool.core._pool
    held = memory.holdings().kv
    pages = {r.tenant: set(r.pages) for r in pool.core.scheduler._running.sequences.values()}
    common = pages["a"] & pages["b"]
    assert len(common) == 5  # of six: the last is computed anew
    for tenant, mine in pages.items():
        alone = len(mine - common)
        assert held[tenant] == (alone + len(common) / 2) * memory.page_bytes
    assert pool.requests() == []
    pool.core.scheduler.check_integrity()
    pool.run()
    assert pool.core._pool.holdings().kv == {}
    pool.core.scheduler.check_integrity()


def test_what_was_preempted_finds_its_own_prompt_again():
    pool = make_pool(pages=18, slots=4)
    for i in range(3):
        submit(pool, 0.0, "ab"[i % 2], tuple(range(i * 1000, i * 1000 + 64)), 60)
    pool.run(until=60.0)
    rows = pool.requests()
    assert all(r.outcome == "finished" for r in rows)
    assert sum(r.preemptions for r in rows) > 0
    assert pool.total("prompt_tokens") + pool.total("cached_tokens") == 3 * 64
    for tenant in "ab":
        charged = pool.core.scheduler.counters.unlifted(tenant)
        assert charged == pool.total("service", tenant)


def test_without_a_prefix_cache_nothing_is_found():
    pool = make_pool(prefix_cache=False)
    pool.ask(0.0, "a", 100, 4)
    pool.ask(5.0, "a", 100, 4)
    pool.run()
    assert pool.total("cached_tokens") == 0
    assert pool.core._pool.cached_bytes == 0


# -- room


def test_two_requests_of_60_per_cent_of_the_pool_both_finish_one_after_the_other():
    pool = make_pool(pages=20, slots=4, prefix_cache=False)
    for tenant in "ab":
        pool.ask(0.0, tenant, 96, 96)  # 12 of 20 pages each at the end
    pool.run(until=60.0)
    rows = pool.requests()
    assert [r.outcome for r in rows] == ["finished"] * 2
    assert sum(r.preemptions for r in rows) <= 2
    # Not a token was lost over and over: nobody recomputed more than its length, once a preemption.
    assert all(r.recomputed_tokens <= 192 * r.preemptions for r in rows)


def test_an_adapter_unloaded_in_use_drains_and_those_who_wait_are_told():
    pool = make_pool(slots=1, adapters={"x": 3}, prefix_cache=False)
    runs = pool.ask(0.0, "a", 20, 200, "x")
    waits = pool.ask(0.5, "b", 20, 4, "x")
    core = pool.core

    def unload():
        with core.ledger.lock:
            core.ledger.tick(pool.clock.now())
            assert not core.scheduler.unload("key-x")

    pool.world.at(1.0, unload)
    late = pool.ask(1.5, "b", 20, 4, "x")
    pool.run()
    rows = by_id(pool)
    assert rows[runs].outcome == "finished"
    assert rows[waits].outcome == "failed"
    assert rows[late].outcome == "failed"
    assert core._pool.free_pages == core._pool.pages


@pytest.mark.parametrize("prefetch", [0, 8])
@pytest.mark.parametrize("aborted", [False, True])
def test_no_pin_outlives_those_it_was_for(prefetch, aborted):
    pool = make_pool(adapters={"x": 6}, link_bytes_per_s=1e6, prefetch=prefetch)
    name = pool.ask(0.0, "a", 20, 4, "x")
    if aborted:
        pool.world.at(0.1, lambda: pool.core.abort(name))
    pool.run()
    assert pool.core.scheduler._residency.policy_bytes == 0


def test_floors_keep_room_for_either_kind():
    pool = make_pool(pages=64, adapters={"x": 8}, adapter_floor_bytes=8 << 16, slots=8)
    for i in range(6):  # KV alone would take all 64 pages
        submit(pool, 0.0, "a", tuple(range(i * 1000, i * 1000 + 128)), 128)
    adapted = pool.ask(0.5, "b", 20, 4, "x")
    pool.run(until=120.0)
    assert all(r.outcome == "finished" for r in pool.requests())
    assert by_id(pool)[adapted].wait_adapter_s < 1.0


# -- endings

arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 4.0),
        st.sampled_from("abc"),
        st.integers(1, 120),
        st.integers(1, 60),
        st.sampled_from([None, "x", "y"]),
        st.one_of(st.none(), st.floats(0.05, 5.0)),  # aborted so long after
        st.one_of(st.none(), st.floats(0.05, 3.0)),  # queue timeout
        st.one_of(st.none(), st.floats(0.05, 3.0)),  # deadline
    ),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals,
    st.sampled_from(["vtc", "vtc-predicted", "fcfs", "round-robin", "lcf", "deficit-round-robin"]),
    st.integers(24, 60),
    st.sampled_from([None, 0.02]),
)
def test_whatever_ends_a_request_everything_is_back_by_the_next_step(
    traffic, policy, pages, step_s
):
    pool = make_pool(
        ("a", "b", "c"), policy=policy, pages=pages, adapters={"x": 3, "y": 5}, step_s=step_s
    )
    core = pool.core
    for at, tenant, prompt, out, adapter, abort, queue, deadline in traffic:
        name = pool.ask(
            at, tenant, prompt, out, adapter, queue_timeout_s=queue, deadline_s=deadline
        )
        if abort is not None:
            pool.world.at(at + abort, lambda name=name: core.abort(name))

    def look():
        with core.ledger.lock:
            core.scheduler.check_integrity()

    while pool.clock.now() < 100.0:
        if core.wait_for_work(0):
            core.step(pool.world.next_s)
            look()
        elif pool.world.empty:
            break
        else:
            pool.world.run_next()
    pool.batches += core.ledger.collect(pool.clock.now())
    rows = pool.requests()
    assert len(rows) == len(traffic)
    assert core.scheduler.running == 0
    assert core.scheduler.waiting == 0
    holdings = core._pool.holdings()
    assert holdings.kv == {}
    assert holdings.adapters == {}
    for tenant in "abc":
        mine = [r for r in rows if r.tenant == tenant]
        service = pool.total("service", tenant)
        assert core.scheduler.counters.unlifted(tenant) == pytest.approx(service)
        assert pool.total("output_tokens", tenant) == sum(r.output_tokens for r in mine)
        ends = sum(pool.total(o, tenant) for o in ("finished", "aborted", "failed", "timed_out"))
        assert ends == len(mine)
        for reason in ("slot", "budget", "kv", "adapter"):
            waited = sum(
                (getattr(r, f"wait_{reason}_s") or 0.0) + (getattr(r, f"rewait_{reason}_s") or 0.0)
                for r in mine
            )
            assert pool.total(f"wait_{reason}_s", tenant) == pytest.approx(waited, abs=1e-7)
    assert not [e for e in pool.logs(EventRecord) if "books are wrong" in (e.detail or "")]


def test_a_request_given_up_in_its_prefill_says_how_much_of_its_prompt_was_computed():
    pool = make_pool(step_tokens=32, prefix_cache=False)
    name = pool.ask(0.0, "a", 200, 4)
    pool.world.at(0.05, lambda: pool.core.abort(name))  # in the middle of a chunk
    ended = []
    while not ended:
        ended += (
            pool.core.step().ended if pool.core.wait_for_work(0) else pool.world.run_next() or ()
        )
    (end,) = ended
    assert end.outcome is Outcome.ABORTED
    assert 0 < end.computed_tokens < end.prompt_tokens == 200
    assert pool.core.scheduler.counters.unlifted("a") == end.computed_tokens
