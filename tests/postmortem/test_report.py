"""The report says who, whom and since when, in numbers that close, in every format the same."""

from __future__ import annotations

import json as stdlib_json
import re
from dataclasses import replace
from datetime import UTC

import pytest
from markdown_it import MarkdownIt

from postmortem.report import json, markdown, terminal
from postmortem.report.build import build_report
from postmortem.report.model import Report
from postmortem.report.requests import latency
from telemetry.attribution import CAPACITY_HELD, NOT_TENANTS
from telemetry.plain import cells, safe
from tests.telemetry.synthetic_rows import CAPACITY, SELF, Pool

NASTY = ["a|b`c", "[red]x[/]", "**b**", "<b>&amp;", "new\nline", "# head", "1. one", "\x1b[31mred",
         "<script>alert(1)</script>", '=HYPERLINK("http://e.org")', "\u202egnp.exe", "👩\u200d💻",
         "n" * 300, "```sh"]  # fmt: skip


def incident(by: str = "x", victims: tuple[str, ...] = ("y", "z", "w")) -> Pool:
    names = (by, *victims)
    pool = Pool().calm(0, 12, names).flood(12, 18, by, victims=victims)
    for i in range(18):
        for t in names:
            for k in range(5):
                slow = 6.0 + 0.1 * k if i >= 12 else 0.3
                pool.request(pool.at(i) + k, t, 10 * i + k, slow)
    return pool


def report_of(pool: Pool, first: int, last: int) -> Report:
    return build_report(pool.window(first, last), zone=UTC)


def tables(html_tokens) -> list[list[int]]:
    """Cells in each row of each table."""
    out: list[list[int]] = []
    for token in html_tokens:
        if token.type == "table_open":
            out.append([])
        elif token.type == "tr_open":
            out[-1].append(0)
        elif token.type in ("td_open", "th_open"):
            out[-1][-1] += 1
    return out


def parsed(text: str):
    return MarkdownIt("commonmark").enable("table").parse(text)


def visible(text: str) -> str:
    """What a reader of the rendered Markdown sees."""
    inline = [t for t in parsed(text) if t.type == "inline"]
    return "\n".join("".join(c.content for c in t.children or ()) for t in inline)


def test_the_report_names_who_whom_and_since_when():
    text = terminal.render(report_of(incident(), 8, 18), UTC)
    assert "3 HURT since 08:02:00" in text
    assert "CULPRIT x: 94% of the excess wait charged to it (charged, high)" in text
    assert "claim strength charged; high confidence; x is called the culprit" in text
    assert "Onset: 2027-01-15 08:02:00 UTC, the bucket of 10.0s" in text
    assert "NOT the engine: steps 1.03x the model, usual 1.00x" in text
    assert "offered 700 = rejected 0 + admitted 700: closes" in text
    assert re.search(r"waited ([\d.]+) s by tenant, charged \1 s in the matrix: closes", text)


def test_shares_of_every_victim_close_to_one_hundred_percent():
    report = report_of(incident(), 8, 18)
    hurt = [report.accounts.accounts[v.tenant] for v in report.verdict.victims]
    assert len(hurt) == 3
    for account in hurt:
        assert sum(x.share for x in account.lines) == pytest.approx(1.0)
        assert {x.holder for x in account.lines} >= set(NOT_TENANTS)
    pool = report.accounts.pool
    assert sum(x.excess_s for x in pool) == pytest.approx(sum(a.excess_s for a in hurt))
    text = terminal.render(report, UTC)
    total = next(line for line in text.splitlines() if line.startswith("total"))
    assert total.split()[-1] == "100.0%"


def test_impact_has_percentiles_with_n_beside_the_usual_ones():
    report = report_of(incident(), 8, 18)
    y = next(i for i in report.impact if i.tenant == "y")
    assert (y.hurt, y.missed, y.eligible, y.offered) == (True, 30, 100, 100)
    assert y.now.n == 50
    assert y.now.p99_s == pytest.approx(6.4)
    assert y.usual.p50_s == pytest.approx(0.3)
    assert y.usual.n == 40
    x = next(i for i in report.impact if i.tenant == "x")
    assert not x.hurt


def test_under_twenty_samples_the_maximum_is_said():
    pool = Pool().calm(0, 10).flood(10, 14)
    for k in range(19):
        pool.request(pool.at(11) + k / 10, "y", k, 1.0 + k)
    pool.request(pool.at(12), "y", 99, None)
    report = report_of(pool, 10, 14)
    y = next(i for i in report.impact if i.tenant == "y")
    assert (y.now.n, y.now.p99_s, y.now.max_s, y.now.none_yet) == (19, None, 19.0, 1)
    text = terminal.render(report, UTC)
    assert "max 19.0s (19)" in text
    assert "never got a first token, in no TTFT above: y: 1" in text


def test_percentiles_are_nearest_rank():
    pool = Pool()
    for k in range(1, 101):
        pool.request(pool.at(0), "y", k, float(k))
    found = latency(pool.rows["request"])
    assert (found.p50_s, found.p99_s, found.max_s) == (50.0, 99.0, 100.0)


def test_rejected_requests_have_no_latency():
    pool = Pool()
    pool.request(pool.at(0), "y", 1, None, outcome="rejected", reject_reason="rpm")
    assert latency(pool.rows["request"]).none_yet == 0


def test_a_quiet_window_names_nobody_in_any_format():
    report = report_of(Pool().calm(0, 20), 10, 20)
    for text in (terminal.render(report, UTC), markdown.render(report, UTC), json.render(report)):
        assert "nobody is hurt" in text
        assert not re.search("CULPRIT|LIKELY|is called", text)
    assert "No onset" in terminal.render(report, UTC)
    assert stdlib_json.loads(json.render(report))["verdict"]["tenant"] is None


def test_a_slow_engine_is_reported_as_capacity_with_its_share():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i, busy_s=9.6, predicted_s=6.0, capacity_s=3.6)
        for t in ("x", "y", "z"):
            held = {CAPACITY: 7.5, SELF: 4.5, "w": 8.0}
            pool.tenant(i, t, missed=4, service=700.0, waits={"budget": held})
    report = report_of(pool, 10, 16)
    assert report.verdict.kind == "capacity"
    share = next(x.share for x in report.accounts.pool if x.holder == CAPACITY_HELD)
    assert share == pytest.approx(1.0)  # of what w is charged too: it asks for no more than usual
    charged = sum(c.charged_s for c in report.heat.cells if c.kind == "capacity")
    assert charged == pytest.approx(
        0.375 * sum(a.charged_s for a in report.accounts.accounts.values())
    )
    text = terminal.render(report, UTC)
    assert "LOST CAPACITY" in text
    assert "culprit." not in text.split("WORDS")[0]


def test_gaps_are_drawn_as_gaps_and_listed():
    pool = Pool().calm(0, 10).flood(10, 12).flood(14, 16)
    report = report_of(pool, 8, 16)
    assert [m.state for m in report.minutes] == [*["observed"] * 4, "gap", *["observed"] * 2]
    assert report.minutes[4].missed is None
    text = terminal.render(report, UTC)
    assert "gap: 2 bucket(s) from 08:02:00 to 08:02:20" in text
    assert "6 of 8 buckets observed" in text


def test_a_bucket_only_the_front_saw_keeps_its_offers_and_knows_nothing_else():
    pool = Pool().calm(0, 10)
    pool.tenant(10, "y", observed_seconds=None, offered=7)
    pool.engine(11)
    report = report_of(pool, 8, 12)
    row = report.minutes[2]
    assert (row.state, row.offered, row.missed, row.kv_share) == ("gap", 7, None, None)
    assert [s for _, s in row.waits] == [None] * 4


def test_a_provisional_bucket_is_marked():
    pool = Pool().calm(0, 10)
    pool.engine(10, observed_seconds=4.0)
    report = report_of(pool, 5, 11)
    assert (report.coverage.short, report.minutes[-1].state) == (1, "short")
    assert "observed in part: provisional" in terminal.render(report, UTC)


def test_the_timeline_puts_causes_before_effects():
    pool = incident()
    pool.policy(pool.at(9), 2, "fcfs", "vtc")
    pool.event(pool.at(11), "mark", "phase two")
    kinds = [m.kind for m in report_of(pool, 8, 18).timeline]
    assert kinds == ["change", "mark", "demand", "onset", "miss"]


def test_an_incident_that_began_before_the_window_says_so():
    text = terminal.render(report_of(incident(), 14, 18), UTC)
    assert "Onset: 2027-01-15 08:02:00 UTC" in text
    assert "It began 20.0s before the window that was asked for" in text
    assert "all of it, the tables of impact about the window" in " ".join(text.split())


def test_a_second_incident_is_pointed_out_not_mixed_in():
    pool = Pool().calm(0, 12).flood(12, 18).calm(18, 26).flood(26, 28, by="w", victims=("y", "z"))
    report = report_of(pool, 10, 28)
    assert report.verdict.end == pool.at(18)
    assert [m.at for m in report.timeline if m.kind == "also"] == [pool.at(26)]


def test_too_little_baseline_abstains_in_the_report_too():
    text = terminal.render(report_of(Pool().calm(0, 2).flood(2, 8), 2, 8), UTC)
    assert "NO VERDICT: only 2 calm closed buckets" in text
    assert "culprit." not in text.split("WORDS")[0]


@pytest.mark.parametrize("name", NASTY)
def test_markdown_survives_any_name(name: str):
    text = markdown.render(report_of(incident(by=name, victims=("y", "p|q", "w")), 8, 18), UTC)
    found = tables(parsed(text))
    assert len(found) >= 6
    for rows in found:
        assert len(set(rows)) == 1, rows
    shown = visible(text)
    assert safe(name) in shown
    assert not {t.type for t in parsed(text)} & {"html_block", "html_inline", "code_block"}
    blocks = [t for t in parsed(text) if t.type == "fence"]
    assert {t.info for t in blocks} == {"sh"}
    assert all(line.startswith("tenantscope ") for t in blocks for line in t.content.splitlines())


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("width", [40, 80, 132])
def test_terminal_text_fits_and_carries_no_control_characters(name: str, width: int):
    victims = ("y", "漢字" * 30, "n" * 200)
    report = report_of(incident(by=name, victims=victims), 8, 18)
    text = terminal.render(report, UTC, width=width)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert all(c in "\n\u200d" or c.isprintable() for c in text)  # a joiner moves nothing


@pytest.mark.parametrize("name", ["capacity", "self", "total", "(others)"])
def test_a_tenant_named_like_a_row_is_told_apart_by_its_kind(name: str):
    text = markdown.render(report_of(incident(by=name), 8, 18), UTC)
    rows = [line for line in text.splitlines() if line.startswith("| tenant | " + name)]
    assert len(rows) == 1
    assert "94.1%" in rows[0]


def test_json_carries_the_same_numbers():
    report = report_of(incident(), 8, 18)
    body = stdlib_json.loads(json.render(report))
    assert body["format"] == 2
    assert body["verdict"]["culprit"] == "x"
    assert body["verdict"]["share"] == pytest.approx(report.verdict.share)
    assert body["verdict"]["strength"] == "charged"
    assert body["verdict"]["onset_utc"].startswith("2027-01-15T08:02:00")
    lines = body["accounts"]["accounts"]["y"]["lines"]
    assert sum(x["share"] for x in lines) == pytest.approx(1.0)
    assert len(body["minutes"]) == 10
    assert body["reconciled"]["offered"] == 700


def test_a_rise_from_nothing_is_valid_json():
    pool = Pool().calm(0, 10, ("y", "z"))
    for i in range(10, 14):
        pool.engine(i)
        pool.tenant(i, "new", offered=60, service=6000.0, kv=600.0)
        pool.tenant(i, "y", missed=5, waits={"slot": {"new": 30.0}})
    report = report_of(pool, 10, 14)
    assert report.verdict.culprit == "new"
    body = stdlib_json.loads(json.render(report), parse_constant=pytest.fail)
    assert {r["ratio"] for r in body["rises"] if r["tenant"] == "new"} == {None}
    assert "from nothing" in terminal.render(report, UTC)


def test_a_long_window_shows_the_buckets_around_the_incident():
    pool = Pool().calm(0, 200).flood(200, 206).calm(206, 300)
    text = terminal.render(report_of(pool, 100, 300), UTC)
    assert "Buckets 96 to 111 of 200" in text


def judged(text: str) -> str:
    """The report without its glossary, on one line."""
    return " ".join(text.split("WORDS")[0].split())


def test_what_is_usual_holds_nothing_of_those_that_were_caught_by_the_incident():
    pool = incident()
    pool.request(pool.at(11) + 9, "y", 901, 15.0, ended=pool.at(14), max_gap_s=9.0)
    pool.request(pool.at(11) + 9, "y", 902, 0.3, ended=pool.at(14), max_gap_s=9.0)
    y = next(i for i in report_of(pool, 12, 18).impact if i.tenant == "y")
    assert (y.usual.max_s, y.usual.max_gap_s) == (0.3, 0.1)


def test_a_lost_capacity_names_no_tenant_but_those_hurt():
    """In one step that froze everyone holds what it has for longer: that is nobody's doing."""
    pool = Pool().calm(0, 10)
    for i in (10, 11):
        pool.engine(i, busy_s=9.0, predicted_s=4.0, capacity_s=5.0, last_token_age_max_s=5.2)
        for t in ("x", "y"):
            pool.tenant(i, t, missed=3, kv=400.0, waits={"slot": {CAPACITY: 9.6, "w": 0.2}})
        pool.tenant(i, "w", kv=400.0)
    report = report_of(pool, 8, 12)
    assert (report.verdict.kind, report.verdict.tenant) == ("capacity", None)
    text = judged(terminal.render(report, UTC))
    assert "NOT a tenant: none holds more than 2% of the excess" in text
    assert "Whose own use rose" not in text
    assert not [s for s in report.verdict.lines() if "NOT w" in s or "tenant: w" in s]


def test_only_who_asked_for_more_is_said_to_have_asked_for_more():
    """A victim in one busy bucket, its adapter held while it waits, has not begun to demand."""
    pool = Pool().calm(0, 12).flood(12, 18)
    for r in list(pool.rows["tenant_minute"]):
        if r.tenant == "y" and r.bucket_start >= pool.at(12):
            pool.rows["tenant_minute"].remove(r)
            busy = 25 if r.bucket_start == pool.at(12) else 5
            pool.rows["tenant_minute"].append(
                replace(
                    r, adapter_bytes_avg=900.0, offered_requests=busy, offered_tokens=100 * busy
                )
            )
    report = report_of(pool, 8, 18)
    demand = [m.what for m in report.timeline if m.kind == "demand"]
    assert demand == ["x begins to ask for more than twice its usual"]


def test_without_a_baseline_nothing_is_compared_with_it():
    report = report_of(Pool().calm(0, 2), 0, 2)
    text = judged(terminal.render(report, UTC))
    problem = "only 2 calm closed buckets to compare with, 3 are needed"
    assert f"No onset can be told: {problem}." in text
    assert f"baseline: none, {problem}" in text
    assert "nobody left the baseline" not in text
    assert ", usual" not in text.split("Every finding")[0]
    assert not any(m.in_baseline for m in report.minutes)
    assert all(i.usual.n == 0 for i in report.impact)


def test_requests_without_rows_are_unknown_and_not_explained_away():
    pool = Pool().calm(0, 12).flood(12, 18)
    text = judged(terminal.render(report_of(pool, 8, 18), UTC))
    assert "No row of a request is stored for this window: TTFT and gaps are unknown" in text
    assert "0 rows of 700 requests: the rest is open, or missing" in text
    assert "window's edges" not in text


def test_what_is_printed_as_equal_closes():
    pool = Pool().calm(0, 12).flood(12, 18)
    pool.charge(13, "y", "slot", "tenant", "x", 0.0002)
    assert "in the matrix: closes" in judged(terminal.render(report_of(pool, 8, 18), UTC))
    pool.charge(13, "y", "slot", "tenant", "x", 0.002)
    assert "-0.002 s not accounted for" in judged(terminal.render(report_of(pool, 8, 18), UTC))


def test_the_quiet_summary_speaks_of_the_whole_window_asked_for():
    """A window whose calm beginning is the baseline itself: the last, half-empty bucket is not
    all there was."""
    pool = Pool().calm(0, 8)
    pool.engine(8, observed_seconds=2.0)
    pool.tenant(8, "x", service=100.0)
    report = report_of(pool, 0, 9)
    assert report.verdict.kind == "quiet"
    assert "busiest: x 25% of the service (fair 25%)" in report.verdict.headline


def test_on_a_narrow_screen_the_mark_stands_beside_the_name():
    lines = terminal.render(report_of(incident(), 8, 18), UTC, width=40).splitlines()
    assert "! y" in lines
    assert "x" in lines
    assert "!" not in lines
