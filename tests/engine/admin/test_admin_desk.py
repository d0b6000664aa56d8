"""The operator's desk: who may change what when, and that a change is whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.admin.act import Act, Done
from engine.admin.desk import AdminDesk
from engine.admin.errors import ChangeRefused, OverlayLost, VersionMoved, WorkerSilent
from engine.admin.member import Member
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.config import load_settings
from engine.errors import ConfigError
from tests.engine.admin.desks import ALICE, BASE, KEY, Desk, cap

# -- done whole, or not at all


def test_a_change_reaches_worker_front_and_disk_and_says_until_when(desk: Desk) -> None:
    done = cap(desk, act=replace(ALICE, ttl_s=60.0, why="fan-out"))
    assert (done.ok, done.version, done.until_unix_s) == (True, 2, 1060.0)
    assert done.effect == "tenant 'a': rpm 100 -> 6"
    assert desk.hands.front.tenants[0].rpm == 6
    assert (desk.hands.worker.who, desk.hands.worker.why) == ("alice", "fan-out")
    assert load_settings(desk.hands.worker.desired.settings).tenants[0].rpm == 6
    assert desk.file.read() == desk.desk.overlay


def test_the_worker_is_told_no_key(desk: Desk) -> None:
    cap(desk)
    assert KEY not in desk.hands.worker.desired.settings
    assert desk.hands.front.tenants[0].key_sha256 == (KEY,)


def test_a_dry_run_says_the_effect_and_changes_nothing(desk: Desk) -> None:
    done = cap(desk, act=replace(ALICE, dry_run=True))
    assert (done.dry_run, done.effect, done.version) == (True, "tenant 'a': rpm 100 -> 6", 1)
    assert [who for who, _ in desk.hands.told] == ["worker"]
    assert desk.hands.worker.dry_run
    assert desk.desk.overlay == Overlay()
    assert not desk.file.path.exists()


ACTS: list[Callable[[Desk, Act], Done]] = [
    lambda d, a: d.desk.set_tenant(a, "a", {"rpm": "6"}),
    lambda d, a: d.desk.drain(a, "a"),
    lambda d, a: d.desk.set_policy(a, "fcfs"),
    lambda d, a: d.desk.unload(a, "one"),
    lambda d, a: d.desk.pin(a, "one"),
]


THE_WORKERS = [*ACTS[2:], lambda d, a: d.desk.set_tenant(a, "a", {"weight": "2"})]


@pytest.mark.parametrize(
    ("act", "how"),
    [
        *((act, "bad") for act in ACTS),
        *((act, how) for act in THE_WORKERS for how in ("refuses", "silent")),
    ],
)
def test_what_worker_or_front_refuses_leaves_everything_as_it_was(
    desk: Desk, act: Callable[[Desk, Act], Done], how: str
) -> None:
    cap(desk, "50")
    before, kept = desk.desk.in_force, desk.file.read()
    setattr(desk.hands, how, True if how == "silent" else "not now")
    try:
        done = act(desk, ALICE)
    except (WorkerSilent, ConfigError):
        done = None
    assert done is None or (done.ok, done.detail, done.version) == (False, "not now", 2)
    assert desk.desk.in_force == before
    assert desk.file.read() == kept
    assert desk.hands.front == before.settings


@pytest.mark.parametrize("act", ACTS)
def test_every_change_can_be_undone(desk: Desk, act: Callable[[Desk, Act], Done]) -> None:
    before = desk.desk.in_force
    act(desk, ALICE)
    assert desk.desk.in_force != before
    assert desk.desk.undo(Act("bob")).effect.startswith("undone: ")
    assert desk.desk.in_force == before
    assert desk.hands.front == BASE
    with pytest.raises(ChangeRefused, match="nothing to undo"):
        desk.desk.undo(ALICE)


def test_a_disk_that_takes_nothing_refuses_the_change_before_anybody_is_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").write_text("a file where the folder would be")
    desk = Desk(tmp_path)
    desk.file = OverlayFile(tmp_path / "store" / "operator.json")
    hands = desk.hands
    full = AdminDesk(BASE, desk.file, Overlay(), [Member("main", 0, hands)], hands, lambda: 0.0)
    with pytest.raises(OverlayLost):
        full.set_policy(ALICE, "fcfs")
    assert hands.told == []
    assert full.overlay == Overlay()


def test_a_name_that_goes_is_refused_at_the_door_before_the_worker_forgets_it(desk: Desk) -> None:
    desk.desk.unload(ALICE, "one")
    assert [who for who, _ in desk.hands.told] == ["front", "worker", "front"]


def test_a_name_that_comes_is_let_in_only_when_the_worker_has_it(desk: Desk) -> None:
    desk.desk.load(ALICE, "new", "/adapters/new", ("b",))
    assert [who for who, _ in desk.hands.told] == ["worker", "front"]


# -- two operators


def test_of_two_who_looked_at_one_version_the_second_is_told_who_was_first(desk: Desk) -> None:
    seen = desk.desk.overlay.version
    cap(desk, act=replace(ALICE, if_version=seen))
    with pytest.raises(VersionMoved, match=r"2 is \(last: tenant 'a': rpm 100 -> 6, by alice\)"):
        cap(desk, "600", replace(ALICE, who="bob", if_version=seen))
    assert desk.tenant().rpm == 6


def test_of_many_at_once_with_one_version_exactly_one_wins(desk: Desk) -> None:
    together = threading.Barrier(8)
    won, lost = [], []

    def one(number: int) -> None:
        together.wait()
        try:
            won.append(cap(desk, str(number), Act(f"op {number}", if_version=1)))
        except VersionMoved as e:
            lost.append(e)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (len(won), len(lost)) == (1, 7)
    assert desk.desk.overlay.version == 2
    assert f"rpm 100 -> {desk.tenant().rpm}" in won[0].effect


# -- scope, words, folders


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (replace(ALICE, engine="other"), "engine 'other'"),
        (replace(ALICE, pool="gold"), "pool 'gold'"),
        (Act(""), "who"),
        (Act("two\nlines"), "who"),
        (replace(ALICE, why="x" * 501), "reason"),
    ],
)
def test_an_act_for_another_engine_or_by_nobody_is_refused(desk: Desk, act: Act, what: str) -> None:
    with pytest.raises(ChangeRefused, match=what):
        cap(desk, act=act)
    assert desk.hands.told == []


def test_this_engine_and_this_pool_are_a_scope_too(desk: Desk) -> None:
    assert cap(desk, act=replace(ALICE, engine="e", pool="main")).ok


@pytest.mark.parametrize("folder", ["/etc", "../../etc", "/adapters/../etc", "\0", "/adapters-2/x"])
def test_adapters_come_only_from_where_the_settings_have_theirs(desk: Desk, folder: str) -> None:
    with pytest.raises(ChangeRefused, match="folder"):
        desk.desk.load(ALICE, "new", folder, ("b",))
    assert desk.hands.told == []


def test_a_link_out_of_the_folder_is_followed_before_it_is_judged(tmp_path: Path) -> None:
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "sly").symlink_to("/etc")
    base = replace(BASE, adapters=(("one", str(tmp_path / "adapters" / "one")),))
    desk = Desk(tmp_path, base=base)
    (tmp_path / "adapters" / "circle").symlink_to(tmp_path / "adapters" / "circle")
    for name, why in (("sly", "outside"), ("circle", "no path")):
        with pytest.raises(ChangeRefused, match=why):
            desk.desk.load(ALICE, "new", str(tmp_path / "adapters" / name), ("b",))


def test_loading_what_was_unloaded_takes_the_unloading_back(desk: Desk) -> None:
    desk.desk.unload(ALICE, "one")
    desk.desk.load(ALICE, "one", "", ())
    assert desk.desk.in_force.settings == BASE
    assert not any(c.in_force for c in desk.desk.overlay.changes)


# -- once


def test_acts_done_once_are_written_down_and_leave_nothing_to_undo(desk: Desk) -> None:
    for act in (
        desk.desk.preempt(ALICE, "a"),
        desk.desk.abort(ALICE, "cmpl-1"),
        desk.desk.reload_adapter(ALICE, "one"),
    ):
        assert (act.ok, act.version, act.until_unix_s) == (True, 1, None)
    assert [c.state for c in desk.file.read().changes] == ["done"] * 3
    with pytest.raises(ChangeRefused, match="nothing to undo"):
        desk.desk.undo(ALICE)


def test_what_was_done_once_is_told_as_done_though_the_disk_is_full(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(overlay: Overlay) -> None:
        raise OverlayLost("nothing was changed")

    monkeypatch.setattr(desk.file, "write", full)
    done = desk.desk.preempt(ALICE, "a")
    assert (done.ok, done.detail) == (True, "as told; done, but the disk took no note of it")


@pytest.mark.parametrize("more", [{"ttl_s": 60.0}, {"permanent": True, "why": "yes"}])
def test_what_leaves_nothing_behind_promises_no_end(desk: Desk, more: dict[str, Any]) -> None:
    act = replace(ALICE, **more)
    desk.desk.drain(ALICE, "a")
    for do in (
        lambda: desk.desk.resume(act, "a"),
        lambda: desk.desk.undo(act),
        lambda: desk.desk.preempt(act, "a"),
    ):
        with pytest.raises(ChangeRefused, match="leave out --ttl"):
            do()
    assert desk.desk.in_force.draining == {"a"}
