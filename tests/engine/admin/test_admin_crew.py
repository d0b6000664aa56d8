"""Operating several workers: who is told what, and what one of them breaks."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from engine.admin.errors import ChangeRefused, GivenUp, WorkerSilent
from engine.admin.in_force import InForce
from engine.admin.part import part
from tests.engine.admin.crews import ALICE, BASE, KEY, World

# -- who is told


def test_only_the_pool_that_a_change_concerns_is_told(world: World) -> None:
    world.desk.set_tenant(ALICE, "b", {"weight": "3"})
    assert world.log == ["gold/0", "front"]
    world.log.clear()
    world.desk.pin(ALICE, "one")
    assert world.log == ["main/0", "main/1", "front"]
    assert (world.of("main/1").pinned, world.of("gold/0").pinned) == (("one",), ())
    world.log.clear()
    world.desk.set_policy(ALICE, "fcfs")
    assert world.log == ["main/0", "main/1", "gold/0", "front"]


def test_a_limit_holds_at_the_door_before_any_worker_is_asked_and_ends_there_first(
    world: World,
) -> None:
    world.desk.set_tenant(replace(ALICE, ttl_s=9.0), "a", {"rpm": "6"})
    world.desk.drain(replace(ALICE, ttl_s=9.0), "b")
    assert world.log == ["front", "main/0", "main/1", "front", "gold/0"]
    world.log.clear()
    world.now_s += 10.0
    world.desk.expire()
    assert world.log[0] == "front"
    assert world.front == BASE
    assert world.settled()


def test_replicas_write_an_event_once(world: World) -> None:
    world.desk.set_policy(ALICE, "fcfs")
    told = [(w.name, r.is_told) for w in world.workers for r in w.heard]
    assert told == [("main/0", False), ("main/1", True), ("gold/0", False)]


def test_no_key_reaches_any_worker(world: World) -> None:
    world.desk.move(ALICE, "a", "gold")
    assert all(KEY not in r.desired.settings for w in world.workers for r in w.heard)
    assert world.front.tenant("a").key_sha256 == (KEY,)  # type: ignore[union-attr]


def test_a_dead_pool_does_not_block_a_change_of_another(world: World) -> None:
    world.of("gold/0").silent = True
    assert world.desk.set_tenant(ALICE, "a", {"weight": "2"}).ok
    assert world.desk.unload(ALICE, "one").ok
    assert not world.desk.owes


def test_a_replica_that_is_silent_owes_nothing_to_the_others_and_is_told_later(
    world: World,
) -> None:
    world.of("main/0").silent = True
    done = world.desk.load(ALICE, "new", "/x/new", ("a",))
    assert done.ok
    assert done.detail == (
        "main/1: worker main/0 does not answer; it is told when it is back; main/2: as told, main/1"
    )
    world.of("main/0").silent = False
    world.desk.sync(lambda member: False)
    assert world.settled()


def test_one_that_refuses_has_those_before_it_told_what_was(world: World) -> None:
    world.of("main/1").refuses = "no room"
    done = world.desk.pin(ALICE, "one")
    assert (done.ok, done.said[-1].detail) == (False, "no room")
    assert world.of("main/0").pinned == ()
    assert world.of("main/0").heard[-1].what.startswith("taken back: ")
    assert world.settled()
    assert world.desk.overlay.version == 1


def test_a_worker_that_comes_back_is_told_only_when_it_was_started_with_something_else(
    world: World,
) -> None:
    world.desk.set_tenant(ALICE, "b", {"weight": "3"})
    for w in world.workers:  # all of them are started again, as `serve` was
        w.has = part(InForce(BASE), w.pool).settings
        w.heard.clear()
    world.desk.sync(lambda member: True)
    assert [w.name for w in world.workers if w.heard] == ["gold/0"]
    assert world.settled()


def test_what_one_worker_does_not_take_keeps_no_other_from_being_told(world: World) -> None:
    world.desk.set_policy(ALICE, "fcfs")
    for w in world.workers:
        w.has = part(InForce(BASE), w.pool).settings
    world.of("main/0").silent = True
    with pytest.raises(WorkerSilent):
        world.desk.sync(lambda member: True)
    assert [w.has.policy for w in world.workers] == ["vtc", "fcfs", "fcfs"]
    assert [m.owed for m in world.members] == [True, False, False]


def test_a_change_that_no_worker_has_to_do_with_is_written_down_by_one(world: World) -> None:
    done = world.desk.set_tenant(ALICE, "b", {"rpm": "none"})
    assert done.detail == "no worker has anything to do"
    notes = [(w.name, r.note) for w in world.workers for r in w.heard]
    assert notes == [("gold/0", "tenant 'b': rpm none, as before")]


# -- once


def test_preempt_goes_to_the_tenants_pool_and_abort_to_whoever_has_the_request(
    world: World,
) -> None:
    assert [s.pool for s in world.desk.preempt(ALICE, "b").said] == ["gold"]
    assert [s.replica for s in world.desk.preempt(ALICE, "a").said] == [0, 1]
    world.of("main/0").refuses = world.of("main/1").refuses = "no"
    done = world.desk.abort(ALICE, "cmpl-1")
    assert (done.ok, [s.pool for s in done.said]) == (True, ["gold"])
    world.of("gold/0").silent = True
    done = world.desk.abort(ALICE, "cmpl-2")
    assert not done.ok
    assert "not under way here" in done.detail
    assert "worker gold/0 does not answer" in done.detail


def test_preempt_reaches_what_a_moved_tenant_left_in_its_old_pool(world: World) -> None:
    world.of("main/0").running = ("a", "c")
    world.desk.move(ALICE, "a", "gold")
    assert [s.pool for s in world.desk.preempt(ALICE, "a").said] == ["main", "main", "gold"]
    with pytest.raises(ChangeRefused, match="this concerns pool 'main'"):
        world.desk.preempt(replace(ALICE, pool="gold"), "a")
    world.of("main/0").running = ("c",)
    assert [s.pool for s in world.desk.preempt(ALICE, "a").said] == ["gold"]


def test_a_worker_that_is_slow_to_be_looked_at_for_a_preempt_holds_up_no_other_act(
    world: World,
) -> None:
    done: list[bool] = []

    def another_act() -> None:
        other = threading.Thread(
            target=lambda: done.append(world.desk.set_tenant(ALICE, "b", {"rpm": "6"}).ok)
        )
        other.start()
        other.join(5.0)
        assert done == [True], "it waits for the look to be over"

    world.of("main/0").while_looked_at = another_act
    assert world.desk.preempt(ALICE, "a").ok


def test_an_adapter_is_read_again_by_all_who_serve_it_or_by_none(world: World) -> None:
    assert [s.pool for s in world.desk.reload_adapter(ALICE, "two").said] == ["gold"]
    world.of("gold/0").refuses = "it is cut short"
    done = world.desk.reload_adapter(ALICE, "both")
    assert not done.ok
    real = [r for w in world.workers for r in w.heard if r.reload_adapter == "both"]
    assert all(r.dry_run for r in real)
    world.of("gold/0").refuses = ""
    assert len(world.desk.reload_adapter(ALICE, "both").said) == 3


# -- scope, and who asked


def test_an_act_for_one_pool_is_refused_where_it_concerns_another(world: World) -> None:
    only_gold = replace(ALICE, pool="gold")
    for act in (
        lambda: world.desk.set_policy(only_gold, "fcfs"),
        lambda: world.desk.set_tenant(only_gold, "a", {"rpm": "6"}),
        lambda: world.desk.set_tenant(only_gold, "a", {"rpm": "100"}),
        lambda: world.desk.preempt(only_gold, "a"),
        lambda: world.desk.unload(only_gold, "both"),
    ):
        with pytest.raises(ChangeRefused, match="this concerns pool 'main'"):
            act()
    assert world.log == []
    assert world.desk.set_tenant(only_gold, "b", {"rpm": "6"}).ok
    assert world.desk.unload(only_gold, "two").ok
    with pytest.raises(ChangeRefused, match="serves 'main', 'gold'"):
        world.desk.set_policy(replace(ALICE, pool="silver"), "fcfs")


def test_an_act_whose_caller_gave_up_while_it_waited_is_not_done(world: World) -> None:
    for dry_run in (False, True):
        with pytest.raises(GivenUp, match="nothing was changed"):
            world.desk.move(replace(ALICE, wanted=lambda: False, dry_run=dry_run), "a", "gold")
    assert world.log == []
    assert world.desk.overlay.version == 1
