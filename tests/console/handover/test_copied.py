"""What is copied holds no control character, is bounded, and is read back by a shell as it was."""

from __future__ import annotations

import shlex
import subprocess
import unicodedata
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.handover.copied import CUT, MOST, command, instant, plain_text, view_command
from postmortem.times import read_time
from tests.console.test_overview import ODD

AT = 1_800_000_000.0


@given(st.text(max_size=300) | st.sampled_from(ODD))
def test_no_control_character_leaves(text):
    for said in (plain_text(text), command(["tenantscope", text])):
        assert not any(unicodedata.category(c)[0] == "C" for c in said if c != "\u200d")


def test_it_is_bounded_and_a_cut_is_said():
    said = plain_text("x" * 100_000)
    assert len(said) == MOST
    assert said.endswith(CUT)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
def test_a_shell_reads_a_name_as_it_was(name):
    assert shlex.split(command(["tenantscope", "--pool", name]))[-1] == name


def test_a_name_with_control_characters_comes_back_out_of_bash():
    names = ["\x1b]0;title\x07", "a'b\\c\nd", "$(reboot)", "\u202eevil", "\x85\x9b1m\xad"]
    asked = "printf '%s\\0' " + command(names)
    said = subprocess.run(["bash", "-c", asked], capture_output=True, check=True).stdout
    assert said.decode().split("\0")[:-1] == names


def test_the_command_shows_this_view_again():
    words = view_command(("--store", "a b"), page="heat", pool="main", at=AT, tz=UTC)
    assert words == (
        "tenantscope console --store 'a b' --pool main --at 2027-01-15T08:00:00+00:00 "
        "--once --page heat"
    )
    plain = view_command(("--connect", "h:1"), page="overview", pool=None, at=None)
    assert plain == "tenantscope console --connect h:1"
    whose = view_command((), page="tenant", pool=None, at=None, tenant="$(a) b")
    assert whose == "tenantscope console --once --page tenant --tenant '$(a) b'"


@pytest.mark.parametrize("at", [AT, AT + 0.25])
def test_an_instant_is_read_back_as_it_was(at):
    read = read_time(instant(at, UTC), now=at + 9, span=(at, at), zone=None)
    assert read == pytest.approx(at, abs=1e-3)
