"""Rows kept in this process are what a store would answer."""

from __future__ import annotations

from benchmarks.kept_rows import Kept
from tests.telemetry.delivered import T0, batch, engine_minute, minute


def test_a_bucket_sent_open_and_then_sealed_counts_once():
    kept = Kept()
    kept.submit(batch(engine_minute(steps=9), sealed=False))
    kept.submit(batch(engine_minute(steps=135), seq=2))
    assert [row.steps for row in kept.read("engine_minute", T0, T0 + 60.0)] == [135]


def test_front_and_worker_write_one_row_of_a_tenant():
    kept = Kept()
    kept.submit(batch(minute("a", offered_requests=7)))
    kept.submit(batch(minute("a", output_tokens=3)))
    (row,) = kept.read("tenant_minute", T0, T0 + 60.0)
    assert (row.offered_requests, row.output_tokens) == (7, 3)
