"""The parts of a report: they add up, they say where they come from, they ask what they must."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postmortem.report import terminal
from postmortem.report.actions import TO_FILL_IN
from postmortem.report.build import build_report
from postmortem.report.cells import bars
from postmortem.report.curve import MOST_POINTS
from postmortem.report.make import Sums, make_report, uncollected
from postmortem.report.parts import Context, Prevented, Replayed
from postmortem.report.profile import profile, variance_to_mean
from postmortem.report.requests import explain_command, of_rows, of_store, suspects
from telemetry.alerts import state
from telemetry.alerts.incident import Incident, Note, Said, State
from telemetry.ask.rows_report import ReportMinutes
from telemetry.case import open_case
from telemetry.source import Source, open_source
from telemetry.window import read_window
from tests.postmortem.test_cli import fill
from tests.postmortem.test_report import incident, report_of
from tests.telemetry.synthetic_rows import SELF, T0, Pool


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """An incident with requests of every fate: refused, never answered, caught in the calm."""
    folder = tmp_path_factory.mktemp("parts") / "store"
    pool = incident()
    for k in range(30):
        pool.request(pool.at(13), "y", 500 + k, None, ended=pool.at(17) + k / 10)
        pool.request(pool.at(14), "z", 600 + k, None, outcome="rejected", reject_reason="rpm")
    pool.request(pool.at(11) + 9, "y", 901, 15.0, ended=pool.at(14), max_gap_s=9.0)
    fill(folder, pool)
    source = open_source(folder)
    yield source
    source.close()


def test_what_a_store_adds_up_is_what_its_rows_add_up_to(source: Source):
    case = open_case(read_window(source, T0 + 80, T0 + 180))
    rows, asked = of_rows(case), of_store(source, case, suspects(case))
    assert rows.now == asked.now
    assert rows.usual == asked.usual
    assert (rows.count, rows.prompt_tokens, rows.output_tokens) == (
        asked.count, asked.prompt_tokens, asked.output_tokens,
    )  # fmt: skip
    assert [r["request_id"] for r in rows.worst] == [r["request_id"] for r in asked.worst]
    assert rows.worst[0]["ttft_s"] is None
    assert rows.usual["y"].max_s == 0.3


def test_the_report_is_the_same_whoever_adds_up(source: Source):
    window = read_window(source, T0 + 80, T0 + 180)
    assert make_report(source, T0 + 80, T0 + 180, zone=UTC) == build_report(window, zone=UTC)


def test_rows_that_were_read_are_not_read_again(source: Source):
    asked: list[tuple[str, float, float]] = []

    class Told:
        def read(self, table: str, start: float, end: float):
            asked.append((table, start, end))
            return source.read(table, start, end)

        def query(self, name: str, **parameters):
            asked.append((name, parameters["start"], parameters["end"]))
            return source.query(name, **parameters)

    reads = Sums(Told(), T0 + 110)
    late = reads.read("tenant_minute", T0 + 100, T0 + 180)
    whole = reads.read("tenant_minute", T0, T0 + 180)
    assert [a[1:] for a in asked] == [(T0 + 100, T0 + 180), (T0, T0 + 100)]
    lives = reads.read("request", T0, T0 + 180)
    assert asked[-1] == ("report_lives", T0 + 110, T0 + 180)
    stored = source.read("request", T0 + 110, T0 + 180)
    both = [
        sorted((r.tenant, r.arrived, r.ended or 0.0, r.adapter or "") for r in rows)
        for rows in (lives, stored)
    ]
    assert both[0] == both[1]
    of_minutes = attrgetter(*ReportMinutes._fields)
    assert [*map(of_minutes, whole)] == [
        *map(of_minutes, source.read("tenant_minute", T0, T0 + 180))
    ]
    assert whole[-len(late) :] == late


def test_the_cycle_collector_comes_back_also_when_reading_fails():
    def failing():
        with uncollected():
            assert not gc.isenabled()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        failing()
    assert gc.isenabled()


# ---------------------------------------------------------------- profile, curve, matrix


def test_the_profile_adds_up_with_a_line_for_all_the_rest():
    names = tuple(f"v{i}" for i in range(9))
    pool = Pool().calm(0, 12, ("x", *names)).flood(12, 18, "x", victims=names)
    made = profile(open_case(pool.window(8, 18)), most=4)
    lines = [*made.rows, made.rest, *made.not_tenants]
    assert (len(made.rows), made.rest.tenants, made.total.tenants) == (4, 6, 10)
    assert made.rows[0].name == "x"
    for column in ("service", "excess_s", "missed"):
        whole = sum(getattr(r, column) for r in lines)
        assert whole == pytest.approx(getattr(made.total, column))
    assert made.total.service_share == pytest.approx(1.0)
    assert sum(r.excess_share for r in lines) == pytest.approx(1.0)
    assert sum(r.offered or 0 for r in lines) == made.total.offered == 10 * 100 + 50 * 6


def test_bursts_have_a_greater_variance_to_mean_than_a_steady_stream():
    pool = Pool()
    for i in range(6):
        pool.engine(i)
        pool.tenant(i, "steady", offered=10)
        pool.tenant(i, "bursts", offered=60 if i == 3 else 0)
        pool.tenant(i, "silent", offered=0)
    window = pool.window(0, 6)
    found = variance_to_mean(window.asked, window.part(window.asked))
    assert found == {"steady": 0.0, "bursts": pytest.approx(50.0)}


def test_too_few_or_unknown_counts_say_nothing_of_bursts():
    pool = Pool()
    for i in range(4):
        pool.engine(i)
        pool.tenant(i, "x", offered_requests=None)
        if i < 2:
            pool.tenant(i, "y", offered_requests=None)
    window = pool.window(0, 4)
    found = variance_to_mean(window.asked, window.part(window.asked))
    assert "x" not in found


def test_the_matrix_adds_up_with_what_is_not_shown():
    names = tuple(f"v{i:02}" for i in range(20))
    pool = Pool().calm(0, 12, ("x", *names)).flood(12, 18, "x", victims=names)
    report = report_of(pool, 8, 18)
    h = report.heat
    assert h.victims_left == 8
    assert sum(c.excess_s for c in h.cells) + h.left_s == pytest.approx(h.whole_s)
    assert h.whole_s == pytest.approx(sum(x.excess_s for x in report.accounts.pool))


def test_shares_of_the_curve_close_in_every_bucket_that_was_heard():
    names = tuple(f"v{i:02}" for i in range(20))
    report = report_of(Pool().calm(0, 12, names).flood(12, 18, "x", victims=names), 8, 18)
    assert report.curve.tenants[0] == "x"
    assert report.curve.others == 14
    for p in report.curve.points:
        assert sum(s or 0.0 for s in p.shares) == pytest.approx(1.0)
    assert sum(p.missed or 0 for p in report.curve.points) == sum(i.missed for i in report.impact)


def test_more_buckets_than_can_be_drawn_are_drawn_a_few_together():
    pool = Pool().calm(0, 700, ("x", "y"))
    c = report_of(pool, 100, 700).curve
    assert len(c.points) <= MOST_POINTS
    assert c.points[0].start == pool.at(100)
    assert c.points[-1].start + c.points[-1].length_s == pool.at(700)
    ends = [p.start + p.length_s for p in c.points]
    assert ends[:-1] == [p.start for p in c.points[1:]]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=200))
def test_a_row_of_bars_is_short_and_never_turns_something_into_nothing(values):
    row = bars(values)
    assert len(row) <= 40
    assert ("?" in row) == (None in values)
    known = [v for v in values if v is not None]
    if None not in values:
        assert set(row) <= {"."} if not any(known) else set(row) - {".", " "}


# ---------------------------------------------------------------- detection and actions


def alerted(pool: Pool, *, acked: bool = True) -> Pool:
    said = (
        Said("TenantscopeShareSurge", "info", "s", "charged", "x", pool.at(12) + 4, pool.at(17)),
        Said("TenantscopeGoodputBurnFast", "page", "s", None, "y", pool.at(13), pool.at(17)),
    )
    acks = (Note("n1", pool.at(14), "ann", ""),) if acked else ()
    i = Incident("inc-main-1", "main", "e1", State.RESOLVED, "page", pool.at(12) + 4, pool.at(17),
                 pool.at(20), said, acks=acks)  # fmt: skip
    rows = state.state_batch(i, pool.at(20), say=True).logs
    pool.rows.setdefault("event", []).extend(rows)
    return pool


def test_detection_goes_from_the_onset_to_the_recovery():
    pool = alerted(incident().calm(18, 24))
    found = report_of(pool, 8, 24).detection
    assert [(n.step, n.lag_s) for n in found] == [
        ("onset", 0.0), ("first signal", 4.0), ("alert", 10.0), ("first human act", 20.0),
        ("recovery", 60.0),
    ]  # fmt: skip
    assert found[2].what == "TenantscopeGoodputBurnFast (page)"
    assert all(n.source for n in found)


def test_what_did_not_happen_is_said_to_be_absent():
    found = {n.step: n for n in report_of(incident(), 8, 18).detection}
    for step in ("first signal", "alert", "first human act", "recovery"):
        assert found[step].at is None
        assert found[step].what.startswith("absent: ")
    text = terminal.render(report_of(incident(), 8, 18), UTC)
    assert "was the store's process judging then?" in " ".join(text.split())


def test_a_policy_that_somebody_put_in_force_is_a_human_act():
    pool = alerted(incident().calm(18, 24), acked=False)
    pool.policy(pool.at(15), 2, "vtc", "fcfs")
    act = next(n for n in report_of(pool, 8, 24).detection if n.step == "first human act")
    assert (act.lag_s, act.source) == (30.0, "policy")
    assert act.what == "policy vtc (v2) put in force by bob"


def test_every_moment_names_its_source_and_alerts_are_among_them():
    pool = alerted(incident().calm(18, 24))
    pool.policy(pool.at(9), 2, "fcfs", "vtc")
    pool.started(pool.at(9))
    moments = report_of(pool, 8, 24).timeline
    assert {m.source for m in moments} == {
        "policy", "engine_run", "tenant_minute", "event incident", "event incident_act",
    }  # fmt: skip
    assert "acknowledged by ann" in [m.what for m in moments]
    text = terminal.render(report_of(pool, 8, 24), UTC)
    assert "TenantscopeGoodputBurnFast (page): inc-main-1" in " ".join(text.split())


def test_actions_follow_from_facts_and_leave_the_rest_to_people():
    report = report_of(incident(), 8, 18)
    assert [a.kind for a in report.actions][:2] == ["prevent", "detect"]
    assert report.actions[0].what.startswith("Limit x")
    assert "rose 6.00x" in report.actions[0].fact
    text = terminal.render(report, UTC)
    assert text.count(TO_FILL_IN) == 2 * len(report.actions) + len(report.questions)


def test_a_quiet_window_asks_nothing_of_anybody():
    report = report_of(Pool().calm(0, 20), 10, 20)
    assert report.actions == ()
    assert "Nothing follows from the facts" in terminal.render(report, UTC)


def test_lost_minutes_ask_for_coverage():
    pool = Pool().calm(0, 10).flood(10, 12).flood(14, 16)
    report = report_of(pool, 8, 16)
    assert ("data", "2 buckets not observed") in [(a.kind, a.fact) for a in report.actions]


def test_who_waits_behind_itself_is_talked_to():
    pool = Pool().calm(0, 10, ("x", "y"))
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, missed=30, waits={"slot": {SELF: 90.0}})
        pool.tenant(i, "y")
    assert "Talk to x" in report_of(pool, 8, 16).actions[0].what


# ---------------------------------------------------------------- commands and what-if


def test_commands_quote_what_a_shell_would_take_apart():
    context = Context("my store; rm -rf ~", pool_given=True)
    report = build_report(incident().window(8, 18), zone=UTC, context=context)
    commands = [
        report.what_if,
        *(a.command for a in report.asked),
        *(s.command for s in report.worst),
    ]
    assert all("--store 'my store; rm -rf ~'" in c for c in commands)
    assert "--pool main --from 2027-01-15T08:01:20Z --to 2027-01-15T08:03:00Z" in report.what_if
    assert explain_command("-x $(id)", Context()) == (
        "tenantscope explain --store STORE -- '-x $(id)'"
    )
    assert (
        explain_command("q1", Context("h:1", live=True)) == "tenantscope explain --connect h:1 q1"
    )


def test_of_a_live_store_every_command_asks_its_address():
    context = Context("127.0.0.1:7420", live=True)
    report = build_report(incident().window(8, 18), zone=UTC, context=context)
    assert all("--connect 127.0.0.1:7420" in a.command for a in report.asked)
    assert "whatif --store 127.0.0.1:7420" in report.what_if  # it takes both there


def test_without_a_replay_the_command_to_run_one_is_given():
    report = report_of(incident(), 8, 18)
    assert report.what_if in " ".join(
        line.strip(" \\") for line in terminal.render(report, UTC, width=132).splitlines()
    )


def test_a_replay_is_told_with_its_truth_its_remedy_and_how_to_apply_it():
    rows = (
        Replayed("recorded", "", 30, 60, 1.0, 6.0, 2.0, 0, 99.0, None, None),
        Replayed("cap", "limit or weight", 0, 60, 0.2, 0.4, 9.0, 12, 90.0, True, None),
        Replayed("slots", "capacity", 9, 60, 0.9, 5.0, 9.0, 0, 90.0, False, "unsure why"),
    )
    found = Prevented("remedy", "a cap on x", True, "off by 4%", rows, "cap",
                      '[[tenant]]\nname = "x"\nconcurrency = 3\n', "tenantscope admin tenant set x",
                      "without x's excess y's TTFT p99 would have been 0.4s",
                      ("open loop",))  # fmt: skip
    base = report_of(incident(), 8, 18)
    text = terminal.render(replace(base, prevented=found), UTC)
    flat = " ".join(text.split())
    assert "Counterfactual: without x's excess" in flat
    assert "Is the replay true: off by 4%" in flat
    assert "concurrency = 3" in text
    assert "tenantscope admin tenant set x" in text
    said = [x.split()[-1] for x in text.splitlines() if x.startswith(("cap ", "slots "))]
    assert said == ["kept", "unsure"]
    assert "and none was run here" not in flat


def test_json_numbers_are_finite_whatever_came_in(tmp_path: Path):
    from postmortem.report import json as as_json

    report = report_of(incident(), 8, 18)
    broken = replace(report, start=float("inf"), judged_end=float("nan"))
    body = json.loads(as_json.render(broken), parse_constant=pytest.fail)
    assert body["start"] is None
    assert "start_utc" not in body or body["start_utc"]
