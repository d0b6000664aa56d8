"""A report for one tenant holds nobody else's name, nor anything that could: in any format."""

from __future__ import annotations

import json as stdlib_json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from click.testing import CliRunner

from postmortem.cli import postmortem
from postmortem.report import html, json, markdown, terminal
from postmortem.report.build import build_report
from postmortem.report.make import NotThere, Wanted, make_report
from postmortem.report.parts import Context, Prevented, Replayed
from postmortem.report.prevented import unnamed
from postmortem.report.pseudonyms import pseudonyms, seen_by
from telemetry.alerts import state
from telemetry.alerts.incident import HeldBy, Incident, Note, Said, State
from telemetry.records import EngineRun, PolicyRecord
from telemetry.source import open_source
from tests.postmortem.test_cli import fill
from tests.telemetry.synthetic_rows import CAPACITY, SELF, T0, Pool

READER = "reader-co"
CULPRIT, VICTIM = "canary-culprit-7f", "canary-victim-3b"
CANARIES = (
    CULPRIT, VICTIM, "canary-pool", "canary-adapter", "canary-request", "canary-detail",
    "canary-why", "canary-person", "canary-param", "canary-note", "canary-run-config",
    "canary-model", "canary-alert", "canary-engine", "canary-cause", "canary-gone",
)  # fmt: skip


def rows() -> Pool:
    """Names wherever a row can hold one."""
    pool = Pool(name=f"canary-pool {CULPRIT}", engine_name=f"canary-engine {VICTIM}")
    names = (READER, VICTIM, CULPRIT)
    pool.calm(0, 12, names).flood(12, 18, CULPRIT, victims=("y", VICTIM, READER))
    for i in range(18):
        for t in names:
            for k in range(4):
                slow = 6.0 + k if i >= 12 and t != CULPRIT else 0.3
                own = {} if t == READER else {"adapter": "canary-adapter", "trace_id": "canary-x"}
                n = 10 * i + k
                pool.request(pool.at(i) + k, t, n, slow, **own)
                pool.rows["request"][-1] = replace(
                    pool.rows["request"][-1],
                    request_id=f"own-{n}" if t == READER else f"canary-request-{t}-{n}",
                )
    pool.event(pool.at(12), "config", "canary-detail: gave it to canary-culprit-7f")
    pool.event(pool.at(13), "mark", "canary-detail mark")
    pool.event(pool.at(13), "preempt", "canary-detail", tenant=READER, cause_tenant="canary-cause")
    pool.event(pool.at(14), "evict", tenant="canary-gone", adapter="canary-adapter-hash")
    pool.put("policy", PolicyRecord(
        version=2, at=pool.at(11), policy="fcfs", previous="vtc", who="canary-person",
        why="canary-why", parameters='{"tenants": [{"name": "canary-param"}]}', **pool.key,
    ))  # fmt: skip
    pool.put("engine_run", EngineRun(
        started=T0, model=f"canary-model {CULPRIT}", config='{"tenants": "canary-run-config"}',
        **pool.key,
    ))  # fmt: skip
    said = Said("TenantscopeShareSurge", "warn", "canary-alert: canary-culprit-7f", "charged",
                CULPRIT, pool.at(13), pool.at(17),
                evidence=(("canary-alert", 1.0, "1"),))  # fmt: skip
    note = Note("canary-note-id", pool.at(14), "canary-person", "canary-note")
    incident = Incident(
        f"inc-{CULPRIT}", pool.name, pool.engine_name, State.RESOLVED, "warn", pool.at(13),
        pool.at(17), pool.at(18) - 1, (said,), (VICTIM,), 1, True, (HeldBy(CULPRIT, "charged"),),
        ("canary-alert",), (note,), (note,), "canary-person", told=(("canary-note", 1),),
    )  # fmt: skip
    told = state.state_batch(incident, pool.at(18) - 1, say=True).logs
    pool.rows["event"] += [replace(e, **pool.key) for e in told]
    return pool


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("for") / "canary-store"
    fill(folder, rows())
    return folder


@pytest.fixture(scope="module")
def formats(store: Path) -> Iterator[dict[str, str]]:
    source = open_source(store)
    report = make_report(source, T0 + 80, T0 + 180, Wanted(reader=READER), zone=UTC,
                         context=Context(str(store)))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(store.parent))
        yield {
            "json": json.render(report),
            "md": markdown.render(report, UTC),
            "html": html.render(report, UTC),
            "term": terminal.render(report, UTC),
            "repr": repr(report),
        }
    source.close()


@pytest.mark.parametrize("form", ["json", "md", "html", "term", "repr"])
def test_no_other_name_is_in_any_format(formats: dict[str, str], form: str):
    text = formats[form].replace("\\_", "_").replace("\\-", "-")
    assert [c for c in CANARIES if c in text] == []
    assert READER in text


def test_the_canaries_are_there_where_nobody_takes_them_away(store: Path):
    """Else the test above could not fail."""
    source = open_source(store)
    report = make_report(source, T0 + 80, T0 + 180, zone=UTC, context=Context(str(store)))
    source.close()
    text = json.render(report)
    assert {CULPRIT, VICTIM, "canary-pool", "canary-request", "canary-person", "canary-note",
            "canary-engine"} <= {c for c in CANARIES if c in text}  # fmt: skip


def test_the_numbers_and_the_verdict_are_the_same(store: Path):
    source = open_source(store)
    whole = make_report(source, T0 + 80, T0 + 180, zone=UTC)
    seen = make_report(source, T0 + 80, T0 + 180, Wanted(reader=READER), zone=UTC)
    source.close()
    assert seen.verdict.kind == whole.verdict.kind == "tenant"
    assert seen.verdict.share == pytest.approx(whole.verdict.share)
    assert seen.verdict.tenant not in (None, CULPRIT)
    assert str(seen.verdict.tenant).startswith("tenant ")
    mine = [next(i for i in r.impact if i.tenant == READER) for r in (whole, seen)]
    assert mine[0] == mine[1]
    assert sorted(i.missed for i in seen.impact) == sorted(i.missed for i in whole.impact)


def test_the_reader_sees_its_own_requests_and_no_others(formats: dict[str, str]):
    worst = stdlib_json.loads(formats["json"])["worst"]
    assert worst
    assert {w["tenant"] for w in worst} == {READER}
    assert all(w["request_id"].startswith("own-") for w in worst)


def test_detection_is_told_without_names(formats: dict[str, str]):
    steps = {s["step"]: s for s in stdlib_json.loads(formats["json"])["detection"]}
    assert steps["first signal"]["what"] == "TenantscopeShareSurge"
    assert steps["alert"]["lag_s"] == pytest.approx(10.0)
    assert steps["first human act"]["what"] == "acknowledged by an operator"


def test_a_name_is_the_same_all_through_one_report_and_tells_nothing_by_its_order():
    pool = rows()
    window = pool.window(8, 18)
    names = pseudonyms(window, READER)
    assert len(set(names.of.values())) == len(names.of)
    assert names.of == pseudonyms(window, READER).of
    later = pseudonyms(replace(window, start=window.start + 1), READER)
    assert {*later.of} == {*names.of}
    assert names.name("never met") == "another tenant"


def test_a_tenant_that_is_called_like_a_pseudonym_is_not_mistaken_for_one():
    pool = Pool().calm(0, 12, ("tenant A", "y", "z")).flood(12, 18, "z", victims=("tenant A", "y"))
    names = pseudonyms(pool.window(8, 18), "y")
    assert "tenant A" not in names.of.values()
    report = build_report(seen_by(pool.window(8, 18), names), zone=UTC)
    assert "tenant A" not in json.render(report)


def test_who_waits_behind_itself_still_does_under_another_name():
    pool = Pool().calm(0, 10, ("x", "y"))
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, missed=30, waits={"slot": {SELF: 90.0, CAPACITY: 1.0}})
        pool.tenant(i, "y")
    window = pool.window(8, 16)
    plain = build_report(window, zone=UTC)
    seen = build_report(seen_by(window, pseudonyms(window, "y")), zone=UTC)
    assert seen.verdict.kind == plain.verdict.kind == "self"
    assert seen.verdict.tenant == "tenant A"


def test_a_what_if_is_told_without_settings_and_sentences():
    row = Replayed("cap", "limit", 0, 9, 0.1, None, 1.0, 3, 9.0, False, "canary-note")
    shown = Prevented("remedy", "cap for canary-culprit", True, "off by 1%", (row,), "cap",
                      'name = "canary"', "admin canary", "without canary", ("canary",))  # fmt: skip
    bare = unnamed(shown)
    assert "canary" not in repr(bare)
    assert bare.sentence == "the remedy cap would have kept the SLOs of those hurt"
    assert bare.rows[0].missed == 0


def test_a_tenant_that_is_not_there_is_said(store: Path):
    result = CliRunner().invoke(postmortem, ["report", "--store", str(store), "--for", "nobody"])
    assert result.exit_code == 1
    assert "no tenant 'nobody' in this window (--for)" in result.stderr
    source = open_source(store)
    with pytest.raises(NotThere):
        make_report(source, T0, T0 + 180, Wanted(reader="nobody"))
    source.close()
