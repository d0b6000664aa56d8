"""The front's book."""

from __future__ import annotations

from telemetry.conventions import Emitter
from telemetry.ledger.door import DoorLedger


def door():
    return DoorLedger(
        engine="e",
        run_id="r",
        pool="p",
        bucket_s=60.0,
        clock_wall_s=1_800_000_000.0,
        levels=lambda tenant, now: (9.0, None, 2),
    )


def test_offered_is_rejected_plus_admitted_and_buckets_close_on_utc_minutes():
    d = door()
    for i in range(5):
        d.offered("a", 100, i == 4, 10.0 + i)
    for _ in range(3):
        d.admitted("a", 100, 0.25, 20.0)
    d.rejected("a", "rpm", 100, 21.0)
    d.rejected("a", "impossible", 100, 22.0)
    d.offered("a", 7, False, 61.0)
    sealed, opened = d.collect(62.0)
    assert (sealed.sealed, opened.sealed) == (True, False)
    assert sealed.seq < opened.seq
    assert sealed.emitter is Emitter.FRONT
    row = sealed.minutes[0]
    assert row.bucket_start == 1_800_000_000.0
    assert row.offered_requests == 5
    assert row.offered_requests == (
        row.admitted_requests + row.rejected_rpm_requests + row.rejected_impossible_requests
    )
    assert row.offered_retries == 1
    assert row.wait_front_s == 0.75
    assert (row.quota_rpm_level, row.quota_tpm_level, row.concurrency_in_use) == (9.0, None, 2.0)
    assert row.output_tokens is None, "the worker's columns stay absent"
    assert opened.minutes[0].offered_tokens == 7


def test_the_open_bucket_is_sent_again_with_a_higher_mark_until_it_is_sealed():
    d = door()
    d.offered("a", 1, False, 1.0)
    first = d.collect(10.0)
    d.offered("a", 1, False, 11.0)
    second = d.collect(20.0)
    assert [b.minutes[0].offered_requests for b in first + second] == [1, 2]
    assert second[0].seq > first[0].seq
    assert door().collect(5.0) == []
