"""Every page at every size: as high as the screen, never wider, names as data, as kept."""

from __future__ import annotations

import pytest

from console.cells import width
from console.detail import NOTHING, Ask, Detail, fetch
from console.frame import screen_lines
from console.pages import PAGES
from console.screens import Place, Row
from tests.console.pages import screens as kept
from tests.console.pages import world
from tests.console.pages.world import ODD, SIZES

OURS = ("tenant", "requests", "events", "policy")


@pytest.mark.parametrize("size", [*SIZES, (40, 10), (200, 60)])
@pytest.mark.parametrize("page", OURS)
def test_a_page_fills_the_screen_and_no_more(page, size):
    for tenant in ("globex", ODD[4], ""):
        drawn = world.lines(page, Place(tenant=tenant).turn("only", "every"), size)
        assert len(drawn) == size[1]
        for line in drawn:
            assert line.width <= size[0], line.plain
            assert line.plain.replace("\u200d", "").isprintable()


def test_a_screen_too_small_says_so():
    assert world.text("tenant", Place(tenant="globex"), (39, 24))[0].startswith("too small: 39x24")


@pytest.mark.parametrize("page", OURS)
def test_what_has_not_been_heard_is_asked_for_and_not_shown_as_nothing(page):
    at = world.scene(page, Place(tenant="globex"))
    at = type(at)(at.picture, at.place, 80, 24, at.look, NOTHING)
    asks = PAGES[page].wants(at.picture, at.place)
    shown = "\n".join(x.plain for x in screen_lines(PAGES[page], at, asks))
    assert "asking for this page's rows" in shown
    assert "nothing" not in shown
    assert "nobody waited" not in shown


@pytest.mark.parametrize("page", OURS)
def test_rows_that_can_be_chosen_are_marked_and_listed(page):
    place = Place(tenant="globex")
    rows = list(PAGES[page].rows(world.scene(page, place)))
    assert len(rows) == len(set(rows)) > 2
    shown = {x.row for x in world.lines(page, place, (160, 60)) if x.row is not None}
    assert shown <= set(rows)
    cursor = next(iter(r for r in rows if r in shown))
    drawn = world.lines(page, Place(tenant="globex", cursor=cursor), (160, 60))
    assert [x.row for x in drawn if x.tint == "cursor"] == [cursor]


def test_a_refusal_is_told_and_what_was_heard_stays_in_grey():
    place = Place(tenant="globex")
    at = world.scene("tenant", place)
    asks = PAGES["tenant"].wants(at.picture, place)
    moved = tuple(Ask(a.name, a.query, a.start, (a.end or 0.0) + 90.0, a.parameters) for a in asks)
    held = Detail(at.detail.asks, at.detail.answers, ("day x is lost",), "connection \x1b[1mlost")
    drawn = screen_lines(PAGES["tenant"], type(at)(at.picture, place, 120, 24, at.look, held),
                         moved)  # fmt: skip
    said = next(x.plain for x in drawn if "rows up to" in x.plain)
    assert "connection \\x1b[1mlost; trying again; day x is lost" in said
    body = drawn[4:-1]
    assert {p.role for x in body for p in x.pieces} == {"dim"}


def test_answers_about_another_tenant_are_about_something_else():
    of = [PAGES["tenant"].wants(world.now(), Place(tenant=t)) for t in ("globex", "acme")]
    heard = fetch(world.source(), of[0])
    assert heard.is_about(of[0])
    assert not heard.is_about(of[1])
    later = tuple(Ask(a.name, a.query, a.start, 9e9, a.parameters) for a in of[0])
    assert heard.is_about(later)


def test_an_answer_that_is_too_long_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("console.detail.MOST_ROWS", 3)
    asks = PAGES["requests"].wants(world.now(), Place())
    heard = fetch(world.source(), asks)
    assert len(heard.rows("requests")) == 3
    assert heard.notes == ("requests: the first 3 of 33 rows",)


@pytest.mark.parametrize("page", OURS)
def test_nothing_is_asked_again_while_nothing_is_new(page):
    s, place = world.now(), Place(tenant="globex")
    wanted = PAGES[page].wants(s, place)
    assert PAGES[page].wants(s, Place(tenant="globex", cursor=Row("tenant", "x"))) == wanted
    assert 0 < len(wanted) <= 12


def test_without_a_tenant_the_tenants_page_says_how_to_choose_one():
    assert "no tenant is chosen" in "\n".join(world.text("tenant"))
    assert PAGES["tenant"].wants(world.now(), Place()) == ()


def test_names_stand_in_columns_of_equal_width():
    drawn = world.lines("policy", size=(80, 30))
    ends = {
        sum(width(p.text) for p in x.pieces[:3]) for x in drawn if x.row and x.row.kind == "tenant"
    }
    assert len(ends) == 1


@pytest.mark.parametrize("name", sorted(kept.screens()))
def test_the_screen_reads_as_kept(name):
    """Where a change is meant: `python -m tests.console.pages.screens`, and look at it."""
    assert kept.screens()[name] == (kept.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
