"""How soon the right verdict is said: rows as an engine sends them, words read right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.verdict_time import at_most_open, first_miss, is_right, named, verdicts
from console.panels import Level, VerdictLines
from console.rows import Rows
from engine.config import Slo
from sample_incidents.expected import read_expected
from telemetry.records import RequestRecord
from telemetry.window import Window, window_of
from tests.telemetry.synthetic_rows import T0, Pool


def rows_of(pool: Pool) -> Rows:
    return Rows(
        engines=tuple(pool.rows["engine_minute"]),
        tenants=tuple(pool.rows["tenant_minute"]),
        interference=tuple(pool.rows.get("interference_minute", ())),
    )


def window(rows: Rows, end: float) -> Window:
    return window_of(
        "main", T0, end, engine_rows=rows.engines, tenant_rows=rows.tenants,
        matrix_rows=rows.interference,
    )  # fmt: skip


def test_rows_of_ten_seconds_are_told_as_minutes_of_which_the_last_is_open():
    pool = Pool(10.0)
    for i in range(8):
        pool.engine(i)
        pool.tenant(i, "y", offered=7, waits={"slot": {"x": 2.0}})
        if i < 3:
            pool.tenant(i, "x", kv=60.0)  # idle for the other half of its minute
    told = at_most_open(rows_of(pool))
    first, second = window(told, pool.at(8)).buckets
    assert (first.length_s, first.observed_s, first.workers) == (60.0, 60.0, 1.0)
    assert (second.length_s, second.observed_s, second.short) == (60.0, 20.0, True)
    assert (first.tenants["y"].offered_requests, second.tenants["y"].offered_requests) == (42, 14)
    assert first.tenants["x"].kv_bytes_avg == pytest.approx(30.0)
    assert sum(second.matrix.values()) == pytest.approx(4.0)
    assert "x" not in second.tenants


def test_the_judge_is_asked_only_about_what_had_left_by_then():
    pool = Pool(10.0).calm(0, 60).flood(60, 72)
    said = dict(verdicts(pool, pool.at(59), pool.at(62)))
    assert [at for at, lines in said.items() if not named(lines)] == [pool.at(59), pool.at(60)]
    assert {n for lines in said.values() for n in named(lines)} == {"x"}


def lines(*said: str, by: str | None = None) -> VerdictLines:
    return VerdictLines(level=Level.HURT, lines=said, named=by)


def test_a_verdict_is_right_by_its_kind_and_exactly_its_names():
    one, two = read_expected("decoy"), read_expected("two-culprits")
    own = read_expected("self-inflicted")
    assert is_right(one, lines("CULPRIT acme: 95%", by="acme"))
    assert not is_right(one, lines("LIKELY globex: 60%", by="globex"))
    both = "NO SINGLE TENANT holds the excess, 2 do: acme 53%, hooli 47% (charged, medium)"
    assert named(lines(both)) == {"acme", "hooli"}
    assert is_right(two, lines("6 HURT since 17:00:00", both))
    assert not is_right(two, lines("NO SINGLE TENANT holds the excess: acme 53%, (self) 40%"))
    assert is_right(own, lines("SELF-INFLICTED: acme missed 9 of 10"))
    assert not is_right(own, lines("CULPRIT acme: 97% of the excess wait", by="acme"))


class Requests:
    def __init__(self, *rows: RequestRecord) -> None:
        self.rows = rows

    def read(self, table: str, start: float, end: float) -> list[RequestRecord]:
        return [r for r in self.rows if start <= r.arrived < end]


def test_the_first_miss_is_when_a_target_passes_and_not_when_the_request_ends():
    asked = RequestRecord(
        engine="e1", run_id="r1", pool="main", request_id="1", tenant="y", outcome="finished",
        arrived=T0 + 5.0, ended=T0 + 60.0, missed_ttft=True,
    )  # fmt: skip
    gap = replace(asked, request_id="2", missed_ttft=False, missed_gap=True, ended=T0 + 20.0)
    own = replace(asked, request_id="3", tenant="x", arrived=T0)
    targets = {"x": Slo(ttft_s=2.0), "y": Slo(ttft_s=2.0)}

    def first(*rows: RequestRecord) -> float | None:
        return first_miss(Requests(*rows), targets, T0, T0 + 100.0, ("x",))

    assert first(own) is None
    assert first(own, gap) == T0 + 20.0
    assert first(own, gap, asked) == T0 + 7.0
