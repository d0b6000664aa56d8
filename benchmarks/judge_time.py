"""How long a verdict takes on thirty minutes of a pool with a thousand tenants, all of them active
and hurt, each behind eight holders a minute. Prints seconds; judges nothing else.

    PYTHONPATH=. python -m benchmarks.judge_time --tenants 1000 --json
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from telemetry.case import open_case
from telemetry.findings import examine
from telemetry.records import EngineMinute, InterferenceMinute, TenantMinute
from telemetry.verdict import judge_case
from telemetry.window import Window, window_of

T0, MINUTE_S = 1_800_000_000.0, 60.0
KEY: dict[str, Any] = {"engine": "e1", "run_id": "r1", "pool": "main", "bucket_s": MINUTE_S}
HOLDERS = 8


def engine_rows(minutes: int) -> Iterator[EngineMinute]:
    for i in range(minutes):
        yield EngineMinute(
            bucket_start=T0 + i * MINUTE_S, steps=900 + i, busy_s=50.0, predicted_s=50.0,
            capacity_s=0.0, loads=0, preemptions=0, pool_bytes=1e9, kv_bytes_avg=5e8 + i,
            last_token_age_max_s=0.1 + i / 1e3, observed_seconds=MINUTE_S, policy_version=1.0,
            **KEY,
        )  # fmt: skip


def tenant_rows(tenants: Sequence[str], minutes: int, calm: int) -> Iterator[TenantMinute]:
    for i in range(minutes):
        for t in tenants:
            asks = 60 if t == tenants[0] and i >= calm else 7
            wait_s = 20.0 if i >= calm else 0.2
            yield TenantMinute(
                bucket_start=T0 + i * MINUTE_S, tenant=t, offered_requests=asks,
                offered_tokens=100 * asks, offered_retries=0, admitted_requests=asks,
                service=100.0 * asks, kv_bytes_avg=1e4 * asks, adapter_bytes_avg=1e4,
                slo_eligible=asks, slo_missed=3 if i >= calm else 0, finished=asks, stall_s=0.1,
                wait_front_s=0.0, wait_slot_s=wait_s, wait_budget_s=0.0, wait_kv_s=0.0,
                wait_adapter_s=0.0, observed_seconds=MINUTE_S, **KEY,
            )  # fmt: skip


def matrix_rows(
    tenants: Sequence[str], minutes: int, calm: int, seed: int
) -> Iterator[InterferenceMinute]:
    draw = random.Random(seed)
    for i in range(minutes):
        most_s = 15.0 if i >= calm else 0.1
        for t in tenants:
            others = draw.sample(list(tenants), HOLDERS - 1)
            held = dict.fromkeys(others, most_s / 20) | {tenants[0]: most_s}
            for holder, charged_s in held.items():
                yield InterferenceMinute(
                    bucket_start=T0 + i * MINUTE_S, victim=t, reason="slot",
                    holder_kind="self" if holder == t else "tenant",
                    holder="" if holder == t else holder, charged_s=charged_s, **KEY,
                )  # fmt: skip


def made(tenants: int, minutes: int, before: int, seed: int = 1) -> Window:
    """A window of `minutes` with `before` calm ones ahead of it and five in it."""
    names, whole, calm = [f"t{i:04d}" for i in range(tenants)], minutes + before, before + 5
    return window_of(
        "main",
        T0 + before * MINUTE_S,
        T0 + whole * MINUTE_S,
        engine_rows=engine_rows(whole),
        tenant_rows=tenant_rows(names, whole, calm),
        matrix_rows=matrix_rows(names, whole, calm, seed),
    )


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge_time",
        description="Seconds that a verdict takes, the window at hand.",
        epilog="example: python -m benchmarks.judge_time --tenants 200",
    )
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--before", type=int, default=60, help="calm minutes ahead of the window")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(args)
    begun = time.process_time()
    window = made(given.tenants, given.minutes, given.before)
    built_s = time.process_time() - begun
    wall, cpu = time.perf_counter(), time.process_time()
    case = open_case(window)
    verdict = judge_case(case, examine(case))
    row = {
        "tenants": given.tenants,
        "minutes": given.minutes,
        "charges": sum(len(b.matrix) for b in window.buckets),
        "made_cpu_s": round(built_s, 3),
        "judged_cpu_s": round(time.process_time() - cpu, 3),
        "judged_wall_s": round(time.perf_counter() - wall, 3),
        "named": verdict.tenant,
        "hurt": len(verdict.hurt),
    }
    print(json.dumps(row) if given.json else "\n".join(f"{k:14} {v}" for k, v in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
