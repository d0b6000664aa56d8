"""Whatever is tight, somebody runs: no livelock, no request forgotten, no bystander blocked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Slo
from engine.errors import EngineError
from engine.scheduling.plan import StepOutcome
from telemetry.records import EventRecord
from tests.engine.worlds import PAGE_BYTES, make_pool

TIGHT = {"x": 5, "y": 6, "z": 7}


def loads(pool):
    return sum(e.loads for e in pool.engine())


def test_prefetching_and_admission_do_not_evict_each_others_adapters_for_ever():
    pool = make_pool(("a", "c"), policy="fcfs", pages=14, adapters=TIGHT, link_bytes_per_s=5e6)
    pool.ask(0.58, "a", 90, 20, "x")
    pool.ask(0.49, "c", 60, 2, "z")
    pool.ask(0.45, "a", 48, 2, "y")
    pool.run(60.0)
    assert [r.outcome for r in pool.requests()] == ["finished"] * 3
    assert loads(pool) <= 6


def test_adapters_as_large_as_the_pool_take_turns():
    pool = make_pool(
        ("a",), pages=200, adapters=dict.fromkeys("uvwxyz", 60), link_bytes_per_s=1e8, slots=8
    )
    for i in range(144):
        pool.ask(0.02 * i, "a", 40, 6, "uvwxyz"[i * 5 % 6])
    pool.run(400.0)
    assert len(pool.requests()) == 144
    assert loads(pool) < 144


def test_a_request_left_with_nothing_running_and_nothing_loading_is_planned_again():
    pool = make_pool(("a",), pages=11, adapters={"x": 6, "z": 6}, link_bytes_per_s=4e6)
    pool.ask(0.0, "a", 20, 40)
    head = pool.ask(0.05, "a", 20, 4, "x")
    pool.world.at(0.15, lambda: pool.core.abort(head))
    pool.ask(0.15, "a", 20, 4, "z")
    pool.run(30.0)
    assert len(pool.requests()) == 3


tight = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from("ab"),
        st.integers(1, 90),
        st.integers(1, 20),
        st.sampled_from([None, "x", "y", "z"]),
    ),
    min_size=2,
    max_size=12,
)


@given(tight, st.sampled_from(["vtc", "fcfs"]), st.integers(14, 24), st.sampled_from([0, 1, 8]))
def test_every_request_ends_in_a_pool_that_barely_holds_it(traffic, policy, pages, prefetch):
    pool = make_pool(
        ("a", "b"), policy=policy, pages=pages, adapters=TIGHT, link_bytes_per_s=5e6,
        slots=4, prefetch=prefetch,
    )  # fmt: skip
    for one in traffic:
        pool.ask(*one)
    pool.run(120.0)
    assert len(pool.requests()) == len(traffic)


def test_many_requests_for_one_loading_adapter_block_nobody_else():
    pool = make_pool(("a", "b"), adapters={"x": 60}, link_bytes_per_s=8e5, policy="fcfs")
    for _ in range(30):
        pool.ask(0.0, "a", 20, 4, "x")
    pool.ask(0.01, "b", 20, 4)
    pool.run(60.0)
    bystander = next(r for r in pool.requests() if r.tenant == "b")
    assert bystander.ttft_s < 0.1
    assert pool.total("wait_adapter_s", "a") > 30


def test_a_failed_step_is_no_work_done_and_hurts_only_its_rows():
    class Broken:
        def execute(self, plan):
            raise RuntimeError("no such instruction")

    pool = make_pool(runner=Broken())
    pool.ask(0.0, "a", 50, 5)
    pool.run()
    (row,) = pool.requests()
    assert row.outcome == "failed"
    assert pool.total("prompt_tokens") == pool.total("service") == 0
    assert pool.core.scheduler._counters.value("a") == 0
    assert any("RuntimeError" in (e.detail or "") for e in pool.logs(EventRecord))
    assert not any("no such instruction" in (e.detail or "") for e in pool.logs(EventRecord))


def test_a_row_that_fails_leaves_its_batch_mates_alone():
    class OneBad:
        def execute(self, plan):
            bad = {s.request_id: "not finite" for s in plan.segments if s.tenant == "b"}
            good = [s for s in plan.segments if s.samples and s.tenant != "b"]
            return StepOutcome({s.request_id: 1 for s in good}, bad)

    pool = make_pool(runner=OneBad())
    pool.ask(0.0, "a", 5, 3)
    pool.ask(0.0, "b", 5, 3)
    pool.run()
    assert {r.tenant: r.outcome for r in pool.requests()} == {"a": "finished", "b": "failed"}


def test_an_id_in_use_is_refused_and_may_be_used_again_when_it_is_not():
    pool = make_pool()
    pool.ask(0.0, "a", 5, 3)
    pool.world.run_next()
    pool._asked.clear()
    pool.ask(0.0, "a", 5, 3)
    with pytest.raises(EngineError, match="'a-0' is in use"):
        pool.world.run_next()
    pool.run()
    assert len(pool.requests()) == 1
    assert pool.core.status().running == 0


@pytest.mark.parametrize(("prompt", "out"), [(0, 5), (5, 0)])
def test_an_empty_prompt_or_no_tokens_asked_for_is_refused(prompt, out):
    pool = make_pool()
    pool.ask(0.0, "a", prompt, out)
    pool.run()
    assert pool.requests()[0].outcome == "failed"
    assert pool.requests()[0].output_tokens == 0


def test_the_way_from_the_front_is_part_of_the_front_wait():
    pool = make_pool()
    pool.ask(0.0, "a", 20, 3, link_s=0.25)
    pool.run()
    (r,) = pool.requests()
    assert r.wait_front_s == pytest.approx(0.25)
    waits = sum(getattr(r, f"wait_{x}_s") for x in ("slot", "budget", "kv", "adapter"))
    assert r.ttft_s == pytest.approx(r.wait_front_s + waits + r.prefill_s)


def test_a_gap_target_passed_while_preempted_is_a_miss_even_if_the_client_leaves():
    pool = make_pool(("a", "b"), pages=12, slots=2, slo=Slo(max_gap_s=0.2), policy="fcfs")
    pool.ask(0.0, "a", 60, 120)
    late = pool.ask(0.01, "b", 60, 60)
    pool.world.every(0.1, 3.0, pool.core.tick)
    pool.world.at(1.2, lambda: pool.core.abort(late))
    pool.run()
    row = next(r for r in pool.requests() if r.request_id == late)
    assert row.preemptions > 0
    assert row.outcome == "aborted"
    assert row.missed_gap
    assert row.slo_met is False


def test_a_gap_target_is_booked_in_time_though_an_earlier_request_waits_before_the_preempted():
    pool = make_pool(
        ("a", "b"), pages=18, slots=2, adapters={"x": 4}, link_bytes_per_s=1e4,
        slo=Slo(max_gap_s=0.2), policy="fcfs", bucket_s=1.0,
    )  # fmt: skip
    pool.ask(0.0, "a", 60, 150)
    pool.ask(0.0, "b", 20, 4, "x")  # its adapter takes half a minute
    late = pool.ask(0.01, "b", 60, 60)
    seen = []

    def look():
        pool.core.tick()
        seen.extend(r.preemptions for r in pool.core.scheduler._waiting.queues["b"])
        seen.append(pool.core.ledger._slo._live[late].missed_gap)

    pool.world.at(1.4, look)
    pool.run(3.0)
    assert seen == [0, 1, True]


@pytest.mark.parametrize("jumping", [True, False])
def test_a_jump_does_not_pass_by_a_head_whose_adapter_is_to_be_fetched(jumping):
    """While `a` decodes its counter passes that of `c`, whose adapter is fetched from then on."""
    pool = make_pool(
        ("a", "b", "c"), slots=2, adapters={"x": 6, "y": 6}, pages=400, prefetch=1,
        link_bytes_per_s=1e6, page_tokens=512,
    )  # fmt: skip
    pool.ask(0.0, "c", 300, 1)
    pool.ask(0.2, "a", 20, 300)
    pool.ask(0.2, "b", 30, 300)
    pool.ask(0.3, "a", 20, 3, "x")
    pool.ask(0.3, "c", 20, 3, "y")
    begun = {}
    begin = pool.core._transfers.begin

    def noted(order):
        begun[order.key] = pool.clock.now()
        begin(order)

    pool.core._transfers.begin = noted
    pool.run(jumping=jumping)
    assert begun == pytest.approx({"key-x": 0.308, "key-y": 0.319}, abs=0.001)


def test_planning_does_not_take_longer_the_longer_the_queue_is_short_of_pages():
    """Bounded examinations, counted: no timing."""
    pool = make_pool(("a", "b"), pages=40, slots=8, bypass=1000)
    pool.ask(0.0, "a", 500, 40)
    for _ in range(1000):
        pool.ask(0.05, "b", 400, 2)
    pool.world.run_to(0.0)
    tries = 0
    make_room = pool.core.scheduler._prefetch.make_room

    def counted(*args, **kw):
        nonlocal tries
        tries += 1
        return make_room(*args, **kw)

    pool.core.scheduler._prefetch.make_room = counted
    pool.run(0.5)
    assert tries <= 4 * pool.core.status().steps


def test_a_flood_for_a_loading_adapter_leaves_the_scan_room_for_everybody_else():
    pool = make_pool(("a", "b"), adapters={"x": 60}, link_bytes_per_s=8e5, policy="fcfs")
    for _ in range(200):
        pool.ask(0.0, "a", 20, 1, "x")
    pool.ask(0.01, "b", 20, 4)
    pool.run(60.0)
    bystander = next(r for r in pool.requests() if r.tenant == "b")
    assert bystander.ttft_s < 0.1


def test_an_adapter_that_the_kv_floor_keeps_out_is_refused_at_once_with_both_numbers():
    pool = make_pool(("a",), pages=20, adapters={"x": 12}, kv_floor_bytes=10 * PAGE_BYTES)
    pool.ask(0.0, "a", 20, 4, "x")
    pool.world.run_to(0.0)
    (end,) = pool.core.step().ended
    assert end.reason == "its adapter needs 12 pages; the pool lets adapters take 10"


def test_who_gives_way_while_its_adapter_drains_is_told_and_does_not_wait_for_ever():
    pool = make_pool(("a", "b"), pages=16, slots=2, adapters={"x": 2}, policy="fcfs")
    pool.ask(0.0, "a", 60, 120)
    late = pool.ask(0.4, "b", 60, 120, "x")

    def unload():
        with pool.core.ledger.lock:
            pool.core.ledger.tick(pool.clock.now())
            assert not pool.core.scheduler.unload("key-x")

    pool.world.at(0.7, unload)
    pool.run(60.0)
    row = next(r for r in pool.requests() if r.request_id == late)
    assert row.preemptions == 1
    assert row.outcome == "failed"
    assert len(pool.requests()) == 2


def test_a_prefill_under_way_is_not_kept_from_the_step_by_adapters_that_keep_coming():
    """A step takes two adapters. Once `x` and `z` decode, and new rows of theirs keep coming, the
    long prompt of `y` would find no place any more."""
    pool = make_pool(
        ("x", "y", "z"), adapters={"x": 4, "y": 4, "z": 400}, pages=2000, slots=16,
        adapters_per_step=2, prefix_cache=False, link_bytes_per_s=5e7,
    )  # fmt: skip
    pool.ask(0.0, "x", 20, 100, "x")
    pool.ask(0.1, "y", 5, 1, "y")
    pool.ask(0.2, "z", 10, 40, "z")  # waits for its large adapter, its counter low
    long = pool.ask(0.5, "y", 1500, 5, "y")
    for i in range(100):
        pool.ask(0.55 + 0.1 * i, "z", 10, 40, "z")
        pool.ask(0.55 + 0.1 * i, "x", 10, 40, "x")
    pool.run()
    row = next(r for r in pool.requests() if r.request_id == long)
    # z may overtake until it has had as much as y, by counters; then the step is y's.
    assert row.wait_budget_s < 3.0


def test_a_head_whose_adapter_finds_no_room_is_passed_by_a_bounded_number_of_times():
    """Two adapters fill the room and are never out of use; a third one is asked for once."""
    pool = make_pool(
        ("a", "b", "c"), slots=8, adapters={"x": 12, "y": 12, "z": 12}, pages=34,
        link_bytes_per_s=1e8, prefix_cache=False,
    )  # fmt: skip
    for i in range(100):
        pool.ask(0.1 * i, "a", 10, 20, "x")
        pool.ask(0.1 * i + 0.05, "b", 10, 20, "y")
    third = pool.ask(1.0, "c", 10, 4, "z")
    pool.run()
    row = next(r for r in pool.requests() if r.request_id == third)
    passed = [r for r in pool.requests() if row.arrived < r.first_scheduled < row.first_scheduled]
    assert len(passed) <= 8 + 8  # by those who passed, and those who ran already
    assert row.wait_adapter_s < 1.5
