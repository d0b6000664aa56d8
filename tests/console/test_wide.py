"""The wide table: every column of a tenant's minute, any order, any filter, sums that add up."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.account import TenantNow, others
from console.overview import Look
from console.pages import PAGES
from console.panels import TenantRow
from console.screens import Place, Scene
from console.settings import ConsoleConfigError, ConsoleSettings, read_settings
from console.wide import (
    View,
    column_at,
    columns_of,
    next_group,
    next_sort,
    ranked,
    table_lines,
    wide_lines,
)
from console.wide_columns import COLUMNS, GROUPS, PICTURED, byte_count
from telemetry.ask.rows_console import ConsoleMinutesRow
from telemetry.conventions import Kind
from telemetry.errors import QueryError
from telemetry.records import TenantMinute
from tests.console import rows as made
from tests.console.test_overview import ODD, picture

LOOK = Look(tz=UTC)
PLAIN = ConsoleSettings()


def tenant(name: str, **columns) -> TenantNow:
    minute = made.tenant(made.T0, name, **columns)
    return TenantNow(row=TenantRow(name=name), minutes=(minute,), covered_s=made.BUCKET_S)


def shown(tenants, view: View, cells: int = 120, lines: int = 30, settings=PLAIN) -> list[str]:
    return [x.plain for x in table_lines(tenants, view, cells, lines, LOOK, settings)]


def test_every_stored_column_of_a_tenants_minute_is_in_a_group():
    stored = {
        f.name for f in fields(TenantMinute)
        if f.metadata["kind"] not in (Kind.KEY, Kind.HIST) and f.name != "observed_seconds"
    }  # fmt: skip
    assert stored <= set(COLUMNS)
    for histogram in ("ttft", "tpot", "max_gap"):
        assert {f"{histogram}_n", f"{histogram}_p50_s", f"{histogram}_p99_s"} <= set(COLUMNS)


def test_no_two_columns_share_a_name():
    assert len(COLUMNS) == sum(len(group) for group in GROUPS.values())


def test_sums_add_averages_weigh_by_time_maxima_stay_and_levels_are_the_newest():
    first = made.tenant(made.T0, "a", output_tokens=4, kv_bytes_avg=100.0, waiting_max=7.0,
                        in_flight=3.0, quota_rpm_level=9.0)  # fmt: skip
    second = made.tenant(made.T0 + 10, "a", output_tokens=6, kv_bytes_avg=400.0, waiting_max=2.0,
                         in_flight=1.0, quota_rpm_level=5.0)  # fmt: skip
    t = TenantNow(row=TenantRow(name="a"), minutes=(first, second), covered_s=40.0)
    wanted = {
        "output_tokens": 10.0, "kv_bytes_avg": 125.0, "waiting_max": 7.0, "in_flight": 1.0,
        "quota_rpm_level": 5.0,
    }  # fmt: skip
    assert {c: COLUMNS[c].value(t) for c in wanted} == wanted


def test_idle_is_nothing_and_not_heard_is_not_known():
    idle = TenantNow(row=TenantRow(name="a"), covered_s=60.0)
    unheard = TenantNow(row=TenantRow(name="a"))
    assert COLUMNS["output_tokens"].value(idle) == 0.0
    assert COLUMNS["kv_bytes_avg"].value(idle) == 0.0
    assert COLUMNS["output_tokens"].value(unheard) is None


def test_a_column_nobody_measured_is_a_dash_and_not_nothing():
    assert COLUMNS["load_s"].value(tenant("a")) is None
    assert COLUMNS["load_s"].show(None) == "-"


@pytest.mark.parametrize("key", sorted(COLUMNS))
def test_every_column_can_be_sorted_by(key):
    s = picture()
    for descending in (True, False):
        rows, _ = ranked(s.account.tenants, View(sort=key, descending=descending))
        values = [v for t in rows if (v := COLUMNS[key].value(t)) is not None]
        assert values == sorted(values, reverse=descending)
        assert len(rows) == 4


def test_what_is_not_known_comes_last_whichever_way():
    tenants = [tenant("a"), tenant("b", load_s=1.0), tenant("c", load_s=2.0)]
    for descending, names in ((True, "cba"), (False, "bca")):
        rows, _ = ranked(tenants, View(sort="load_s", descending=descending))
        assert "".join(t.name for t in rows) == names


def test_a_filter_keeps_what_matches_and_an_inverse_one_the_rest():
    tenants = [tenant(n) for n in ("acme-eu", "acme-us", "globex")]
    kept, left = ranked(tenants, View(sort="tenant", filter="^acme", descending=False))
    assert ([t.name for t in kept], [t.name for t in left]) == (["acme-eu", "acme-us"], ["globex"])
    kept, left = ranked(tenants, View(filter="!^acme"))
    assert [t.name for t in kept] == ["globex"]


def test_a_filter_that_could_hang_is_refused_with_the_reason():
    with pytest.raises(QueryError, match="too many ways"):
        ranked([tenant("a")], View(filter="(a+)+$"))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=40),
    st.integers(3, 20),
    st.integers(0, 50),
    st.sampled_from(["", "^t1", "!^t1"]),
)
def test_whatever_is_cut_off_or_filtered_the_column_still_sums(tokens, lines, first, pattern):
    tenants = [tenant(f"t{i}", output_tokens=n) for i, n in enumerate(tokens)]
    view = View("got", "output_tokens", filter=pattern, first=first)
    rows, _ = ranked(tenants, view)
    out = shown(tenants, view, 80, lines)
    names = [line[3:].split()[0] for line in out[2:]]
    listed = [t for t in rows if t.name in names]
    folded = re.findall(r"others \((\d+)\)", "\n".join(out))
    assert len(listed) + sum(map(int, folded)) == len(tenants)
    rest = [t for t in tenants if t.name not in names]
    whole = sum(COLUMNS["output_tokens"].value(t) for t in listed)
    if rest:
        whole += COLUMNS["output_tokens"].value(others(rest))
    assert whole == sum(tokens)
    assert len(out) <= lines


def test_more_tenants_than_lines_end_with_the_others():
    tenants = [tenant(f"t{i:03}", output_tokens=i) for i in range(100)]
    out = shown(tenants, View("got", "output_tokens"), 80, 12)
    assert len(out) == 12
    assert out[2].split()[0] == "t099"
    assert out[-1].split()[:2] == ["others", "(91)"]


def test_scrolled_down_the_ones_above_are_among_the_others():
    tenants = [tenant(f"t{i:03}", output_tokens=i) for i in range(100)]
    out = shown(tenants, View("got", "output_tokens", first=95), 80, 12)
    assert [line.split()[0] for line in out[2:7]] == ["t004", "t003", "t002", "t001", "t000"]
    assert out[7].split()[:2] == ["others", "(95)"]


def test_the_next_groups_columns_fill_a_wide_screen():
    narrow, wide = (columns_of(View("quota"), w) for w in (60, 160))
    assert [c.key for c in narrow][:3] == ["quota_rpm_level", "quota_tpm_level",
                                          "concurrency_in_use"]  # fmt: skip
    assert len(wide) > len(GROUPS["quota"])
    seen = View()
    groups = [(seen := next_group(seen)).group for _ in GROUPS]
    assert groups[-1] == "now"
    assert len(set(groups)) == len(GROUPS)


def test_sorting_goes_through_the_columns_that_are_shown():
    view = next_sort(View(sort="tenant"), 80)
    assert (view.sort, view.descending) == (columns_of(view, 80)[0].key, True)
    back = next_sort(view, 80, -1)
    assert (back.sort, back.descending) == ("tenant", False)
    assert next_sort(View("got", "share"), 80).sort in COLUMNS


def test_a_click_finds_the_column_it_is_on():
    heading = shown([tenant("a")], View(), 80)[1]
    assert column_at(View(), 80, 5) == "tenant"
    assert column_at(View(), 80, heading.index("oldest")) == "oldest"
    assert column_at(View(), 80, 300) is None


def test_thresholds_give_amber_and_red():
    tenants = [tenant("a", failed=1), tenant("b", failed=30), tenant("c", failed=0)]
    hard = ConsoleSettings(thresholds={"failed": (1.0, 10.0)})
    lines = table_lines(tenants, View("slo", "failed"), 120, 30, LOOK, hard)
    place = [c.key for c in columns_of(View("slo"), 120)].index("failed")
    roles = [line.pieces[4 + 2 * place].role for line in lines[2:]]
    assert roles == ["hurt", "warn", "dim"]


@pytest.mark.parametrize("cells", [40, 60, 80, 120, 200])
def test_odd_names_keep_the_table_aligned_and_obey_nothing(cells):
    s = picture(made.incident(holder=ODD[0], victims=ODD[1:]))
    lines = wide_lines(s, View(), cells, 24, LOOK, PLAIN)
    assert len(lines) == 24
    body = [x for x in lines[3:] if x.plain.strip()]
    assert len({x.width for x in body}) == 1
    assert body[0].width <= cells
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(x.plain for x in lines))


def test_the_table_without_tenants_says_so():
    assert shown((), View())[-1].strip() == "no tenant has been heard of"


def test_a_number_too_wide_is_shortened_and_never_cut():
    huge = tenant("a", quota_tpm_level=-123456789012.0)
    line = shown([huge], View("quota"), 80)[2]
    assert "-1e+11" in line


def test_bytes_are_told_in_binary_units():
    assert [byte_count(v) for v in (None, 0, 512, 1536, 31 << 20, 2 << 30)] == [
        "-", "0B", "512B", "1.5K", "31M", "2.0G",
    ]  # fmt: skip


def test_settings_are_read_and_what_is_left_out_stays(tmp_path):
    file = tmp_path / "console.toml"
    file.write_text('sort = "excess_s"\n[thresholds]\nfailed = [2, 5]\noldest = 1.5\n')
    read = read_settings(file)
    assert (read.sort, read.group) == ("excess_s", "now")
    assert read.thresholds["failed"] == (2.0, 5.0)
    assert read.thresholds["oldest"] == (1.5, float("inf"))
    assert read.thresholds["miss_share"] == PLAIN.thresholds["miss_share"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sorted = 1", "sorted: no such key, perhaps sort"),
        ('sort = "shar"', "sort = 'shar': expected one of tenant, share.*perhaps share"),
        ("[thresholds]\nfaild = 1", "thresholds.faild: no such column, perhaps failed"),
        ("[thresholds]\nfailed = [5, 2]", r"thresholds.failed = \[5, 2\]: expected \[amber, red\]"),
        ("[thresholds]\nfailed = nan", "thresholds.failed = nan"),
        ("[thresholds]\nfailed = true", "thresholds.failed = True"),
        ("thresholds = 3", "expected a table of columns"),
        ("period_s = 0.01", "period_s = 0.01: expected 0.2 to 3600 seconds"),
        ("group = 7", "group = 7: expected one of now"),
        ("= 3", "no TOML"),
    ],
)
def test_settings_that_cannot_be_used_name_the_file_the_key_and_what_is_allowed(
    tmp_path, text, said
):
    file = tmp_path / "console.toml"
    file.write_text(text)
    with pytest.raises(ConsoleConfigError, match=said) as e:
        read_settings(file)
    assert str(e.value).startswith(str(file))


def test_settings_that_are_not_there_say_so(tmp_path):
    with pytest.raises(ConsoleConfigError, match="cannot be read"):
        read_settings(tmp_path / "none.toml")


def test_the_view_begins_as_the_settings_say():
    view = View.of(ConsoleSettings(sort="tenant", group="slo"))
    assert (view.sort, view.descending, view.group) == ("tenant", False, "slo")
    assert replace(view, first=3).first == 3


@pytest.mark.parametrize(
    ("place", "cells", "every"),
    [
        (Place(), 80, False),
        (Place(), 120, False),
        (Place(sort="vtc_gap"), 80, True),  # what it is sorted by counts, seen or not
        (Place().turn("group", "waits"), 80, True),
        (Place().turn("group", "fairness"), 60, True),
    ],
)
def test_columns_that_no_picture_has_are_asked_for_where_they_are_seen(place, cells, every):
    scene = Scene(picture(made.incident()), place, cells, 24, Look(tz=UTC))
    assert PAGES["table"].wants_columns(scene) is every


def test_of_a_pictures_own_columns_none_is_missing_from_the_first_group():
    assert {c.key for c in GROUPS["now"]} <= PICTURED
    pictured, minutes = ({f.name for f in fields(r)} for r in (ConsoleMinutesRow, TenantMinute))
    assert PICTURED & COLUMNS.keys() & minutes == pictured & COLUMNS.keys()
