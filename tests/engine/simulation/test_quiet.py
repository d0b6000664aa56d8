"""A run whose rows nobody reads decides exactly what one does whose rows are written."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import POLICIES, PoolSpec, Slo, Tenant
from engine.quiet_ledger import QuietLedger
from engine.simulation.hardware import PRESETS
from engine.simulation.results import Result
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import AdapterSpec, Arrival, Fault
from telemetry.ledger.events import Events
from telemetry.ledger.ledger import Ledger

PRESET = PRESETS["a10g-llama2-7b"]


class Heard:
    def __init__(self) -> None:
        self.batches = 0

    def submit(self, batch: object) -> None:
        self.batches += 1


def setup_of(policy: str, replicas: int = 1, slots: int = 6) -> Setup:
    machine = machine_of(PRESET)
    limits = replace(
        PRESET.limits, slots=slots, prefix_cache=False, pool_bytes=machine.page_bytes * 150
    )
    return Setup(
        "quiet",
        machine,
        (PoolSpec("main", replicas, limits),),
        (
            Tenant("a", slo=Slo(ttft_s=1.0, max_gap_s=0.05)),
            Tenant("b", weight=2.0, rpm=200, queue_timeout_s=4.0),
            Tenant("c", tier=1, concurrency=5),
        ),
        adapters=(AdapterSpec("x", 16, 0), AdapterSpec("y", 64, 0)),
        policy=policy,
        seed=1,
        bucket_s=5.0,
        faults=(Fault("slow", 3.0, 4.0, 1.7), Fault("freeze", 9.0, 1.0)),
    )


def both(arrivals: list[Arrival], setup: Setup) -> tuple[Result, Result]:
    heard = Heard()
    loud = simulate(arrivals, setup, rows=heard)
    assert heard.batches
    return loud, simulate(arrivals, setup)


def same(a: Result, b: Result) -> None:
    for name, value in vars(a.columns).items():
        other = getattr(b.columns, name)
        if name == "counts":
            assert [c.rejected for c in value] == [c.rejected for c in other]
        else:
            assert np.array_equal(value, other, equal_nan=name.endswith("_s")), name
    left = {f.name for f in fields(Result)} - {"columns", "wall"}
    for name in sorted(left):
        assert getattr(a, name) == getattr(b, name), name


arrivals_of = st.lists(
    st.tuples(
        st.floats(0.0, 15.0),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, None, "x", "y"]),
        st.integers(1, 900),
        st.integers(1, 120),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=8, deadline=None)
@given(drawn=arrivals_of)
def test_a_quiet_run_ends_every_request_at_the_same_instant(policy: str, drawn):
    arrivals = [Arrival(*d, i) for i, d in enumerate(sorted(drawn, key=lambda d: d[0]))]
    same(*both(arrivals, setup_of(policy)))


def test_quiet_replicas_are_as_exact_as_one():
    arrivals = [
        Arrival(i * 0.05, "abc"[i % 3], (None, "x", "y")[i % 3], 40 + 7 * (i % 50), 30, i)
        for i in range(300)
    ]
    same(*both(arrivals, setup_of("vtc", replicas=3)))


def test_pages_run_out_and_the_same_ones_give_way():
    arrivals = [Arrival(i * 0.01, "ab"[i % 2], None, 300, 200, i) for i in range(40)]
    loud, quiet = both(arrivals, setup_of("fcfs", slots=32))
    assert sum(loud.columns.preemptions) > 0
    same(loud, quiet)


def test_everything_that_a_ledger_writes_is_left_out():
    """A method that is new in the ledger and writes would fall through to the books."""
    told = {
        n
        for n, v in vars(Events).items()
        if callable(v) and not n.startswith("_") and v.__code__.co_argcount > 1
    }
    # They keep what they are told.
    kept = {"index", "adapter", "policy_version", "promise", "reweigh"}
    assert told - kept <= set(vars(QuietLedger))
    assert issubclass(QuietLedger, Ledger)
