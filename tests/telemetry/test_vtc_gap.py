"""How far a tenant is ahead of the last of those that wait: in service, and in seconds of it."""

from __future__ import annotations

from telemetry.ledger.views import StepView
from tests.telemetry.ledger_worlds import by_index, hold_slots, new_ledger, tenant_minute


def bucket(counters: dict[str, float], waits: tuple[str, ...], tokens: float = 100.0):
    """Ten seconds in which "x" makes `tokens` and those of `waits` wait."""
    ledger = new_ledger()
    ledger.counter_of = lambda tenant: counters[tenant]
    hold_slots(ledger, x=1)
    for tenant in waits:
        ledger.joined(f"r-{tenant}", tenant, 0.0, 0.0)
    ledger.begin(StepView(1, 8.0, "slot", decode_rows=1), 0.0)
    ledger.settle({}, by_index(ledger, {"x": tokens}), 8.0)
    return ledger.collect(10.0)[0]


def test_a_gap_is_to_the_smallest_counter_of_those_that_waited():
    batch = bucket({"x": 900.0, "y": 100.0, "z": 300.0}, ("y", "z"))
    assert tenant_minute(batch, "x").vtc_gap == 800.0
    assert tenant_minute(batch, "y").vtc_gap == 0.0
    assert tenant_minute(batch, "z").vtc_gap == 200.0


def test_in_seconds_it_is_how_long_the_pool_takes_for_so_much_service():
    row = tenant_minute(bucket({"x": 900.0, "y": 100.0}, ("y",)), "x")
    assert row.service == 200.0  # 100 tokens, 2 each, in 10 s: 20 a second
    assert row.vtc_gap_s == 40.0


def test_whoever_does_not_wait_may_be_behind():
    assert tenant_minute(bucket({"x": 50.0, "y": 100.0}, ("y",)), "x").vtc_gap == -50.0


def test_with_nobody_waiting_there_is_no_gap_and_with_no_service_no_seconds():
    assert tenant_minute(bucket({"x": 900.0}, ()), "x").vtc_gap is None
    row = tenant_minute(bucket({"x": 900.0, "y": 100.0}, ("y",), tokens=0.0), "x")
    assert (row.vtc_gap, row.vtc_gap_s) == (800.0, None)


def test_a_bucket_just_begun_knows_who_waits():
    ledger = new_ledger()
    ledger.counter_of = {"x": 900.0, "y": 100.0}.__getitem__
    hold_slots(ledger, x=1)
    ledger.joined("r", "y", 0.0, 0.0)
    begun = ledger.collect(10.0)[-1]
    assert not begun.sealed
    assert tenant_minute(begun, "x").vtc_gap == 800.0
