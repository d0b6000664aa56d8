"""Made-up rows of a pool for the console's tests: a calm stretch, then one tenant fans out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from console.panels import Level, VerdictLines
from console.rows import Rows
from telemetry.records import (
    EngineMinute,
    EngineRun,
    EventRecord,
    InterferenceMinute,
    PolicyRecord,
    RequestRecord,
    TenantMinute,
)

T0 = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
BUCKET_S = 10.0
MIB = 1 << 20
POOL_BYTES = 512.0 * MIB
ID: dict[str, Any] = {"engine": "e1", "run_id": "r1", "pool": "main"}
TENANTS = ("acme", "globex", "initech", "umbrella")


def tenant(bucket: float, name: str, **columns: Any) -> TenantMinute:
    base: dict[str, Any] = {
        **ID,
        "bucket_start": bucket,
        "bucket_s": BUCKET_S,
        "observed_seconds": BUCKET_S,
        "weight": 1.0,
    }
    return TenantMinute(**{**base, "tenant": name, **columns})


def engine(bucket: float, **columns: Any) -> EngineMinute:
    base: dict[str, Any] = {
        **ID,
        "bucket_start": bucket,
        "bucket_s": BUCKET_S,
        "observed_seconds": BUCKET_S,
        "steps": 200,
        "busy_s": 8.2,
        "predicted_s": 7.9,
        "prefill_tokens": 4000,
        "decode_tokens": 1500,
        "slots": 8.0,
        "running_avg": 4.0,
        "waiting_avg": 0.0,
        "pool_bytes": POOL_BYTES,
        "kv_bytes_avg": 0.30 * POOL_BYTES,
        "adapter_bytes_avg": 0.06 * POOL_BYTES,
        "cached_bytes_avg": 0.02 * POOL_BYTES,
        "free_bytes_avg": 0.62 * POOL_BYTES,
        "last_token_age_s": 0.04,
    }
    return EngineMinute(**{**base, **columns})


def charge(
    bucket: float, victim: str, reason: str, kind: str, holder: str, seconds: float
) -> InterferenceMinute:
    return InterferenceMinute(
        **ID,
        bucket_start=bucket,
        bucket_s=BUCKET_S,
        victim=victim,
        reason=reason,
        holder_kind=kind,
        holder=holder,
        charged_s=seconds,
    )


def request(name: str, at: float, waited_s: float, **columns: Any) -> RequestRecord:
    """One that had its first token `at`, `waited_s` after it arrived, and ended then."""
    base: dict[str, Any] = {
        **ID,
        "request_id": f"{name}-{at}-{waited_s}",
        "tenant": name,
        "outcome": "finished",
        "arrived": at - waited_s,
        "first_token": at,
        "ended": at,
        "ttft_s": waited_s,
    }
    return RequestRecord(**{**base, **columns})


def event(at: float, kind: str, detail: str, **columns: Any) -> EventRecord:
    return EventRecord(**ID, event_id=f"{kind}-{at}", at=at, kind=kind, detail=detail, **columns)


def policy(at: float, name: str, version: int, **columns: Any) -> PolicyRecord:
    return PolicyRecord(**ID, version=version, at=at, policy=name, **columns)


def run(**columns: Any) -> EngineRun:
    return EngineRun(**{**ID, "started": T0, "model": "synthetic", **columns})


def calm_bucket(bucket: float, tenants: Sequence[str] = TENANTS) -> tuple[list[Any], list[Any]]:
    """Everybody served alike, nobody late."""
    rows = [
        tenant(
            bucket,
            name,
            offered_requests=6,
            admitted_requests=6,
            rejected_rpm_requests=0,
            prompt_tokens=600,
            output_tokens=400,
            service=1400.0,
            wait_slot_s=0.2,
            wait_budget_s=0.1,
            wait_kv_s=0.0,
            wait_adapter_s=0.0,
            waiting_avg=0.03,
            oldest_wait_s=0.1,
            resident_seqs_avg=1.0,
            kv_bytes_avg=0.075 * POOL_BYTES,
            slo_eligible=6,
            slo_met=6,
            slo_missed=0,
            backlogged_s=0.2,
        )
        for name in tenants
    ]
    return rows, [request(name, bucket + 1.5 * i, 0.2) for name in tenants for i in range(6)]


def fanout_bucket(
    bucket: float, holder: str = "acme", victims: Sequence[str] = TENANTS[1:]
) -> tuple[list[Any], list[Any], list[Any]]:
    """The holder takes the pool; the victims wait behind it for slots and pages."""
    rows = [
        tenant(
            bucket,
            holder,
            offered_requests=24,
            rejected_rpm_requests=3,
            output_tokens=1500,
            service=7000.0,
            wait_slot_s=60.0,
            wait_budget_s=4.0,
            waiting_avg=6.0,
            oldest_wait_s=5.0,
            resident_seqs_avg=7.0,
            kv_bytes_avg=0.80 * POOL_BYTES,
            slo_eligible=10,
            slo_met=10,
            slo_missed=0,
            backlogged_s=10.0,
        )
    ]
    requests = [request(holder, bucket + 0.9 * i, 1.2) for i in range(10)]
    charges = [
        charge(bucket, holder, "slot", "self", "", 60.0),
        charge(bucket, holder, "budget", "self", "", 4.0),
    ]
    for n, name in enumerate(victims):
        rows.append(
            tenant(
                bucket,
                name,
                offered_requests=6,
                output_tokens=150,
                service=600.0,
                wait_slot_s=30.0,
                wait_budget_s=5.0,
                wait_kv_s=10.0,
                waiting_avg=4.5,
                oldest_wait_s=7.0 + n,
                resident_seqs_avg=0.3,
                kv_bytes_avg=0.03 * POOL_BYTES,
                slo_eligible=6,
                slo_met=2,
                slo_missed=4,
                backlogged_s=10.0,
            )
        )
        requests += [request(name, bucket + 2.0 * i, 5.0 + i / 10) for i in range(4)]
        charges += [
            charge(bucket, name, "slot", "tenant", holder, 28.0),
            charge(bucket, name, "kv", "tenant", holder, 8.0),
            charge(bucket, name, "slot", "self", "", 2.0),
            charge(bucket, name, "budget", "tenant", holder, 4.0),
            charge(bucket, name, "budget", "capacity", "", 1.0),
            charge(bucket, name, "kv", "others", "", 2.0),
            charge(bucket, name, "stall", "tenant", holder, 99.0),
        ]
    return rows, requests, charges


def busy_engine(bucket: float, **columns: Any) -> EngineMinute:
    base: dict[str, Any] = {
        "running_avg": 8.0,
        "waiting_avg": 19.5,
        "kv_bytes_avg": 0.89 * POOL_BYTES,
        "free_bytes_avg": 0.03 * POOL_BYTES,
    }
    return engine(bucket, **{**base, **columns})


def calm(buckets: int = 12, tenants: Sequence[str] = TENANTS) -> Rows:
    out: list[Any] = []
    requests: list[Any] = []
    for i in range(buckets):
        rows, asked = calm_bucket(T0 + BUCKET_S * i, tenants)
        out += rows
        requests += asked
    return Rows(
        tenants=tuple(out),
        engines=tuple(engine(T0 + BUCKET_S * i) for i in range(buckets)),
        requests=tuple(requests),
        policies=(policy(T0, "fcfs", 1),),
        runs=(run(),),
        events=(event(T0, "start", "pool main started with fcfs"),),
    )


def incident(
    calm_buckets: int = 12, bad_buckets: int = 6, holder: str = "acme", victims: Iterable[str] = ()
) -> Rows:
    """`calm`, then the fan-out: ends at T0 + (calm + bad) * 10 s."""
    hurt = tuple(victims) or tuple(t for t in TENANTS if t != holder)
    quiet = calm(calm_buckets, (holder, *hurt))
    tenants: list[Any] = list(quiet.tenants)
    requests: list[Any] = list(quiet.requests)
    engines = list(quiet.engines)
    charges: list[Any] = []
    onset = T0 + BUCKET_S * calm_buckets
    for i in range(bad_buckets):
        rows, asked, charged = fanout_bucket(onset + BUCKET_S * i, holder, hurt)
        tenants += rows
        requests += asked
        charges += charged
        engines.append(busy_engine(onset + BUCKET_S * i))
    return Rows(
        tenants=tuple(tenants),
        engines=tuple(engines),
        interference=tuple(charges),
        requests=tuple(requests),
        policies=quiet.policies,
        runs=quiet.runs,
        events=(*quiet.events, event(onset, "mark", f"{holder} fans out long contexts")),
    )


def verdict(holder: str = "acme", victims: Iterable[str] = TENANTS[1:]) -> VerdictLines:
    hurt = frozenset(victims)
    return VerdictLines(
        level=Level.HURT,
        lines=(
            f"{len(hurt)} tenants HURT since 08:02:00: misses 67% (usual 0%)",
            f"LIKELY {holder}: 89% of all excess wait was charged to it (charged, high)",
            "NOT engine: step 41ms, usual 39   NOT adapters: 0 loads/s   NOT lost capacity",
        ),
        excluded=1,
        victims=hurt,
        named=holder,
        since=T0 + 120.0,
    )


class FakeSource:
    """Answers `read` from rows, by the instants a source filters on."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.reads: list[tuple[str, float, float]] = []
        self.fault: Exception | None = None

    def read(self, table: str, start: float, end: float) -> list[Any]:
        self.reads.append((table, start, end))
        if self.fault is not None:
            raise self.fault
        if table == "policy":
            return [r for r in self.rows.policies if start <= r.at < end]
        if table == "engine_run":
            return list(self.rows.runs)
        if table == "event":
            return [r for r in self.rows.events if start <= r.at < end]
        if table == "request":
            return [r for r in self.rows.requests if start <= r.arrived < end]
        minutes: dict[str, Sequence[Any]] = {
            "tenant_minute": self.rows.tenants,
            "engine_minute": self.rows.engines,
            "interference_minute": self.rows.interference,
        }
        return [r for r in minutes[table] if start <= r.bucket_start < end]

    def span(self) -> tuple[float, float] | None:
        ends = [r.bucket_start + r.bucket_s for r in self.rows.engines]
        return (min(r.bucket_start for r in self.rows.engines), max(ends)) if ends else None

    def close(self) -> None:
        self.rows = Rows()
