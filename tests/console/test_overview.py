"""The overview says who, whom, since when and what changed, adds up, and fits its screen."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import listing
from console.account import CHARGED, TenantNow, closing, others, top
from console.judge import LiveJudge
from console.lines import ASCII
from console.overview import Look, greyed, overview_lines, plain_text, verdict_part
from console.panels import Lamps, Level, Snapshot, TenantRow, Tick, VerdictLines
from console.rows import Rows
from console.snapshot import build_snapshot
from tests.console import rows as made
from tests.console import screens as kept

END = made.T0 + 180.0
LOOK = Look(tz=UTC)
ODD = (
    "[red]x", "[b", "[/]", "👩‍👩‍👧 family", "שלום עולם", "\u202eevil", "a" * 300, "",
    "\x1b[31mred\x07", "\x1b]0;title\x07", "tab\tnew\nline", "\x9b2J", "日本の会社",
)  # fmt: skip


def picture(rows: Rows | None = None, at: float = END, **more) -> Snapshot:
    rows = made.incident() if rows is None else rows
    verdict = LiveJudge(tz=UTC)(rows, at)
    return build_snapshot(rows, at, verdict=verdict, accounted=True, **more)


def text(s: Snapshot, cells: int = 80, lines: int = 24, look: Look = LOOK) -> list[str]:
    return [line.plain.rstrip() for line in overview_lines(s, cells, lines, look)]


def test_the_incident_on_80_by_24_answers_who_whom_since_when_and_what_changed():
    lines = text(picture())
    assert len(lines) == 24
    assert lines[1].startswith("!! 3 HURT since 08:02:00: globex missed 24 of 36 (67%, usual 0%)")
    assert lines[2].startswith("   CULPRIT acme: ")
    assert lines[2].endswith("(charged, high)")
    assert "NOT the engine" in lines[4]
    hurt = lines[9:12]
    assert {line[3:16].strip() for line in hurt} == {"globex", "initech", "umbrella"}
    assert all(line.startswith("!!") and line.endswith("acme      slot") for line in hurt)
    holds = next(i for i, line in enumerate(lines) if line.startswith("─HOLDS"))
    assert lines[holds + 1].startswith("*  acme")
    assert any(line.endswith("acme fans out long contexts") for line in lines)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40)])
@pytest.mark.parametrize("victims", [1, 3, 24])
def test_both_lists_and_those_that_are_no_tenants_close_to_the_same_printed_total(size, victims):
    s = picture(made.incident(victims=[f"v{i}" for i in range(victims)]))
    lines = text(s, *size)
    [hurt] = [i for i, line in enumerate(lines) if line.startswith("─HURT")]
    [holds] = [i for i, line in enumerate(lines) if line.startswith("─HOLDS")]
    [close] = [i for i, line in enumerate(lines) if line.startswith("  (not tenants:")]

    def column(title: str, first: int, end: int) -> list[float]:
        edge = lines[first].index(title) + len(title)
        told = [line[:edge].split()[-1] for line in lines[first + 1 : end]]
        return [float(x.rstrip("s")) for x in told]

    waits, held = column("excess wait", hurt, holds), column("charged excess", holds, close)
    inside = re.search(r"\(not tenants: (.*); total (\d+)s\)", lines[close])
    assert inside is not None
    apart = [int(n) for n in re.findall(r"(\d+)s", inside[1])]
    assert sum(waits) == sum(held) + sum(apart) == int(inside[2])
    slots = column("slots", holds, close)
    assert sum(slots) == round(sum(t.row.running for t in s.account.tenants))


@given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=30), st.sampled_from([0, 1]))
def test_what_is_rounded_to_close_closes_and_nothing_moves_by_more_than_a_digit(parts, digits):
    whole = sum(parts)
    told = closing(parts, whole, digits)
    unit = 10.0**-digits
    assert round(sum(told) / unit) == round(whole / unit)
    assert all(abs(t - p) <= unit + 1e-6 for t, p in zip(told, parts, strict=True))


def test_a_quiet_pool_needs_one_line_and_names_nobody():
    lines = text(picture(made.calm(), made.T0 + 120.0))
    assert lines[1].startswith("ok QUIET: nobody is hurt; busiest: ")
    assert lines[2].startswith("POOL")
    assert not any(line.startswith(("!!", "*")) for line in lines)


def test_with_the_store_down_the_header_says_since_when_and_a_line_from_where():
    notes = ("the store is not answering: connection refused", "from the worker's memory")
    lines = text(picture(notes=notes, store_down_s=240.0))
    assert "STORE DOWN 4m" in lines[0]
    assert "lost" not in lines[0]
    assert lines[1].startswith("!  from engines, 60 min in memory; the store is not answering")


def test_the_lamps_tell_silent_engines_lost_batches_and_partial_answers():
    s = picture()
    lamps = replace(s.lamps, known=3)
    assert "1/3 engines" in text(replace(s, lamps=lamps))[0]
    assert "lost 7" in text(replace(s, lamps=replace(lamps, lost=7)))[0]
    partial = replace(lamps, notes=("2027-01-14: request cannot be read",))
    lines = text(replace(s, lamps=partial))
    assert "PARTIAL" in lines[0]
    assert "2027-01-14: request cannot be read" in lines[1]


def test_lost_batches_of_the_last_hour_are_counted_from_their_events():
    rows = made.incident()
    lost = made.event(END - 60, "lost", "3 batches given up", value=3.0)
    s = picture(replace(rows, events=(*rows.events, lost)))
    assert s.lamps.lost == 3
    assert any("LOST" in line for line in text(s))


def test_stale_figures_are_grey_and_say_how_old_they_are():
    s = replace(picture(), stale=True, now=END + 240.0)
    lines = overview_lines(s, 80, 24, LOOK)
    assert "STALE data 4m" in lines[0].plain
    assert {p.role for line in lines[1:-1] for p in line.pieces} == {"dim"}


def test_of_old_figures_nothing_is_ruled_out():
    s = picture()
    assert any("NOT" in line for line in text(s))
    old = text(replace(s, stale=True, now=END + 240.0))
    assert not any(line.startswith("   NOT") for line in old)
    assert old[1].startswith("!! 4m ago: 3 HURT")
    quiet = picture(made.calm(), made.T0 + 120.0)
    assert text(quiet)[1].startswith("ok QUIET")
    assert text(replace(quiet, stale=True, now=quiet.now + 240.0))[1].startswith("?  4m ago: QUIET")


@pytest.mark.parametrize("cells", [40, 60, 80, 120, 160])
def test_the_header_says_that_there_are_other_pools(cells):
    s = replace(picture(), pools=("main", "side", "x"))
    head = text(s, cells, 24)[0]
    assert (" +2 pools  1/1 engine" if cells >= 80 else " +2  1/1 engine") in head
    assert len(head) <= cells
    if cells >= 80:
        assert "main +1 pool  1/1" in text(replace(s, pools=("main", "side")), cells, 24)[0]
    assert "+" not in text(replace(s, pools=("main",)), cells, 24)[0]


@pytest.mark.parametrize("cells", [40, 50, 60, 80])
def test_however_narrow_the_header_says_that_figures_are_old_and_the_store_is_down(cells):
    lamps = Lamps(heard=1, known=3, store_down_s=240.0)
    old = replace(picture(), stale=True, now=END + 240.0, edge=END + 900.0, lamps=lamps)
    head = text(old, cells, 10)[0]
    assert "HELD 11m back  STALE data 4m  STORE DO" in head
    assert len(head) <= cells


def test_what_happened_days_ago_is_told_with_its_date():
    s = picture()
    days = replace(s, ticker=(Tick(END - 3 * 86_400.0, "policy", "bob: a -> b (v2)"), *s.ticker))
    told = text(days)
    assert "27-01-12 CHANGE bob: a -> b (v2)" in told
    assert any(line.startswith("08:00:00 START") for line in told)


def test_a_source_that_fails_leaves_the_picture_grey_under_a_banner():
    lines = overview_lines(picture(), 80, 24, replace(LOOK, banner="no \x1broute", age_s=12.0))
    assert lines[1].plain.startswith("!! no fresh figures for 12s: no \\x1broute; trying again")
    assert lines[2] == greyed(lines[2])


def test_a_held_or_past_picture_says_how_far_it_lies_back():
    assert "HELD 30s back" in text(replace(picture(), edge=END + 30.0))[0]


def test_gaps_part_observed_minutes_and_the_open_one_are_marked():
    s = picture()
    account = replace(s.account, gaps=2, short=1)
    lines = text(replace(s, account=account, provisional=True), 120, 30)
    assert any("window: last 180s, 2 not observed, 1 in part" in line for line in lines)
    assert "data 0s~" in lines[0]
    assert "~ 80%" in "\n".join(lines)


def test_without_a_baseline_seconds_are_charged_ones_and_are_not_called_excess():
    s = picture(made.incident(calm_buckets=1))
    assert s.account.basis == CHARGED
    heads = [x for x in text(s) if x.startswith(("─HURT", "─HOLDS"))]
    assert not any("excess" in x for x in heads)
    assert heads[1].rstrip().endswith("charged")


def test_more_columns_come_at_the_named_widths():
    s = picture()
    titles = {
        w: " ".join(x for x in text(s, w, 45) if x.startswith(("─HURT", "─HOLDS")))
        for w in (60, 80, 120, 160)
    }
    assert "behind" in titles[60]
    assert "429" not in titles[60]
    assert "TTFT p99/n" in titles[80]
    assert "budget" not in titles[80]
    assert "budget" in titles[120]
    assert "stall" not in titles[120]
    assert {"stall", "evicts"} <= set(titles[160].split())


def test_where_lines_are_few_each_sentence_keeps_its_beginning():
    lines = ("first " * 30, "second " * 30, "third", "NOT engine: 1   NOT adapters: 2")
    v = VerdictLines(level=Level.HURT, lines=lines, excluded=1)
    said = [x.plain for x in verdict_part(replace(picture(), verdict=v), 60, 3)]
    assert said[0].startswith("!! first")
    assert said[1].startswith("   second")
    assert said[2] == "   NOT engine   NOT adapters"


@pytest.mark.parametrize("size", [(39, 24), (80, 9), (12, 3)])
def test_below_40_by_10_it_says_that_it_is_too_small(size):
    lines = overview_lines(picture(), *size, LOOK)
    assert "".join(x.plain for x in lines).startswith("too small"[: size[0]])
    assert len(lines) <= size[1]
    assert all(x.width <= size[0] for x in lines)


@pytest.mark.parametrize("look", [LOOK, replace(LOOK, glyphs=ASCII)], ids=["unicode", "ascii"])
@pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24), (100, 31), (120, 40), (160, 50)])
def test_odd_names_are_literal_or_neutralised_and_the_columns_stay_aligned(size, look):
    s = picture(made.incident(holder=ODD[0], victims=ODD[1:]))
    lines = overview_lines(s, *size, look)
    assert len(lines) == size[1]
    assert all(line.width <= size[0] for line in lines)
    everything = "\n".join(line.plain for line in lines)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", everything)
    [hurt], [holds] = (
        [i for i, x in enumerate(lines) if x.plain.startswith(f"{look.glyphs.rule}{name}")]
        for name in ("HURT", "HOLDS")
    )
    assert holds - hurt > 2
    assert len({x.width for x in lines[hurt:holds]}) == 1


def test_every_odd_name_is_told_as_it_is_where_there_is_room():
    s = picture(made.incident(holder=ODD[0], victims=ODD[1:]))
    wide = "\n".join(text(s, 160, 60))
    for told in ("[red]x", "[b", "[/]", "👩‍👩‍👧 family", "שלום עולם", "\\u202eevil", '""',
                 "\\x1b[31mred\\x07", "\\x1b]0;title\\x07", "\\x9b2J", "日本の会社"):  # fmt: skip
        assert told in wide


@pytest.mark.parametrize("cells", [40, 50, 80])
def test_ascii_cuts_with_ascii_too(cells):
    s = picture(made.incident(holder="a name that is cut in every sentence and column"))
    look = replace(LOOK, glyphs=ASCII)
    assert all(line.isascii() for n in (10, 24, 40) for line in text(s, cells, n, look))


def test_ascii_draws_with_ascii_alone():
    s = picture()
    look = replace(LOOK, glyphs=ASCII)
    assert all(line.isascii() for line in text(s, 120, 40, look))


def test_others_sum_what_adds_up_and_join_the_histograms():
    a = TenantNow(row=TenantRow(name="a", running=1.0), wait_s=2.0, ttft_counts=(0, 3, 0))
    b = TenantNow(row=TenantRow(name="b", running=2.0), wait_s=None, ttft_counts=(1, 1, 1))
    both = others([a, b])
    assert (both.name, both.row.folded, both.row.running) == ("others (2)", 2, 3.0)
    assert (both.wait_s, both.ttft_counts) == (2.0, (1, 4, 1))
    assert [t.name for t in top([a, b, a], 2)] == ["a", "others (2)"]


def test_a_pool_that_was_never_heard_says_so():
    s = build_snapshot(Rows(), END, accounted=True)
    lines = text(s)
    assert "0/0 engines" in lines[0]
    assert any("no engine has been heard" in line for line in lines)


def test_the_printed_overview_ends_without_blanks_and_without_keys():
    printed = plain_text(picture(), 80, 60, LOOK)
    assert printed.endswith("acme fans out long contexts\n")
    assert "\n\n" not in printed


def test_lamps_of_a_source_that_cannot_know_what_was_lost_say_nothing():
    assert "lost" not in text(replace(picture(), lamps=Lamps(heard=1, known=1)))[0]


@pytest.mark.parametrize("name", sorted(kept.screens()))
def test_the_screen_reads_as_kept(name):
    """Where a change is meant: `python -m tests.console.screens`, and look at the difference."""
    assert kept.screens()[name] == (kept.FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_kept_screen_is_drawn():
    assert {p.stem for p in kept.FOLDER.glob("*.txt")} == set(kept.screens())


def test_the_others_lines_are_added_up_once_a_picture_however_often_it_is_drawn(monkeypatch):
    s = picture(made.incident(victims=[f"v{i}" for i in range(24)]))
    first = overview_lines(s, 120, 24, LOOK)
    assert sum("others (" in line.plain for line in first) == 2
    added = []
    monkeypatch.setattr(listing, "total", lambda values: added.append(len(values)))
    monkeypatch.setattr(listing, "count", lambda values: added.append(len(values)))
    again = overview_lines(s, 120, 24, LOOK)
    own = max(len(t.minutes) for t in s.account.tenants)
    assert 0 < max(added) <= 2 * own  # of a tenant with a line of its own, two columns at the most
    others_of = [[x for x in lines if "others (" in x.plain] for lines in (first, again)]
    assert others_of[0] == others_of[1]
