"""The screen says what the verdict says: named while it lasts, quiet when it is over."""

from __future__ import annotations

from datetime import UTC

from console.judge import LiveJudge
from console.lines import LINE_CELLS, side_by_side
from console.panels import Level
from console.rows import Rows
from tests.console import rows as made

judge = LiveJudge(tz=UTC)


def recovered(calm_after: int) -> Rows:
    rows = made.incident()
    for k in range(18, 18 + calm_after):
        start = made.T0 + 10.0 * k
        minutes, requests = made.calm_bucket(start)
        rows = rows.then(
            Rows(tenants=tuple(minutes), engines=(made.engine(start),), requests=tuple(requests))
        )
    return rows


def test_a_quiet_pool_names_nobody():
    said = judge(made.calm(), made.T0 + 121)
    assert said.level is Level.QUIET
    assert (said.named, said.victims) == (None, frozenset())


def test_a_fan_out_is_named_with_its_victims_and_its_onset():
    said = judge(made.incident(), made.T0 + 181)
    assert said.level is Level.HURT
    assert said.named == "acme"
    assert said.victims == {"globex", "initech", "umbrella"}
    assert said.since == made.T0 + 120
    assert any("acme" in line and "charged" in line for line in said.lines)


def test_before_there_is_a_baseline_it_abstains():
    said = judge(made.calm(buckets=2), made.T0 + 21)
    assert said.level is Level.UNKNOWN
    assert said.named is None


def test_once_it_is_over_the_screen_is_quiet_and_tells_what_was():
    said = judge(recovered(calm_after=4), made.T0 + 221)
    assert said.level is Level.QUIET
    assert said.named is None
    earlier = next(line for line in said.lines if line.startswith("EARLIER"))
    assert earlier.startswith("EARLIER 08:02:00-08:03:00: 3 hurt")
    assert "acme" in earlier


def test_time_before_the_first_bucket_does_not_count_as_missed():
    said = judge(made.calm(), made.T0 + 121)
    assert not any("MISSING" in line for line in said.lines)


def test_no_rows_at_all_give_no_verdict_and_no_crash():
    assert judge(Rows(), made.T0).level is Level.UNKNOWN


def test_short_sentences_share_a_line_and_long_ones_do_not():
    assert side_by_side(["a", "b"]) == ("a   b",)
    long = "x" * (LINE_CELLS - 2)
    assert side_by_side([long, "b"]) == (long, "b")
