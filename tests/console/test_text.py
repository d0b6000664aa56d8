"""The plain picture: aligned, honest about what is missing, deaf to what names contain."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.cells import clip, fit, width
from console.columns import COLUMNS, choose
from console.formats import duration, percent, quantity
from console.lines import ASCII, Piece, glyphs_for, sparkline, stacked
from console.panels import Level, VerdictLines
from console.rows import Rows
from console.snapshot import build_snapshot
from console.text import render_text, summary_line
from tests.console import rows as made

END = made.T0 + 181.0
ODD_NAMES = ("[red]x[/]", "日本の会社", "👩‍👩‍👧 family", "a" * 200, "evil\x1b[31m\n\u202e|`")

GOLDEN = """\
tenantscope  pool main · 1 engine                  policy fcfs v1   08:03:01 UTC
▸ acme fans out long contexts                                 LIVE · data 1s old
!! 3 tenants HURT since 08:02:00: misses 67% (usual 0%)
   LIKELY acme: 89% of all excess wait was charged to it (charged, high)
   NOT engine: step 41ms, usual 39   NOT adapters: 0 loads/s   NOT lost capacity
POOL  ████████████████▓▒  KV 89%  adapter 6%  cache 2%  free 3%  slots 8/8
STEP  41ms, expected 40ms  last token 40ms  out 195 tok/s  prefill 400 tok/s
WAIT  ██████████████▓▓▒▒  now 20  oldest 9s  slot 75%  KV 15%  budget 10%
HELD  acme 60%  (self) 35%  (others) 3%  (capacity) 2%  of 20m waited in 60s
TREND acme ▃▃▃▃▃▃▃▃▃▃▃▃▇▇▇▇▇▇ 80%  missed ▁▁▁▁▁▁▁▁▁▁▁▁▄▄▄▄▄▄ 43%  · 10s each
"""


def incident(**kwargs):
    return build_snapshot(made.incident(**kwargs), END, verdict=made.verdict())


def test_the_picture_answers_who_whom_and_since_when_on_80_columns():
    text = render_text(incident(), 80, tz=UTC)
    assert text.startswith(GOLDEN)
    lines = text.splitlines()
    assert lines[12].split() == ["*", "acme", "80%", "25%", "80%", "7", "6", "5s", "1.2s/59", "0%",
                                 "(self)", "slot"]  # fmt: skip
    assert lines[13].split() == ["!!", "globex", "7%", "25%", "3%", "0.3", "4.5", "7s", "5.3s/23",
                                 "67%", "acme", "89%", "slot"]  # fmt: skip


@pytest.mark.parametrize("cells", [80, 100, 120, 200])
def test_no_line_is_wider_than_the_screen_whatever_the_names(cells):
    rows = made.incident(holder="self", victims=ODD_NAMES)
    text = render_text(build_snapshot(rows, END), cells, tz=UTC)
    assert max(width(line) for line in text.splitlines()) <= cells


@pytest.mark.parametrize("cells", [80, 120, 200])
def test_columns_line_up_under_their_titles_whatever_the_names(cells):
    rows = made.incident(holder="self", victims=ODD_NAMES)
    lines = render_text(build_snapshot(rows, END), cells, tz=UTC).splitlines()
    head = next(i for i, line in enumerate(lines) if "TTFT p99/n" in line)
    edge = width(lines[head][: lines[head].index("p99/n") + len("p99/n")])
    for line in lines[head + 1 : head + 7]:
        at = 0
        before = ""
        for c in line:
            if at >= edge:
                break
            before += c
            at = width(before)
        assert before.rstrip().rpartition("/")[2].isdigit(), line
        assert width(before) == edge


def test_names_are_shown_as_they_are_and_control_characters_as_escapes():
    text = render_text(build_snapshot(made.incident(victims=ODD_NAMES), END), 200, tz=UTC)
    assert "[red]x[/]" in text
    assert "日本の会社" in text
    assert "👩‍👩‍👧 family" in text
    assert "evil\\x1b[31m" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_tenant_called_self_is_told_from_the_holder_self():
    text = render_text(build_snapshot(made.incident(holder="self"), END), 80, tz=UTC)
    held = next(line for line in text.splitlines() if line.startswith("HELD"))
    assert "self 66%" in held
    assert "(self) 30%" in held


def test_what_is_not_known_is_a_dash_and_not_a_zero():
    text = render_text(build_snapshot(Rows(), made.T0), 80, tz=UTC)
    assert "no data yet" in text
    assert "KV -  adapter -  cache -  free -  slots -/-" in text
    assert "0%" not in text


def test_stale_figures_say_how_old_they_are():
    text = render_text(build_snapshot(made.incident(), END + 240), 80, tz=UTC)
    assert "STALE: data 4m old" in text


def test_a_step_slower_than_expected_is_said_with_the_ratio():
    rows = Rows(engines=(made.engine(made.T0, busy_s=9.0, predicted_s=3.0),))
    assert "(3.0× slower)" in render_text(build_snapshot(rows, made.T0 + 10), 80, tz=UTC)


def test_more_tenants_than_lines_close_with_others():
    names = tuple(f"t{i:02d}" for i in range(40))
    s = build_snapshot(made.incident(victims=names), END, verdict=made.verdict("acme", names))
    lines = render_text(s, 80, tenants=8, tz=UTC).splitlines()
    table = lines[lines.index(next(x for x in lines if "TTFT" in x)) + 1 :]
    assert table[0].split()[:2] == ["*", "acme"]  # the holder is never folded away
    assert table[7].split()[:3] == ["!!", "others", "(34)"]
    assert "max 5.3s" in table[7]


def test_few_samples_show_the_maximum_and_their_number():
    rows = Rows(
        engines=(made.engine(made.T0),),
        tenants=(made.tenant(made.T0, "a"),),
        requests=tuple(made.request("a", made.T0 + i, 0.1 * i) for i in range(1, 8)),
    )
    assert "max 700ms/7" in render_text(build_snapshot(rows, made.T0 + 10), 80, tz=UTC)


def test_ascii_terminals_get_ascii():
    text = render_text(incident(), 80, glyphs=ASCII, tz=UTC)
    assert text.isascii()
    assert glyphs_for("ascii") is ASCII
    assert glyphs_for("utf-8") is not ASCII


def test_a_long_verdict_is_wrapped_and_keeps_its_mark_in_front():
    words = "word " * 60
    s = build_snapshot(
        made.calm(), made.T0 + 120, verdict=VerdictLines(level=Level.WARN, lines=(words.strip(),))
    )
    lines = render_text(s, 80, tz=UTC).splitlines()[2:7]
    assert lines[0].startswith("!  word")
    assert all(line.startswith("   word") for line in lines[1:4])


def test_the_summary_line_is_one_line():
    line = summary_line(incident(holder="acme", victims=("a\nb", "c")), tz=UTC)
    assert "\n" not in line
    assert line.startswith("08:03:01 | acme fans out")


@pytest.mark.parametrize("cells", range(40, 201, 7))
def test_the_columns_chosen_always_fit(cells):
    chosen = choose(COLUMNS, cells)
    needed = sum(c.width for c in chosen) + len(chosen) - 1
    assert needed <= max(cells, 60)
    assert [c.key for c in chosen][:2] == ["mark", "name"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0s"), (0.04, "40ms"), (0.9996, "1.0s"), (9.4, "9.4s"), (9.96, "10s"),
     (41, "41s"), (120, "2m"), (7200, "2h"), (1e6, "12d")],
)  # fmt: skip
def test_durations_are_short(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.04, "<.1"), (0.4, "0.4"), (7, "7"), (212.4, "212"),
     (1900, "1.9k"), (12_000, "12k"), (999_600, "1.0M"), (3.1e6, "3.1M")],
)  # fmt: skip
def test_quantities_are_short(value, text):
    assert quantity(value) == text


def test_what_is_not_nothing_does_not_read_as_zero_nor_what_is_not_all_as_all():
    assert [percent(x) for x in (None, 0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "-", "0%", "<1%", "50%", ">99%", "100%",
    ]  # fmt: skip


@given(st.text(max_size=40), st.integers(0, 30))
def test_clipped_text_fits_and_short_text_is_left_alone(text, cells):
    assert width(clip(text, cells)) <= cells
    if width(text) <= cells:
        assert clip(text, cells) == text
    assert width(fit(text, cells, "right")) == cells


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 40))
def test_a_bar_of_shares_is_exactly_as_wide_as_asked(shares, cells):
    whole = sum(shares) or 1.0
    bar = stacked([(s / whole, "#", "kv") for s in shares], cells)
    assert sum(width(p.text) for p in bar) == cells
    assert all(isinstance(p, Piece) for p in bar)


def test_a_sparkline_shows_gaps_as_gaps():
    assert sparkline([0.0, 1.0, None], glyphs_for("utf-8")) == "▁█·"
