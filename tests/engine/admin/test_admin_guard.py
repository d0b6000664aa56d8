"""Guard rails: who is capped by an incident, and who is not."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.admin.act import Act
from engine.admin.desk import AdminDesk
from engine.admin.guard import MOST_CAPS, WHO, Cap, held, judge
from engine.admin.guard_watch import Guarding, GuardWatch
from engine.admin.in_force import Edit, InForce
from engine.admin.member import Member
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.config import Guard, Settings, Tenant, read_settings
from engine.config_pools import PoolSpec
from engine.errors import ConfigError, EngineError
from telemetry.alerts.incident import HeldBy, Incident, State
from telemetry.alerts.state import state_batch
from telemetry.otlp.encode import encode
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service.client import StoreClient
from telemetry.service.hearing import Hub
from telemetry.service.server import StoreServer
from telemetry.store.store import Store
from telemetry.watch.service import attach
from tests.engine.serving.serving_fakes import short_folder

RAIL = Guard(mode="act", rpm=60, concurrency=4, ttl_s=300.0)
BASE = Settings(
    engine="e",
    guard=RAIL,
    tenants=(Tenant("heavy"), Tenant("low", rpm=5, concurrency=1), Tenant("light", rpm=10)),
)
HEAVY = HeldBy("heavy", "charged", "high", 0.8)
INCIDENT = Incident(
    "inc-main-1", "main", "e", State.OPEN, "page", 10.0, 20.0, holders=(HEAVY,), lines=("it hurts",)
)


def detail(incident: Incident = INCIDENT) -> str:
    """As the store writes an incident's state."""
    return next(e.detail for e in state_batch(incident, 20.0, say=False).logs if e.detail)


def verdict(incident: Incident = INCIDENT, **guard: Any) -> Cap | str:
    return judge(held(detail(incident)), replace(RAIL, **guard), InForce(BASE), Overlay())


def by(**holder: Any) -> Incident:
    return replace(INCIDENT, holders=(replace(HEAVY, **holder),))


def test_a_holder_named_with_strength_while_somebody_is_hurt_is_capped() -> None:
    assert verdict() == Cap(
        "heavy", {"rpm": "60", "concurrency": "4"}, "inc-main-1: holds 80% of the excess wait"
    )
    assert isinstance(verdict(by(strength="counterfactual", confidence=None)), Cap)
    assert isinstance(verdict(replace(INCIDENT, state=State.ACKNOWLEDGED)), Cap)


@pytest.mark.parametrize(
    ("incident", "why"),
    [
        (replace(INCIDENT, state=State.RESOLVED), "over"),
        (replace(INCIDENT, severity="warn"), "no reason to page"),
        (replace(INCIDENT, pool="gold"), "pool 'gold'"),
        (replace(INCIDENT, engine="other"), "engine 'other'"),
        (replace(INCIDENT, holders=()), "names no holder"),
        (by(strength="associated"), "only associated"),
        (by(confidence="low"), "at low confidence"),
        (by(share=0.5), "least_share"),
        (by(share=None), "least_share"),
        (by(tenant="nobody"), "not in the settings"),
        (by(tenant="low"), "as low already"),
    ],
)
def test_anything_less_caps_nobody_and_says_why(incident: Incident, why: str) -> None:
    said = verdict(incident)
    assert isinstance(said, str)
    assert why in said


def test_a_spared_tenant_is_never_capped() -> None:
    assert verdict(spare=("heavy",)) == "'heavy' is spared by the settings"


def test_a_cap_is_for_the_pool_of_the_incident() -> None:
    pools = (PoolSpec("main"), PoolSpec("gold"))
    base = replace(BASE, pools=pools)
    gold = replace(BASE, pools=pools, tenants=(Tenant("heavy", pool="gold"),))
    in_gold = held(detail(replace(INCIDENT, pool="gold")))
    assert isinstance(judge(held(detail()), RAIL, InForce(base), Overlay()), Cap)
    assert isinstance(judge(in_gold, RAIL, InForce(gold), Overlay()), Cap)
    said = judge(in_gold, RAIL, InForce(base), Overlay())
    assert said == "'heavy' is served by pool 'main' by now"


def test_caps_of_another_pool_leave_room_for_one_here() -> None:
    names = [f"h{i}" for i in range(MOST_CAPS)]
    gold = tuple(Tenant(n, pool="gold") for n in names)
    base = replace(
        BASE, pools=(PoolSpec("main"), PoolSpec("gold")), tenants=(Tenant("heavy"), *gold)
    )
    overlay = Overlay()
    for name in names:
        overlay = overlay.with_change(Edit("cap", name, {"rpm": 1}), "cap", 0.0, None, WHO, "x: y")
    now = overlay.on(base)
    assert isinstance(judge(held(detail()), RAIL, now, overlay), Cap)
    in_gold = held(detail(replace(INCIDENT, pool="gold", holders=(replace(HEAVY, tenant="late"),))))
    late = replace(base, tenants=(*base.tenants, Tenant("late", pool="gold")))
    assert judge(in_gold, RAIL, overlay.on(late), overlay) == f"{MOST_CAPS} caps hold already"


@settings(deadline=None)
@given(st.none() | st.integers(0, 100), st.none() | st.integers(0, 100), st.integers(1, 100))
def test_a_cap_never_raises_a_limit(rpm: int | None, tpm: int | None, cap: int) -> None:
    base = replace(BASE, tenants=(Tenant("heavy", rpm=rpm, tpm=tpm),))
    rail = Guard(mode="act", rpm=cap, tpm=cap)
    said = judge(held(detail()), rail, InForce(base), Overlay())
    words = said.words if isinstance(said, Cap) else {}
    for key, own in (("rpm", rpm), ("tpm", tpm)):
        assert (key in words) == (own is None or cap < own)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"id": 1}', '{"holders": 7, "id": "x"}'])
def test_what_is_no_incident_caps_nobody(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        held(text)


# -- done


class Hands:
    def __init__(self) -> None:
        self.front = BASE
        self.applied = threading.Event()

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        return pb.OperateReply(ok=True)

    def close(self) -> None:
        """Holds nothing."""

    def check(self, settings: Settings) -> None:
        assert settings.tenants

    def apply(self, settings: Settings) -> None:
        self.front = settings
        self.applied.set()


def make_desk(folder: Path, hands: Hands, base: Settings = BASE) -> AdminDesk:
    kept = OverlayFile(folder / "operator.json")
    workers = [Member(p.name, 0, hands) for p in base.all_pools()]
    return AdminDesk(base, kept, Overlay(), workers, hands, lambda: 1000.0)


def test_a_cap_holds_for_its_time_is_signed_and_comes_once(tmp_path: Path) -> None:
    hands = Hands()
    desk = make_desk(tmp_path, hands)
    guarding = Guarding(desk)
    assert isinstance(guarding.look(detail()), Cap)
    assert (hands.front.tenants[0].rpm, hands.front.tenants[0].concurrency) == (60, 4)
    change = desk.overlay.changes[0]
    assert (change.who, change.until_unix_s) == (WHO, 1300.0)
    assert change.why.startswith("inc-main-1: ")
    assert guarding.look(detail()) == "'heavy' is capped already"
    desk.undo(Act("op"))
    assert hands.front == BASE
    assert guarding.look(detail()) == "an operator took the cap of 'heavy' back"
    assert isinstance(guarding.look(detail(replace(INCIDENT, id="inc-main-2"))), Cap)


def test_a_limit_that_an_operator_lowers_meanwhile_is_not_raised_by_a_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()
    desk = make_desk(tmp_path, hands)
    seen = desk.state
    desk.set_tenant(Act("op"), "heavy", {"rpm": "5"})
    states = iter((seen, desk.state))
    monkeypatch.setattr(AdminDesk, "state", property(lambda d: next(states)))
    assert Guarding(desk).look(detail())
    assert (hands.front.tenants[0].rpm, hands.front.tenants[0].concurrency) == (5, 4)


def test_a_cap_raises_no_limit_when_what_was_under_it_ends_first(tmp_path: Path) -> None:
    base = replace(BASE, tenants=(Tenant("heavy", rpm=30),))
    desk = make_desk(tmp_path, Hands(), base)
    desk.set_tenant(Act("op"), "heavy", {"rpm": "1000"})
    assert isinstance(Guarding(desk).look(detail()), Cap)
    heavy = desk.in_force.settings.tenants[0]
    assert (heavy.rpm, heavy.concurrency) == (60, 4)
    without = replace(desk.overlay, changes=desk.overlay.changes[1:])
    assert without.on(base).settings.tenants[0].rpm == 30
    assert Overlay.load(desk.overlay.dump()) == desk.overlay


def test_a_cap_that_the_front_refuses_is_not_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands()

    def no(settings: Settings) -> None:
        raise ConfigError("not now")

    monkeypatch.setattr(hands, "check", no)
    with pytest.raises(EngineError, match="not now"):
        Guarding(make_desk(tmp_path, hands)).look(detail())


def test_a_dry_run_writes_down_once_what_it_would_cap_and_caps_nobody(tmp_path: Path) -> None:
    hands = Hands()
    desk = make_desk(tmp_path, hands, replace(BASE, guard=replace(RAIL, mode="dry-run")))
    guarding = Guarding(desk)
    for _ in range(3):
        assert isinstance(guarding.look(detail()), Cap)
    assert not hands.applied.is_set()
    said = [(c.what, c.who, c.state) for c in desk.overlay.changes]
    assert said == [("would cap tenant 'heavy': rpm 60, concurrency 4", WHO, "done")]


def test_only_a_few_are_capped_at_once(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(MOST_CAPS + 1)]
    base = replace(BASE, tenants=tuple(Tenant(n) for n in names))
    guarding = Guarding(make_desk(tmp_path, Hands(), base))
    said = [guarding.look(detail(by(tenant=n))) for n in names]
    assert [isinstance(s, Cap) for s in said] == [True] * MOST_CAPS + [False]


def test_an_incident_in_the_store_caps_its_holder_in_the_front() -> None:
    with short_folder() as folder, ExitStack() as stack:
        hands, hub = Hands(), Hub(lambda: 20.0)
        desk = make_desk(folder, hands)
        address = f"unix:{folder / 'store.sock'}"
        store = Store.open(folder / "store")
        server = StoreServer(store, address, hub.hear, [attach(store, hub, stack)])
        server.start()
        watch = GuardWatch(address, desk, lambda: 0.0)
        try:
            watch.start()
            with_client = StoreClient(address)
            with_client.export(*encode(state_batch(INCIDENT, 20.0, say=True)))
            assert hands.applied.wait(20)
            assert hands.front.tenants[0].rpm == 60
            with_client.close()
        finally:
            watch.close()
            server.stop(0.2)


def test_without_a_store_the_rails_are_blind_and_end_at_once_when_told() -> None:
    with short_folder() as folder:
        watch = GuardWatch(f"unix:{folder / 'none.sock'}", make_desk(folder, Hands()), lambda: 0.0)
        watch.start()
        watch.close()
        assert not watch._thread.is_alive()


# -- settings


def test_rails_that_cap_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text('[guard]\nmode = "act"\n')
    with pytest.raises(ConfigError, match="caps nothing"):
        read_settings(path)
    path.write_text('[guard]\nmode = "dry-run"\nrpm = 60\n')
    assert read_settings(path).guard == Guard(mode="dry-run", rpm=60)


def test_without_a_table_there_are_no_rails() -> None:
    assert Settings().guard.mode == "off"
    assert json.dumps(asdict(Settings().guard))
