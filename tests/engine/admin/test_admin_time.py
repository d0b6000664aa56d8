"""Changes in time: how long they hold, what ends them, who is told later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.admin.act import Act
from engine.admin.errors import ChangeRefused, FrontSilent, WorkerSilent
from engine.config import Settings, load_settings
from tests.engine.admin.desks import ALICE, BASE, Desk, cap


def test_without_a_ttl_a_change_lasts_an_hour(desk: Desk) -> None:
    assert cap(desk).until_unix_s == 1000.0 + 3600.0


def test_for_good_needs_a_reason_and_takes_no_ttl(desk: Desk) -> None:
    for act in (replace(ALICE, permanent=True), replace(ALICE, permanent=True, why="  ")):
        with pytest.raises(ChangeRefused, match="--reason"):
            cap(desk, act=act)
    with pytest.raises(ChangeRefused, match="not both"):
        cap(desk, act=replace(ALICE, permanent=True, why="yes", ttl_s=5.0))
    assert cap(desk, act=replace(ALICE, permanent=True, why="yes")).until_unix_s is None


@pytest.mark.parametrize("ttl_s", [-1.0, float("inf"), float("nan"), 1e12])
def test_a_ttl_that_cannot_be_is_refused(desk: Desk, ttl_s: float) -> None:
    with pytest.raises(ChangeRefused, match="ttl"):
        cap(desk, act=replace(ALICE, ttl_s=ttl_s))


def test_when_its_time_is_over_a_change_reverts_to_what_was_under_it(desk: Desk) -> None:
    cap(desk, "50", replace(ALICE, ttl_s=100.0))
    cap(desk, "6", replace(ALICE, ttl_s=10.0))
    desk.now_s += 9.9
    assert desk.desk.expire() == ()
    desk.now_s += 0.2
    assert desk.desk.expire() == ("tenant 'a': rpm 50 -> 6",)
    assert desk.hands.front.tenants[0].rpm == 50
    assert desk.hands.worker.who == "tenantscope"
    desk.now_s += 90.0
    desk.desk.expire()
    assert desk.hands.front == BASE
    assert desk.desk.next_expiry_s is None


def test_over_a_restart_what_is_in_force_stays_and_what_is_over_does_not(desk: Desk) -> None:
    cap(desk, "6", replace(ALICE, ttl_s=10.0))
    desk.desk.set_policy(replace(ALICE, ttl_s=1000.0), "fcfs")
    desk.now_s += 100.0
    desk.hands.told.clear()
    desk.start()
    assert desk.desk.in_force.settings == BASE.with_policy("fcfs")
    assert desk.desk.sync() == ()
    desired, note = (r for who, r in desk.hands.told if who == "worker")
    assert load_settings(desired.desired.settings).policy == "fcfs"  # type: ignore[attr-defined]
    assert desired.desired.lenient  # type: ignore[attr-defined]
    assert note.note.startswith("over, while")  # type: ignore[attr-defined]


def test_a_worker_that_started_with_what_holds_is_told_nothing(desk: Desk) -> None:
    desk.desk.sync()
    assert desk.hands.told == []


def test_a_change_ends_at_the_door_though_the_worker_is_silent_and_it_is_told_later(
    desk: Desk,
) -> None:
    cap(desk, "6", replace(ALICE, ttl_s=10.0))
    desk.hands.silent = True
    desk.now_s += 11.0
    desk.desk.expire()
    assert desk.hands.front == BASE
    with pytest.raises(WorkerSilent):
        desk.desk.sync()
    desk.hands.silent = False
    desk.desk.sync()
    assert load_settings(desk.hands.worker.desired.settings).tenants[0].rpm == 100
    desk.hands.told.clear()
    desk.desk.sync()
    assert desk.hands.told == []


def test_a_worker_that_may_have_heard_of_a_change_that_failed_is_told_what_holds(
    desk: Desk,
) -> None:
    desk.hands.silent = True
    with pytest.raises(WorkerSilent):
        desk.desk.set_policy(ALICE, "fcfs")
    desk.hands.silent = False
    assert desk.desk.owes
    desk.desk.sync()
    assert load_settings(desk.hands.worker.desired.settings).tenants[0].rpm == 100
    assert not desk.desk.owes


def test_a_limit_holds_at_the_door_though_the_worker_is_silent_and_it_is_told_later(
    desk: Desk,
) -> None:
    desk.hands.silent = True
    done = cap(desk)
    assert (done.ok, done.detail) == (
        True,
        "the worker does not answer; it is told when it is back",
    )
    assert [(s.ok, s.owed) for s in done.said] == [(False, True)]
    assert desk.desk.drain(ALICE, "a").ok
    assert desk.hands.front.tenants[0].concurrency == 0
    desk.hands.silent = False
    desk.desk.sync()
    told = load_settings(desk.hands.worker.desired.settings).tenants[0]
    assert (told.rpm, told.concurrency) == (6, 0)
    assert not desk.desk.owes


def test_a_door_that_hangs_leaves_the_desk_where_worker_and_disk_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(settings: Settings) -> None:
        raise FrontSilent("it does not turn")

    monkeypatch.setattr(desk.hands, "apply", stuck)
    with pytest.raises(FrontSilent):
        cap(desk)
    assert desk.tenant().rpm == 6
    assert desk.file.read() == desk.desk.overlay


def test_what_ended_while_nobody_ran_is_written_down_at_the_instant_it_was_due(desk: Desk) -> None:
    cap(desk, act=replace(ALICE, ttl_s=10.0))
    desk.now_s += 100.0
    desk.hands.told.clear()
    desk.start()
    assert desk.file.read().changes[0].in_force  # until it is said: a crash now loses nothing
    desk.hands.silent = True
    with pytest.raises(WorkerSilent):
        desk.desk.sync()
    assert desk.desk.owes
    desk.hands.silent = False
    desk.desk.sync()
    note = desk.hands.worker
    assert (note.note, note.at_unix_s, note.tenant, note.who) == (
        "over, while the engine was down: tenant 'a': rpm 100 -> 6", 1010.0, "a", "tenantscope",
    )  # fmt: skip
    kept = desk.file.read().changes[0]
    assert (kept.state, kept.ended_unix_s) == ("expired", 1010.0)
    assert not desk.desk.owes
    desk.start()
    assert not desk.desk.owes


def test_who_took_a_change_back_is_written_beside_it(desk: Desk) -> None:
    cap(desk)
    desk.now_s += 5.0
    desk.desk.undo(Act("bob", "enough"))
    desk.desk.drain(ALICE, "a")
    desk.desk.resume(Act("carol"), "a")
    ends = [(c.state, c.ended_unix_s, c.ended_by, c.ended_why) for c in desk.desk.overlay.changes]
    assert ends == [("undone", 1005.0, "bob", "enough"), ("undone", 1005.0, "carol", "")]
