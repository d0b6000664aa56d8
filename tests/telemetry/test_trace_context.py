"""traceparent: what is well formed comes back as it was, everything else is as good as none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.outbound.trace_context import TraceContext, of_headers, parse

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_the_specifications_own_example_is_read():
    assert parse(GOOD) == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    ("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)]
)
def test_only_the_lowest_flag_says_sampled(flags: str, sampled: bool):
    context = parse(f"00-{TRACE}-{SPAN}-{flags}")
    assert context is not None
    assert context.sampled is sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        GOOD.upper(),
        GOOD + "-more",
        GOOD + " ",
        GOOD + "\n",
        "0x-" + GOOD[3:],
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-zz",
        f"00-{'٣' * 32}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 600,
    ],
)
def test_what_is_malformed_is_ignored(header: str | None):
    assert parse(header) is None


def test_a_later_version_is_read_as_far_as_it_is_known():
    assert parse(f"cc-{TRACE}-{SPAN}-01-what-comes") == TraceContext(TRACE, SPAN, True)
    assert parse(f"cc-{TRACE}-{SPAN}-01what") is None


def test_two_headers_contradict_each_other_and_count_as_none():
    assert of_headers([GOOD]) == parse(GOOD)
    assert of_headers([]) is None
    assert of_headers([GOOD, GOOD]) is None


@given(st.one_of(st.text(), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")))
def test_any_text_is_read_or_ignored_and_what_was_read_comes_back(text: str):
    context = parse(text)
    if context is not None:
        assert parse(context.header()) == context
        assert context.trace_id in text
