"""The same verdict at windows three minutes off and twice as wide, where a bucket is ten seconds.

Three minutes are eighteen such buckets. What is usual is found as ever: of the 120 buckets before
the window (twenty minutes) those in which nobody was hurt and that lie beside no hurt one, the last
60 of them (ten minutes). A window that begins inside the incident has hurt buckets before it; they
are left out, and the calm ones before the onset are what is compared with.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.kept_rows import Kept
from benchmarks.sample_verdicts import _wrong
from engine.simulation.setup import make_setup
from engine.simulation.simulate import simulate
from engine.simulation.workload import read_workload
from sample_incidents import incident_path
from sample_incidents.expected import read_expected
from telemetry.baseline import MAX_BUCKETS
from telemetry.case import Case, open_case
from telemetry.findings import examine
from telemetry.verdict import Verdict, judge_case
from telemetry.window import read_window

BUCKET_S, SHIFT_S = 10.0, 180.0
pytestmark = pytest.mark.xdist_group("shifted")  # one recording for all windows of an incident


# Of a slow engine few requests feel anything at first: its marks are minutes apart.
SLOW = pytest.param("slow-engine", marks=pytest.mark.full)


@pytest.fixture(scope="module", params=["decoy", "two-culprits", SLOW])
def recorded(request: pytest.FixtureRequest):
    """(what is expected, the incident's rows with buckets of ten seconds)."""
    expected = read_expected(request.param)
    workload = read_workload(incident_path(request.param) / "workload.toml")
    rows = Kept()
    setup = replace(make_setup(workload), bucket_s=BUCKET_S)
    simulate(workload.stream(), setup, rows=rows)
    return expected, rows


def judged(rows: Kept, start: float, end: float) -> tuple[Case, Verdict]:
    case = open_case(read_window(rows, start, end))
    return case, judge_case(case, examine(case))


def windows(start: float, end: float) -> dict[str, tuple[float, float]]:
    half = (end - start) / 2
    return {
        "own": (start, end),
        "earlier": (start - SHIFT_S, end - SHIFT_S),
        "later": (start + SHIFT_S, end + SHIFT_S),
        "wide": (start - half, end + half),
    }


@pytest.mark.parametrize("which", ["own", "earlier", "later", "wide"])
def test_the_verdict_is_the_expected_one_wherever_the_window_lies(recorded, which):
    expected, rows = recorded
    case, verdict = judged(rows, *windows(*expected.window)[which])
    assert {b.length_s for b in case.window.buckets} == {BUCKET_S}
    named = tuple(n.tenant for n in verdict.culprits) or (
        () if verdict.tenant is None else (verdict.tenant,)
    )
    held = tuple(f.name for f in verdict.findings if f.holds.value == "yes")
    assert verdict.onset is not None
    off_s = verdict.onset - expected.onset
    assert list(_wrong(expected, verdict, named, off_s, held)) == []


@pytest.mark.parametrize("which", ["own", "earlier", "later", "wide"])
def test_what_is_usual_lies_before_the_onset_in_calm_buckets_only(recorded, which):
    expected, rows = recorded
    start, end = windows(*expected.window)[which]
    case, verdict = judged(rows, start, end)
    baseline = case.baseline
    assert baseline.usable
    assert not baseline.inside
    assert 3 <= len(baseline.buckets) <= MAX_BUCKETS
    assert baseline.end is not None
    assert baseline.end <= min(start, verdict.onset)


def test_a_window_that_begins_in_the_incident_leaves_its_hurt_buckets_out(recorded):
    expected, rows = recorded
    start, end = expected.onset + SHIFT_S, expected.window[1] + SHIFT_S
    case, _ = judged(rows, start, end)
    before = [b for b in case.window.before if b.start >= expected.onset]
    assert len(before) == SHIFT_S / BUCKET_S
    assert case.baseline.usable
    assert case.baseline.end <= expected.onset
    assert case.baseline.left_out >= len(before)
