"""Alert, console and report agree; rules, runbook, page and code use the same names."""

from __future__ import annotations

import re
import time
from dataclasses import fields
from datetime import UTC
from pathlib import Path

import yaml

from console.judge import LiveJudge
from console.rows import Rows
from postmortem.report.build import build_report
from telemetry.alerts.incident import MOST_TENANTS
from telemetry.alerts.reading import words_of
from telemetry.alerts.rules import ALERTS, RULES
from telemetry.alerts.settings import AlertSettings
from telemetry.findings.limits import Limits
from telemetry.source import FileSource
from telemetry.verdict import judge
from telemetry.window import read_window
from tests.telemetry.alert_bench import LOOK_S, Bench
from tests.telemetry.simulated import simulated
from tests.telemetry.synthetic_rows import Pool

ROOT = Path(__file__).parents[2]


def test_the_three_faces_agree_on_names_and_strengths(tmp_path: Path) -> None:
    pool = Pool(60.0).calm(0, 100).flood(100, 106, missed=10)
    settings = AlertSettings(every_s=LOOK_S, limits=Limits(burn_slow_misses=1e6))
    bench = Bench(tmp_path / "store", pool.at(100), settings)
    bench.deliver(pool, pool.at(0), pool.at(100))
    bench.play(pool, 100, 106)
    incident = bench.incident
    assert incident is not None
    bench.close()

    window = read_window(FileSource(tmp_path / "store"), pool.at(100), pool.at(106))
    report = build_report(window, zone=UTC).verdict
    rows = Rows(
        tenants=tuple(pool.rows["tenant_minute"]),
        interference=tuple(pool.rows["interference_minute"]),
        engines=tuple(pool.rows["engine_minute"]),
    )
    console = LiveJudge(judged_s=360.0, tz=UTC)(rows, pool.at(106))

    [holder] = incident.holders
    assert report.strength is not None
    assert holder.tenant == report.tenant == console.named == "x"
    assert holder.strength == report.strength.value == "charged"
    assert any(f"({holder.strength}, {holder.confidence})" in s for s in console.lines)
    assert holder.confidence == report.confidence
    assert set(incident.hurt) == {v.tenant for v in report.victims} == console.victims
    # The page's example says of such a flood what is said of it.
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert incident.lines[1] in page
    assert f'"share": {holder.share:.2f}}}' in page


def test_they_agree_on_a_simulated_flood_too(tmp_path: Path) -> None:
    source = FileSource(simulated(tmp_path))
    span = source.span()
    assert span is not None
    window = read_window(source, *span)
    verdict = judge(window, zone=UTC)
    words = words_of(verdict)
    report = build_report(window, zone=UTC).verdict
    named = [n.tenant for n in report.culprits]
    assert [h.tenant for h in words.holders] == named
    assert set(words.hurt) == {v.tenant for v in report.victims}


def test_an_alert_calls_nobody_a_culprit() -> None:
    verdict = judge(Pool(60.0).calm(0, 10).flood(10, 16).window(10, 16), zone=UTC)
    assert verdict.culprit == "x"
    said = " ".join(words_of(verdict).lines)
    assert "culprit" not in said.lower()
    assert "x holds 94% of the victims' excess" in said
    assert "(charged, high)" in said


def test_two_that_hold_it_together_are_both_holders_of_the_alert() -> None:
    pool = Pool(60.0).calm(0, 10, ("a", "b", "y", "z"))
    for i in range(10, 16):
        pool.engine(i, busy_s=57.0, predicted_s=56.0)
        for t in ("a", "b"):
            pool.tenant(i, t, offered=60, service=6000.0, waits={"slot": {("self", ""): 120.0}})
        for t in ("y", "z"):
            pool.tenant(i, t, missed=5, service=500.0, waits={"slot": {"a": 102.0, "b": 90.0}})
    verdict = judge(pool.window(10, 16), zone=UTC)
    words = words_of(verdict)
    assert verdict.kind == "no_single"
    assert [(h.tenant, h.strength, h.confidence) for h in words.holders] == [
        ("a", "charged", "medium"),
        ("b", "charged", "medium"),
    ]
    assert [h.share for h in words.holders] == [n.share for n in verdict.culprits]
    assert not any("culprit" in line.lower() for line in words.lines)


def rules_of_prometheus() -> dict[str, str]:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())["groups"]
    return {r["alert"]: r["labels"]["severity"] for g in groups for r in g["rules"] if "alert" in r}


def test_every_alert_has_a_rule_of_its_name_and_severity() -> None:
    theirs = rules_of_prometheus()
    assert set(ALERTS) <= set(theirs)
    worst = {r.alert: r.severity for r in reversed(RULES)}
    assert {a: theirs[a] for a in ALERTS} == worst


def test_every_alert_has_its_section_and_its_line() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), flags=re.M)
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert set(ALERTS) <= set(sections)
    for rule in RULES:
        assert f"| {rule.alert} | {rule.severity} |" in page


def test_every_number_is_on_the_page_with_its_default() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    for f in fields(Limits):
        assert f"| `{f.name}` | {f.default:g} | {f.metadata['meaning']} |" in page


def test_a_thousand_tenants_are_one_incident_and_one_bounded_state(tmp_path: Path) -> None:
    pool = Pool(60.0)
    bench = Bench(tmp_path / "store", pool.at(4))
    for i in range(4):
        pool.engine(i)
        for n in range(1000):
            pool.tenant(i, f"tenant-{n:04}", missed=10, waits={"slot": {"tenant-0000": 1.0}})
    bench.deliver(pool, pool.at(0), pool.at(4))
    began = time.process_time()
    bench.look()
    bench.look()
    print(f"two looks at 1,000 tenants, a verdict among them: {time.process_time() - began:.2f} s")
    incident = bench.incident
    assert incident is not None
    assert (len(incident.hurt), incident.hurt_count) == (MOST_TENANTS, 1000)
    assert len(bench.books[0].parcels[0].body) < 20_000
    bench.close()
