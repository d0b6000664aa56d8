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


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event: who writes it, what it means, and which columns of `event` it fills
    beside its identity (engine, run, pool, id, instant, kind)."""

    name: str
    by: str  # a process, or the command that makes it: worker, front, store, demo
    meaning: str
    fills: tuple[str, ...] = ("detail",)


# Every kind of event there is. A writer uses one of these names and no other; a test reads the
# code for it.
EVENT_KINDS: dict[str, EventKind] = {
    k.name: k
    for k in (
        EventKind("start", "worker", "the worker serves from here on, with the policy named"),
        EventKind("stop", "worker", "the worker ends"),
        EventKind("policy", "worker", "another policy is in force: which, by whom and why"),
        EventKind("admin", "worker", "an operator acted on the engine: what, by whom and why; "
                  "changes of the policy and of limits are events of kind policy",
                  ("tenant", "adapter", "request_id", "detail")),
        EventKind("costs", "worker", "the cost model was scaled to the steps it has seen"),
        EventKind("clock", "worker", "the wall clock jumped; value: by how many seconds",
                  ("detail", "value")),
        EventKind("preempt", "worker", "a running sequence gave back its pages; cause: who grew",
                  ("tenant", "request_id", "cause_tenant", "detail")),
        EventKind("evict", "worker", "an adapter left the device; tenant: who used it last, "
                  "cause: whose demand it was; value: bytes",
                  ("tenant", "adapter", "cause_tenant", "value")),
        EventKind("load", "worker", "an adapter could not be loaded; its requests failed",
                  ("tenant", "adapter", "detail")),
        EventKind("fault", "worker, front", "something failed and serving went on: a step, an "
                  "adapter's folder, the ledger's timer, the pool's books, rows dropped"),
        EventKind("lost", "worker, front", "batches were given up on the way to the store; value: "
                  "how many", ("detail", "value")),
        EventKind("quarantine", "store", "a file could not be read and was moved aside; value: its "
                  "bytes", ("detail", "value")),
        EventKind("retention", "store", "rows older than they are kept were dropped; value: how "
                  "many", ("detail", "value")),
        EventKind("forget", "store", "a tenant was forgotten, on a person's word"),
        EventKind("incident", "store", "an incident opened, rose, came back or ended; tenant: who "
                  "holds, where one is named", ("tenant", "detail")),
        EventKind("incident_state", "store", "an incident as it is, JSON: what a restart takes up"),
        EventKind("incident_act", "store", "a person acknowledged, noted or closed, JSON"),
        EventKind("silence_state", "store", "a silence as it is, JSON"),
        EventKind("mark", "demo", "a phase of the demo begins"),
    )
}  # fmt: skip


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
# Prometheus keeps "counter" for a type; promtool refuses it in the name of a gauge.
_PROMETHEUS_WORDS = {"vtc_counter": "vtc_virtual_tokens"}
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
    name = _PROMETHEUS_WORDS.get(column_.name, column_.name)
    for suffix in ("_avg", "_max"):
        for unit in ("_s", "_bytes"):
            if name.endswith(unit + suffix):
                name = name.removesuffix(unit + suffix) + suffix + unit
    if column_.unit == "s" and not name.endswith("_seconds"):
        name = f"{name.removesuffix('_s')}_seconds"
    return f"{NAMESPACE}_{PROMETHEUS_PREFIX[table]}_{name}"


@dataclass(frozen=True, slots=True)
class SpanAttribute:
    """One attribute that a span may carry: its name, unit (UCUM) and meaning."""

    name: str
    unit: str
    meaning: str


# GenAI names where the field has them (vLLM and SGLang use the same latency keys), own ones else.
SPAN_ATTRIBUTES: tuple[SpanAttribute, ...] = (
    SpanAttribute("gen_ai.request.model", "1", "the adapter asked for, or else the base model"),
    SpanAttribute("gen_ai.request.max_tokens", "{token}", "most tokens asked for"),
    SpanAttribute("gen_ai.usage.input_tokens", "{token}", "length of the prompt"),
    SpanAttribute("gen_ai.usage.output_tokens", "{token}", "tokens generated"),
    SpanAttribute("gen_ai.usage.cache_read.input_tokens", "{token}", "prompt tokens not computed"),
    SpanAttribute("gen_ai.latency.time_in_queue", "s", "waits of all reasons, to the first token"),
    SpanAttribute("gen_ai.latency.time_to_first_token", "s", "front + waits + prefill"),
    SpanAttribute("gen_ai.latency.e2e", "s", "arrival to outcome"),
    SpanAttribute("gen_ai.latency.time_in_model_prefill", "s", "in prefill, to the first token"),
    SpanAttribute(
        "gen_ai.latency.time_in_model_decode", "s", "first token to outcome, without waits"
    ),
    SpanAttribute("error.type", "1", "the outcome, where it is failed or timed_out"),
    SpanAttribute("tenantscope.engine", "1", "one `serve`"),
    SpanAttribute("tenantscope.run_id", "1", "one start of the pool's worker"),
    SpanAttribute("tenantscope.request_id", "1", "what `tenantscope explain` takes"),
    SpanAttribute("tenantscope.tenant", "1", "the tenant"),
    SpanAttribute("tenantscope.adapter", "1", "name of the adapter; absent for the base model"),
    SpanAttribute("tenantscope.adapter_state", "1", "device, loading, host or disk, at arrival"),
    SpanAttribute(
        "tenantscope.outcome", "1", "finished, aborted, failed, timed_out or rejected"
    ),
    SpanAttribute("tenantscope.reject_reason", "1", "rpm, tpm, concurrency, queue or impossible"),
    SpanAttribute("tenantscope.is_retry", "1", "the arrival was a retry"),
    SpanAttribute("tenantscope.policy_version", "1", "policy in force at the arrival"),
    SpanAttribute("tenantscope.slo_met", "1", "inside every target; absent when not eligible"),
    SpanAttribute("tenantscope.preemptions", "{preemption}", "times preempted"),
    SpanAttribute("tenantscope.recomputed_tokens", "{token}", "computed again after preemption"),
    SpanAttribute("tenantscope.stall", "s", "others' prefill inside its steps"),
    SpanAttribute("tenantscope.max_gap", "s", "longest time between two tokens"),
    SpanAttribute("tenantscope.wait.front", "s", "in the front"),
    *(
        SpanAttribute(f"tenantscope.wait.{r}", "s", f"waited for {r}, to the first token")
        for r in WAIT_REASONS
    ),
    *(
        SpanAttribute(f"tenantscope.rewait.{r}", "s", f"waited for {r}, after the first token")
        for r in WAIT_REASONS
    ),
    SpanAttribute("tenantscope.kept", "1", "why: slo, outcome, preempted, client or ratio"),
    SpanAttribute(
        "tenantscope.layout", "1",
        "of a part: total = its length is true and its place is not; cut = its length is not "
        "either, for the row's parts are longer than the request",
    ),
)  # fmt: skip


def latency_bucket(value_s: float) -> int:
    """Index of the histogram bucket that holds `value_s` (upper bounds are inclusive)."""
    for i, bound in enumerate(LATENCY_BOUNDS_S):
        if value_s <= bound:
            return i
    return len(LATENCY_BOUNDS_S)
