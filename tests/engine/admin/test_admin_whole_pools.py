"""An operator at a real engine of two pools: tenants move while they stream, workers are killed."""

from __future__ import annotations

import json

import pytest

from engine.admin.client import Unreachable
from telemetry.source import open_source
from tests.engine.admin.whole import Engine, ended, until

pytestmark = pytest.mark.xdist_group("admin-whole")
LONG = 1900  # tokens, of 2,048 of context: it is still under way when an act has been done


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.full)])
def test_a_tenant_that_moves_in_mid_stream_loses_no_request_and_no_token(
    engine: Engine, rounds: int
) -> None:
    """Each stream ends where it began, with the text it would have had; what comes after the move
    is served by the other pool's worker; everything is given back in both."""
    whole = ended(engine.stream("alice", model="one", max_tokens=LONG))[1]
    assert engine.ask("alice", model="two").status_code == 200  # both are on the device
    workers = {"main": engine.worker, "gold": engine.gold}
    pages = {pool: worker.status().free_pages for pool, worker in workers.items()}
    for pool, old in (("gold", "main"), ("main", "gold")) * rounds:
        served: list[int] = []

        def move(pool: str = pool, old: str = old, served: list[int] = served) -> None:
            reply = engine.act("MoveTenant", tenant="alice", pool=pool)
            assert workers[old].status().running == 1  # before and after
            assert [(w.pool, w.ok) for w in reply.workers] == [(pool, True), (old, True)]
            assert "what it has under way ends here (1 request)" in reply.workers[1].detail
            before = workers[pool].status().output_tokens
            assert engine.ask("alice", model="one", max_tokens=3).status_code == 200
            served.append(workers[pool].status().output_tokens - before)

        events = engine.stream("alice", move, model="one", max_tokens=LONG)
        assert (*ended(events), served) == ("length", whole, [3])
        assert engine.tenant("alice").pool == pool
    until(lambda: {w.status().running for w in workers.values()} == {0})
    assert {t.under_way for t in engine.operator.show().tenants} == {0}
    adapters = {(a.pool, a.name) for a in engine.operator.show().adapters}
    assert adapters == {("main", "one"), ("main", "two")}
    until(lambda: workers["gold"].status().free_pages == pages["gold"])  # the adapters left it
    assert engine.ask("alice", model="two").status_code == 200
    assert workers["main"].status().free_pages == pages["main"]


def test_a_tenant_at_its_limit_is_at_its_limit_in_its_new_pool(engine: Engine) -> None:
    codes = [engine.ask("carol").status_code for _ in range(2)]
    assert codes[-1] == 429
    assert engine.act("MoveTenant", tenant="carol", pool="gold").results[0].ok
    assert engine.ask("carol").status_code == 429
    assert (engine.tenant("carol").pool, engine.tenant("carol").rpm) == ("gold", 1)
    assert engine.act("Undo").results[0].ok
    assert engine.ask("carol").status_code == 429


def test_an_adapter_of_one_pools_tenants_is_that_pools_affair(engine: Engine) -> None:
    reply = engine.act("UnloadAdapter", adapter="two")
    assert [(w.pool, w.ok) for w in reply.workers] == [("main", True)]
    folder = str(engine.adapter("three"))
    reply = engine.act("LoadAdapter", adapter="three", folder=folder, tenants=["greta"])
    assert [(w.pool, w.ok) for w in reply.workers] == [("gold", True)]
    assert engine.ask("greta", model="three").status_code == 200
    assert [engine.act("Undo").results[0].ok for _ in range(2)] == [True, True]
    assert engine.ask("greta", model="three").status_code == 404


def test_a_worker_killed_during_acts_is_told_what_holds_when_it_is_back(engine: Engine) -> None:
    """Acts that it must do itself are refused when nobody else can; the rest hold at once, and it
    is told of them. The other pool never notices. What was there before is there from the first
    request that it takes."""
    assert engine.act("MoveTenant", tenant="alice", pool="gold").results[0].ok
    owed = []
    for turn, policy in enumerate(("fcfs", "lcf", "fcfs", "vtc", "fcfs", "lcf")):
        if turn == 2:
            engine.kill(1)
        reply = engine.act("SetPolicy", policy=policy)
        assert reply.results[0].ok
        owed.append([w.pool for w in reply.workers if w.owed])
        assert engine.ask("bob").status_code == 200
    assert owed[:2] == [[], []]
    assert owed[-1] == ["gold"]
    with pytest.raises(Unreachable, match="worker gold does not answer"):
        engine.act("MoveTenant", tenant="bob", pool="gold")
    reply = engine.act("SetTenant", tenant="greta", values={"rpm": "7"})
    assert (reply.results[0].ok, [w.owed for w in reply.workers]) == (True, [True])
    assert engine.tenant("greta").rpm == 7
    assert engine.tenant("bob").pool == "main"
    codes = set()

    def served() -> bool:
        codes.add(engine.ask("alice", model="one").status_code)
        return 200 in codes

    until(served)
    assert codes <= {200, 503}

    def settled() -> bool:
        return not any(w.owed or w.trouble for w in engine.operator.show().workers)

    until(settled)
    assert engine.gold.status().policy == engine.worker.status().policy == "lcf"
    assert engine.ask("greta").status_code == 200
    assert engine.act("MoveTenant", tenant="bob", pool="gold").results[0].ok
    assert engine.ask("bob").status_code == 200
    assert engine.act("MoveTenant", tenant="alice", pool="main").results[0].ok


def test_whoever_did_what_and_why_is_in_the_store(engine: Engine) -> None:
    values = {"weight": "0.5", "rpm": "500"}
    engine.act("MoveTenant", tenant="alice", pool="gold")
    engine.act("SetTenant", tenant="alice", values=values, act={"ttl_s": 600.0})
    engine.act("SetTenant", tenant="alice", values={"tier": "low"}, act={"dry_run": True})
    engine.act("PreemptTenant", tenant="alice")
    engine.act("UnloadAdapter", adapter="one")
    engine.processes.stop()
    assert not [line for line in engine.heard if "cleanly" in line]
    source = open_source(engine.folder / "store")
    try:
        until_s = engine.processes.clock.wall_s + 7200
        policies = source.read("policy", 0.0, until_s)
        events = source.read("event", 0.0, until_s)
        runs = source.read("engine_run", 0.0, until_s)
    finally:
        source.close()
    first = min((p for p in policies if p.pool == "main"), key=lambda p: p.version)
    assert (first.policy, first.who) == ("fcfs", "start")  # operators' changes were in force
    last = max((p for p in policies if p.pool == "gold"), key=lambda p: p.at)
    assert (last.who, last.why) == ("op", "a test")
    alice = json.loads(last.parameters)["alice"]
    assert (alice["weight"], alice["rpm"], alice["tier"]) == (0.5, 500, 0)
    said = [(e.pool, e.detail) for e in events if e.kind == "policy"]
    changed = "tenant 'alice': weight 1 -> 0.5, rpm none -> 500 by op: a test"
    assert [pool for pool, detail in said if detail == changed] == ["gold"]
    moved = "tenant 'alice': moves from pool 'main' to 'gold' by op: a test"
    assert {pool for pool, detail in said if detail == moved} == {"gold", "main"}
    assert not any("tier" in detail for _, detail in said)
    acts = [e for e in events if e.kind == "admin"]
    assert {e.pool for e in acts if "changes by operators are taken up" in e.detail} >= {"main"}
    assert any(e.tenant == "alice" and "preempt the excess" in e.detail for e in acts)
    assert any(e.adapter == "one" and "by op: a test" in e.detail for e in acts)
    over = [e for e in acts if e.detail.startswith("over, while the engine was down: over")]
    assert [(e.at, e.pool) for e in over] == [(pytest.approx(engine.over_s, abs=1e-5), "main")]
    configs = [json.loads(r.config) for r in runs if r.pool == "gold"]
    assert any({"alice", "greta"} <= {t["name"] for t in c["tenants"]} for c in configs)
