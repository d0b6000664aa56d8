"""A request's life as a line: nothing of it is lost, nothing is wider than it may be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.cells import width
from console.lines import ASCII, UNICODE
from console.overview import Look
from console.pages.lives import PARTS, UNTOLD, in_words, legend, life_line, parts_of
from console.pages.request_list import about_lines, request_lines
from tests.console.pages.world import ODD

WAITS = ("front", "slot", "budget", "kv", "adapter")


def told(**columns: Any) -> dict[str, Any]:
    waits = dict.fromkeys((f"wait_{r}_s" for r in WAITS), 0.0)
    usual = {
        "request_id": "r1", "tenant": "acme", "adapter": "chat", "adapter_state": "host",
        "outcome": "finished", "reject_reason": None, "is_retry": False, "arrived": 0.0,
        "ended": 10.0, "prompt_tokens": 10, "cached_tokens": 0, "max_tokens": 9,
        "output_tokens": 9, "preemptions": 0, "prefill_s": 1.0, "ttft_s": 4.0, "rewait_s": 0.0,
        "after_first_s": 6.0, "life_s": 10.0, "slo_met": True, "missed_ttft": False,
        "missed_tpot": False, "missed_gap": None,
    }  # fmt: skip
    return {**usual, **waits, "wait_kv_s": 3.0, **columns}


def drawn(row: dict[str, Any], cells: int = 20, longest_s: float = 10.0) -> str:
    return "".join(p.text for p in life_line(row, longest_s, cells, ASCII))


def test_a_life_is_its_parts_end_to_end_as_wide_as_they_were_long():
    assert drawn(told()) == "k-----P=D###########"
    assert drawn(told(), 40, 20.0) == "k-----P=D###########" + " " * 20


def test_waiting_again_after_the_first_token_is_told_from_decoding():
    assert drawn(told(rewait_s=3.0)) == "k-----P=!.....D#####"
    assert parts_of(told(rewait_s=3.0))["decode"] == 3.0


def test_a_refused_request_has_no_life_and_says_why():
    row = told(outcome="rejected", reject_reason="rpm", life_s=0.0)
    assert drawn(row).rstrip() == "refused: rpm"
    assert "refused: rpm" in about_lines(row, 80, Look())[1].plain


def test_what_the_parts_do_not_explain_is_a_gap_and_not_the_last_part():
    row = told(after_first_s=None, ttft_s=None, prefill_s=None, outcome="aborted")
    assert parts_of(row) == {"kv": 3.0, UNTOLD: 7.0}
    assert drawn(row) == "k-----" + "?" * 14


seconds = st.one_of(st.just(0.0), st.none(), st.floats(1e-6, 1e4))


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries({f"wait_{r}_s": seconds for r in WAITS}
                             | {"prefill_s": seconds, "after_first_s": seconds,
                                "rewait_s": st.floats(0.0, 50.0), "life_s": st.floats(0.0, 2e4)}),
       st.integers(1, 120), st.floats(0.0, 2e4))  # fmt: skip
def test_a_life_is_exactly_as_wide_as_asked_and_in_order(parts, cells, longest_s):
    text = drawn(told(**parts), cells, longest_s)
    assert width(text) == cells
    letters = [c for c in text if c in "fsbkaPD!"]
    order = [letter for _, letter, _ in PARTS]
    assert letters == sorted(letters, key=order.index)


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries({f"wait_{r}_s": seconds for r in WAITS}
                             | {"prefill_s": seconds, "after_first_s": seconds}))  # fmt: skip
def test_the_parts_close_to_the_whole_life(parts):
    known = sum(v or 0.0 for v in parts.values())
    row = told(**parts, life_s=known * 1.5)
    assert sum(parts_of(row).values()) == pytest.approx(known * 1.5, abs=0.002)


@pytest.mark.parametrize("cells", [60, 80, 120, 160])
@pytest.mark.parametrize("of_one", [True, False])
def test_odd_names_leave_the_columns_where_they_are(cells, of_one):
    rows = [told(tenant=n, adapter=n, request_id=n) for n in ODD]
    heading, *lines = request_lines(rows, 10.0, cells, Look(), of_one=of_one)
    at = width(heading.plain[: heading.plain.index("outcome")])
    for line in lines:
        assert line.width <= cells
        assert line.plain.isprintable() or "\u200d" in line.plain
        before = 0
        for piece in line.pieces:
            if before == at:
                assert piece.text.strip() == "ok"
            before += width(piece.text)


def test_the_words_of_a_life_are_its_parts_and_never_markup():
    assert in_words(told()) == "kv 3s, prefill 1s, decode 6s"
    first, second = about_lines(told(tenant="[red]x", is_retry=True), 80, Look())
    assert "[red]x  chat (warm: host)" in first.plain
    assert "a retry" in first.plain
    assert second.plain.endswith("r1")


def test_ascii_draws_a_life_in_ascii():
    assert drawn(told(rewait_s=3.0)).isascii()
    assert not "".join(p.text for p in life_line(told(), 10.0, 20, UNICODE)).isascii()


def test_a_part_too_short_to_be_seen_is_told_in_words_alone():
    row = told(wait_front_s=0.0005, wait_slot_s=0.2)
    assert drawn(row)[:2] == "sk"
    assert in_words(row).startswith("front <1ms, slot 200ms")


@pytest.mark.parametrize(("cells", "words"), [
    (77, "f=front s=slot b=budget k=kv a=adapter P=prefill !=preempted D=decode"),
    (57, "front slot budget kv adapter Prefill !=preempted Decode"),
])  # fmt: skip
def test_the_legend_is_shorter_where_there_is_less_room(cells, words):
    assert legend(cells) == words
    assert width(words) <= cells


def test_all_parts_of_a_life_are_told_on_narrow_screens_too():
    row = told(wait_front_s=0.5, wait_slot_s=1.0, wait_budget_s=1.0, wait_adapter_s=0.5,
               rewait_s=1.5, preemptions=2, request_id="r" * 90)  # fmt: skip
    for cells in (60, 80):
        lines = about_lines(row, cells, Look(), 3)
        assert len(lines) == 3
        assert all(x.width <= cells for x in lines)
        assert in_words(row) in " ".join(" ".join(x.plain for x in lines[1:]).split())
        assert "…" not in "".join(x.plain for x in lines)
