"""Stamps of every usual kind become the same instant; what a column is, is found or asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postmortem.importers.logged import BadLine, ImportProblem
from postmortem.importers.mapping import NAMES, read_map, resolve
from postmortem.importers.stamps import UNITS, Stamps

AT = 1_796_000_000.25


def read(value: object, *, unit: str | None = None, zone=None, origin: float = 0.0) -> float:
    return Stamps(unit, zone, origin).read(value, "log:1")


@given(st.floats(2e8, 9e9), st.sampled_from(sorted(UNITS)))
def test_a_count_since_1970_tells_its_own_unit(at_s, unit):
    assert read(int(at_s * UNITS[unit])) == pytest.approx(at_s, abs=1.0)
    assert read(str(int(at_s * UNITS[unit])), unit=unit) == pytest.approx(at_s, abs=1.0)


def test_nanoseconds_keep_their_microseconds():
    assert read("1796000000123456789") == pytest.approx(1796000000.1234567, abs=3e-7)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29T17:00:00+01:00", "2026-11-29T16:00:00Z", "2026-11-29 16:00:00.000000000Z",
        "2026-11-29T16:00:00",
        datetime(2026, 11, 29, 16, 0), datetime(2026, 11, 29, 16, tzinfo=UTC),
    ],
)  # fmt: skip
def test_iso_with_and_without_a_zone(text):
    assert read(text) == datetime(2026, 11, 29, 16, tzinfo=UTC).timestamp()


def test_a_zone_is_applied_where_the_stamp_names_none():
    berlin = ZoneInfo("Europe/Berlin")
    assert read("2026-07-01T12:00:00", zone=berlin) == read("2026-07-01T10:00:00Z")


def test_small_numbers_count_from_a_beginning_and_that_is_said():
    stamps = Stamps(None, None, AT)
    assert stamps.read(1.5, "log:1") == AT + 1.5
    assert Stamps("ms", None, AT).read(1500, "log:1") == AT + 1.5
    assert any("count from 0" in n for n in stamps.notes())


def test_stamps_of_several_kinds_are_said():
    stamps = Stamps(None, None, 0.0)
    stamps.read(1_796_000_000, "log:1")
    stamps.read(1_796_000_000_000, "log:2")
    assert any("several kinds: 1 s since 1970, 1 ms since 1970" in n for n in stamps.notes())


@pytest.mark.parametrize("bad", ["", None, True, "yesterday", "nan", "1e400", "-5"])
def test_what_is_no_instant_is_named(bad):
    with pytest.raises(BadLine, match="log:1"):
        read(bad)


def test_usual_names_are_found_and_a_map_goes_first():
    found = resolve({"tenant": "team"}, ["Timestamp", "user_id", "team", "ttft_ms"], "log")
    assert found == {"tenant": "team", "arrived": "Timestamp", "ttft_ms": "ttft_ms"}


def test_an_unknown_target_or_column_gets_near_misses():
    with pytest.raises(ImportProblem, match=r"'tennant' is no target; did you mean tenant"):
        read_map("tennant=x")
    with pytest.raises(ImportProblem, match=r"no column 'user'.*did you mean user_id"):
        resolve({"tenant": "user"}, ["ts", "user_id"], "log")
    with pytest.raises(ImportProblem, match="--map arrived=COLUMN"):
        resolve({}, ["a", "b"], "log")
    with pytest.raises(ImportProblem, match="expected TARGET=COLUMN"):
        read_map("tenant")
    with pytest.raises(ImportProblem, match="twice"):
        read_map("tenant=a,tenant=b")


@given(st.dictionaries(st.sampled_from(NAMES), st.text("abc_", min_size=1, max_size=5)))
def test_a_map_reads_back(pairs):
    assert read_map(",".join(f"{t}={c}" for t, c in pairs.items())) == pairs
