"""Rows and batches for the way into the store: small by hand, arbitrary by hypothesis."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from hypothesis import strategies as st

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter, Kind
from telemetry.otlp import encode
from telemetry.records import (
    AdapterRecord,
    Batch,
    EngineMinute,
    EngineRun,
    EventRecord,
    InterferenceMinute,
    RequestRecord,
    TenantMinute,
)
from telemetry.store.store import Store
from telemetry.tables import TABLE_OF, TABLES, Table

T0 = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
DAY_S = 86_400.0
RUN = {"engine": "e1", "run_id": "r1", "pool": "main"}
ODD_NAMES = (
    "[red]x[/]",
    "🐘 élan",
    "x" * 200,
    "self",
    "'; drop table tenant_minute; --",
    " a\tb\n",
)


def minute(tenant: str, at: float = T0, **columns: Any) -> TenantMinute:
    return TenantMinute(bucket_start=at, bucket_s=60.0, tenant=tenant, **RUN, **columns)


def engine_minute(at: float = T0, **columns: Any) -> EngineMinute:
    return EngineMinute(bucket_start=at, bucket_s=60.0, **RUN, **columns)


def charge(victim: str, holder: str, seconds: float, at: float = T0) -> InterferenceMinute:
    return InterferenceMinute(
        bucket_start=at,
        bucket_s=60.0,
        victim=victim,
        reason="kv",
        holder_kind="tenant",
        holder=holder,
        charged_s=seconds,
        **RUN,
    )


def request(number: int, arrived: float = T0, tenant: str = "a", **columns: Any) -> RequestRecord:
    columns = {"outcome": "finished", **columns}
    return RequestRecord(request_id=f"q{number}", tenant=tenant, arrived=arrived, **RUN, **columns)


def event(number: int, at: float = T0, **columns: Any) -> EventRecord:
    columns = {"kind": "mark", **columns}
    return EventRecord(event_id=f"v{number}", at=at, **RUN, **columns)


RUN_ROW = EngineRun(started=T0, model="tiny", synthetic=True, costs='{"c0": 0.01}', **RUN)
ADAPTER_ROW = AdapterRecord(adapter="ab12", name="fr-legal", rank=16, bytes=1 << 40, **RUN)


def batch(
    *rows: Any, emitter: Emitter = Emitter.WORKER, sealed: bool = True, seq: int = 1
) -> Batch:
    logs = tuple(r for r in rows if TABLE_OF[type(r)].log)
    minutes = tuple(r for r in rows if not TABLE_OF[type(r)].log)
    return Batch(**RUN, emitter=emitter, sealed=sealed, seq=seq, minutes=minutes, logs=logs)


def deliver(store: Store, *batches: Batch) -> None:
    """Hand batches over as a sender does: encoded, one after the other."""
    for one in batches:
        metrics, logs = encode(one)
        if metrics is not None:
            assert store.ingest_metrics(metrics).refused == 0
        if logs is not None:
            assert store.ingest_logs(logs).refused == 0


def everything(source: Any) -> dict[str, list[Any]]:
    """All rows of all tables of a source."""
    return {t: source.read(t, float("-inf"), float("inf")) for t in TABLES}


def until(happened: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do; fails after ten seconds."""
    never = threading.Event()
    for _ in range(5_000):
        if happened():
            return
        never.wait(0.002)
    raise AssertionError("it did not happen")


# --- arbitrary rows ------------------------------------------------------------------------------

utf8 = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.one_of(st.sampled_from(ODD_NAMES), utf8)
instants = st.integers(int(T0 * 1e6), int((T0 + 3 * DAY_S) * 1e6)).map(lambda us: us / 1e6)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
whole = st.integers(0, (1 << 63) - 1)
counts = st.lists(
    st.integers(0, 1 << 40), min_size=len(LATENCY_BOUNDS_S) + 1, max_size=len(LATENCY_BOUNDS_S) + 1
).map(tuple)


def _values(sql: str, kind: Kind) -> st.SearchStrategy[Any]:
    if kind is Kind.HIST:
        return counts
    if kind is Kind.SUM:
        return whole if sql == "BIGINT" else finite.map(abs)
    return {
        "TIMESTAMP": instants,
        "VARCHAR": names,
        "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1),
        "DOUBLE": finite,
        "BOOLEAN": st.booleans(),
    }[sql]


def any_row(table: Table) -> st.SearchStrategy[Any]:
    """Rows of a table: any columns present, any values; a minute row has at least one."""
    given: dict[str, st.SearchStrategy[Any]] = {k: st.just(v) for k, v in RUN.items()}
    for f in fields(table.row):
        if f.name in RUN:
            continue
        values = _values(f.metadata["sql"], f.metadata["kind"])
        if f.name == "bucket_start":
            values = st.integers(0, 5).map(lambda i: T0 + 60.0 * i)
        elif f.name == "bucket_s" and not table.log:
            values = st.just(60.0)
        given[f.name] = values if f.default is MISSING else st.none() | values
    rows = st.builds(table.row, **given)
    if table.log:
        return rows
    optional = [f.name for f in fields(table.row) if f.default is not MISSING]
    return rows.filter(lambda r: any(getattr(r, n) is not None for n in optional))


def any_rows(table: Table, most: int = 4) -> st.SearchStrategy[list[Any]]:
    """Rows of a table with distinct keys."""
    return st.lists(
        any_row(table), max_size=most, unique_by=lambda r: tuple(getattr(r, k) for k in table.key)
    )
