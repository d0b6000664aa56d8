"""What a reader sees as one character stays whole in a stream; joined, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.clusters import MOST_HELD, Clusters
from engine.model.text import load_tokenizer

BYTES = load_tokenizer("synthetic")
WHOLE = [
    "👨‍👩‍👧‍👦",
    "👍🏽",
    "🏳️‍🌈",
    "🇩🇪",
    "क्षि",
    "नी",
    "ท้",
    "❤️",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
]


def streamed(text: str) -> list[str]:
    """Token by token, as an answer is made."""
    decoder, clusters = BYTES.stream(), Clusters()
    pieces = [clusters.push(decoder.push(t)) for t in BYTES.encode(text)]
    return [*pieces, clusters.push(decoder.finish()) + clusters.finish()]


@pytest.mark.parametrize("whole", WHOLE)
def test_a_character_of_many_parts_comes_in_one_piece(whole: str) -> None:
    pieces = streamed(f"a{whole}b{whole}{whole}c")
    assert "".join(pieces) == f"a{whole}b{whole}{whole}c"
    # Taking whole characters out of every piece must leave nothing but the letters between.
    assert "".join(p.replace(whole, "") for p in pieces) == "abc"


@given(st.text(max_size=40))
def test_any_text_is_only_delayed(text: str) -> None:
    clusters = Clusters()
    assert "".join(map(clusters.push, text)) + clusters.finish() == text


@given(st.lists(st.sampled_from([*WHOLE, "a", " ", "é", "字"]), max_size=12))
def test_any_mixture_is_cut_between_characters(parts: list[str]) -> None:
    clusters, shown, cuts = Clusters(), "", {0}
    for part in parts:
        cuts.add(max(cuts) + len(part))
    for char in "".join(parts):
        shown += clusters.push(char)
        assert len(shown) in cuts or shown.endswith(("e", "é"))


@pytest.mark.parametrize("char", ["a", "é", "ж", "字", "한", "\n", "."])
def test_letters_that_stand_alone_are_not_waited_with(char: str) -> None:
    assert Clusters().push(char) == char


def test_a_chain_without_end_is_cut() -> None:
    clusters = Clusters()
    shown = "".join(clusters.push("👩\u200d") for _ in range(1000))
    assert len(shown) > 2000 - 2 * MOST_HELD
