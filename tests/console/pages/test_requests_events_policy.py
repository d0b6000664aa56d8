"""The pages of requests, of events and of the policy: what they ask, show, filter and open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.act.values import IN_FORCE, Change, EngineState
from console.detail import fetch
from console.pages import PAGES
from console.pages.events import SPANS, WHICH
from console.pages.requests import ONLY, SORTS
from console.panels import LIVE
from console.screens import GoTo, Open, Place, Row, Say
from telemetry.errors import QueryError
from tests.console import places
from tests.console.pages import world
from tests.console.pages.world import ODD

REQUESTS, EVENTS, POLICY = PAGES["requests"], PAGES["events"], PAGES["policy"]


def ids(place: Place) -> list[str]:
    return [r.name for r in REQUESTS.rows(world.scene("requests", place))]


# Requests.


def test_the_newest_come_first_or_the_slowest_or_those_who_waited_most():
    assert ids(Place())[0] == "r1"
    told = world.scene("requests", Place(sort="ttft")).detail.rows("requests")
    waits = [r["ttft_s"] for r in told if r["ttft_s"] is not None]
    assert waits == sorted(waits, reverse=True)
    assert told[-1]["ttft_s"] is None


def test_of_one_tenant_alone_or_of_all_of_them():
    place = Place(tenant="globex")
    assert {r["tenant"] for r in world.scene("requests", place).detail.rows("requests")} == {
        "globex"
    }
    everybody = REQUESTS.turn(world.scene("requests", place), "everyone")
    assert len(ids(everybody)) == 33
    assert "of all tenants" in world.text("requests", everybody)[2]
    assert len(ids(Place(tenant=""))) == 1  # the empty name is a name


@pytest.mark.parametrize(
    ("only", "n"), [("all", 33), ("missed", 12), ("refused", 2), ("failed", 0), ("preempted", 32),
                    ("retries", 1)]
)  # fmt: skip
def test_only_those_of_a_kind(only, n):
    assert len(ids(Place().turn("only", only))) == n


def test_keys_go_round_kinds_orders_and_spans():
    place = Place(first=7)
    for what, switch, values in (("only", "only", ONLY), ("span", "span", ("1h", "6h"))):
        turned = REQUESTS.turn(world.scene("requests", place), what)
        assert turned.switch(switch, values[0]) == values[1]
        assert turned.first == 0
    assert REQUESTS.turn(world.scene("requests", place), "sort").sort == SORTS[1]
    assert REQUESTS.turn(world.scene("requests", place), "else") == place


def test_a_filter_keeps_what_matches_and_one_that_cannot_be_used_is_refused():
    assert ids(Place(filter="r1|^acme")) == ["r1"]
    assert (
        "1 of 33, of all tenants, newest first, last 1h, filter r1"
        in world.text("requests", Place(filter="r1|^acme"), (120, 24))[2]
    )
    assert len(ids(Place(filter="!globex"))) == 9
    with pytest.raises(QueryError):
        REQUESTS.check_filter("(a+)+$")


def test_the_request_chosen_is_told_in_words_and_opens_its_tenant():
    cursor = Row("request", "odd0", tenant="[red]x")
    text = world.text("requests", Place(cursor=cursor, first=2))
    assert text[-3].strip().startswith("[red]x  [red]x-chat (hit: device)  prompt 1.2k, 64 cached")
    assert "front 500ms, slot 1s, budget 1s, kv 2s, adapter 500ms, prefill 1s" in text[-2]
    assert text[-1].strip() == "1.5s, decode 2.5s  odd0"
    scene = world.scene("requests", Place(cursor=cursor))
    assert REQUESTS.enter(scene) == Open("tenant", "[red]x")
    assert isinstance(REQUESTS.enter(world.scene("requests")), Say)


def test_a_list_longer_than_the_screen_begins_where_the_reader_is():
    whole = ids(Place())
    shown = [x.row.name for x in world.lines("requests", Place(first=10)) if x.row is not None]
    assert shown == whole[10 : 10 + len(shown)]


# Events.


def kinds(which: str) -> set[str]:
    scene = world.scene("events", Place().turn("only", which))
    return {str(e["kind"]) for e in scene.detail.rows("events")}


def test_kinds_are_told_apart_and_states_for_a_restart_are_never_told():
    assert kinds("news") == {"start", "mark", "policy", "incident", "incident_act", "fault"}
    assert kinds("changes") == {"start", "mark", "policy"}
    assert kinds("alerts") == {"incident", "incident_act"}
    assert kinds("faults") == {"fault"}
    assert kinds("pressure") == {"evict"}
    assert kinds("every") == kinds("news") | {"evict"}
    assert set(WHICH) == {"news", "changes", "alerts", "faults", "pressure", "every"}


def test_events_say_what_happened_and_who_says_so():
    text = world.text("events", Place().turn("only", "every"), (160, 24))
    found = {line.split()[1]: " ".join(line.split()[2:]) for line in text[3:11]}
    assert found["ALERT"] == "store main-7 opened (page): globex"
    assert found["NOTED"] == "store bob: note main-7: [b]looking"
    assert found["EVICT"] == "worker globex chat globex chat for acme"
    assert found["FAULT"].startswith("worker, front \\x1b[31ma step failed")


def test_a_version_that_no_event_tells_of_is_told_and_none_twice():
    scene = world.scene("events", Place().turn("only", "changes"))
    said = [e["detail"] for e in scene.detail.rows("events") if e["kind"] == "policy"]
    assert said == [
        "vtc -> vtc by ann: too much at once",
        "tenant 'globex': rpm 60 -> 30 by bob",
    ]


def test_enter_goes_to_the_instant_of_an_event():
    scene = world.scene("events")
    alert = next(r for r in EVENTS.rows(scene) if "said" in r.part or "incident" in r.part)
    chosen = world.scene("events", Place(cursor=alert))
    assert EVENTS.enter(chosen) == GoTo(float(alert.name))
    assert isinstance(EVENTS.enter(scene), Say)


def test_a_replay_tells_nothing_before_it_happened_and_a_live_picture_up_to_now():
    s = replace(world.now(), now=world.END - 15.0, data_at=world.END - 20.0)
    for mode, late in ((LIVE, True), ("REPLAY x5", False)):
        told = world.text("events", Place().turn("only", "every"), s=replace(s, mode=mode))
        assert any("a step failed" in x for x in told) is late


def test_an_instant_that_was_gone_to_shows_its_own_event():
    at = world.END - 30.0  # of the alert
    s = replace(world.now(), now=at, data_at=at, edge=world.END)
    told = world.text("events", s=s)
    assert told[3].split()[1] == "ALERT"


def test_another_span_reaches_further_back():
    place = EVENTS.turn(world.scene("events"), "span")
    spans = [a.end - a.start for p in (Place(), place) for a in EVENTS.wants(world.now(), p)]
    assert spans == pytest.approx(list(SPANS.values())[:2], abs=30.0)


def test_a_filter_finds_words_kinds_and_sources():
    assert len(EVENTS.rows(world.scene("events", Place(filter="step failed")))) == 1
    assert len(EVENTS.rows(world.scene("events", Place(filter="^incident")))) == 2


def test_an_act_that_cannot_be_read_is_told_as_it_is():
    from console.pages.events import sentence

    event = {"kind": "incident_act", "detail": "[1, 2]", "tenant": None, "adapter": None}
    assert sentence(event) == "[1, 2]"


# Policy.


def test_what_differs_from_the_start_comes_first_with_both_values():
    text = world.text("policy", size=(160, 40))
    assert "vtc v3 in force" in text[2]
    assert "1 of 12 differ" in text[2]
    assert text[4].split() == [
        "*", "globex", "1>2", "normal", "60>30", "none", "16", "v3", "08:01:30", "-", "ann",
        "too", "much", "at", "once",
    ]  # fmt: skip
    assert all("the start" in x for x in text[5:16])


def test_versions_are_told_by_what_their_events_say():
    text = world.text("policy")
    at = next(i for i, x in enumerate(text) if "VERSIONS" in x)
    assert text[at + 2] == "08:01:00 v2 tenant 'globex': rpm 60 -> 30 by bob"
    assert text[at + 1].startswith("08:01:30 v3 ann: limits, weights or tiers")


def test_until_when_is_said_to_be_unknown_without_an_operators_door_and_counted_with_one():
    assert any("--admin asks" in x for x in world.text("policy"))
    end = world.END + 30.0
    change = Change(number=1, at=world.END - 60.0, until=end, who="\x1b[1mbob", why="fan-out",
                    what="tenant 'globex': rpm 60 -> 30", state=IN_FORCE)  # fmt: skip
    door = EngineState(address="a", engine="e1", pool="main", version=3,
                       changes=(change, replace(change, number=2, until=None),
                                replace(change, number=3, state="undone")))  # fmt: skip
    told = [x for x in world.text("policy", engines=(door,), size=(120, 30)) if "fan-out" in x]
    assert told[0].startswith("ends in 30s  \\x1b[1mbob: tenant 'globex'")
    assert told[1].startswith("for good")
    assert len(told) == 2
    # One door of several pools: what holds is told on each pool's page.
    door = replace(door, pool="all of them", pools=("main", "side"))
    told = [x for x in world.text("policy", engines=(door,), size=(120, 30)) if "fan-out" in x]
    assert len(told) == 2


def test_enter_opens_the_tenant_or_goes_to_the_version():
    assert POLICY.enter(world.scene("policy")) == Open("tenant", "globex")
    rows = POLICY.rows(world.scene("policy"))
    assert [r.kind for r in rows] == ["tenant"] * 12 + ["event"] * 3
    chosen = world.scene("policy", Place(cursor=rows[-1]))
    assert POLICY.enter(chosen) == GoTo(float(rows[-1].name))


def test_names_filter_the_table_and_what_is_cut_off_is_counted():
    assert len(POLICY.rows(world.scene("policy", Place(filter="!globex")))) == 11 + 3
    assert any("others (" in x for x in world.text("policy", size=(80, 12)))
    assert {r.name for r in POLICY.rows(world.scene("policy"))} >= set(ODD)


def test_what_was_so_before_the_versions_looked_at_is_not_told_as_the_start():
    late = [replace(p, version=p.version + 40, previous="vtc") for p in world.rows().policies]
    source = places.memory(replace(world.rows(), events=(), policies=tuple(late)))
    asks = POLICY.wants(world.now(), Place())
    try:
        scene = replace(world.scene("policy"), detail=fetch(source, asks), lines=20)
    finally:
        source.close()
    told = {x.row.name: x.plain for x in POLICY.lines(scene) if x.row and x.row.kind == "tenant"}
    assert told["acme"].rstrip().endswith("before v41")
    assert "v43 08:01:30" in told["globex"]
