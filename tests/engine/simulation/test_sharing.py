"""One view of who had what over a pool's replicas: what a tenant gets at one counts at all."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from engine.clock import TurnedClock
from engine.config import PoolSpec, Tenant
from engine.shared_view import EVERY_S
from engine.simulation.sharing import Sharing
from engine.simulation.simulate import simulate
from engine.simulation.workload import AdapterSpec, Arrival
from engine.simulation.world import World
from tests.engine.simulation.setups import MACHINE, limits, setup

SLOTS, PROMPT, OUTPUT = 4, 40, 20
ADAPTERS = (AdapterSpec("floods", 8, 1), AdapterSpec("shared", 8, 1))


def flood_and_victim(each: int = 70) -> list[Arrival]:
    """All at once: `each` of the flood's with an adapter whose home is the first replica; with the
    other replica's as many again, half the flood's and half the victim's. Loads stay even, so that
    every adapter stays at home."""
    arrivals = []
    for i in range(2 * each):
        if i % 2 == 0:
            tenant, adapter = "flood", "floods"
        else:
            tenant, adapter = ("victim", "flood")[i // 2 % 2], "shared"
        arrivals.append(Arrival(1e-6 * i, tenant, adapter, PROMPT, OUTPUT, i))
    return arrivals


def service_at(until_s: float, policy: str = "vtc") -> tuple[float, float]:
    """(flood's, victim's) while both still wait at the replica they share."""
    result = simulate(
        flood_and_victim(),
        setup(
            Tenant("flood"),
            Tenant("victim"),
            policy=policy,
            adapters=ADAPTERS,
            pools=(PoolSpec("main", 2, limits(slots=SLOTS, queue_per_tenant=4096)),),
        ),
        until_s=until_s,
    )
    by_name = {t.tenant: t for t in result.tenants}
    assert all(by_name[t].unfinished > 2 * SLOTS for t in by_name), "both are still backlogged"
    return by_name["flood"].service, by_name["victim"].service


def bound() -> float:
    """VTC's own U = 2·max(wp·Lin, wq·M) of the one replica where the two meet, and what the other
    may have charged and not told: everything of the steps that end within 50 ms and a step."""
    longest_in, batch = float(PROMPT), SLOTS * (PROMPT + OUTPUT)
    costs = MACHINE.costs
    shortest_s = costs.totals(0, 1, 1, 1)
    longest_s = costs.totals(SLOTS * PROMPT, SLOTS, SLOTS * PROMPT * PROMPT, 2)
    steps = math.ceil((EVERY_S + longest_s) / shortest_s) + 1
    untold = steps * SLOTS * 2.0 + SLOTS * longest_in * (1 + steps / OUTPUT)
    return 2 * max(longest_in, 2.0 * batch) + untold


@pytest.mark.parametrize("policy", ["vtc", "vtc-predicted", "lcf", "deficit-round-robin"])
def test_who_floods_one_replica_is_served_less_at_the_other(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood, victim = service_at(2.0, policy)
    assert flood == pytest.approx(victim, abs=bound())
    monkeypatch.setattr(Sharing, "wanted", lambda self: None)
    flood, victim = service_at(2.0, policy)
    assert flood - victim > bound(), "without one view the flood has what both replicas give"


@pytest.mark.parametrize("until_s", [0.5, 1.0, 2.0])
def test_the_gap_over_replicas_stays_within_vtcs_own_bound_and_what_is_not_told_yet(
    until_s: float,
) -> None:
    flood, victim = service_at(until_s)
    assert abs(flood - victim) <= bound()


def test_arrivals_at_one_replica_and_requests_count_there_alone() -> None:
    """Round-robin goes by requests, not by service: it ignores the other replica."""
    flood, victim = service_at(2.0, "round-robin")
    assert flood - victim > bound()


class Told:
    """A replica that has always something to tell, and notes when it is told something."""

    def __init__(self, world: World) -> None:
        self.up, self.tokens, self.waiting = True, 1, 0
        self.at: list[float] = []
        counters = SimpleNamespace(take_charges=lambda: {"a": 1.0})
        self.core = SimpleNamespace(
            scheduler=SimpleNamespace(counters=counters),
            status=lambda: SimpleNamespace(waiting=self.waiting),
            charged_elsewhere=lambda charges: self.at.append(round(world.clock.now(), 6)),
        )


def test_who_comes_finds_all_told_and_while_nobody_waits_once_a_second_will_do() -> None:
    world = World(TurnedClock())
    first, second = Told(world), Told(world)
    sharing = Sharing([first, second], world)  # type: ignore[list-item]
    sharing.wanted()
    world.run_to(0.5)
    assert first.at == [0.0, 0.05]
    world.at(0.52, sharing.wanted)
    world.run_to(1.6)
    assert first.at[2:] == [0.52, 0.55, 1.55]
    second.waiting = 1
    world.run_to(2.7)
    assert first.at[5:] == [2.55, 2.6, 2.65, 2.7]
    first.tokens = second.tokens = 0
    world.run_to(10.0)
    assert first.at[9:] == [2.75], "the last of it is told, and the world may end"
    assert world.empty
    assert second.at == first.at
