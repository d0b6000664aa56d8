"""Minutes of mixed load with cancels on the real core: memory stays flat, no page and no number is
lost on the way. TENANTSCOPE_STEADY_MINUTES says how many (30)."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from tests.engine.steady import Soak

LOOK_EVERY_S = 2.0
LEAK_BYTES = 12 << 20  # between the second and the last quarter


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def soak(soak: Soak, seconds: float) -> list[int]:
    """Run the load and look every so often; returns the process's memory at each look, bytes."""
    start, sizes = soak.now(), []
    while (now := soak.now()) < start + seconds:
        soak.keep_busy(min(now + LOOK_EVERY_S, start + seconds))
        soak.look()
        sizes.append(resident_bytes())
    soak.finish()
    return sizes


def check_totals(s: Soak) -> None:
    """Client, runner, ledger's minutes and request rows have counted the same."""
    did, tenants, engine, requests = s.runner.did, s.rows.tenants, s.rows.engine, s.rows.requests
    assert s.ended["finished"] + s.ended["aborted"] == s.asked
    for outcome in ("finished", "aborted", "failed", "timed_out"):
        assert s.ended[outcome] == tenants[outcome] == requests[outcome], outcome
    assert s.made == did["output_tokens"] == tenants["output_tokens"] == requests["output_tokens"]
    assert did["prefill_tokens"] == engine["prefill_tokens"]
    assert did["prefill_tokens"] == (
        tenants["prompt_tokens"] + tenants["recomputed_tokens"] + did["returns"]
    )
    assert tenants["recomputed_tokens"] == requests["recomputed_tokens"]
    for column in ("steps", "decode_tokens", "loads", "evictions"):
        assert did[column] == engine[column], column
    assert engine["preemptions"] == tenants["preemptions_suffered"] == requests["preemptions"]
    assert did["failed"] == 0
    # A load that leaves one of these out shows nothing of it.
    for column in ("loads", "evictions", "preemptions"):
        assert engine[column] > 0, column
    for column in ("aborted", "cached_tokens", "recomputed_tokens"):
        assert tenants[column] > 0, column


def check_nothing_is_left(s: Soak) -> None:
    held = s.pool.holdings()
    assert not held.kv
    assert not held.adapters
    status = s.core.status()
    assert status.running == status.waiting == 0
    assert not s.alive
    assert status.output_tokens == s.made
    s.core.scheduler.check_integrity()


@pytest.mark.full
def test_memory_stays_flat_and_every_token_and_page_is_accounted_for(tmp_path):
    minutes = float(os.environ.get("TENANTSCOPE_STEADY_MINUTES", "30"))
    s = Soak(tmp_path)
    sizes = soak(s, 60 * minutes)
    check_nothing_is_left(s)
    check_totals(s)
    quarter = len(sizes) // 4
    grown = median(sizes[-quarter:]) - median(sizes[quarter : 2 * quarter])
    print(
        f"{s.asked} requests, {s.runner.did['steps']} steps, {s.rows.engine['loads']} loads, "
        f"{s.rows.engine['preemptions']} preemptions, {s.ended['aborted']} given up; memory "
        f"{sizes[0] >> 20} -> {sizes[-1] >> 20} MiB, {grown / 2**20:+.1f} MiB over the last half"
    )
    assert grown <= LEAK_BYTES
