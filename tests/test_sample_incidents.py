"""The recorded incidents are whole, tell what they promise to tell, and can be made again."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest

from engine.config import read_settings
from engine.simulation.workload import read_workload
from sample_incidents import IncidentError, incident_path, list_incidents
from sample_incidents.expected import read_expected
from sample_incidents.record import _differs, check, differences, main, of_then
from telemetry.records import RequestRecord
from telemetry.source import open_source

EVER = (-math.inf, math.inf)
LARGEST_BYTES = 400_000
LARGEST_TOTAL_BYTES = 6_000_000
NAMED = (
    "five-pm-fanout", "five-pm-contexts", "adapter-cliff", "long-prefill-stall", "rpm-gaming",
    "one-128k-prompt", "fixed-window-boundary", "retry-storm", "self-inflicted", "everyone-grew",
    "slow-engine", "lost-engine", "frozen-engine", "two-culprits", "steady-heavy-bystander",
    "decoy", "policy-change", "quiet-day", "servegen-onset",
)  # fmt: skip
RECORDED = tuple(n for n in list_incidents() if read_expected(n).recorded == "simulate")
FAST = "frozen-engine"

every = pytest.mark.parametrize("name", list_incidents())


def read(name: str, table: str) -> list:
    source = open_source(str(incident_path(name) / "store"))
    try:
        return source.read(table, *EVER)
    finally:
        source.close()


def p99(values: list[float]) -> float:
    values = sorted(values)
    return values[min(len(values) - 1, int(0.99 * len(values)))]


def ttfts(name: str, tenant: str, begin: float, end: float) -> list[float]:
    rows: list[RequestRecord] = read(name, "request")
    return [
        r.ttft_s
        for r in rows
        if r.tenant == tenant and begin <= r.arrived < end and r.ttft_s is not None
    ]


def test_all_of_them_are_there():
    assert set(NAMED) == set(list_incidents())


@every
def test_a_folder_is_whole_and_small(name):
    home = incident_path(name)
    assert {"workload.toml", "policy.toml", "README.md", "expected.toml", "store"} <= {
        p.name for p in home.iterdir()
    }
    size = sum(f.stat().st_size for f in (home / "store").rglob("*") if f.is_file())
    assert size <= LARGEST_BYTES
    assert f"sample_incidents/{name}/store" in (home / "README.md").read_text()


def test_together_they_are_small():
    files = [f for n in list_incidents() for f in (incident_path(n) / "store").rglob("*")]
    assert sum(f.stat().st_size for f in files if f.is_file()) <= LARGEST_TOTAL_BYTES


@every
def test_settings_and_workload_agree_and_name_who_is_expected(name):
    settings = read_settings(incident_path(name) / "policy.toml")
    workload = read_workload(incident_path(name) / "workload.toml")
    expected = read_expected(name)
    tenants = {t.name for t in workload.tenants}
    assert {t.name for t in settings.tenants} == tenants
    assert {t.name: t.slo for t in settings.tenants} == {t.name: t.slo for t in workload.tenants}
    assert {*expected.who, *expected.whom, *expected.innocent} <= tenants
    assert not {*expected.who} & {*expected.innocent}
    assert (settings.limits.slots, settings.limits.step_tokens) == (
        workload.limits.slots,
        workload.limits.step_tokens,
    )


@every
def test_who_is_to_blame_fits_the_kind_of_verdict(name):
    e = read_expected(name)
    named = {"tenant": 1, "self": 1, "no_single": 2}.get(e.kind, 0)
    assert len(e.who) == named
    assert (e.onset is None) == (e.kind == "quiet")
    if e.onset is not None:
        assert e.window[0] < e.onset < e.window[1]


@every
def test_the_recording_covers_the_window_and_calm_before_it(name):
    e = read_expected(name)
    minutes = read(name, "engine_minute")
    length = minutes[0].bucket_s
    if e.recorded == "simulate":
        assert minutes[0].bucket_start <= e.window[0] - 5 * length
    assert minutes[-1].bucket_start + length >= e.window[1]


@pytest.mark.parametrize("name", [n for n in list_incidents() if read_expected(n).whom])
def test_who_is_said_to_be_hurt_missed_what_was_promised(name):
    e = read_expected(name)
    minutes = read(name, "tenant_minute")
    for tenant in e.whom:
        assert e.onset is not None
        own = [m for m in minutes if m.tenant == tenant]
        # The onset falls into a bucket: its own misses count.
        missed = [m.slo_missed or 0 for m in own if m.bucket_start + m.bucket_s > e.onset]
        before = [m.slo_missed or 0 for m in own if m.bucket_start + m.bucket_s <= e.onset]
        assert sum(missed) >= 3
        assert sum(missed) > 3 * sum(before)


def test_on_the_quiet_day_nobody_misses_anything():
    assert sum(m.slo_missed or 0 for m in read("quiet-day", "tenant_minute")) == 0


def test_at_five_the_light_tenant_goes_from_a_third_of_a_second_to_many_and_into_its_own_429s():
    e = read_expected("five-pm-contexts")
    assert e.onset is not None
    assert p99(ttfts(e.name, "globex", 0, e.onset)) < 1.0
    assert p99(ttfts(e.name, "globex", e.onset, e.onset + 300)) > 5.0
    rejected = [r for r in read(e.name, "request") if r.outcome == "rejected"]
    assert {(r.tenant, r.reject_reason) for r in rejected} == {("globex", "concurrency")}
    assert min(r.arrived for r in rejected) > e.onset
    engine = [m for m in read(e.name, "engine_minute") if m.bucket_start >= e.onset]
    assert sum(m.preemptions or 0 for m in engine) > 5
    assert max((m.kv_bytes_avg or 0) / m.pool_bytes for m in engine) > 0.5


def test_at_the_cliff_adapters_are_loaded_over_and_over():
    e = read_expected("adapter-cliff")
    minutes = read(e.name, "engine_minute")
    assert e.onset is not None
    calm = sum(m.loads or 0 for m in minutes if m.bucket_start < e.onset)
    assert sum(m.loads or 0 for m in minutes if m.bucket_start >= e.onset) > 5 * max(calm, 1)


def test_the_long_prefills_stall_others_while_the_pool_is_nearly_empty():
    e = read_expected("long-prefill-stall")
    assert e.onset is not None
    minutes = [
        m for m in read(e.name, "engine_minute") if e.onset <= m.bucket_start < e.onset + 300
    ]
    assert max(m.kv_bytes_avg / m.pool_bytes for m in minutes) < 0.1
    assert max(m.waiting_avg for m in minutes) < 1.0
    held = [m for m in read(e.name, "tenant_minute") if m.tenant == "globex"]
    stalled = [m.stall_s or 0.0 for m in held]
    assert max(stalled) > 10 * sorted(stalled)[len(stalled) // 2 - 4]


def test_the_gamer_stays_under_its_requests_a_minute():
    rows = read("rpm-gaming", "request")
    assert all(r.outcome != "rejected" for r in rows)


def test_the_boundary_lets_through_two_minutes_worth_at_once():
    e = read_expected("fixed-window-boundary")
    at = sorted(r.arrived for r in read(e.name, "request") if r.tenant == "acme")
    assert e.onset is not None
    in_wave = [a for a in at if e.onset - 1 <= a <= e.onset + 5]
    assert len(in_wave) > 120


def test_the_storm_is_made_of_retries():
    minutes = [m for m in read("retry-storm", "tenant_minute") if m.tenant == "acme"]
    retries = sum(m.offered_retries or 0 for m in minutes)
    assert retries > 0.3 * sum(m.offered_requests or 0 for m in minutes)


def test_the_lifted_cap_is_in_the_rows():
    e = read_expected("policy-change")
    versions = sorted(read(e.name, "policy"), key=lambda p: p.version)
    assert [p.version for p in versions] == [1, 2]
    assert e.onset is not None
    assert 0 <= e.onset - versions[1].at <= 300


def test_the_lost_worker_is_heard_no_more_until_it_is_back():
    e = read_expected("lost-engine")
    assert e.onset is not None
    runs = {
        m.run_id
        for m in read(e.name, "engine_minute")
        if e.onset + 60 <= m.bucket_start < e.onset + 360
    }
    assert len(runs) == 1


def test_the_real_clients_arrivals_are_those_of_the_list():
    e = read_expected("servegen-onset")
    lines = (incident_path(e.name) / "client-116-arrivals.txt").read_text().splitlines()
    assert "ServeGen" in lines[0]
    listed = [float(x) for x in lines if not x.startswith("#")]
    came = sorted(r.arrived for r in read(e.name, "request") if r.tenant == "client-116")
    gaps = [b - a for a, b in itertools.pairwise(came)]
    wanted = [b - a for a, b in itertools.pairwise(listed)]
    assert gaps == pytest.approx(wanted, abs=2e-6)


def test_an_incident_can_be_made_again():
    assert check(FAST) == []


@pytest.mark.full
@pytest.mark.parametrize("name", RECORDED)
def test_every_incident_can_be_made_again(name):
    assert check(name) == []


def test_a_difference_is_told_by_table_column_and_values():
    one, other = (incident_path(n) / "store" for n in ("quiet-day", "frozen-engine"))
    said = list(differences(one, other))
    assert any(line.startswith("request: ") for line in said)
    assert list(differences(one, one)) == []


def test_costs_fitted_by_another_library_are_the_same_to_its_last_digits():
    [run] = read("quiet-day", "engine_run")
    costs = json.loads(run.costs)
    token_s = costs["context_token_s"]
    near = replace(run, costs=json.dumps({**costs, "context_token_s": token_s * (1 + 1e-13)}))
    other = replace(run, costs=json.dumps({**costs, "context_token_s": token_s * (1 + 1e-3)}))
    fewer = replace(run, costs=json.dumps({"base_s": costs["base_s"]}))
    assert _differs(run, near) is None
    for odd in (other, fewer):
        assert "costs" in (_differs(run, odd) or "")


def test_a_setting_that_came_after_a_recording_is_no_difference():
    then = {"policy": "vtc", "limits": {"slots": 12}, "pools": [{"name": "main"}]}
    now = {"policy": "fcfs", "limits": {"slots": 12, "new": 1}, "pools": [{"name": "b", "tp": 1}]}
    assert of_then(then, now) == {**then, "policy": "fcfs", "pools": [{"name": "b"}]}


def test_an_unknown_incident_and_a_bad_file_are_usage(tmp_path, monkeypatch, capsys):
    assert main(["--check", "nope"]) == 2
    assert "nope" in capsys.readouterr().err
    monkeypatch.setattr("sample_incidents.expected.incident_path", lambda name: tmp_path)
    (tmp_path / "expected.toml").write_text('kind = "maybe"\nwindow = [1, 2]\n')
    with pytest.raises(IncidentError, match="kind = 'maybe'"):
        read_expected("x")
