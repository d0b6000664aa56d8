"""The verdict on every recorded incident says what the folder promises, wherever it is asked."""

from __future__ import annotations

import json

import pytest

from benchmarks.sample_verdicts import FINDINGS, judge_incident, main
from sample_incidents import list_incidents
from sample_incidents.expected import CAUSES, read_expected
from telemetry.findings import ORDER

every = pytest.mark.parametrize("name", list_incidents())


@every
def test_the_verdict_at_its_own_window_is_as_expected_and_what_was_waited_for_closes(name: str):
    ((judged, verdict),) = judge_incident(read_expected(name), ("own",))
    assert judged.wrong == (), verdict.lines()
    parts = [c.share for c in verdict.causes if c.share is not None]
    assert parts == sorted(parts, reverse=True)
    assert not parts or sum(parts) == pytest.approx(1.0)


@pytest.mark.full
@every
def test_the_verdict_does_not_depend_on_where_the_window_was_cut(name: str):
    for judged, verdict in judge_incident(read_expected(name)):
        assert judged.wrong == (), (judged.window, verdict.lines())


@pytest.mark.full
@pytest.mark.parametrize("name", ["quiet-day", "steady-heavy-bystander"])
def test_the_innocent_are_never_named(name: str):
    expected = read_expected(name)
    for judged, _ in judge_incident(expected):
        assert not set(judged.named) & set(expected.innocent)


def test_every_cause_an_incident_may_have_is_a_finding():
    assert set(FINDINGS) == set(CAUSES)
    names = {f.__name__ for f in ORDER}
    assert {n for called in FINDINGS.values() for n in called} <= names


def test_the_table_says_what_is_wrong_and_fails(capsys, monkeypatch):
    assert main(["--own", "--json", "quiet-day"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["kind"] == "quiet"
    other = read_expected("two-culprits")
    monkeypatch.setattr("benchmarks.sample_verdicts.read_expected", lambda name: swapped(other))
    assert main(["--own", "quiet-day"]) == 1
    assert "not tenant" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["no-such-incident"]) == 2


def swapped(expected):
    from dataclasses import replace

    return replace(expected, kind="tenant")
