"""The whole path on the synthetic model: demo, store, report. Ledger, DuckDB and report agree."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from postmortem.report.build import build_report
from telemetry.conventions import WAIT_REASONS
from telemetry.source import open_source
from telemetry.window import read_window

pytestmark = pytest.mark.xdist_group("demo-whole")  # one play for all of them


def run(*args: str) -> subprocess.CompletedProcess[str]:
    code = "from console.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict:
    store = tmp_path_factory.mktemp("demo") / "store"
    done = run(
        "demo", "--json", "--model", "synthetic", "--duration", "60", "--policy", "both",
        "--store", str(store),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def source(played):
    source = open_source(Path(played["store"]))
    yield source
    source.close()


def everything(source, table):
    return source.read(table, float("-inf"), float("inf"))


def test_both_acts_are_measured_and_nothing_failed(played):
    assert played["complete"]
    assert [a["policy"] for a in played["acts"]] == ["fcfs", "vtc"]
    assert played["errors"] == []
    fcfs, vtc = played["acts"]
    assert fcfs["output_tokens"] == vtc["output_tokens"] > 0
    assert fcfs["prompt_tokens"] == vtc["prompt_tokens"]
    assert len(played["next"]) == 3


def test_waits_in_the_store_agree_by_request_and_by_minute(source):
    requests, minutes = everything(source, "request"), everything(source, "tenant_minute")
    charges = everything(source, "interference_minute")
    assert requests
    for reason in WAIT_REASONS:
        by_request = sum(
            (getattr(r, f"wait_{reason}_s") or 0) + (getattr(r, f"rewait_{reason}_s") or 0)
            for r in requests
        )
        by_minute = sum(getattr(m, f"wait_{reason}_s") or 0 for m in minutes)
        charged = sum(c.charged_s for c in charges if c.reason == reason)
        assert math.isclose(by_request, by_minute, rel_tol=1e-9, abs_tol=1e-9), reason
        assert math.isclose(charged, by_minute, rel_tol=1e-9, abs_tol=1e-9), reason


def test_tokens_and_requests_in_the_store_agree(source, played):
    requests, minutes = everything(source, "request"), everything(source, "tenant_minute")
    assert sum(m.output_tokens or 0 for m in minutes) == sum(r.output_tokens for r in requests)
    assert sum(m.prompt_tokens or 0 for m in minutes) == sum(r.prompt_tokens for r in requests)
    assert not any(m.cached_tokens for m in minutes)  # the second act computes all of it again
    offered = sum(m.offered_requests or 0 for m in minutes)
    admitted = sum(m.admitted_requests or 0 for m in minutes)
    rejected = sum(
        getattr(m, f"rejected_{r}_requests") or 0
        for m in minutes
        for r in ("rpm", "tpm", "concurrency", "queue", "impossible")
    )
    outcomes = sum(
        (m.finished or 0) + (m.aborted or 0) + (m.failed or 0) + (m.timed_out or 0) for m in minutes
    )
    assert offered == rejected + admitted == rejected + outcomes
    assert outcomes == len(requests)
    in_acts = sum(a["output_tokens"] for a in played["acts"])
    assert in_acts <= sum(r.output_tokens for r in requests)


def test_the_report_reads_the_same_numbers(source, played):
    start, end = played["incident"]
    report = build_report(read_window(source, start, end))
    waited = sum(
        getattr(m, f"wait_{r}_s") or 0
        for m in source.read("tenant_minute", start - start % 10, end)
        for r in WAIT_REASONS
    )
    told = json.loads(json.dumps(run_report(played, start, end)))
    closes = told["reconciled"]
    assert math.isclose(closes["waited_s"], waited, rel_tol=1e-9)
    assert math.isclose(closes["charged_s"], waited, rel_tol=1e-9)
    assert report.verdict is not None


def run_report(played, start, end):
    done = run(
        "postmortem", "report", "--store", played["store"], "--from", repr(start),
        "--to", repr(end), "--format", "json",
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_marks_and_the_switch_are_in_the_store(source):
    events = everything(source, "event")
    assert sum(e.kind == "mark" for e in events) >= 3
    assert [e.policy for e in everything(source, "policy")] == ["fcfs", "vtc"]


def test_the_report_of_the_shipped_recording_names_the_suspect():
    from sample_incidents import incident_path

    source = open_source(incident_path("five-pm-fanout") / "store")
    marks = [e for e in everything(source, "event") if e.kind == "mark"]
    switch = next(e for e in everything(source, "event") if e.kind == "policy")
    report = build_report(read_window(source, marks[1].at, switch.at))
    assert report.verdict.kind == "tenant"
    assert report.verdict.tenant == "acme"
    assert report.verdict.share > 0.6
