"""Expressions of an adapter's options match what Python's own matcher matches, and never hang."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.peft_pattern import PatternError, matches_end, matches_start, matches_whole

ATOMS = ("a", "b", ".", "_", r"\.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[ab]", "[^a]",
         "[0-9_]", r"[\d.]", "^", "$", r"\b", r"\B", r"\A", r"\Z")  # fmt: skip
REPEATS = ("*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "{2,}")


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["(%s)", "(?:%s)", "(?=%s)", "(?!%s)", "(?<=a)%s", "(?<![b.])%s"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(groups, inner).map(lambda both: both[0] % both[1]),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda both: f"(?:{both[0]}){both[1]}"),
    )


PATTERNS = st.recursive(st.sampled_from(ATOMS), _grow, max_leaves=8)
# A text is a module's name: never empty, no line ends. Short ones keep Python's matcher quick.
NAMES = st.text("ab._10", min_size=1, max_size=8)


@given(PATTERNS, NAMES)
def test_a_match_is_what_pythons_is(pattern, name):
    assert matches_whole(pattern, name) == (re.fullmatch(pattern, name) is not None)
    assert matches_start(pattern, name) == (re.match(pattern, name) is not None)
    by_peft = re.match(rf"(.*\.)?({pattern})$", name)  # peft.utils.other.get_pattern_key
    assert matches_end(pattern, name) == (by_peft is not None)


@given(st.text("ab.1", min_size=1, max_size=6), NAMES)
def test_plain_names_match_as_expressions_do(pattern, name):
    assert matches_end(pattern, name) == (re.match(rf"(.*\.)?({pattern})$", name) is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(.+)+\.$",
        r"((.*)*)*!",
        r"(.|.|.)*(.|.|.)*!",
        ".*" * 40 + "!",
        "(.{1,40}){1,40}!",
        "((((.?){9}){9}){9}){9}!",
    ],
)
def test_what_hangs_pythons_matcher_is_answered(pattern):
    assert not matches_end(pattern, "model.layers.10.self_attn.q_proj" + "a" * 30)


def test_what_would_take_too_long_is_refused():
    with pytest.raises(PatternError, match="5000 steps"):
        matches_whole("(?:.(?=.*a))*", "a" * 200)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "no regular expression"),
        ("a{99999999999}", "no regular expression"),
        ("(?<=a+)b", "no regular expression"),
        ("(a)\\2", "no regular expression"),
        ("(?P<n>a)(?P=n)", "groupref is not evaluated"),
        ("(a)?(?(1)b|c)", "groupref_exists is not evaluated"),
        ("(?>a)", "atomic_group is not evaluated"),
        ("a++", "possessive_repeat is not evaluated"),
        ("(?i)a", "flags"),
        ("(?s:.)", "flags"),
        ("(" * 1500 + ")" * 1500, "nested too deeply"),
        ("a" * 5000, "4096 is the most"),
    ],
    ids=range(12),
)
def test_what_is_not_evaluated_is_named(pattern, words):
    with pytest.raises(PatternError, match=words):
        matches_whole(pattern, "ab")


def test_the_expressions_that_trainers_write_are_evaluated():
    trainer = (
        r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|v_proj).*?)|"
        r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|up_proj)))"
    )
    assert matches_whole(trainer, "model.layers.31.self_attn.q_proj")
    assert not matches_whole(trainer, "model.layers.31.self_attn.k_proj")
    swift = r"^(model)(?!.*(lm_head|output|emb)).*"
    assert matches_whole(swift, "model.layers.0.mlp.down_proj")
    assert not matches_whole(swift, "model.embed_tokens")
