"""A tenant moves between pools: in an order that loses nobody, whatever workers do meanwhile."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.admin.errors import ChangeRefused, WorkerSilent
from engine.admin.in_force import InForce
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.part import part
from engine.config import read_settings
from tests.engine.admin.crews import ALICE, BASE, InMemory, World


def test_a_tenant_that_moves_is_taken_in_before_it_is_sent_and_let_go_after(world: World) -> None:
    done = world.desk.move(ALICE, "a", "gold")
    assert world.log == ["gold/0", "front", "main/0", "main/1"]
    assert done.effect == "tenant 'a': moves from pool 'main' to 'gold'"
    assert [(s.pool, s.replica, s.ok) for s in done.said] == [
        ("gold", 0, True), ("main", 0, True), ("main", 1, True),
    ]  # fmt: skip
    assert world.home("a") == {"gold"}
    assert {n for n, _ in world.of("gold/0").has.adapters} == {"one", "two", "both"}
    assert {n for n, _ in world.of("main/0").has.adapters} == set()
    assert world.settled()


def test_a_new_pool_that_refuses_ends_the_move_and_nothing_was_touched(world: World) -> None:
    world.of("gold/0").refuses = "adapter 'one' needs 90 pages"
    done = world.desk.move(ALICE, "a", "gold")
    assert (done.ok, done.detail, done.version) == (False, "adapter 'one' needs 90 pages", 1)
    assert "front" not in world.log
    assert world.home("a") == {"main"}
    assert world.desk.overlay == world.file.read() == Overlay()


def test_a_new_pool_that_is_silent_keeps_the_tenant_where_it_is(world: World) -> None:
    world.of("gold/0").silent = True
    with pytest.raises(WorkerSilent, match="gold/0"):
        world.desk.move(ALICE, "a", "gold")
    assert world.home("a") == {"main"}
    assert world.front.tenant("a").pool is None  # type: ignore[union-attr]


def test_an_old_worker_that_is_silent_keeps_nobody_from_moving_and_lets_go_when_it_is_back(
    world: World,
) -> None:
    world.of("main/1").silent = True
    done = world.desk.move(ALICE, "a", "gold")
    assert done.ok
    assert [(s.replica, s.owed) for s in done.said if s.pool == "main"] == [(0, False), (1, True)]
    assert world.home("a") == {"gold", "main"}
    world.of("main/1").silent = False
    world.desk.sync(lambda member: False)
    assert world.home("a") == {"gold"}
    assert world.settled()


def test_a_move_reverts_in_the_same_order_when_its_time_is_over_and_by_undo(world: World) -> None:
    world.desk.move(replace(ALICE, ttl_s=60.0), "a", "gold")
    world.log.clear()
    world.now_s += 61.0
    world.desk.expire()
    assert world.log == ["main/0", "main/1", "front", "gold/0"]
    world.desk.move(ALICE, "a", "gold")
    world.log.clear()
    world.desk.undo(ALICE)
    assert world.log == ["main/0", "main/1", "front", "gold/0"]
    assert world.home("a") == {"main"}
    assert world.settled()


def test_a_dry_run_of_a_move_asks_all_whom_it_concerns_and_changes_nothing(world: World) -> None:
    done = world.desk.move(replace(ALICE, dry_run=True), "a", "gold")
    assert [(s.pool, s.replica) for s in done.said] == [("gold", 0), ("main", 0), ("main", 1)]
    assert all(r.dry_run for w in world.workers for r in w.heard)
    assert world.log == []
    assert world.home("a") == {"main"}


def test_limits_and_a_drain_go_with_a_tenant_that_moves(world: World) -> None:
    world.desk.set_tenant(ALICE, "a", {"rpm": "6", "weight": "0.5"})
    world.desk.drain(ALICE, "a")
    world.desk.move(ALICE, "a", "gold")
    tenant = world.of("gold/0").has.tenant("a")
    assert tenant is not None
    assert (tenant.rpm, tenant.weight, tenant.concurrency) == (6, 0.5, 0)
    world.desk.resume(ALICE, "a")
    assert world.home("a") == {"gold"}


def test_a_tier_that_another_pool_serves_moves_the_tenant_and_says_so(world: World) -> None:
    done = world.desk.set_tenant(ALICE, "c", {"tier": "7"})
    assert done.effect == "tenant 'c': tier 0 -> 7, moves from pool 'main' to 'gold'"
    assert world.log == ["gold/0", "front", "main/0", "main/1"]
    assert world.home("c") == {"gold"}


@pytest.mark.parametrize(
    ("pool", "why"), [("main", "already"), ("silver", "there are 'main', 'gold'")]
)
def test_a_move_to_nowhere_is_refused(world: World, pool: str, why: str) -> None:
    with pytest.raises(ChangeRefused, match=why):
        world.desk.move(ALICE, "a", pool)


def test_a_file_may_move_tenants_both_ways_at_once_and_new_pools_wait_for_a_restart(
    tmp_path: Path,
) -> None:
    text = (
        '[[pool]]\nname = "main"\n[[pool]]\nname = "gold"\n'
        '[[tenant]]\nname = "a"\n{a}\n[[tenant]]\nname = "b"\npool = "{b}"\n'
    )
    config = tmp_path / "pools.toml"
    config.write_text(text.format(a="", b="gold"))
    world = World(OverlayFile(tmp_path / "kept"), read_settings(config), config)
    config.write_text(text.format(a='pool = "gold"', b="main"))
    assert "moves from pool 'main' to 'gold'" in world.desk.reload_config(ALICE, False).effect
    assert (world.home("a"), world.home("b")) == ({"gold"}, {"main"})
    config.write_text(text.format(a='pool = "silver"', b="main") + '[[pool]]\nname = "silver"\n')
    effect = world.desk.reload_config(ALICE, False).effect
    assert "only a restart will change pools, pool of tenant 'a'" in effect
    assert world.home("a") == {"gold"}


# -- whatever happens


NAMES = ("main/0", "main/1", "gold/0")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.sampled_from("abc"), st.sampled_from(["main", "gold"])),
        st.tuples(st.just("tier"), st.sampled_from("abc"), st.sampled_from(["0", "7"])),
        st.tuples(st.just("weight"), st.sampled_from("abc"), st.sampled_from(["2", "3"])),
        st.tuples(st.just("rpm"), st.sampled_from("abc"), st.sampled_from(["2", "3"])),
        st.tuples(st.just("drain"), st.sampled_from("abc"), st.just("")),
        st.tuples(st.just("unload"), st.sampled_from(["one", "two", "both"]), st.just("")),
        st.tuples(st.just("load"), st.sampled_from(["n1", "n2"]), st.sampled_from("abc")),
        st.tuples(st.just("pin"), st.sampled_from(["one", "two", "both"]), st.just("")),
        st.tuples(st.just("policy"), st.sampled_from(["fcfs", "lcf"]), st.just("")),
        st.tuples(st.just("undo"), st.just(""), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from(["5", "40"]), st.just("")),
        st.tuples(st.just("sync"), st.just(""), st.just("")),
        st.tuples(st.just("silent"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("restarted"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("refuses"), st.sampled_from(NAMES), st.just("")),
    ),
    max_size=14,
)  # fmt: skip


def take(world: World, step: tuple[str, str, str]) -> None:
    what, one, two = step
    desk, act = world.desk, replace(ALICE, ttl_s=30.0)
    acts: dict[str, Any] = {
        "move": lambda: desk.move(act, one, two),
        "tier": lambda: desk.set_tenant(act, one, {"tier": two}),
        "weight": lambda: desk.set_tenant(act, one, {"weight": two}),
        "rpm": lambda: desk.set_tenant(act, one, {"rpm": two}),
        "drain": lambda: desk.drain(act, one),
        "unload": lambda: desk.unload(act, one),
        "load": lambda: desk.load(act, one, f"/x/{one}", (two,)),
        "pin": lambda: desk.pin(act, one),
        "policy": lambda: desk.set_policy(act, one),
        "undo": lambda: desk.undo(ALICE),
        "sync": lambda: desk.sync(lambda member: False),
    }
    if what == "wait":
        world.now_s += float(one)
        desk.expire()
    elif what == "silent":
        world.of(one).silent = True
    elif what == "refuses":
        world.of(one).refuses = "no"
    elif what == "restarted":
        worker = world.of(one)
        worker.silent, worker.refuses = False, ""
        worker.has, worker.pinned = part(InForce(BASE), worker.pool).settings, ()
        come_back(world, one)
    else:
        acts[what]()


def come_back(world: World, name: str) -> None:
    world.desk.sync(lambda member: f"{member.pool}/{member.replica}" == name)


def run(steps: list[tuple[str, str, str]]) -> None:
    world = World(InMemory())
    for step in steps:
        with suppress(WorkerSilent, ChangeRefused):
            take(world, step)
        assert world.file.read() == world.desk.overlay
    for worker in world.workers:
        worker.silent, worker.refuses = False, ""
    world.desk.sync(lambda member: False)
    assert world.settled()
    assert not world.desk.owes
    assert world.front.policy == world.desk.in_force.settings.policy


@settings(max_examples=15, deadline=None)
@given(STEPS)
def test_whatever_workers_do_nobody_is_sent_where_it_is_not_served_and_all_agree_in_the_end(
    steps: list[tuple[str, str, str]],
) -> None:
    run(steps)


@pytest.mark.full
@given(STEPS)
def test_whatever_workers_do_for_long(steps: list[tuple[str, str, str]]) -> None:
    run(steps)
