"""The form of an act: what is typed is read or refused, and tried before it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.act.acts import ACTS, BY_NAME, form_of
from console.act.form import Form, Send, Stage, answered, orders_of, press, problem, span_s
from console.act.values import Answer, Change, EngineState, Looked, No, Part, TenantState

OURS = Change(number=1, at=10.0, until=900.0, who="me", why="", what="rpm 60", state="in force")
STATE = EngineState(
    address="unix:/a", engine="e1", pool="main", version=7, changes=(OURS,), pools=("main", "gold"),
    tenants=(
        TenantState(tenant="acme", pool="main", running=7, waiting=6, adapters=("a", "b")),
        TenantState(tenant="globex", pool="main"),
    ),
)  # fmt: skip
LOOKED = Looked((STATE,))
OK = Answer(
    address="unix:/a", effect="rpm none -> 60", version=7, parts=(Part("e1/main", True, ""),)
)


def form(name: str = "cap", looked: Looked = LOOKED) -> Form:
    made = form_of(BY_NAME[name], "acme", looked)
    assert isinstance(made, Form), made
    return made


def keys(made: Form, *pressed: str) -> tuple[Form, Send]:
    send = Send.NOTHING
    for key in pressed:
        made, send = press(made, key, key if len(key) == 1 else None)
    return made, send


def test_a_cap_is_tried_with_its_version_then_done_with_the_same():
    typing, send = keys(form(), "6", "0", "enter")
    assert (typing.stage, send) == (Stage.TRYING, Send.TRY)
    [order] = orders_of(typing, "me", dry_run=True)
    assert (order.values, order.if_version, order.ttl_s) == ((("rpm", "60"),), 7, 900.0)
    assert order.dry_run
    tried = answered(typing, [OK], LOOKED)
    doing, send = keys(tried, "enter")
    assert (tried.stage, doing.stage, send) == (Stage.TRIED, Stage.DOING, Send.DO)
    assert answered(doing, [OK], LOOKED).stage is Stage.DONE


def test_nothing_is_ever_sent_to_be_done_that_was_not_tried():
    @given(st.lists(st.sampled_from(["enter", "escape", "up", "down", "q", "6", "left", "tab"])))
    def holds(pressed):
        made, tried = form(), False
        for key in pressed:
            made, send = press(made, key, key if len(key) == 1 else None)
            if send is Send.TRY:
                tried, made = True, answered(made, [OK], LOOKED)
            if send is Send.DO:
                assert tried
                made = answered(made, [OK], LOOKED)
            if made.stage is Stage.TYPING:
                tried = False

    holds()


def test_a_version_that_moved_shows_what_was_changed_and_is_offered_again_on_top_of_it():
    typing, _ = keys(form(), "6", "enter")
    theirs = replace(OURS, number=2, who="bob", what="acme concurrency 16 -> none")
    ended = replace(OURS, state="undone")
    later = Looked((replace(STATE, version=9, changes=(ended, theirs)),))
    no = Answer(address="unix:/a", no=No.MOVED, why_not="version 7 is no longer in force")
    moved = answered(typing, [no], later)
    assert moved.stage is Stage.MOVED
    assert moved.meanwhile == (ended, theirs)
    again, send = keys(moved, "enter")
    assert (again.stage, send) == (Stage.TRYING, Send.TRY)
    assert [o.if_version for o in orders_of(again, "me", dry_run=True)] == [9]
    back, _ = keys(moved, "escape")
    assert (back.stage, back.value("rpm")) == (Stage.TYPING, "6")


@pytest.mark.parametrize(
    ("name", "key", "text", "says"),
    [
        ("cap", "rpm", "", "nothing to change yet"),
        ("cap", "rpm", "6O", "rpm '6O': write a whole number, or none"),
        ("cap", "concurrency", "²", "concurrency"),
        ("weight", "weight", "0", "weight '0': write a number above 0"),
        ("weight", "weight", "inf", "weight 'inf'"),
        ("weight", "tier", "gold", "tier 'gold': write normal, low, lowest or a number"),
        ("drain", "for", "15", "for '15': write 90s, 15m, 4h or 2d, or permanent"),
        ("drain", "for", "", "for ''"),
        ("drain", "for", "permanent", "a permanent change needs a reason"),
    ],
)
def test_what_cannot_be_is_said_with_its_value_and_what_to_write(name, key, text, says):
    made = form(name)
    fields = tuple(replace(f, typed=text) if f.key == key else f for f in made.fields)
    refused, send = press(replace(made, fields=fields), "enter", None)
    assert refused.stage is Stage.TYPING
    assert refused.trouble.startswith(says), refused.trouble
    assert send is Send.NOTHING


def test_a_permanent_change_with_a_reason_has_no_end():
    made = form("drain")
    fields = tuple(
        replace(f, typed={"for": "permanent", "reason": "left us"}.get(f.key, f.typed))
        for f in made.fields
    )
    made = replace(made, fields=fields)
    assert not problem(made)
    [order] = orders_of(made, "me", dry_run=True)
    assert (order.permanent, order.ttl_s, order.why) == (True, 0.0, "left us")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("15m", 900.0), ("1.5h", 5400.0), ("2d", 172_800.0), ("0m", None),
     ("m", None), ("1w", None), ("-5m", None), ("٢m", None)],
)  # fmt: skip
def test_spans_are_written_as_the_command_line_takes_them(text, seconds):
    assert span_s(text) == seconds


def test_q_is_a_letter_while_a_form_is_typed_into_and_nothing_afterwards():
    made = form()
    typing, send = keys(made, "q")
    assert (typing.fields[0].typed, send) == ("q", Send.NOTHING)
    tried = answered(keys(made, "6", "enter")[0], [OK], LOOKED)
    for stage in (Stage.TRYING, Stage.TRIED, Stage.DOING, Stage.DONE, Stage.MOVED):
        there = replace(tried, stage=stage)
        assert press(there, "q", "q") == (there, Send.NOTHING)


def test_a_refused_trial_goes_back_to_what_was_typed_with_the_engines_words():
    typing, _ = keys(form(), "6", "enter")
    no = Answer(address="unix:/a", no=No.REFUSED, why_not="rpm 6: the contract says 60")
    back = answered(typing, [no], LOOKED)
    assert (back.stage, back.value("rpm")) == (Stage.TYPING, "6")
    assert back.trouble == "rpm 6: the contract says 60"


def test_of_two_engines_each_is_asked_with_its_own_version():
    other = replace(STATE, address="unix:/b", engine="e2", version=3)
    made, _ = keys(form(looked=Looked((STATE, other))), "6", "enter")
    assert [(o.address, o.if_version) for o in orders_of(made, "me", dry_run=True)] == [
        ("unix:/a", 7), ("unix:/b", 3)]  # fmt: skip


def test_undo_names_the_last_change_in_force_and_is_tried_at_once():
    made = form_of(BY_NAME["undo"], None, LOOKED)
    assert isinstance(made, Form)
    assert (made.stage, made.fields) == (Stage.TRYING, ())
    assert made.expected == "takes back, on e1/main: rpm 60 (by me)"
    none = Looked((replace(STATE, changes=()),))
    assert form_of(BY_NAME["undo"], None, none) == "undo: no change is in force"


@pytest.mark.parametrize("act", [a for a in ACTS if a.name != "undo"], ids=lambda a: a.name)
def test_without_a_tenant_or_an_engine_that_serves_it_there_is_a_sentence(act):
    assert "choose a tenant first" in form_of(act, None, LOOKED)
    assert "no engine that answers serves nobody" in form_of(act, "nobody", LOOKED)


def test_where_there_is_nothing_to_choose_from_there_is_a_sentence():
    bare = replace(STATE, pools=("main",), tenants=(TenantState(tenant="acme", pool="main"),))
    assert "has no adapter" in form_of(BY_NAME["unload"], "acme", Looked((bare,)))
    assert "one pool" in form_of(BY_NAME["move"], "acme", Looked((bare,)))


def test_a_choice_goes_round_and_takes_no_letters():
    made = form("unload")
    assert made.value("adapter") == "a"
    assert keys(made, "right", "x")[0].value("adapter") == "b"
    assert keys(made, "right", "right")[0].value("adapter") == "a"
    [order] = orders_of(keys(made, "right")[0], "me", dry_run=True)
    assert (order.adapter, order.values) == ("b", ())


def test_a_tenant_that_drains_is_let_in_again_by_the_same_key():
    drains = replace(STATE, tenants=(TenantState(tenant="acme", pool="main", draining=True),))
    made = form("drain", Looked((drains,)))
    assert (made.method, made.title) == ("ResumeTenant", "resume")
    assert [f.key for f in made.fields] == ["reason"]


@pytest.mark.parametrize(
    ("name", "pressed", "at", "says"),
    [
        ("cap", ("down",), 1, ""), ("cap", ("tab", "tab"), 2, ""), ("cap", ("up",), 4, ""),
        ("cap", ("shift+tab",), 4, ""), ("cap", ("6", "0", "backspace"), 0, "6"),
        ("cap", ("6", "0", "ctrl+u"), 0, ""), ("cap", ("left", "f1"), 0, ""),
        ("unload", ("space",), 0, "b"), ("unload", ("left",), 0, "b"),
        ("unload", ("backspace", "ctrl+u"), 0, "a"), ("unload", ("down", "left"), 1, "15m"),
    ],
)  # fmt: skip
def test_what_each_key_does_to_a_form_that_is_typed_into(name, pressed, at, says):
    made, send = keys(form(name), *pressed)
    assert (made.at, made.fields[at].typed, send) == (at, says, Send.NOTHING)
