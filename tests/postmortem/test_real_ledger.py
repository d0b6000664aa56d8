"""The verdict on what the real scheduler, pool and ledger wrote, in virtual time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from engine.config import Slo
from postmortem.report.build import build_report
from postmortem.report.model import Report
from telemetry.verdict import judge
from telemetry.window import Window, window_of
from tests.engine.worlds import make_pool

TENANTS = ("x", "y", "z", "w")
CALM_S, ALL_S = 80.0, 130.0
SLOTS = 8
Stream = tuple[str, float, float, float, int, int]  # tenant, from, to, rate, prompt, output


def steady(rate: float) -> list[Stream]:
    return [(t, 0.0, ALL_S, rate, 60, 20) for t in TENANTS]


def flood(tenant: str, rate: float = 6.0) -> Stream:
    """Long contexts, thirty seconds of them."""
    return (tenant, CALM_S, CALM_S + 30.0, rate, 400, 60)


SCENES: dict[str, dict] = {
    "quiet": {"streams": steady(2.0)},
    "flood": {"streams": [*steady(1.0), flood("x")]},
    "flood under vtc": {"streams": [*steady(1.0), flood("x")], "policy": "vtc"},
    "two floods": {"streams": [*steady(1.0), flood("x", 4.0), flood("y", 4.0)]},
    "slowed": {"streams": steady(3.5), "slowdown": lambda now: 1.6 if now >= CALM_S else 1.0},
    "frozen": {"streams": steady(1.0), "freeze": (CALM_S + 3.0, 5.0)},
}


@cache
def scene(name: str) -> Callable[[float, float], Window]:
    """Run a scene; a function of two engine times gives the window between them."""
    setting = dict(SCENES[name])
    draw = random.Random(7)
    asks = []
    for tenant, start, end, rate, prompt, out in setting.pop("streams"):
        at = start + draw.expovariate(rate)
        while at < end:
            size = max(4, int(draw.gauss(prompt, prompt / 4)))
            asks.append((at, tenant, size, max(2, int(draw.gauss(out, out / 4)))))
            at += draw.expovariate(rate)
    pool = make_pool(
        TENANTS, slots=SLOTS, step_tokens=128, slo=Slo(ttft_s=1.0, max_gap_s=2.0),
        prefix_cache=False,  # simulated prompts are all alike
        **{"policy": "fcfs", **setting},
    )  # fmt: skip
    for at, tenant, prompt, out in sorted(asks):
        pool.ask(at, tenant, prompt, out)
    pool.run(ticks=1.0)
    wall = pool.clock.base.wall_s
    offered = defaultdict(list)
    for at, tenant, prompt, out in asks:
        offered[(wall + at) // 10.0 * 10.0, tenant].append(prompt + out)
    rows = []
    for row in pool.tenants():
        tokens = offered[row.bucket_start, row.tenant]
        counts = {"offered_requests": len(tokens), "offered_tokens": sum(tokens)}
        rows.append(replace(row, admitted_requests=len(tokens), **counts))
    return lambda start, end: window_of(
        "main",
        wall + start,
        wall + end,
        engine_rows=pool.engine(),
        tenant_rows=rows,
        matrix_rows=pool.charges(),
        requests=pool.requests(),
    )


def report(name: str, start: float = CALM_S, end: float = ALL_S) -> Report:
    return build_report(scene(name)(start, end))


def test_a_quiet_run_names_nobody():
    verdict = report("quiet").verdict
    assert (verdict.kind, verdict.tenant, verdict.hurt) == ("quiet", None, ())


@pytest.mark.parametrize("start", [0.0, CALM_S, CALM_S + 20.0])
def test_a_flood_under_fcfs_names_x_with_its_share_of_each_victims_excess(start: float):
    made = report("flood", start)
    assert made.verdict.culprit == "x"
    assert {v.tenant for v in made.verdict.victims} == {"y", "z", "w"}
    for victim in made.verdict.victims:
        account = made.accounts.accounts[victim.tenant]
        share = next(x.share for x in account.lines if x.holder.name == "x")
        assert share > 0.7
        assert sum(x.share for x in account.lines) == pytest.approx(1.0)


def test_the_flood_is_seen_while_it_lasts_and_while_it_drains():
    window = scene("flood")
    for now in range(int(CALM_S) + 5, int(CALM_S) + 55, 10):
        assert judge(window(now - 30.0, float(now))).tenant == "x", now


def test_the_same_flood_under_vtc_hurts_only_who_made_it():
    verdict = report("flood under vtc").verdict
    assert (verdict.kind, verdict.tenant) == ("self", "x")
    assert verdict.victims == ()


def test_two_floods_are_no_single_tenant():
    verdict = report("two floods").verdict
    assert (verdict.kind, verdict.tenant) == ("no_single", None)


def test_a_slowed_engine_is_capacity_and_names_nobody():
    made = report("slowed")
    assert (made.verdict.kind, made.verdict.tenant) == ("capacity", None)
    # Nobody asks for more: what the matrix charges to tenants that only stood in line is handed on
    # to capacity, beside the three eighths that it has by itself.
    assert made.verdict.capacity_share == pytest.approx(1.0)
    [engine] = [c for c in made.verdict.causes if c.name == "engine"]
    assert engine.share == pytest.approx(0.375, abs=0.03)
    assert made.verdict.victims


def test_a_frozen_step_is_capacity():
    made = report("frozen")
    assert (made.verdict.kind, made.verdict.tenant) == ("capacity", None)
    assert made.verdict.capacity_share > 0.7
    assert max(m.last_token_age_s or 0.0 for m in made.minutes) == pytest.approx(5.0, abs=0.2)


@pytest.mark.parametrize("name", list(SCENES))
def test_report_ledger_and_request_rows_agree(name: str):
    sums = report(name, 0.0, 400.0).reconciled
    assert sums.waited_s == pytest.approx(sums.charged_s, rel=1e-9)
    assert sums.output_tokens == sums.output_tokens_by_request
    assert sums.prompt_tokens == sums.prompt_tokens_by_request
    assert sums.offered == sums.admitted + sums.rejected
