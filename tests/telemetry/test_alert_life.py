"""The life of an incident: one a pool, told once, kept over a kill, moved by no clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from console.cli import invoke
from telemetry.alerts import people, state
from telemetry.alerts.incident import Incident, incident_id
from telemetry.alerts.rules import INFO, PAGE, WARN, Rule
from telemetry.alerts.settings import ALERTMANAGER, AlertSettings, Target
from telemetry.errors import StoreError
from telemetry.findings.finding import Finding, Holds
from telemetry.findings.lately import Lately
from telemetry.findings.limits import Limits
from telemetry.source import StoreSource
from tests.telemetry.alert_bench import Bench, Book, Clock
from tests.telemetry.delivered import ODD_NAMES
from tests.telemetry.synthetic_rows import Pool

QUIET = AlertSettings(clear_s=20.0, rejoin_s=100.0, renotify_s=100.0)


@dataclass
class Switch:
    """A finding that says what it is told to."""

    holds: Holds = Holds.NO
    tenant: str | None = None

    def __call__(self, lately: Lately, limits: Limits) -> Finding:
        return Finding("switch", self.holds, f"{self.holds.value}: a switch", None, self.tenant)

    def rule(self, severity: str, alert: str = "TenantscopeEngineSilent") -> Rule:
        return Rule(alert, severity, self)


class Scene:
    """A pool with a page and a warning that are switched by hand, and a clock of its own."""

    def __init__(self, folder: Path, *books: Book, settings: AlertSettings = QUIET) -> None:
        self.folder = folder
        self.page, self.warn, self.note = Switch(), Switch(), Switch()
        self.pool = Pool(60.0)
        self.pool.engine(0)
        self.clock = Clock(self.pool.at(1))
        self.books = books or (Book(),)
        self.settings = settings
        self.bench = self._begin()
        self.bench.deliver(self.pool, self.pool.at(0), self.pool.at(1))

    def _begin(self) -> Bench:
        rules = (
            self.page.rule(PAGE, "TenantscopeEngineStalled"),
            self.warn.rule(WARN, "TenantscopeAdapterThrash"),
            self.note.rule(INFO, "TenantscopeShareSurge"),
        )
        return Bench(self.folder, 0.0, self.settings, self.books, rules, self.clock)

    def again(self) -> None:
        """The process is killed and another one starts: only the store is left."""
        self.bench.close()
        self.bench = self._begin()

    def tick(self, times: int = 1, *, take: bool = True) -> None:
        for _ in range(times):
            self.bench.alive(self.pool, 1, 1.0)
            self.bench.tick(take=take)

    @property
    def incident(self) -> Incident:
        found = self.bench.incident
        assert found is not None
        return found

    def told(self) -> list[str]:
        return [json.loads(p.body)["transition"] for p in self.books[0].parcels]

    def known(self) -> state.Known:
        return state.recall(StoreSource(self.bench.store), self.clock.wall_s)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "store")
    yield made
    made.bench.close()


def test_one_pool_has_one_incident_whatever_fires(scene: Scene) -> None:
    scene.warn.holds = Holds.YES
    scene.tick()
    first = scene.incident
    scene.page.holds = Holds.YES
    scene.tick(3)
    assert scene.incident.id == first.id
    assert (first.severity, scene.incident.severity) == ("warn", "page")
    assert scene.incident.alerts[0].alert == "TenantscopeEngineStalled"
    assert scene.told() == ["opened", "rose"]


def test_the_severity_does_not_fall_while_it_lasts(scene: Scene) -> None:
    scene.page.holds = scene.warn.holds = Holds.YES
    scene.tick()
    scene.page.holds = Holds.NO
    scene.tick(5)
    assert scene.incident.severity == "page"
    assert [a.alert for a in scene.incident.alerts if a.firing] == ["TenantscopeAdapterThrash"]


def test_flapping_is_one_incident_and_after_the_rejoin_time_another(scene: Scene) -> None:
    for _ in range(3):
        scene.page.holds = Holds.YES
        scene.tick(2)
        scene.page.holds = Holds.NO
        scene.tick(5)
    assert len(scene.bench.incidents()) == 1
    scene.tick(12)
    scene.page.holds = Holds.YES
    scene.tick()
    assert len(scene.bench.incidents()) == 2


def test_what_is_unknown_neither_opens_nor_ends(scene: Scene) -> None:
    scene.page.holds = Holds.UNKNOWN
    scene.tick(20)
    assert scene.bench.incident is None
    scene.page.holds = Holds.YES
    scene.tick()
    scene.page.holds = Holds.UNKNOWN
    scene.tick(20)
    assert scene.incident.live


def test_every_transition_is_an_event_of_the_store(scene: Scene) -> None:
    scene.page.holds = Holds.YES
    scene.tick(2)
    scene.page.holds = Holds.NO
    scene.tick(5)
    events = StoreSource(scene.bench.store).read("event", 0.0, float("inf"))
    said = [e.detail for e in events if e.kind == "incident"]
    assert [s.split()[:2] for s in said] == [
        [scene.incident.id, "opened"],
        [scene.incident.id, "resolved"],
    ]
    assert {e.pool for e in events if e.kind == "incident"} == {"main"}


@pytest.mark.parametrize("by_s", [-7200.0, -5.0, 5.0, 7200.0])
def test_a_clock_that_is_set_opens_and_ends_nothing(scene: Scene, by_s: float) -> None:
    scene.tick(3)
    scene.clock.wall_s += by_s
    scene.tick(3)
    assert scene.bench.incident is None
    scene.page.holds = Holds.YES
    scene.tick()
    first = scene.incident
    scene.clock.wall_s -= by_s
    scene.tick(3)
    assert (scene.incident.id, scene.incident.live) == (first.id, True)
    scene.page.holds = Holds.NO
    scene.tick()
    scene.clock.wall_s += by_s
    scene.tick()
    assert scene.incident.live, "it has been clear for ten seconds, not for as long as was set"


def test_a_store_that_was_stopped_for_a_while_calls_nobody_silent(tmp_path: Path) -> None:
    pool = Pool(60.0).calm(0, 4)
    bench = Bench(tmp_path / "store", pool.at(4))
    bench.deliver(pool, pool.at(0), pool.at(4))
    bench.tick()
    bench.tick(1, every_s=900.0)
    assert bench.incident is None
    bench.close()


# ---------------------------------------------------------------- over a kill


def test_a_kill_after_the_delivery_tells_nobody_twice(scene: Scene) -> None:
    scene.page.holds = Holds.YES
    scene.tick(3)
    before = scene.incident
    assert scene.told() == ["opened"]
    scene.again()
    scene.tick(5)
    assert scene.told() == ["opened"]
    assert (scene.incident.id, scene.incident.live) == (before.id, True)
    scene.page.holds = Holds.NO
    scene.tick(5)
    assert scene.told() == ["opened", "resolved"]


def test_a_kill_before_the_delivery_tells_it_again_under_the_same_key(scene: Scene) -> None:
    scene.page.holds = Holds.YES
    scene.tick(take=False)
    scene.again()
    scene.tick(3)
    first, second = scene.books[0].keys
    assert first == second == f"{scene.incident.id}/1"


def test_a_restart_ends_nothing_before_the_rows_say_so(scene: Scene) -> None:
    scene.page.holds = Holds.YES
    scene.tick(2)
    scene.again()
    scene.page.holds = Holds.UNKNOWN
    scene.tick(15)
    assert scene.incident.live


def test_what_was_told_is_told_once_to_each_target(tmp_path: Path) -> None:
    pager = Book(Target("webhook", "pager", "http://127.0.0.1/", minimum=PAGE))
    scene = Scene(tmp_path / "store", Book(), pager)
    scene.warn.holds = Holds.YES
    scene.tick(3)
    assert (len(scene.books[0].parcels), len(pager.parcels)) == (1, 0)
    scene.page.holds = Holds.YES
    scene.tick(3)
    assert (len(scene.books[0].parcels), len(pager.parcels)) == (2, 1)
    scene.bench.close()


def test_an_alertmanager_is_told_again_before_it_forgets(tmp_path: Path) -> None:
    keeper = Book(Target(ALERTMANAGER, "am", "http://127.0.0.1/"))
    scene = Scene(tmp_path / "store", keeper)
    scene.page.holds = Holds.YES
    scene.tick(9)
    assert [p.counts for p in keeper.parcels] == [True, False]
    [alert] = json.loads(keeper.parcels[-1].body)
    assert set(alert["labels"]) == {"alertname", "severity", "engine", "pool", "incident"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    scene.page.holds = Holds.NO
    scene.tick(5)
    [ended] = json.loads(keeper.parcels[-1].body)
    assert ended["labels"] == alert["labels"]
    assert alert["startsAt"] < ended["endsAt"] < alert["endsAt"]
    scene.bench.close()


def test_a_page_that_nobody_acknowledged_is_repeated(scene: Scene) -> None:
    scene.page.holds = Holds.YES
    scene.tick(22)
    assert scene.told() == ["opened", "repeated", "repeated"]


# ---------------------------------------------------------------- people


@pytest.fixture
def now(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """People act by the clock of the scene."""
    monkeypatch.setattr("telemetry.alerts.people.time.time", lambda: scene.clock.wall_s)
    return scene


def act(scene: Scene, what: str, text: str = "") -> None:
    values = {"incident": scene.incident.id, "who": "ann", "text": text}
    people.act(scene.bench.store, what, values)


def test_an_acknowledged_page_is_not_repeated_and_its_end_is_told(now: Scene) -> None:
    now.page.holds = Holds.YES
    now.tick(2)
    act(now, "acknowledge")
    now.tick(22)
    assert now.incident.state.value == "acknowledged"
    assert now.told() == ["opened"]
    now.page.holds = Holds.NO
    now.tick(5)
    assert now.told() == ["opened", "resolved"]


def test_a_warning_that_was_acknowledged_wakes_when_it_becomes_a_page(now: Scene) -> None:
    now.warn.holds = Holds.YES
    now.tick(2)
    act(now, "acknowledge")
    now.tick()
    now.page.holds = Holds.YES
    now.tick()
    assert now.incident.state.value == "open"
    assert now.told() == ["opened", "rose"]


def test_what_a_person_closes_stays_closed_until_it_has_been_clear(now: Scene) -> None:
    now.page.holds = Holds.YES
    now.tick(2)
    act(now, "close", "a load test")
    now.tick(8)
    assert not now.incident.live
    assert now.incident.closed_by == "ann"
    now.again()
    now.tick(3)
    assert not now.incident.live
    now.page.holds = Holds.NO
    now.tick(5)
    now.page.holds = Holds.YES
    now.tick(2)
    assert now.incident.live


def test_notes_and_acts_are_taken_once_whatever_restarts(now: Scene) -> None:
    now.page.holds = Holds.YES
    now.tick(2)
    act(now, "note", "lowered tpm of [red]x[/]")
    act(now, "acknowledge")
    for _ in range(3):
        now.tick(2)
        now.again()
    now.tick()
    assert [n.text for n in now.incident.notes] == ["lowered tpm of [red]x[/]"]
    assert [n.who for n in now.incident.acks] == ["ann"]
    assert now.known().incidents[now.incident.id].state.value == "acknowledged"


def silence(scene: Scene, **given: Any) -> None:
    values = {"alert": "", "pool": "", "tenant": "", "reason": "a drill", "who": "ann"}
    values |= {"until": scene.clock.wall_s + 60.0} | given
    people.silence(scene.bench.store, values)


def test_a_silenced_incident_is_recorded_and_told_when_the_silence_ends(now: Scene) -> None:
    silence(now, pool="main")
    now.page.holds = Holds.YES
    now.tick(4)
    assert now.incident.silenced
    assert now.told() == []
    now.tick(4)
    assert not now.incident.silenced
    assert now.told() == ["opened"]


def test_what_began_and_ended_in_silence_is_never_told(now: Scene) -> None:
    silence(now, alert="TenantscopeEngineStalled")
    now.page.holds = Holds.YES
    now.tick(3)
    now.page.holds = Holds.NO
    now.tick(10)
    assert not now.incident.live
    assert now.told() == []


def test_a_silence_of_one_tenant_hides_no_other(now: Scene) -> None:
    silence(now, tenant="batch")
    now.page.holds, now.page.tenant = Holds.YES, "batch"
    now.tick(2)
    assert now.told() == []
    now.warn.holds, now.warn.tenant = Holds.YES, "chat"
    now.tick(2)
    assert now.told() == ["opened"]


def test_a_silence_can_be_taken_back(now: Scene) -> None:
    silence(now, pool="main")
    [made] = now.known().silences
    people.unsilence(now.bench.store, {"silence": made, "who": "ann"})
    now.page.holds = Holds.YES
    now.tick(2)
    assert now.told() == ["opened"]
    with pytest.raises(StoreError, match="no active silence"):
        people.unsilence(now.bench.store, {"silence": made, "who": "ann"})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "silence of everything"),
        ({"alert": "Nope"}, "no alert 'Nope'"),
        ({"pool": "main", "reason": " "}, "needs a reason"),
        ({"pool": "main", "until": 5.0}, "until = 5"),
        ({"pool": "main", "until": 1e12}, "within the next 30 days"),
        ({"pool": "main", "who": ""}, "who acts"),
    ],
)
def test_a_silence_says_what_why_and_until_when(now: Scene, given: Any, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        silence(now, **given)


def test_an_act_on_what_is_not_there_names_what_is(now: Scene) -> None:
    now.page.holds = Holds.YES
    now.tick()
    with pytest.raises(StoreError, match=now.incident.id):
        people.act(now.bench.store, "note", {"incident": "inc-x", "who": "ann", "text": "y"})


# ---------------------------------------------------------------- names and forms


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_id_is_safe_whatever_the_pool_is_called(name: str) -> None:
    made = incident_id(name, 1_800_000_000.0)
    assert made.isascii()
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert made.startswith("inc-")
    assert "-202701150800-" in made


def test_a_state_comes_back_as_it_was(scene: Scene) -> None:
    scene.page.holds, scene.page.tenant = Holds.YES, ODD_NAMES[0]
    scene.tick(3)
    written = json.loads(json.dumps(asdict(scene.incident)))
    assert state.incident_from(written | {"of a newer version": 1}) == scene.incident
    assert scene.known().incidents[scene.incident.id] == replace(
        scene.incident, last_seen=scene.known().incidents[scene.incident.id].last_seen,
        alerts=scene.known().incidents[scene.incident.id].alerts,
    )  # fmt: skip


def test_states_fold_to_the_same_in_any_order(scene: Scene) -> None:
    scene.page.holds = Holds.YES
    scene.tick(2)
    scene.page.holds = Holds.NO
    scene.tick(5)
    rows = StoreSource(scene.bench.store).query(
        "alert_events", start=0.0, end=float("inf"), states=True
    ).rows  # fmt: skip
    assert len(rows) > 1
    assert state.fold(rows) == state.fold(rows[::-1]) == state.fold([*rows, *rows])


def test_a_state_that_cannot_be_read_is_left_out_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = state.fold([(1.0, "incident_state", "x/1", "main", "{broken")])
    assert known.incidents == {}
    assert "x/1" in caplog.text


def test_the_command_line_lists_shows_and_acts_on_a_closed_store(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: scene.clock.wall_s)
    scene.page.holds, scene.page.tenant = Holds.YES, "\x1b[31mred"
    scene.tick(2)
    scene.bench.close()
    name, where = scene.incident.id, ["--store", str(scene.folder)]
    assert invoke(["incidents", "list", "--open", *where]) == 1
    assert name in capsys.readouterr().out
    assert invoke(["incidents", "ack", name, "--as", "ann", *where]) == 0
    assert invoke(["incidents", "note", name, "a word", "--as", "ann", *where]) == 0
    assert invoke(["incidents", "show", name, *where]) == 0
    shown = capsys.readouterr().out
    assert "acknowledged" in shown
    assert "a word" in shown
    assert "\x1b" not in shown
    assert invoke(["incidents", "close", name, "--as", "ann", *where]) == 0
    capsys.readouterr()
    assert invoke(["incidents", "list", "--json", *where]) == 0
    assert [i["state"] for i in json.loads(capsys.readouterr().out)] == ["resolved"]
    with pytest.raises(SystemExit, match="1"):
        invoke(["incidents", "close", name, *where])
    assert "is resolved already" in capsys.readouterr().err
    add = ["silence", "add", "--pool", "main", "--for", "2h", "--reason", "a drill", *where]
    assert invoke(add) == 0
    capsys.readouterr()
    assert invoke(["silence", "list", "--json", *where]) == 0
    [made] = json.loads(capsys.readouterr().out)
    assert invoke(["silence", "remove", made["id"], *where]) == 0
    assert invoke(["silence", "add", "--pool", "main", "--reason", "r", *where]) == 2
