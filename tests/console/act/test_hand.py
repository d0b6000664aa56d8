"""The hand looks again and again, acts once at a time, and lets no engine hold up another."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace

import pytest

from console.act.acts import BY_NAME
from console.act.desk import Desk, what_if
from console.act.hand import Acted, DoorShut, Hand, rest_s
from console.act.values import Answer, EngineState, Looked, No, Order, Part, TenantState
from console.lines import UNICODE
from tests.console.test_overview import picture


class Held:
    """A door that says what it is told to, and may be held shut for a while."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.hold = threading.Event()
        self.hold.set()
        self.asked = threading.Event()
        self.fault: Exception | None = None
        self.closed = False

    def look(self) -> EngineState:
        if self.fault is not None:
            raise self.fault
        tenant = TenantState(tenant="acme", running=1)
        return EngineState(
            address=self.address, engine=self.address, pool="main", version=1, tenants=(tenant,)
        )

    def act(self, order: Order) -> Answer:
        self.asked.set()
        assert self.hold.wait(10)
        if self.fault is not None:
            raise self.fault
        return Answer(address=self.address, effect="rpm 60", parts=(Part("e", True, ""),))

    def close(self) -> None:
        self.closed = True
        self.hold.set()


def orders(*doors: Held, dry_run: bool = False) -> list[Order]:
    return [Order(address=d.address, method="SetTenant", tenant="acme", values=(("rpm", "60"),),
                  dry_run=dry_run) for d in doors]  # fmt: skip


@pytest.fixture
def heard():
    return queue.Queue()


def next_act(heard) -> Acted:
    while not isinstance(said := heard.get(timeout=10), Acted):
        pass
    return said


def test_an_engine_that_was_started_again_elsewhere_is_found(heard):
    old, new = Held("old"), Held("new")
    old.fault = DoorShut("nobody answers at old")
    sought: list[set[str]] = []

    def again(known):
        sought.append(set(known))
        return [new] if len(sought) == 2 else []

    hand = Hand([old], heard.put, every_s=30.0, again=again)
    hand.start()
    assert heard.get(timeout=10).closed == (("old", "nobody answers at old"),)
    hand.look()
    assert [s.address for s in heard.get(timeout=10).states] == ["new"]
    assert sought == [{"old"}, {"old"}]
    assert old.closed
    assert hand.send(orders(old))
    assert next_act(heard).answers[0].why_not.startswith("the engine at old has gone")
    hand.stop()
    hand.join()
    assert new.closed


def test_a_door_that_fails_is_told_beside_those_that_open(heard):
    doors = [Held("a"), Held("b")]
    doors[0].fault = DoorShut("this token is a viewer's")
    hand = Hand(doors, heard.put, every_s=30.0)
    hand.start()
    looked = heard.get(timeout=10)
    assert isinstance(looked, Looked)
    assert [s.engine for s in looked.states] == ["b"]
    assert looked.closed == (("a", "this token is a viewer's"),)
    hand.look()
    assert isinstance(heard.get(timeout=10), Looked)
    hand.stop()
    hand.join()


def test_an_engine_of_many_tenants_is_looked_at_more_rarely():
    assert [rest_s(2.0, took_s) for took_s in (0.0, 0.08, 0.4, 3.0)] == [2.0, 2.0, 10.0, 15.0]


def test_of_two_acts_the_second_is_not_sent_while_the_first_waits(heard):
    door = Held("a")
    hand = Hand([door], heard.put, every_s=30.0)
    door.hold.clear()
    assert hand.send(orders(door))
    assert door.asked.wait(10)
    assert not hand.send(orders(door))
    door.hold.set()
    acted = next_act(heard)
    assert [a.ok for a in acted.answers] == [True]
    assert acted.looked.states
    assert hand.send(orders(door))
    hand.stop()
    hand.join()
    assert not hand.send(orders(door))


def test_what_one_engine_fails_at_the_other_does_and_both_are_told(heard):
    doors = [Held("a"), Held("b")]
    doors[0].fault = ConnectionError("gone\nin the middle")
    hand = Hand(doors, heard.put, every_s=30.0)
    assert hand.send(orders(*doors))
    first, second = next_act(heard).answers
    assert (first.no, first.why_not) == (No.SILENT, "gone in the middle")
    assert second.ok
    hand.stop()
    hand.join()


def test_leaving_cuts_off_what_is_under_way_and_tells_nothing_more(heard):
    door = Held("a")
    hand = Hand([door], heard.put, every_s=30.0)
    door.hold.clear()
    hand.send(orders(door))
    assert door.asked.wait(10)
    hand.stop()
    hand.join()
    assert door.closed
    assert heard.empty()


def test_so_many_engines_and_no_more():
    with pytest.raises(ValueError, match="33 operators' addresses: at most 32"):
        Hand([Held(str(i)) for i in range(33)], print)


def test_a_desk_tells_what_was_done_and_what_was_not_and_looks_at_the_effect():
    desk, seen = Desk([Held("a")]), picture()
    state = Held("a").look()
    assert desk.why_not == "read-only: the engine has not answered yet"
    assert desk.heard(Looked((state,)), seen) == ""
    assert desk.open
    sent = tuple(orders(Held("a"), Held("b")))
    bad = Answer(address="b", no=No.SILENT, why_not="no answer from b within 15 s")
    good = Answer(address="a", effect="rpm none -> 60", parts=(Part("e", True, ""),))
    said = desk.heard(Acted(sent, (good, bad), Looked((state,))), seen)
    assert said == "rpm none -> 60; not done: no answer from b within 15 s"
    [line] = desk.notes(seen, seen.now, 80, UNICODE)
    assert line.plain.startswith("AFTER rpm 60 acme 0:00")


def test_a_trial_and_an_act_that_failed_leave_nothing_to_look_at():
    desk, seen = Desk([Held("a")]), picture()
    good = Answer(address="a", effect="rpm none -> 60")
    tried = Acted(tuple(orders(Held("a"), dry_run=True)), (good,), Looked())
    assert desk.heard(tried, seen) == ""
    bad = Answer(address="a", no=No.REFUSED, why_not="rpm: no")
    assert (
        desk.heard(Acted(tuple(orders(Held("a"))), (bad,), Looked()), seen) == "not done: rpm: no"
    )
    assert desk.notes(seen, seen.now, 80, UNICODE) == ()


def test_the_what_ifs_command_is_one_for_a_shell():
    assert what_if("/a store", "x'; rm -rf y", "cap") == (
        "tenantscope postmortem whatif --store '/a store' --from '15m ago' "
        "--tenant 'x'\"'\"'; rm -rf y' --policy cap"
    )


def test_the_what_if_names_the_pool_where_the_store_has_several_and_no_control_character():
    assert what_if("s", "a\x1b", "cap", "ma in") == (
        "tenantscope postmortem whatif --store s --from '15m ago' --tenant $'a\\x1b' --policy cap "
        "--pool 'ma in'"
    )
    desk, seen = Desk([Held("a")], store="s"), picture()
    desk.heard(Looked((Held("a").look(),)), seen)
    several = replace(seen, pools=("gold", "main"))
    for at, pool in ((seen, ""), (several, " --pool main")):
        assert desk.form(BY_NAME["cap"], "acme", at).what_if.endswith(f"--policy cap{pool}")
