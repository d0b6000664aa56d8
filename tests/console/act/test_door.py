"""The door: refusal, silence and a version that moved are told apart; nothing waits for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.act import door as doors
from console.act.door import AdminDoor, answer_of, state_of
from console.act.find import addresses, doors_beside, why_closed
from console.act.hand import DoorShut
from console.act.open import open_desk
from console.act.values import No, Order
from telemetry.proto import tenantscope_pb2 as pb
from tests.console.act.engine import opened

CAP = Order(address="", method="SetTenant", tenant="acme", values=(("rpm", "60"),), who="me",
            if_version=7)  # fmt: skip


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    listening = opened(tmp_path_factory.mktemp("e"), pools=("main", "gold"))
    yield listening
    listening.stop()


@pytest.fixture
def door(one):
    one.engine.reset()
    made = AdminDoor(one.address)
    yield made
    made.close()


def test_a_look_is_the_engine_in_values(door):
    state = door.look()
    assert (state.engine, state.version, state.pools) == ("e1", 7, ("main", "gold"))
    acme = state.tenant("acme")
    assert (acme.rpm, acme.concurrency, acme.under_way, acme.pool) == (None, None, 13, "main")
    assert state.adapter("acme-a").requests == 5
    assert [a.pinned for a in state.adapters] == [True, False]


@pytest.mark.parametrize(
    "order",
    [CAP, replace(CAP, method="MoveTenant", values=(("pool", "gold"),)),
     replace(CAP, method="UnloadAdapter", adapter="acme-a"), replace(CAP, method="DrainTenant"),
     replace(CAP, method="ResumeTenant"), replace(CAP, method="PreemptTenant")],
    ids=lambda o: o.method,
)  # fmt: skip
def test_every_order_reaches_its_method_and_says_who_why_and_until(one, door, order):
    answer = door.act(replace(order, why="because", ttl_s=900.0, engine="e1"))
    assert (answer.ok, answer.no) == (True, None)
    [asked] = one.engine.asked
    act = asked.request.act
    assert (asked.method, act.engine, act.who, act.why, act.ttl_s) == (
        order.method, "e1", "me", "because", 900.0)  # fmt: skip
    assert (act.dry_run, act.if_version) == (True, 7)


def test_refused_moved_and_silent_are_told_apart(one, door, monkeypatch):
    moved = door.act(replace(CAP, if_version=6))
    assert (moved.no, "look again" in moved.why_not) == (No.MOVED, True)
    one.engine.refuses = "rpm 60: no"
    refused = door.act(CAP)
    assert (refused.no, refused.why_not) == (No.REFUSED, "rpm 60: no")
    monkeypatch.setattr(doors, "ACT_S", 0.05)
    one.engine.hold.clear()
    silent = door.act(CAP)
    assert (silent.no, silent.ok) == (No.SILENT, False)
    assert silent.why_not.startswith(f"no answer from {one.address} within")
    one.engine.hold.set()


def test_nobody_there_and_a_token_that_opens_nothing_are_sentences(one, door, tmp_path):
    one.engine.closed = True
    with pytest.raises(DoorShut, match="this token is a viewer's"):
        door.look()
    away = AdminDoor(f"unix:{tmp_path}/none.sock")
    with pytest.raises(DoorShut, match="does the engine run"):
        away.look()
    assert away.act(CAP).no is No.SILENT
    away.close()
    with pytest.raises(DoorShut, match="no address"):
        AdminDoor("nonsense")


def test_of_several_workers_each_says_its_own_and_one_that_owes_is_no_failure():
    reply = pb.AdminReply(
        version=3,
        results=[pb.EngineResult(engine="e1", pool="main", ok=True, detail="2 workers")],
        workers=[
            pb.WorkerResult(pool="main", replica=0, ok=True, detail="39 go on"),
            pb.WorkerResult(pool="main", replica=1, detail="restarting", owed=True),
        ],
    )
    answer = answer_of("unix:/a", reply)
    assert [(p.where, p.ok) for p in answer.parts] == [("e1/main#1", True), ("e1/main#2", True)]
    assert answer.parts[1].detail == "does not answer, is told when it does: restarting"
    refused = pb.AdminReply(workers=[pb.WorkerResult(pool="a", ok=True), pb.WorkerResult(pool="b")])
    assert not answer_of("unix:/a", refused).ok


def test_an_adapter_on_several_workers_is_one_with_all_its_requests():
    reply = pb.AdminShowReply(adapters=[pb.AdapterNow(name="a", requests=2, pool="x"),
                                        pb.AdapterNow(name="a", requests=3, pool="y")])  # fmt: skip
    assert [(a.name, a.requests) for a in state_of("", reply).adapters] == [("a", 5)]


def test_the_door_beside_a_live_place_is_found_and_a_recording_has_none(one):
    folder = one.address.removeprefix("unix:").rpartition("/")[0]
    assert doors_beside(f"unix:{folder}/store.sock") == (one.address,)
    assert addresses((), f"unix:{folder}/worker.sock", recorded=False) == (one.address,)
    assert addresses((), f"unix:{folder}/worker.sock", recorded=True) == ()
    assert addresses(("a", "a", "b"), "x", recorded=False) == ("a", "b")
    assert doors_beside("127.0.0.1:7420") == ()
    assert "recording" in why_closed("x", recorded=True)
    assert "--admin" in why_closed("x", recorded=False)


def test_the_desk_of_a_place_has_its_doors_or_says_why_it_has_none(one, tmp_path):
    folder = one.address.removeprefix("unix:").rpartition("/")[0]
    live = f"unix:{folder}/worker.sock"
    beside = open_desk(live, (), recorded=False, environ={})
    assert [d.address for d in beside._doors] == [one.address]
    beside.stop()
    named = open_desk(live, (), recorded=False, environ={"TENANTSCOPE_ADMIN": "unix:/other.sock"})
    assert [d.address for d in named._doors] == ["unix:/other.sock"]
    named.stop()
    closed = open_desk(str(tmp_path), (), recorded=False, environ={"TENANTSCOPE_ADMIN": "unix:/x"})
    assert closed.why_not == "read-only: a recording cannot be changed"
    away = open_desk("127.0.0.1:7420", (), recorded=False, environ={})
    assert "no operator's socket lies beside 127.0.0.1:7420" in away.why_not
    with pytest.raises(DoorShut, match="a recording is looked at"):
        open_desk(live, ("unix:/x",), recorded=True, environ={})
    with pytest.raises(DoorShut, match="no address"):
        open_desk(live, ("nonsense",), recorded=False, environ={})
