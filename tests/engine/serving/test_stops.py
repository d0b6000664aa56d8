"""Stop strings: found wherever the text is cut, and no part of one is ever shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.serving.api.stops import StopScan

few = st.text("ab\n", max_size=12)
stops_of = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=4)


def by_hand(text: str, stops: list[str]) -> tuple[str, bool]:
    """Character by character: the first stop string to be complete, the longest of several."""
    for end in range(1, len(text) + 1):
        ended = [s for s in stops if text[:end].endswith(s)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(st.lists(few, max_size=8), stops_of)
def test_any_pieces_are_cut_where_the_whole_text_is(pieces: list[str], stops: list[str]) -> None:
    scan = StopScan(tuple(stops))
    shown = "".join(scan.push(p) for p in pieces)
    expected, hit = by_hand("".join(pieces), stops)
    assert scan.hit == hit
    assert shown + scan.finish() == expected


@given(st.lists(few, max_size=8), stops_of)
def test_nothing_is_shown_that_could_still_be_taken_back(
    pieces: list[str], stops: list[str]
) -> None:
    scan, shown = StopScan(tuple(stops)), ""
    whole = by_hand("".join(pieces), stops)[0]
    for piece in pieces:
        shown += scan.push(piece)
        assert whole.startswith(shown)
        assert not any(s in shown for s in stops)


@given(st.text(max_size=20))
def test_without_stop_strings_nothing_is_held_back(text: str) -> None:
    assert StopScan(()).push(text) == text


def test_what_only_began_like_a_stop_string_comes_at_the_end() -> None:
    scan = StopScan(("END",))
    assert [scan.push("an E"), scan.push("N"), scan.push("T"), scan.push("EN")] == [
        "an ",
        "",
        "ENT",
        "",
    ]
    assert scan.finish() == "EN"
