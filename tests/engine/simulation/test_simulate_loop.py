"""The simulator's loop: what comes goes somewhere, in its order, the same every time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.clock import TurnedClock
from engine.config import PoolSpec, Tenant
from engine.errors import WorkloadError
from engine.simulation.blocks import BLOCK_TOKENS, prompt_of
from engine.simulation.result_json import as_json
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Fault
from engine.simulation.world import World
from telemetry.records import RequestRecord
from tests.engine.simulation.setups import ADAPTER, limits, poisson, setup


class Kept:
    """A sink that keeps all rows."""

    def __init__(self):
        self.batches = []

    def submit(self, batch):
        self.batches.append(batch)

    def logs(self, kind):
        return [r for b in self.batches for r in b.logs if isinstance(r, kind)]


def ended(tenant) -> int:
    return tenant.finished + tenant.aborted + tenant.failed + tenant.timed_out


def by_name(result) -> dict:
    return {t.tenant: t for t in result.tenants}


def timeless(result) -> dict:
    return {**as_json(result), "wall": None}


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("until_s", [8.0, math.inf])
def test_every_arrival_is_rejected_or_ends_or_is_under_way(replicas, until_s):
    pool = PoolSpec("main", replicas, limits())
    tenants = (Tenant("a", rpm=60), Tenant("b", concurrency=6))
    result = simulate(
        poisson(400, 25, adapters=(None, "x")),
        setup(*tenants, pools=(pool,), adapters=ADAPTER),
        until_s=until_s,
    )
    for t in result.tenants:
        assert t.offered == t.admitted + sum(t.rejected.values())
        assert t.admitted == ended(t) + t.unfinished
    assert {*by_name(result)["a"].rejected} == {"rpm"}
    assert {*by_name(result)["b"].rejected} == {"concurrency"}
    under_way = sum(t.unfinished for t in result.tenants)
    assert under_way == 0 if until_s == math.inf else under_way > 0


def test_service_at_the_end_is_what_was_computed():
    result = simulate(poisson(200, 20), setup(Tenant("a", weight=3.0), Tenant("b")))
    for t in result.tenants:
        assert t.service == pytest.approx(t.prompt_tokens + 2 * t.output_tokens)
    assert sum(t.share for t in result.tenants) == pytest.approx(1)


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_same_inputs_give_the_same_result(replicas):
    made = setup(
        pools=(PoolSpec("main", replicas, limits()),),
        adapters=ADAPTER,
        faults=(Fault("slow", 2, 2, 3.0), Fault("lost", 5, 1)),
    )
    first, second = (simulate(poisson(300, 30, adapters=(None, "x")), made) for _ in range(2))
    assert timeless(first) == timeless(second)
    assert first.wall is not None


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("policy", ["vtc", "vtc-predicted", "fcfs", "deficit-round-robin"])
def test_jumping_over_identical_steps_changes_no_result(replicas, policy):
    made = setup(
        policy=policy,
        pools=(PoolSpec("main", replicas, limits()),),
        adapters=ADAPTER,
        faults=(Fault("slow", 20, 5, 3.0), Fault("freeze", 40, 2)),
    )

    def found(jumping):
        arrivals = poisson(120 // replicas, 1.5, adapters=(None, "x"), output=(1, 200))
        return as_json(simulate(arrivals, made, jumping=jumping))

    jumped, stepped = found(True), found(False)
    assert flat({**jumped, "wall": None}) == pytest.approx(flat({**stepped, "wall": None}))


def flat(value, path="") -> dict:
    """All numbers of nested values by their places."""
    if isinstance(value, dict):
        return {k: v for key, x in value.items() for k, v in flat(x, f"{path}.{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for i, x in enumerate(value) for k, v in flat(x, f"{path}[{i}]").items()}
    return {path: value}


def test_arrivals_are_taken_one_by_one():
    pulled = 0

    def counted():
        nonlocal pulled
        for arrival in poisson(200, 20):
            pulled += 1
            yield arrival

    ahead = []
    simulate(counted(), setup(), progress=lambda p: ahead.append(pulled - p.offered))
    assert len(ahead) > 5
    assert set(ahead) == {0, 1} or set(ahead) == {1}


def test_what_is_counted_is_what_the_ledger_says_of_each_request():
    kept = Kept()
    result = simulate(poisson(200, 25, adapters=(None, "x")), setup(adapters=ADAPTER), rows=kept)
    for t in result.tenants:
        own = [r for r in kept.logs(RequestRecord) if r.tenant == t.tenant]
        assert t.finished == len(own)
        assert t.output_tokens == sum(r.output_tokens for r in own)
        for spread, values in (
            (t.ttft, [r.ttft_s for r in own]),
            (t.tpot, [r.tpot_s for r in own if r.tpot_s is not None]),
            (t.max_gap, [r.max_gap_s for r in own if r.max_gap_s is not None]),
        ):
            found = (spread.mean_s, spread.p50_s, spread.p90_s, spread.p99_s, spread.max_s)
            expected = (np.mean(values), *np.percentile(values, (50, 90, 99, 100)))
            assert spread.n == len(values)
            assert found == pytest.approx(expected, rel=1e-6)
        for reason, waited in t.waits_s.items():
            columns = (f"wait_{reason}_s", f"rewait_{reason}_s")
            assert waited == pytest.approx(
                sum(getattr(r, c) or 0.0 for r in own for c in columns), abs=1e-9
            )
        assert t.adapter_lookups == sum(r.adapter is not None for r in own)
        assert t.adapter_hits == sum(r.adapter_state == "device" for r in own)


def test_rows_change_nothing_of_the_result():
    without = simulate(poisson(150, 25), setup())
    assert timeless(without) == timeless(simulate(poisson(150, 25), setup(), rows=Kept()))


def test_pools_of_their_own_do_not_touch_each_other():
    a, b = Tenant("a", pool="left"), Tenant("b", pool="right")
    pools = (PoolSpec("left", 1, limits()), PoolSpec("right", 1, limits(slots=2)))
    arrivals = list(poisson(200, 25))
    both = by_name(simulate(arrivals, setup(a, b, pools=pools)))
    for tenant, pool in ((a, pools[0]), (b, pools[1])):
        alone = simulate(
            [x for x in arrivals if x.tenant == tenant.name], setup(tenant, pools=(pool,))
        )
        assert replace(alone.tenants[0], share=0.0) == replace(both[tenant.name], share=0.0)


def test_a_tenant_is_served_by_its_tiers_pool_as_serve_places_it():
    pools = (PoolSpec("shared", 1, limits()), PoolSpec("gold", 1, limits(), tiers=(1,)))
    result = simulate(poisson(20, 20), setup(Tenant("a"), Tenant("b", tier=1), pools=pools))
    assert {t.tenant: t.pool for t in result.tenants} == {"a": "shared", "b": "gold"}
    assert all(t.finished == t.offered for t in result.tenants)


def test_two_replicas_serve_a_load_that_drowns_one():
    def waited(replicas):
        pool = PoolSpec("main", replicas, limits())
        result = simulate(poisson(400, 45), setup(pools=(pool,)))
        return max(t.ttft.p90_s for t in result.tenants)

    assert waited(2) < waited(1) / 2


# -- faults


def test_a_slow_engine_takes_longer_for_a_while():
    one = [Arrival(at, "a", None, 40, 10, 0) for at in (1.0, 11.0, 21.0)]
    kept = Kept()
    simulate(one, setup(faults=(Fault("slow", 10, 10, 4.0),)), rows=kept)
    before, during, after = sorted(kept.logs(RequestRecord), key=lambda r: r.arrived)
    assert during.ttft_s == pytest.approx(4 * before.ttft_s)
    assert during.tpot_s == pytest.approx(4 * before.tpot_s)
    assert after.ttft_s == pytest.approx(before.ttft_s)


def test_a_freeze_falls_on_one_step():
    one = [Arrival(1.0, "a", None, 40, 30, 0)]
    calm = simulate(one, setup()).tenants[0]
    frozen = simulate(one, setup(faults=(Fault("freeze", 1.1, 7.0),))).tenants[0]
    assert frozen.max_gap.max_s == pytest.approx(calm.max_gap.p50_s + 7, rel=0.01)
    assert frozen.tpot.mean_s == pytest.approx(calm.tpot.mean_s + 7 / 29)


@pytest.mark.parametrize("busy", [True, False])
def test_a_lost_replica_fails_what_it_had_and_comes_back(busy):
    at_s = 5.05 if busy else 4.0
    early, refused = Arrival(5.0, "a", None, 40, 200, 0), Arrival(6.0, "a", None, 40, 5, 0)
    late = Arrival(20.0, "a", None, 40, 5, 0)
    kept = Kept()
    made = setup(faults=(Fault("lost", at_s, 10.0),))
    result = simulate([early, refused, late], made, rows=kept)
    a = result.tenants[0]
    assert a.rejected == {"unserved": 1 if busy else 2}
    assert (a.failed, a.finished, a.unfinished) == (int(busy), 1, 0)
    assert a.output_tokens == 5
    assert len({b.run_id for b in kept.batches}) == 2


def test_the_other_replica_serves_while_one_is_lost():
    pool = PoolSpec("main", 2, limits())
    made = setup(pools=(pool,), faults=(Fault("lost", 2.0, math.inf, replica=1),))
    result = simulate(poisson(150, 15), made)
    failed = sum(t.failed for t in result.tenants)
    assert 0 < failed < 20
    assert sum(t.finished for t in result.tenants) == 150 - failed
    assert all(not t.rejected for t in result.tenants)


# -- what is refused


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("stranger", "said"),
    [(Arrival(0.02, "c", None, 9, 9, 0), "'c'"), (Arrival(0.02, "a", "y", 9, 9, 0), "'y'")],
)
def test_an_arrival_nobody_knows_ends_the_run_in_the_middle_of_a_step_too(
    replicas, stranger, said, capfd
):
    made = setup(pools=(PoolSpec("main", replicas, limits()),))
    with pytest.raises(WorkloadError, match=said):
        simulate([Arrival(0.01, "a", None, 60, 9, 0), stranger], made)
    assert "step" not in capfd.readouterr().err


def test_a_request_that_never_fits_beside_its_adapter_is_impossible():
    made = setup(adapters=ADAPTER, pools=(PoolSpec("main", 1, limits(pool_bytes=12 << 16)),))
    sizes = [(64 - 10, 10), (65 - 10, 10), (64 + 100, 10)]
    arrivals = [Arrival(i, "a", "x", p, o, 0) for i, (p, o) in enumerate(sizes)]
    a = simulate(arrivals, made).tenants[0]
    assert a.rejected == {"impossible": 2}
    assert a.finished == 1


def test_a_setup_that_cannot_be_says_what_to_do():
    small = (PoolSpec("main", 1, limits(pool_bytes=100_000)),)
    for broken, said in (
        (setup(pools=small), "give at least"),
        (setup(Tenant("a", pool="nowhere")), "'nowhere'"),
        (setup(faults=(Fault("lost", 1, 1, replica=1),)), "no replica 1"),
        (setup(adapters=(replace(ADAPTER[0], rank=300),)), "raise pool_bytes"),
    ):
        with pytest.raises(WorkloadError, match=said):
            simulate([], broken)


def test_nothing_comes_and_nothing_is_found():
    result = simulate([], setup())
    assert result.tenants == ()
    assert result.pools[0].jain is None
    assert result.offered == 0


# -- the world


def test_the_world_lets_events_and_arrivals_happen_in_order_events_first():
    clock = TurnedClock()
    world = World(clock)
    seen = []

    class Feed:
        next_s = 1.0

        def take(self):
            seen.append(("arrival", clock.now()))
            self.next_s = {1.0: 2.0, 2.0: 2.5}.get(self.next_s, math.inf)

    world.feed = Feed()
    for at in (2.0, 0.5, 3.0):
        world.at(at, lambda: seen.append(("event", clock.now())))
    assert world.next_s == 0.5
    world.run_to(2.2)
    assert seen == [("event", 0.5), ("arrival", 1.0), ("event", 2.0), ("arrival", 2.0)]
    assert clock.now() == 2.2
    world.run_next()
    world.run_next()
    assert seen[-2:] == [("arrival", 2.5), ("event", 3.0)]
    assert world.empty


# -- prompts


def test_prompts_share_ids_exactly_where_their_blocks_say_so():
    def made(number, prefix, tokens=BLOCK_TOKENS + 88):
        return prompt_of(Arrival(0, "a", None, tokens, 1, 0, prefix), number)

    one, two, other = made(1, (7, 8)), made(2, (7, 9)), made(3, None)
    assert len(one) == len(two) == BLOCK_TOKENS + 88
    assert one[:BLOCK_TOKENS] == two[:BLOCK_TOKENS]
    assert not set(one[BLOCK_TOKENS:]) & set(two[BLOCK_TOKENS:])
    assert not set(one) & set(other)
    assert one[-1] == one[len(one) - 1]
    assert list(one) == [one[i] for i in range(len(one))]
    assert made(1, (7,))[BLOCK_TOKENS:] != made(2, (7,))[BLOCK_TOKENS:]
    with pytest.raises(IndexError):
        one[len(one)]
