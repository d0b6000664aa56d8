"""Each finding holds, excludes itself with its number, or says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from telemetry.case import open_case
from telemetry.findings import ORDER, examine
from telemetry.findings.change import changes
from telemetry.findings.finding import Holds, Strength
from telemetry.plain import percent
from tests.telemetry.synthetic_rows import SELF, Pool


def found(pool: Pool, first: int, last: int):
    return examine(open_case(pool.window(first, last)))


def test_a_change_is_asked_for_first():
    assert ORDER[0].__name__ == "change"


def test_every_finding_says_something_on_a_quiet_and_on_an_empty_window():
    for pool in (Pool().calm(0, 10), Pool()):
        findings = found(pool, 5, 10)
        assert list(findings) == [f.__name__ for f in ORDER]
        assert all(f.sentence for f in findings.values())
        assert not [f for f in findings.values() if f.holds is Holds.YES]


def test_missing_evidence_is_unknown_not_no():
    pool = Pool()
    for i in range(10):
        pool.engine(
            i, busy_s=None, loads=None, last_token_age_s=None, last_token_age_max_s=None
        )  # fmt: skip
        pool.tenant(i, "y")
    findings = found(pool, 5, 10)
    for name in ("engine", "frozen", "adapter_thrash", "everyone"):
        assert findings[name].holds is Holds.UNKNOWN, name


def test_the_holder_carries_its_numbers():
    holder = found(Pool().calm(0, 10).flood(10, 16), 10, 16)["holder"]
    assert (holder.holds, holder.tenant, holder.strength) == (Holds.YES, "x", Strength.CHARGED)
    assert holder.value("share") == pytest.approx(0.94, abs=0.01)
    assert holder.value("share charged to it") == pytest.approx(0.8, abs=0.01)
    assert holder.value("accounted for") == pytest.approx(1.0)
    assert holder.value("requests offered over usual") == pytest.approx(6.0)


def test_changes_are_policy_versions_starts_and_faults_each_once():
    pool = Pool().calm(0, 2)
    pool.started(pool.at(0))
    pool.event(pool.at(0) + 0.5, "start", "engine started")
    pool.policy(pool.at(0), 1, "vtc")
    pool.policy(pool.at(1), 2, "fcfs", "vtc")
    pool.event(pool.at(1) + 0.1, "policy", "to fcfs")
    pool.event(pool.at(1.2), "fault", "slowed 1.6x")
    pool.event(pool.at(1.3), "evict", "an adapter")
    listed = changes(pool.window(0, 2), pool.at(0), pool.at(2))
    assert [c.kind for c in listed] == ["start", "policy", "fault"]


def test_a_change_eleven_minutes_before_the_onset_is_none():
    pool = Pool(60.0).calm(0, 20).flood(20, 24)
    pool.policy(pool.at(20) - 660, 2, "fcfs", "vtc")
    assert found(pool, 18, 24)["change"].holds is Holds.NO
    pool.policy(pool.at(20) - 540, 3, "vtc", "fcfs")
    change = found(pool, 18, 24)["change"]
    assert (change.holds, change.strength) == (Holds.YES, Strength.ASSOCIATED)


def test_a_change_without_an_onset_is_none():
    pool = Pool().calm(0, 10)
    pool.policy(pool.at(8), 2, "fcfs", "vtc")
    assert found(pool, 5, 10)["change"].holds is Holds.NO


def test_adapters_thrash_where_loads_are_frequent_and_waited_for():
    pool = Pool().calm(0, 10)
    for i in range(10, 14):
        pool.engine(i, loads=20)
        pool.tenant(i, "y", missed=5, waits={"adapter": {"x": 15.0, SELF: 5.0}})
        pool.event(pool.at(i), "evict", adapter="h1")
        pool.event(pool.at(i) + 3, "load", adapter="h1")
        pool.event(pool.at(i) + 4, "load", adapter="never evicted")
    thrash = found(pool, 10, 14)["adapter_thrash"]
    assert thrash.holds is Holds.YES
    assert thrash.value("adapter loads") == pytest.approx(2.0)
    assert thrash.value("reloads within 60 s of eviction") == 4
    assert "2.00 loads/s, usual 0.00" in thrash.sentence


def test_frequent_loads_that_nobody_waits_for_are_excluded():
    pool = Pool().calm(0, 10).flood(10, 14)
    for r in [r for r in pool.rows["engine_minute"] if r.bucket_start >= pool.at(10)]:
        pool.rows["engine_minute"].remove(r)
    for i in range(10, 14):
        pool.engine(i, loads=20)
    assert found(pool, 10, 14)["adapter_thrash"].holds is Holds.NO


def test_slow_steps_that_hurt_nobody_are_no_finding_but_are_said():
    pool = Pool().calm(0, 10)
    for i in range(10, 14):
        pool.engine(i, busy_s=6.4, predicted_s=4.0)
        pool.tenant(i, "y", waits={"slot": {"x": 0.06}})
    engine = found(pool, 10, 14)["engine"]
    assert engine.holds is Holds.NO
    assert "engine slow, nobody hurt: steps 1.60x" in engine.sentence


def test_a_freeze_across_two_buckets_adds_what_was_lost():
    pool = Pool().calm(0, 10)
    pool.engine(10, capacity_s=3.0, busy_s=9.0, predicted_s=6.0, last_token_age_max_s=3.0)
    pool.engine(11, capacity_s=3.0, busy_s=9.0, predicted_s=6.0, last_token_age_max_s=6.0)
    for i in (10, 11):
        pool.tenant(i, "y", missed=3)
    frozen = found(pool, 10, 12)["frozen"]
    assert frozen.holds is Holds.YES
    assert frozen.value("capacity lost meanwhile") == pytest.approx(6.0)


def test_one_miss_hurts_nobody():
    pool = Pool().calm(0, 10)
    pool.engine(10)
    pool.tenant(10, "y", missed=1)
    assert found(pool, 10, 11)["hurt"].holds is Holds.NO


def test_many_short_waits_hurt_nobody():
    """Sixty requests that wait 100 ms more each: an excess, but below what hurts a request."""
    pool = Pool().calm(0, 10)
    for i in range(10, 14):
        pool.engine(i)
        pool.tenant(i, "y", offered=60, waits={"slot": {"x": 6.0}})
    assert found(pool, 10, 14)["hurt"].holds is Holds.NO


def test_the_meaning_never_loads_torch():
    code = (
        "import sys, telemetry.verdict, telemetry.findings, postmortem.cli;"
        "import postmortem.report.build, telemetry.plain;"
        "import postmortem.report.json, postmortem.report.markdown, postmortem.report.terminal;"
        "bad = {'torch', 'textual', 'triton'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_start_of_the_record_is_no_change_and_a_restart_is():
    pool = Pool().calm(0, 10).flood(10, 16)
    pool.started(pool.at(0) + 4)
    pool.event(pool.at(0) + 4.5, "start", "worker started")
    assert found(pool, 10, 16)["change"].holds is Holds.NO
    pool.rows["engine_run"].clear()
    assert found(pool, 10, 16)["change"].holds is Holds.NO
    pool.started(pool.at(9))
    assert found(pool, 10, 16)["change"].holds is Holds.YES


def test_waits_that_no_charge_explains_are_not_called_no_waits():
    pool = Pool().calm(0, 10).flood(10, 16)
    pool.rows["interference_minute"].clear()
    holder = found(pool, 10, 16)["holder"]
    assert holder.holds is Holds.UNKNOWN
    assert "of excess, and no charge says behind whom" in holder.sentence


def test_a_freeze_in_a_bucket_of_the_baseline_is_seen():
    pool = Pool().calm(0, 5)
    pool.engine(5, last_token_age_max_s=6.0, capacity_s=6.0, busy_s=9.0, predicted_s=3.0)
    pool.calm(6, 9)
    assert found(pool, 0, 9)["frozen"].holds is Holds.YES


def test_a_share_that_is_not_nothing_does_not_read_as_nothing():
    assert [percent(x) for x in (0.0, 0.004, 0.006, 0.5, 0.996, 1.0)] == [
        "0%", "<1%", "1%", "50%", ">99%", "100%"
    ]  # fmt: skip
