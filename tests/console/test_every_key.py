"""Every key of every page is pressed by some test that says what must then be seen.

`ELSEWHERE` names those that press a key in a story of its own; the others are pressed here, one
after the other on one screen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.events import Key

from console.app import ConsoleApp, Heard
from console.keys import KEYS
from console.poller import Found, Now
from console.widgets.help_page import HelpPage
from tests.console.on_screen import hear, scene, shown
from tests.console.pages import world

HERE = Path(__file__).parent
ANY, HELP = "any", "help"  # a key of all pages; one of the help
Pressed = tuple[str, str]  # page and key

# On which page which key is pressed, and what the screen then says that it did not say before. A
# row that is chosen begins with "> ".
WALK = (
    ("overview", "down", r"> !! globex"),
    ("overview", "down", r"> !! initech"),
    ("overview", "up", r"> !! globex"),
    ("overview", "pagedown", r"> +\[red\]x"),
    ("overview", "pageup", r"> !! globex"),
    ("overview", "comma", r"HELD"),
    ("overview", "full_stop", r"LIVE"),
    ("overview", "comma", r"HELD"),
    ("overview", "l", r"LIVE"),
    ("overview", "h", r"HEAT  wait"),
    ("heat", "g", r"HEAT  targets missed"),
    ("heat", "left", r"08:02:40 +peak"),
    ("heat", "comma", r"08:02:30 +peak"),
    ("heat", "right", r"08:02:40 +peak"),
    ("heat", "full_stop", r"08:02:50 +peak"),
    ("heat", "t", r"HELD"),
    ("heat", "end", r"LIVE"),
    ("heat", "m", r"MATRIX  excess seconds"),
    ("matrix", "x", r"MATRIX  charged seconds"),
    ("matrix", "o", r"slot alone"),
    ("matrix", "A", r"ADAPTERS .*last 15min, by loads"),
    ("adapters", "s", r"by bytes"),
    ("adapters", "z", r"last 5min"),
    ("adapters", "e", r"EVENTS  news, last 24h"),
    ("events", "o", r"EVENTS  changes"),
    ("events", "z", r"last 7d"),
    ("events", "x", r"REQUESTS .*newest first"),
    ("requests", "greater_than_sign", r"slowest first"),
    ("requests", "a", r"ALL .*sort share down"),
    ("table", "greater_than_sign", r"sort fair_share down"),
    ("table", "less_than_sign", r"sort share down"),
)

APP, SOURCE = "test_app.py::", "test_app_source.py::"
PAGES = "pages/test_keys_and_clicks.py::"
ACTS = "act/test_keys_of_acts.py::"
DEEDS = "handover/test_deeds.py::test_the_keys_of_the_hand_over"
ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    ANY: {
        APP + "test_a_opens_every_tenant_and_closes_it_again": ("a",),
        APP + "test_t_goes_to_a_time_and_what_is_no_time_stays_with_its_reason": ("t",),
        APP + "test_the_arrows_step_by_buckets_and_the_edge_is_reached_again": ("left", "right"),
        SOURCE + "test_it_can_begin_in_the_past": ("end",),
        APP + "test_space_holds_the_picture_while_figures_are_still_collected": ("space",),
        APP + "test_a_filter_is_typed_and_one_that_cannot_be_used_stays_with_its_reason": (
            "slash", "q"),
        APP + "test_p_goes_round_the_pools_and_says_where_there_is_one": ("p",),
        APP + "test_help_is_made_of_the_keys_and_any_key_closes_it": ("question_mark",),
        APP + "test_ctrl_c_is_told_from_quitting": ("ctrl+c",),
        PAGES + "test_enter_opens_who_is_chosen_and_escape_goes_back_page_by_page": (
            "enter", "escape", "x", "P", "e"),
        PAGES + "test_a_pages_own_keys_ask_for_other_rows": ("colon",),
        ACTS + "test_all_of_a_cap_from_the_key_to_the_undo": ("c", "u"),
        ACTS + "test_each_act_is_tried_and_done_on_the_tenant_the_verdict_names": (
            "w", "d", "k", "U"),
        ACTS + "test_where_there_is_another_pool_a_tenant_is_moved_into_it": ("M",),
        DEEDS: ("n", "R", "y", "Y", "S", "C", "T"),
    },
    "requests": {PAGES + "test_a_pages_own_keys_ask_for_other_rows": ("o", "s", "z", "v")},
    "tenant": {PAGES + "test_a_pages_own_keys_ask_for_other_rows": ("z",)},
    "table": {APP + "test_sort_group_reverse_and_scroll_change_the_table": ("s", "r", "g")},
    HELP: {APP + "test_help_is_made_of_the_keys_and_any_key_closes_it": (
        "up", "down", "pageup", "pagedown", "home", "end")},
}  # fmt: skip
LAST = ("ctrl+p", "ctrl+backslash", "ctrl+q")  # pressed here, after the walk


def bound() -> Iterator[Pressed]:
    """Every key that the code binds."""
    for key in KEYS:
        for page in key.where or (ANY,):
            yield from ((page, name) for name in key.keys.split(","))
    yield from ((HELP, name) for name in HelpPage.SCROLLING)
    ours = {k.keys for k in KEYS}
    yield from ((ANY, b.key) for b in ConsoleApp.BINDINGS if b.key not in ours)
    yield from ((ANY, name) for name in (ConsoleApp.COMMAND_PALETTE_BINDING, "ctrl+q"))


def walked() -> Iterator[Pressed]:
    own = {(page, name) for page, name in bound() if page != ANY}
    for page, key, _ in WALK:
        yield (page if (page, key) in own else ANY, key)
    yield from ((ANY, name) for name in LAST)


@cache
def source_of(file: str) -> dict[str, str]:
    """The source of a file's tests by name, with what is passed into them."""
    text = (HERE / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    return {
        f.name: "\n".join(lines[min([f.lineno, *(d.lineno for d in f.decorator_list)]) - 1 :
                                f.end_lineno])
        for f in ast.parse(text).body
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # fmt: skip


def test_every_key_is_pressed_by_a_test():
    named = {(page, k) for page, tests in ELSEWHERE.items() for ks in tests.values() for k in ks}
    assert set(bound()) == named | set(walked())


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_key_is_pressed_in_the_test_that_is_named_for_it(page):
    for test, names in ELSEWHERE[page].items():
        file, _, name = test.partition("::")
        assert [k for k in names if f'"{k}"' not in source_of(file)[name]] == [], test


def seen(app) -> str:
    lines = zip(shown(app), app._body.shown, strict=True)
    return "\n".join(f"{'> ' if line.tint == 'cursor' else ''}{text}" for text, line in lines)


async def tap(app, pilot, key, words):
    """Press it and go on as soon as the words are there: the pilot's own press waits, three times a
    key, until the machine is idle. What the page asks is answered."""
    app.post_message(Key(key, None))
    answered = ()
    for _ in range(200):  # everything that can happen happens in this loop
        await pilot.pause(0.001)
        if app._asks != answered:
            answered = app._asks
            app.post_message(Heard(Found(world.answered(answered))))
        elif re.search(words, seen(app)):
            return


@scene(size=(120, 40))
async def test_what_is_seen_after_each_key(app, pilot):
    await hear(app, pilot, Now(world.now()))
    for page, key, words in WALK:
        assert app.page.name == page
        assert not re.search(words, seen(app)), (page, key)
        await tap(app, pilot, key, words)
        assert re.search(words, seen(app)), (page, key, seen(app))
    for key in LAST[:2]:
        await pilot.press(key)
        assert isinstance(app.screen, CommandPalette)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
    await pilot.press(LAST[2])
    await pilot.pause()
    assert not app.is_running
