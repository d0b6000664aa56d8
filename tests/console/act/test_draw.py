"""The form fits every screen, shows what matters first, and shows names as text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.act.acts import BY_NAME, form_of
from console.act.draw import form_lines
from console.act.form import Form, Stage
from console.act.values import Answer, Change, EngineState, Looked, No, Part, TenantState
from console.lines import ASCII

NAMES = (
    "acme", "[red]x[/]", "👩‍👩‍👧 family", "a" * 300, "", "\x1b]0;title\x07", "日本の会社",
    "\u202eevil",
)  # fmt: skip


def looked(name: str) -> Looked:
    own = TenantState(tenant=name, pool="main", under_way=39, running=39, adapters=(name,))
    state = EngineState(
        address="unix:/a", engine="e1", pool="main", version=1, tenants=(own,), pools=("main",)
    )
    return Looked((state,))


def form(name: str = "acme", act: str = "cap", **more) -> Form:
    made = form_of(BY_NAME[act], name, looked(name))
    assert isinstance(made, Form)
    fields = tuple(
        replace(f, typed={"concurrency": "4", "reason": f"for {name}"}.get(f.key, f.typed))
        for f in made.fields
    )
    return replace(made, fields=fields, expected="takes effect as 35 of 39 requests end", **more)


TRIED = Answer(address="unix:/a", effect="concurrency none -> 4", until=900.0,
               parts=(Part("e1/main", True, "39 go on"),))  # fmt: skip


def text(made: Form, name: str = "acme", cells: int = 80, lines: int = 22) -> str:
    return "\n".join(x.plain for x in form_lines(made, looked(name), cells, lines))


@pytest.mark.parametrize("size", [(40, 8), (60, 18), (80, 22), (160, 48)])
def test_what_the_engine_would_do_is_seen_on_every_screen(size):
    page = text(form(stage=Stage.TRIED, answers=(TRIED,)), cells=size[0], lines=size[1])
    assert "concurrency none" in page
    assert "Enter: do it" in page


@pytest.mark.parametrize("size", [(40, 8), (80, 22)])
def test_what_is_wrong_is_seen_on_every_screen(size):
    page = text(form(trouble="for '15': write 90s, 15m"), cells=size[0], lines=size[1])
    assert "!!" in page
    assert "for '15'" in page


@given(
    st.sampled_from(NAMES), st.integers(40, 160), st.integers(4, 50), st.sampled_from(Stage),
    st.sampled_from(["cap", "weight", "drain", "preempt", "unload"]),
)  # fmt: skip
def test_every_form_fits_and_no_name_is_obeyed(name, cells, lines, stage, act):
    change = Change(number=1, at=0.0, until=None, who=name, why="", what=name, state="in force")
    refused = Answer(address="unix:/b", no=No.SILENT, why_not=f"no answer about {name}")
    made = form(name, act, stage=stage, answers=(TRIED, refused), meanwhile=(change,),
                trouble=name, what_if=f"whatif {name}")  # fmt: skip
    drawn = form_lines(made, looked(name), cells, lines, ASCII)
    assert len(drawn) <= lines
    for line in drawn:
        assert line.width <= cells, line.plain
        assert "\x1b" not in line.plain
        assert "\u202e" not in line.plain


def test_what_was_left_as_it_is_is_not_shown_again_once_it_is_tried():
    assert "rpm" in text(form())
    assert "rpm" not in text(form(stage=Stage.TRIED, answers=(TRIED,)))


def test_each_engine_is_named_with_its_version_and_what_it_said():
    answers = (
        TRIED,
        Answer(address="unix:/b", no=No.SILENT, why_not="no answer from unix:/b within 15 s"),
        Answer(address="unix:/c", effect="x", parts=(Part("e3/main", False, "the disk is full"),)),
    )
    page = text(form(stage=Stage.DONE, answers=answers))
    assert "e1/main v1" in page
    assert "e1/main: 39 go on" in page
    assert "not done: no answer from unix:/b within 15 s" in page
    assert "e3/main: refused: the disk is full" in page


@pytest.mark.parametrize("act", ["cap", "weight", "drain", "unload"])
@pytest.mark.parametrize("size", [(40, 18), (60, 18), (80, 22), (160, 48)])
def test_no_hint_and_no_key_is_cut_and_the_form_keeps_its_height(act, size):
    plain = form_of(BY_NAME[act], "acme", looked("acme"))
    assert isinstance(plain, Form)
    heights = set()
    for at, field in enumerate(plain.fields):
        page = text(replace(plain, at=at), cells=size[0], lines=size[1])
        assert field.hint in " ".join(page.split())
        assert "esc: leave it" in page
        heights.add(page.count("\n"))
    assert size[0] < 60 or len(heights) == 1


@pytest.mark.parametrize("stage", Stage)
def test_how_to_leave_is_told_on_the_narrowest_screen(stage):
    foot = form_lines(form(stage=stage), looked("acme"), 40, 18)[-1].plain
    assert "…" not in foot
    assert ("esc: " in foot) is (stage is not Stage.DONE)


def test_a_long_name_gives_way_to_the_engine_and_ascii_stays_ascii():
    first = form_lines(form("a" * 300), looked("a" * 300), 60, 18, ASCII)[0]
    assert "aaa~" in first.plain
    assert first.plain.endswith("e1/main v1 -")
    assert first.plain.isascii()
    assert {p.role for p in first.pieces} == {"rule", "label", "dim"}


def test_what_there_is_no_room_for_is_not_passed_over_in_silence():
    words = "its fair share goes from 20% to 11% while the same tenants wait, from the next step on"
    made = replace(form(), expected=words)
    *_, last, _ = form_lines(made, looked("acme"), 40, 8)
    assert last.plain.endswith("…")
    assert "…" not in text(made, cells=60, lines=18)
