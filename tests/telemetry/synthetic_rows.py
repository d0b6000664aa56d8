"""Synthetic rows of a pool, and a source that answers from memory. Numbers are given, not drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from telemetry.conventions import WAIT_REASONS
from telemetry.records import (
    EngineMinute,
    EngineRun,
    EventRecord,
    InterferenceMinute,
    PolicyRecord,
    RequestRecord,
    TenantMinute,
)
from telemetry.window import Window, read_window

T0 = 1_800_000_000.0  # a multiple of 60
POOL_BYTES = 1000.0

# Who held: a tenant's name, or one of these.
SELF, CAPACITY, POLICY, OTHERS = ("self", ""), ("capacity", ""), ("policy", ""), ("others", "")
Held = Mapping[Any, float]

INSTANTS = {
    "request": "arrived",
    "event": "at",
    "policy": "at",
    "tenant_minute": "bucket_start",
    "engine_minute": "bucket_start",
    "interference_minute": "bucket_start",
}


@dataclass
class Pool:
    """Adds rows bucket by bucket; answers `read` as a source does."""

    bucket_s: float = 10.0
    engine_name: str = "e1"
    run: str = "r1"
    name: str = "main"
    rows: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def key(self) -> dict[str, Any]:
        return {"engine": self.engine_name, "run_id": self.run, "pool": self.name}

    def at(self, i: float) -> float:
        return T0 + i * self.bucket_s

    def put(self, table: str, row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def read(self, table: str, start: float, end: float) -> list[Any]:
        instant = INSTANTS.get(table)
        found = self.rows.get(table, [])
        return [r for r in found if instant is None or start <= getattr(r, instant) < end]

    def span(self) -> tuple[float, float] | None:
        rows = self.rows.get("engine_minute", [])
        if not rows:
            return None
        return rows[0].bucket_start, max(r.bucket_start + r.bucket_s for r in rows)

    def close(self) -> None:
        self.rows = dict(self.rows)

    def query(self, name: str, **parameters: Any) -> Any:
        raise LookupError(name)

    def window(self, first: float, last: float, **kw: Any) -> Window:
        """Buckets first .. last-1."""
        return read_window(self, self.at(first), self.at(last), **kw)

    # ------------------------------------------------------------ rows

    def engine(self, i: int, **values: Any) -> None:
        row: dict[str, Any] = {
            "steps": 100,
            "busy_s": 0.4 * self.bucket_s,
            "predicted_s": 0.4 * self.bucket_s,
            "capacity_s": 0.0,
            "loads": 0,
            "pool_bytes": POOL_BYTES,
            "kv_bytes_avg": 300.0,
            "last_token_age_s": 0.0,
            "last_token_age_max_s": 0.05,
            "observed_seconds": self.bucket_s,
            "policy_version": 1.0,
        } | values
        self.put(
            "engine_minute",
            EngineMinute(bucket_start=self.at(i), bucket_s=self.bucket_s, **self.key, **row),
        )

    def tenant(
        self,
        i: int,
        tenant: str,
        *,
        offered: int = 10,
        service: float = 1000.0,
        kv: float = 50.0,
        missed: int = 0,
        waits: Mapping[str, Held] | None = None,
        **values: Any,
    ) -> None:
        """One tenant in bucket i. `waits`: reason -> holder -> seconds; the tenant's own wait
        columns are their sums."""
        held = waits or {}
        row: dict[str, Any] = {
            "offered_requests": offered,
            "offered_tokens": 100 * offered,
            "admitted_requests": offered,
            "admitted_tokens": 100 * offered,
            "service": service,
            "prompt_tokens": int(service / 2),
            "output_tokens": int(service / 4),
            "kv_bytes_avg": kv,
            "adapter_bytes_avg": 10.0,
            "slo_eligible": offered,
            "slo_missed": missed,
            "slo_missed_ttft": missed,
            "slo_met": offered - missed,
            "finished": offered,
            "goodput_tokens": 10 * (offered - missed),
            "weight": 1.0,
            "observed_seconds": self.bucket_s,
            "stall_s": sum(held.get("stall", {}).values()),
        }
        row |= {f"wait_{r}_s": sum(held.get(r, {}).values()) for r in WAIT_REASONS}
        row |= values
        self.put(
            "tenant_minute",
            TenantMinute(
                bucket_start=self.at(i), bucket_s=self.bucket_s, tenant=tenant, **self.key, **row
            ),
        )
        for reason, holders in held.items():
            for holder, seconds in holders.items():
                kind, who = holder if isinstance(holder, tuple) else ("tenant", holder)
                self.charge(i, tenant, reason, kind, who, seconds)

    def charge(
        self, i: int, victim: str, reason: str, kind: str, holder: str, s: float | None
    ) -> None:
        self.put(
            "interference_minute",
            InterferenceMinute(
                bucket_start=self.at(i),
                bucket_s=self.bucket_s,
                victim=victim,
                reason=reason,
                holder_kind=kind,
                holder=holder,
                charged_s=s,
                **self.key,
            ),
        )

    def request(self, at: float, tenant: str, n: int, ttft_s: float | None, **values: Any) -> None:
        row: dict[str, Any] = {
            "outcome": "finished" if ttft_s is not None else "aborted",
            "admitted": at,
            "first_token": None if ttft_s is None else at + ttft_s,
            "ttft_s": ttft_s,
            "max_gap_s": 0.1,
            "prompt_tokens": 50,
            "output_tokens": 25,
            "slo_met": True,
        } | values
        self.put(
            "request",
            RequestRecord(request_id=f"{tenant}-{n}", tenant=tenant, arrived=at, **self.key, **row),
        )

    def event(self, at: float, kind: str, detail: str = "", **values: Any) -> None:
        n = len(self.rows.get("event", []))
        self.put(
            "event",
            EventRecord(event_id=f"ev{n}", at=at, kind=kind, detail=detail, **self.key, **values),
        )

    def policy(self, at: float, version: int, policy: str, previous: str | None = None) -> None:
        self.put(
            "policy",
            PolicyRecord(
                version=version, at=at, policy=policy, previous=previous, who="bob", **self.key
            ),
        )

    def started(self, at: float) -> None:
        self.put("engine_run", EngineRun(started=at, model="synthetic", synthetic=True, **self.key))

    # ------------------------------------------------------------ scenes

    def calm(self, first: int, last: int, tenants: tuple[str, ...] = ("x", "y", "z", "w")) -> Pool:
        """Everybody runs, waits are short and shared out."""
        for i in range(first, last):
            self.engine(i)
            for t in tenants:
                rest = [o for o in tenants if o != t]
                self.tenant(i, t, waits={"slot": {SELF: 0.02, **dict.fromkeys(rest, 0.02)}})
        return self

    def flood(
        self,
        first: int,
        last: int,
        by: str = "x",
        *,
        victims: tuple[str, ...] = ("y", "z", "w"),
        reason: str = "slot",
        wait_s: float = 40.0,
        capacity: float = 0.05,
        missed: int = 5,
    ) -> Pool:
        """`by` asks for six times as much; each victim waits `wait_s` a bucket, most of it behind
        `by`; `by` waits behind itself."""
        for i in range(first, last):
            self.engine(
                i,
                busy_s=0.95 * self.bucket_s,
                predicted_s=0.95 * self.bucket_s * (1 - capacity / 2),
                kv_bytes_avg=900.0,
            )
            for t in victims:
                rest = [o for o in victims if o != t]
                left = 1 - capacity - 0.8
                held: dict[Any, float] = {by: 0.8 * wait_s, CAPACITY: capacity * wait_s}
                held |= dict.fromkeys(rest, 0.5 * left * wait_s / max(1, len(rest)))
                held[SELF] = wait_s - sum(held.values())
                self.tenant(i, t, missed=missed, service=600.0, waits={reason: held})
            own: dict[Any, float] = {SELF: 0.85 * wait_s, CAPACITY: capacity * wait_s}
            own["y"] = wait_s - sum(own.values())
            self.tenant(i, by, offered=60, service=6000.0, kv=600.0, missed=30, waits={reason: own})
        return self
