"""A settings file beside a workload, clients that ask again, and changes at an instant."""

from __future__ import annotations

import json

import pytest

from engine.config import Tenant
from engine.errors import WorkloadError
from engine.scheduling.quota import Admitted, QuotaDoor
from engine.simulation.setup import make_setup
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Change, Retry, read_workload
from telemetry.conventions import Emitter
from telemetry.records import Batch, PolicyRecord, RequestRecord, TenantMinute
from tests.engine.simulation import setups

START = 1_764_086_400.0


class Rows:
    """Keeps what fronts and workers write."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def submit(self, batch: Batch) -> None:
        self.batches.append(batch)

    def of(self, kind: type) -> list:
        return [r for b in self.batches for r in (*b.logs, *b.minutes) if type(r) is kind]


def every(seconds: float, count: int, tenant: str = "a", tokens: int = 8, output: int = 4):
    return [Arrival(i * seconds, tenant, None, tokens, output, i) for i in range(count)]


def run(arrivals, *tenants: Tenant, **changed) -> Rows:
    rows = Rows()
    simulate(arrivals, setups.setup(*tenants, **changed), rows=rows)
    return rows


def test_a_client_that_is_turned_away_asks_again_and_is_marked():
    retry = Retry("a", after_s=1.0, most=3, spread=0.0)
    rows = run(every(0.0, 5), Tenant("a", concurrency=1), Tenant("b"), retries=(retry,))
    requests = rows.of(RequestRecord)
    first, again = ([r for r in requests if bool(r.is_retry) is x] for x in (False, True))
    assert len(first) == 5
    assert 0 < len(again) <= 5 * 3
    assert sum(r.outcome == "finished" for r in requests) >= 4
    offered = [m for m in rows.of(TenantMinute) if m.tenant == "a" and m.offered_retries]
    assert sum(m.offered_retries for m in offered) == len(again)


def test_retries_end_and_without_them_a_refusal_is_the_end():
    blocked = Tenant("a", concurrency=0)
    retry = Retry("a", after_s=1.0, most=3, factor=2.0, spread=0.0)
    at = [r.arrived for r in run(every(1.0, 1), blocked, retries=(retry,)).of(RequestRecord)]
    assert [round(x - at[0], 6) for x in at] == [0.0, 1.0, 3.0, 7.0]
    assert len(run(every(1.0, 1), blocked).of(RequestRecord)) == 1


def test_who_times_out_is_asked_again_only_where_that_is_said():
    slow = Tenant("a", deadline_s=0.05)
    for timeouts, times in ((False, 1), (True, 3)):
        retry = Retry("a", after_s=0.1, most=2, timeouts=timeouts)
        rows = run(every(1.0, 1, output=30), slow, retries=(retry,)).of(RequestRecord)
        assert [r.outcome for r in rows] == ["timed_out"] * times


def test_the_same_seed_asks_again_at_the_same_instants():
    retry = Retry("a", after_s=1.0, most=4)
    tenant = Tenant("a", concurrency=1)
    one, two = (run(every(0.1, 20), tenant, retries=(retry,)).of(RequestRecord) for _ in range(2))
    assert [r.arrived for r in one] == [r.arrived for r in two]


def test_a_lifted_cap_lets_in_from_its_instant_on_and_is_a_version_of_the_policy():
    change = Change(5.0, tenant="a", limits=(("concurrency", None),), who="ops", why="asked for")
    capped = Tenant("a", concurrency=0)
    rows = run(every(1.0, 10), capped, Tenant("b", rpm=9), changes=(change,))
    outcomes = [r.outcome for r in sorted(rows.of(RequestRecord), key=lambda r: r.arrived)]
    assert outcomes == ["rejected"] * 5 + ["finished"] * 5
    before, after = sorted(rows.of(PolicyRecord), key=lambda p: p.version)
    assert (after.version, after.who, after.why) == (2, "ops", "asked for")
    assert json.loads(before.parameters)["a"]["concurrency"] == 0
    assert json.loads(after.parameters)["a"]["concurrency"] is None
    assert json.loads(after.parameters)["b"]["rpm"] == 9


def test_a_change_of_policy_is_in_force_on_every_replica():
    from engine.config import PoolSpec

    pools = (PoolSpec("main", 2, setups.limits()),)
    rows = run(every(0.5, 30), changes=(Change(5.0, policy="fcfs"),), pools=pools)
    changed = [p for p in rows.of(PolicyRecord) if p.version == 2]
    assert {p.policy for p in changed} == {"fcfs"}
    assert len({p.run_id for p in changed}) == 2
    assert {b.emitter for b in rows.batches} == {Emitter.FRONT, Emitter.WORKER}


@pytest.mark.parametrize("window", ["bucket", "fixed", "sliding"])
def test_what_was_reserved_before_a_change_comes_back_to_nobody_twice(window):
    settings = setups.setup(Tenant("a", tpm=100, window=window)).settings
    door = QuotaDoor(settings(setups.setup(Tenant("a", tpm=100, window=window)).pools[0]))
    ticket = door.admit("a", 10, 50, 0.0)
    assert isinstance(ticket, Admitted)
    door.change(Tenant("a", tpm=200, window=window, concurrency=1), 1.0)
    assert door.levels("a", 1.0).tpm == 200
    assert door.admit("a", 1, 1, 1.0).reason == "concurrency"  # type: ignore[union-attr]
    door.settle(ticket, 1, 2.0)
    assert door.levels("a", 2.0).tpm == 200
    assert door.levels("a", 2.0).concurrency == 0


POLICY = """
policy = "fcfs"
bucket_s = 30
[limits]
slots = 3
[[tenant]]
name = "a"
rpm = 5
"""
WORKLOAD = """
name = "w"
settings = "policy.toml"
starts = "2025-11-25T17:00:00+01:00"
[[traffic]]
tenant = "a"
end_s = 10
rate_per_s = 1
prompt_tokens = 5
output_tokens = 5
[[retry]]
tenant = "a"
after_s = 2
most = 3
[[change]]
at_s = 4
tenant = "a"
lift = ["rpm"]
tpm = 900
"""


def read(tmp_path, workload: str, policy: str = POLICY):
    (tmp_path / "policy.toml").write_text(policy)
    (tmp_path / "w.toml").write_text(workload)
    return read_workload(tmp_path / "w.toml")


def test_a_workload_takes_its_settings_from_a_file(tmp_path):
    w = read(tmp_path, WORKLOAD)
    assert (w.policy, w.bucket_s, w.limits.slots) == ("fcfs", 30, 3)
    assert w.tenants == (Tenant("a", rpm=5),)
    assert w.retries == (Retry("a", 2.0, 3),)
    assert w.changes == (Change(4.0, None, "a", (("tpm", 900), ("rpm", None))),)
    assert make_setup(w).start_unix_s == START


@pytest.mark.parametrize(
    ("line", "by", "says"),
    [
        ('name = "w"', 'name = "w"\npolicy = "vtc"', "stands in the settings file"),
        ("policy.toml", "other.toml", "no such file"),
        ("T17:00:00+01:00", "T17:00:00", "with its zone"),
        ('lift = ["rpm"]', 'lift = ["tpm"]', "each once"),
        ('lift = ["rpm"]\ntpm = 900', "", "expected a policy"),
        ("most = 3", "most = 0", "most = 0"),
        ('[[retry]]\ntenant = "a"', '[[retry]]\ntenant = "b"', "no [[tenant]] is named so"),
        ("after_s = 2", "after_s = 2\nafter = 3", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path, line, by, says):
    assert line in WORKLOAD
    with pytest.raises(WorkloadError) as e:
        read(tmp_path, WORKLOAD.replace(line, by))
    assert says in str(e.value)
