"""What is expected of an act comes from what runs, ends and is offered; nothing is guessed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.account import Account, TenantNow
from console.act.acts import BY_NAME, form_of
from console.act.effect import about, expected
from console.act.form import Form
from console.act.values import AdapterState, EngineState, Looked, TenantState
from console.panels import TenantRow
from tests.console import rows as made
from tests.console.test_overview import picture

OWN = TenantState(tenant="acme", pool="main", under_way=39, running=39, adapters=("a", "b"))
STATE = EngineState(
    address="unix:/a", engine="e1", pool="main", version=1, pools=("main", "gold"),
    tenants=(OWN, TenantState(tenant="globex", pool="main", running=1, waiting=3, adapters=("b",)),
             TenantState(tenant="idle", pool="main"),
             TenantState(tenant="elsewhere", pool="gold", running=8)),
    adapters=(AdapterState(name="a", requests=5), AdapterState(name="b")),
)  # fmt: skip
MINUTES = (
    made.tenant(0.0, "acme", finished=4, offered_requests=20, offered_tokens=4000),
    made.tenant(10.0, "acme", finished=5, offered_requests=22, offered_tokens=4000),
)
ROW = TenantRow(name="acme", fair_share=0.2)
NOW = TenantNow(row=ROW, minutes=MINUTES, covered_s=60.0)
SEEN = replace(
    picture(),
    account=Account(tenants=(NOW,), not_tenants=(), total_s=0.0, basis="excess", span_s=300.0),
)


def says(name: str, state: EngineState = STATE, seen=SEEN, **typed: str) -> str:
    form = form_of(BY_NAME[name], "acme", Looked((state,)))
    assert isinstance(form, Form), form
    fields = tuple(replace(f, typed=typed.get(f.key, f.typed)) for f in form.fields)
    return expected(replace(form, fields=fields), (state,), seen)


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("cap", {"concurrency": "4"}, "takes effect as 35 of 39 requests under way end, ~4 min"),
        ("cap", {"concurrency": "40"}, "39 under way now: nothing has to end first"),
        ("cap", {"concurrency": "none"}, "any number may be under way"),
        ("cap", {"rpm": "10"},
         "of 42 requests a minute offered now about 32 are refused (429)"),
        ("cap", {"rpm": "60"}, "42 requests a minute are offered now: all of them still pass"),
        ("cap", {"tpm": "none"}, "no limit on tpm"),
        ("cap", {"rpm": "x"}, ""),
        ("weight", {"weight": "0.5"},
         "its fair share goes from 20% to 11% while the same tenants wait, from the next step on"),
        ("weight", {"tier": "low"},
         "in tier low it goes after every lower tier, from the next step on"),
        ("drain", {}, "nothing new is let in (429); 39 requests under way end, ~4 min"),
        ("preempt", {}, "about 35 of 39 running requests wait again and are computed once more"),
        ("unload", {"adapter": "a"},
         "whoever names it is told 404; 5 requests under way end with it, then its pages are free"),
        ("unload", {"adapter": "b"}, "whoever names it is told 404; it is also used by globex"),
        ("move", {"pool": "gold"},
         "new requests go to pool gold; 39 under way end where they are"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_and_by_when(name, typed, words):
    assert says(name, **typed) == words


def test_what_is_not_known_is_left_out():
    assert says("cap", seen=None, concurrency="4", rpm="10") == (
        "takes effect as 35 of 39 requests under way end; from the next request on 10 requests a "
        "minute"
    )
    assert says("weight", seen=None, weight="2").startswith("takes effect with the next step")
    assert says("preempt", seen=None) == "of 39 running what is above its fair share waits again"
    idle = replace(STATE, tenants=(replace(OWN, running=0, under_way=0),))
    nothing = "it has nothing under way now: nothing has to end first"
    assert says("cap", state=idle, concurrency="1") == nothing
    assert says("preempt", state=idle) == "it runs nothing now: nothing would wait again"


def test_over_two_engines_a_limit_holds_on_each():
    other = replace(STATE, address="unix:/b", engine="e2")
    form = form_of(BY_NAME["cap"], "acme", Looked((STATE, other)))
    assert isinstance(form, Form)
    fields = tuple(replace(f, typed="4" if f.key == "concurrency" else f.typed)
                   for f in form.fields)  # fmt: skip
    assert expected(replace(form, fields=fields), (STATE, other), None) == (
        "takes effect as 70 of 78 requests under way end"
    )


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (89.0, "89 s"), (235.0, "4 min"), (7200.0, "2 h")]
)
def test_an_estimate_is_coarse(seconds, words):
    assert about(seconds) == words


@pytest.mark.parametrize("text", [".", "-1", "²", "-0.5", "nan", "inf", "0", "1_0", "1e3"])
def test_of_a_weight_that_cannot_be_read_nothing_is_expected(text):
    assert says("weight", weight=text) == ""


@pytest.mark.parametrize("text", ["²", "1_0", "-1", "٣"])
def test_of_a_limit_that_cannot_be_read_nothing_is_expected(text):
    assert says("cap", concurrency=text, rpm=text, tpm=text) == ""
    assert says("weight", tier=text) == ""


KINDS = st.sampled_from([(name, key) for name in ("cap", "weight", "drain", "unload", "move")
                         for key in (*BY_NAME[name].values, "for", "reason")])  # fmt: skip
NEARLY = st.text(".-+_eE0123456789²٣ naif", max_size=12)


@example(("weight", "weight"), "1")
@given(KINDS, st.text(max_size=200) | NEARLY)
def test_no_text_in_any_field_raises(kind, text):
    name, key = kind
    said = says(name, **{key: text})
    assert "nan" not in re.findall("[a-z]+", said), "no number, where one is told"
    assert "-" not in said.partition("goes from")[2]


def test_of_two_engines_of_a_pool_each_has_its_part_of_the_slots():
    other = replace(STATE, address="unix:/b", engine="e2")
    form = form_of(BY_NAME["preempt"], "acme", Looked((STATE, other)))
    assert isinstance(form, Form)
    assert SEEN.strip.slots == 8.0  # of both together: two of four are fair on each
    assert expected(form, (STATE, other), SEEN) == (
        "about 74 of 78 running requests wait again and are computed once more"
    )
