"""The closed vocabulary's grammar: what a column is, and how it is named outside. Knows no rows.

Every stored number is declared once, as a field of a dataclass in `telemetry.records`, with
`column(...)`. The DuckDB tables, the OTLP metric names and the ingest are derived from those
declarations (`telemetry.tables`), so a column cannot exist in one place and be missing in another.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "tenantscope"

# Upper bounds, in seconds, of every latency histogram; one overflow bucket follows.
LATENCY_BOUNDS_S: tuple[float, ...] = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64,
    1.25, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0,
)  # fmt: skip

# Why a request waits (DESIGN: a request's life). `queue` = slot + budget.
WAIT_REASONS: tuple[str, ...] = ("slot", "budget", "kv", "adapter")
# Reasons under which the interference matrix charges seconds: waits, and the stall inside a step.
CHARGE_REASONS: tuple[str, ...] = (*WAIT_REASONS, "stall")

# Holders that are no tenant. The kind travels in a column of its own, so that a tenant may be
# called "self" or "capacity" without meeting them.
SELF, CAPACITY, POLICY, OTHERS, TENANT = "self", "capacity", "policy", "others", "tenant"
HOLDER_KINDS: tuple[str, ...] = (TENANT, SELF, CAPACITY, POLICY, OTHERS)

REJECT_REASONS: tuple[str, ...] = ("rpm", "tpm", "concurrency", "queue", "impossible")
OUTCOMES: tuple[str, ...] = ("finished", "aborted", "failed", "timed_out", "rejected")


class Kind(enum.Enum):
    """How a column adds up over engines, runs and buckets, and which OTLP point carries it."""

    KEY = "key"  # part of the row's key; an attribute of every data point
    SUM = "sum"  # delta sum; adds
    AVG = "avg"  # time-weighted gauge; averages weigh by observed_seconds
    MAX = "max"  # gauge; the maximum survives
    LAST = "last"  # gauge; the value at the interval's end
    HIST = "hist"  # histogram over LATENCY_BOUNDS_S, as bucket counts; adds
    ATTR = "attr"  # text, flag or instant of a log-record row


class Emitter(enum.Enum):
    """Which process writes a column. Front and worker columns of one row are disjoint."""

    FRONT = "front"
    WORKER = "worker"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Column:
    """One stored column: its SQL type, unit (UCUM), kind, writer and meaning."""

    name: str
    sql: str
    kind: Kind
    unit: str
    meaning: str
    emitter: Emitter = Emitter.WORKER


def column(
    kind: Kind,
    sql: str,
    unit: str,
    meaning: str,
    *,
    emitter: Emitter = Emitter.WORKER,
    required: bool = False,
) -> Any:
    """Declare a dataclass field as a stored column. Optional columns default to None (= absent)."""
    meta = {"kind": kind, "sql": sql, "unit": unit, "meaning": meaning, "emitter": emitter}
    if required:
        return field(metadata=meta)
    return field(default=None, metadata=meta)


def key(sql: str, meaning: str) -> Any:
    return column(Kind.KEY, sql, "1", meaning, required=True)


def count(unit: str, meaning: str, emitter: Emitter = Emitter.WORKER) -> Any:
    return column(Kind.SUM, "BIGINT", "{" + unit + "}", meaning, emitter=emitter)


def seconds(meaning: str, kind: Kind = Kind.SUM, emitter: Emitter = Emitter.WORKER) -> Any:
    return column(kind, "DOUBLE", "s", meaning, emitter=emitter)


def gauge(kind: Kind, unit: str, meaning: str, emitter: Emitter = Emitter.WORKER) -> Any:
    return column(kind, "DOUBLE", unit, meaning, emitter=emitter)


def histogram(meaning: str) -> Any:
    return column(Kind.HIST, "BIGINT[]", "s", meaning)


def attr(sql: str, meaning: str, unit: str = "1", *, required: bool = False) -> Any:
    return column(Kind.ATTR, sql, unit, meaning, required=required)


def metric_name(table: str, column_name: str) -> str:
    """OTLP metric (or log attribute) name of a column: `tenantscope.<table>.<column>`."""
    return f"{NAMESPACE}.{table}.{column_name}"


# Tables that Prometheus shows, and what their metrics' names begin with there. The others have a
# row a victim and holder, an adapter or an event: a series each would have no bound.
PROMETHEUS_PREFIX: dict[str, str] = {
    "tenant_minute": "tenant",
    "engine_minute": "engine",
    "interference_minute": "interference",
}
_TYPES = {Kind.SUM: "counter", Kind.HIST: "histogram"}


def prometheus_type(kind: Kind) -> str | None:
    """counter, histogram or gauge; None for what is a label, or no number."""
    if kind in (Kind.KEY, Kind.ATTR):
        return None
    return _TYPES.get(kind, "gauge")


def prometheus_name(table: str, column_: Column) -> str | None:
    """The family's name in Prometheus, without the `_total` of counters; None when not shown.

    `tenant_minute.wait_kv_s` is `tenantscope_tenant_wait_kv_seconds`: base units spelt out and
    last, as Prometheus has it.
    """
    if table not in PROMETHEUS_PREFIX or prometheus_type(column_.kind) is None:
        return None
    name = column_.name
    for suffix in ("_avg", "_max"):
        for unit in ("_s", "_bytes"):
            if name.endswith(unit + suffix):
                name = name.removesuffix(unit + suffix) + suffix + unit
    if column_.unit == "s" and not name.endswith("_seconds"):
        name = f"{name.removesuffix('_s')}_seconds"
    return f"{NAMESPACE}_{PROMETHEUS_PREFIX[table]}_{name}"


def latency_bucket(value_s: float) -> int:
    """Index of the histogram bucket that holds `value_s` (upper bounds are inclusive)."""
    for i, bound in enumerate(LATENCY_BOUNDS_S):
        if value_s <= bound:
            return i
    return len(LATENCY_BOUNDS_S)
