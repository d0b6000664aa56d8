"""A person's pattern over tenants' names: what it keeps, and that it cannot hang."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.errors import QueryError
from telemetry.watch.name_filter import LONGEST_PATTERN, NameFilter


def still() -> float:
    return 0.0


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("^team-a/", ["team-a/x"]),
        ("!^team-a/", ["team-b/x", "x team-a/"]),
        ("x$", ["team-a/x", "team-b/x"]),
        ("team-[ab]/(x|y)", ["team-a/x", "team-b/x"]),
        ("", ["team-a/x", "team-b/x", "x team-a/"]),
        ("!", []),
        ("a.*x", ["team-a/x", "team-b/x"]),
    ],
)
def test_a_filter_is_searched_for_and_may_be_inverted(text: str, kept: list[str]) -> None:
    names = ["team-a/x", "team-b/x", "x team-a/"]
    keeps = NameFilter(text, still).keeps(names)
    assert [n for n, k in zip(names, keeps, strict=True) if k] == kept


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a|aa)+$",
        ".*.*.*=",
        "a?" * 25 + "a" * 25,
        "(x+x+)+y",
        r"(a)\1+",
        "(?=a*b)",
        "((a{0,30}){0,30}){0,30}",
        "(?:(?:a|b|ab)*c)*d",
    ],
)
def test_a_pattern_that_could_try_for_ever_is_refused_before_it_is_tried(text: str) -> None:
    with pytest.raises(QueryError, match="too many ways"):
        NameFilter(text, still)


@pytest.mark.parametrize("text", ["(", "[z-a]", "*", "(?P<x", "a{3,2}", "!("])
def test_what_is_no_pattern_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(QueryError, match="no regular expression"):
        NameFilter(text, still)


def test_a_pattern_has_a_greatest_length() -> None:
    with pytest.raises(QueryError, match=f"{LONGEST_PATTERN} at most"):
        NameFilter("a" * (LONGEST_PATTERN + 1), still)


def test_matching_ends_when_its_time_is_used_up() -> None:
    ticks = itertools.count()
    slow = NameFilter("a", lambda: next(ticks) / 10)
    with pytest.raises(QueryError, match="takes longer"):
        slow.keeps([f"t{i}" for i in range(100)])


def test_a_name_is_matched_once() -> None:
    ticks = itertools.count()
    kept = NameFilter("a", lambda: next(ticks) / 10)
    assert kept.keeps(["a", "b"]) == [True, False]
    used = next(ticks)
    assert kept.keeps(["a", "b"] * 50) == [True, False] * 50
    assert next(ticks) == used + 2  # the start, and no name


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=6))
def test_what_is_taken_matches_as_the_plain_matcher_does(text: str, names: list[str]) -> None:
    try:
        kept = NameFilter(text, still)
    except QueryError:
        return
    pattern = re.compile(text.removeprefix("!"))
    wanted = [(pattern.search(n) is not None) != text.startswith("!") for n in names]
    assert kept.keeps(names) == wanted
