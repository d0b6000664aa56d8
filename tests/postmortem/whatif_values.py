"""Rows and values that the what-if's tests are made of. No tests here."""

from __future__ import annotations

from dataclasses import replace

from engine.costs import CostModel
from postmortem.whatif.arrivals import from_rows
from postmortem.whatif.model import Outcome, TenantNumbers
from telemetry.records import EngineMinute, RequestRecord, TenantMinute
from telemetry.window import Bucket

T0 = 1_767_225_600.0


def row(at: float, tenant: str = "a", **more) -> RequestRecord:
    values = {
        "engine": "e", "run_id": "r", "pool": "main", "request_id": f"{tenant}{at}",
        "tenant": tenant, "outcome": "finished", "arrived": T0 + at, "ended": T0 + at + 2,
        "prompt_tokens": 100, "output_tokens": 10, "max_tokens": 20, "ttft_s": 0.5,
    } | more  # fmt: skip
    # Columns that are absent are None, as the store gives them.
    names = RequestRecord.__dataclass_fields__
    return RequestRecord(**{n: values.get(n) for n in names})


def minute(tenant: str, at: float, **more) -> TenantMinute:
    values = {
        "bucket_start": T0 + at, "bucket_s": 60.0, "engine": "e", "run_id": "r", "pool": "main",
        "tenant": tenant,
    } | more  # fmt: skip
    return TenantMinute(**{n: values.get(n) for n in TenantMinute.__dataclass_fields__})


def bucket(at: float, *rows: TenantMinute, **engine) -> Bucket:
    values = {
        "bucket_start": T0 + at, "bucket_s": 60.0, "engine": "e", "run_id": "r", "pool": "main",
    } | engine  # fmt: skip
    e = EngineMinute(**{n: values.get(n) for n in EngineMinute.__dataclass_fields__})
    return Bucket(T0 + at, 60.0, 60.0, frozenset({"e"}), e, {r.tenant: r for r in rows}, {})


def arrivals(rows, buckets=(), *, begin=0.0, until=120.0, adapters=None, seed=0):
    return from_rows(
        rows,
        buckets,
        begin=T0 + begin,
        judged=(T0 + begin, T0 + until),
        until=T0 + until,
        adapters=adapters or {},
        seed=seed,
    )


def numbers(tenant="y", missed=0, eligible=100, refused=0, p50=0.2, p99=1.0, n=100):
    return TenantNumbers(
        tenant, n + refused, refused, n, p50, p99, p99, eligible, missed, 1.0
    )  # fmt: skip


def outcome(*tenants: TenantNumbers, others_missed=0, imputed=0.0) -> Outcome:
    hurt = tenants[0]
    missed = sum(t.missed for t in tenants) + others_missed
    eligible = sum(t.eligible for t in tenants) + 100
    refused = sum(t.refused for t in tenants)
    everyone = replace(hurt, tenant="", missed=missed, eligible=eligible, refused=refused)
    return Outcome(tenants, replace(hurt, tenant=""), everyone, 100.0, imputed)


TRUE = CostModel(0.02, 0.0005, 0.002, 3e-6, 0.001)
