"""The operator's desk: who may change what when, and that a change is whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine.admin.act import Act, Done, FrontSilent, VersionMoved, WorkerSilent
from engine.admin.desk import AdminDesk
from engine.admin.overlay import ChangeRefused, Overlay
from engine.admin.overlay_file import OverlayFile, OverlayLost
from engine.config import Settings, Tenant, load_settings, read_settings
from engine.errors import ConfigError
from telemetry.proto import tenantscope_pb2 as pb

KEY = "ab" * 32
BASE = Settings(
    engine="e",
    tenants=(Tenant("a", rpm=100, adapters=("one",), key_sha256=(KEY,)), Tenant("b")),
    adapters=(("one", "/adapters/one"),),
)
ALICE = Act("alice")


@dataclass
class Hands:
    """Worker and front at once: remember, in one order, what they were told."""

    told: list[tuple[str, object]] = field(default_factory=list)
    refuses: str = ""
    silent: bool = False
    bad: str = ""

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        if self.silent:
            raise WorkerSilent("the worker does not answer")
        self.told.append(("worker", request))
        return pb.OperateReply(ok=not self.refuses, detail=self.refuses or "as told")

    def check(self, settings: Settings) -> None:
        if self.bad:
            raise ConfigError(self.bad)

    def apply(self, settings: Settings) -> None:
        self.told.append(("front", settings))

    @property
    def front(self) -> Settings:
        return next(s for w, s in reversed(self.told) if w == "front")  # type: ignore[return-value]

    @property
    def worker(self) -> pb.OperateRequest:
        return next(r for w, r in reversed(self.told) if w == "worker")  # type: ignore[return-value]


class Desk:
    """A desk with a clock to turn and hands to look at."""

    def __init__(self, folder: Path, config: Path | None = None, base: Settings = BASE) -> None:
        self.hands = Hands()
        self.now_s = 1000.0
        self.file = OverlayFile(folder / "operator.json")
        self.config = config
        self.base = base
        self.start()

    def start(self) -> None:
        """As a start of the engine does."""
        overlay = self.file.read().expired(self.now_s)[0]
        hands = self.hands
        self.desk = AdminDesk(
            self.base, self.file, overlay, hands, hands, lambda: self.now_s, self.config
        )

    def tenant(self, name: str = "a") -> Tenant:
        tenant = self.desk.in_force.settings.tenant(name)
        assert tenant is not None
        return tenant


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def cap(desk: Desk, rpm: str = "6", act: Act = ALICE) -> Done:
    return desk.desk.set_tenant(act, "a", {"rpm": rpm})


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


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("how", ["refuses", "silent", "bad"])
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
    full = AdminDesk(BASE, desk.file, Overlay(), hands, hands, lambda: 0.0)
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


# -- time


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
    assert load_settings(desk.hands.worker.desired.settings).policy == "fcfs"
    assert desk.hands.worker.desired.lenient


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
        cap(desk)
    desk.hands.silent = False
    assert desk.desk.owes
    desk.desk.sync()
    assert load_settings(desk.hands.worker.desired.settings).tenants[0].rpm == 100
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


# -- the settings file


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "pool.toml"
    path.write_text(f'engine = "e"\n{text}')
    return path


TWO = (
    f'[[tenant]]\nname = "a"\nrpm = 60\ntpm = 900\nkey_sha256 = ["{KEY}"]\n[[tenant]]\nname = "b"\n'
)


@pytest.fixture
def filed(tmp_path: Path) -> Desk:
    config = settings_file(tmp_path, TWO)
    return Desk(tmp_path, config, read_settings(config).one_pool())


@pytest.mark.parametrize(
    "text",
    [
        TWO.replace("rpm = 60\n", ""),  # the line is gone
        TWO.replace("rpm = 60\n", "rpm =\n"),
        TWO.replace("rpm = 60", 'rpm = ""'),
        TWO.replace("rpm = 60", "rpmm = 60"),
        TWO.replace("tpm = 900\n", "# tpm = 900\n"),
        TWO.replace(f'key_sha256 = ["{KEY}"]\n', ""),
        "",
        '[[pool]]\nname = "x"\n[[pool]]\nname = "y"\n' + TWO,
    ],
)
def test_a_file_with_a_blank_quota_lifts_no_limit(filed: Desk, tmp_path: Path, text: str) -> None:
    settings_file(tmp_path, text)
    for dry_run in (True, False):
        with pytest.raises(
            ChangeRefused, match=r"pool\.toml.*settings in force stay|runs one pool"
        ):
            filed.desk.reload_config(replace(ALICE, dry_run=dry_run), allow_lifts=False)
    assert (filed.tenant().rpm, filed.tenant().tpm) == (60, 900)
    assert filed.hands.told == []


def test_a_limit_that_is_meant_to_go_goes(filed: Desk, tmp_path: Path) -> None:
    settings_file(tmp_path, TWO.replace("rpm = 60\n", ""))
    done = filed.desk.reload_config(ALICE, allow_lifts=True)
    assert done.effect == "settings read again: tenant 'a': rpm 60 -> none"
    assert filed.hands.front.tenants[0].rpm is None


def test_a_new_file_says_what_it_changes_and_what_waits_for_a_restart(
    filed: Desk, tmp_path: Path
) -> None:
    text = TWO.replace("rpm = 60", "rpm = 30") + '[[tenant]]\nname = "c"\n[limits]\nslots = 2\n'
    settings_file(tmp_path, text)
    done = filed.desk.reload_config(ALICE, allow_lifts=False)
    assert done.effect == (
        "settings read again: tenant 'c' comes; tenant 'a': rpm 60 -> 30; "
        "only a restart will change limits"
    )
    assert [t.name for t in filed.hands.front.tenants] == ["a", "b", "c"]
    assert filed.desk.base.limits.slots == 32


def test_operators_changes_stay_on_top_of_a_new_file(filed: Desk, tmp_path: Path) -> None:
    filed.desk.set_tenant(replace(ALICE, ttl_s=10.0), "a", {"rpm": "6"})
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 30"))
    filed.desk.reload_config(ALICE, allow_lifts=False)
    assert filed.hands.front.tenants[0].rpm == 6
    filed.now_s += 11.0
    filed.desk.expire()
    assert filed.hands.front.tenants[0].rpm == 30


def test_a_cap_by_an_operator_is_no_limit_that_a_file_would_lift(
    filed: Desk, tmp_path: Path
) -> None:
    filed.desk.set_tenant(ALICE, "b", {"rpm": "6"})
    settings_file(tmp_path, TWO.replace("rpm = 60", "rpm = 30"))
    assert filed.desk.reload_config(ALICE, allow_lifts=False).ok


def test_without_a_file_there_is_nothing_to_read_again(desk: Desk) -> None:
    with pytest.raises(ChangeRefused, match="without a settings file"):
        desk.desk.reload_config(ALICE, allow_lifts=False)
