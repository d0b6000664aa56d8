"""The values that travel from the engine to the store, and back out of it. Rows, nothing else.

Instants are unix seconds, UTC, as float (the store keeps microseconds); durations are monotonic
seconds. A field that is None is *absent*: not measured, never reached, or written by the other
process. Absent is not zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.conventions import (
    EVENT_KINDS,
    Emitter,
    Kind,
    attr,
    count,
    gauge,
    histogram,
    key,
    seconds,
)

FRONT = Emitter.FRONT
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantMinute:
    """What one tenant asked for, got, and waited for in one bucket of one pool."""

    bucket_start: float = key("TIMESTAMP", "start of the bucket, UTC")
    bucket_s: float = key("DOUBLE", "length of the bucket, seconds")
    engine: str = key("VARCHAR", "one `serve`")
    run_id: str = key("VARCHAR", "one start of the pool's worker")
    pool: str = key("VARCHAR", "the tenants' shared scheduler")
    tenant: str = key("VARCHAR", "the tenant")

    offered_requests: int | None = count("request", "arrived and authenticated", FRONT)
    offered_tokens: int | None = count("token", "prompt + max_tokens of those offered", FRONT)
    offered_retries: int | None = count("request", "offered that were retries", FRONT)
    admitted_requests: int | None = count("request", "handed on to the pool", FRONT)
    admitted_tokens: int | None = count("token", "prompt + max_tokens of those admitted", FRONT)
    rejected_rpm_requests: int | None = count("request", "refused by requests per minute", FRONT)
    rejected_rpm_tokens: int | None = count("token", "refused by requests per minute", FRONT)
    rejected_tpm_requests: int | None = count("request", "refused by tokens per minute", FRONT)
    rejected_tpm_tokens: int | None = count("token", "refused by tokens per minute", FRONT)
    rejected_concurrency_requests: int | None = count("request", "refused by concurrency", FRONT)
    rejected_concurrency_tokens: int | None = count("token", "refused by concurrency", FRONT)
    rejected_queue_requests: int | None = count("request", "refused by a full queue", FRONT)
    rejected_queue_tokens: int | None = count("token", "refused by a full queue", FRONT)
    rejected_impossible_requests: int | None = count("request", "could never be served", FRONT)
    rejected_impossible_tokens: int | None = count("token", "could never be served", FRONT)
    wait_front_s: float | None = seconds("waited in the front", emitter=FRONT)
    quota_rpm_level: float | None = gauge(
        Kind.LAST, "{request}", "requests left in the bucket at the end", FRONT
    )
    quota_tpm_level: float | None = gauge(
        Kind.LAST, "{token}", "tokens left in the bucket at the end", FRONT
    )
    concurrency_in_use: float | None = gauge(
        Kind.LAST, "{request}", "requests admitted and not ended, at the end", FRONT
    )

    prompt_tokens: int | None = count("token", "prompt tokens computed, first time")
    cached_tokens: int | None = count("token", "prompt tokens found in the prefix cache")
    output_tokens: int | None = count("token", "tokens generated")
    recomputed_tokens: int | None = count(
        "token", "tokens computed again: after preemption, or for another choice of an answer"
    )
    service: float | None = gauge(Kind.SUM, "1", "wp*prompt + wq*output, unweighted")
    engine_seconds: float | None = seconds("modelled cost of the tenant's own work: its bill")
    prefill_cost_s: float | None = seconds("the prefill part of engine_seconds")

    wait_slot_s: float | None = seconds("waited with no free sequence slot")
    wait_budget_s: float | None = seconds("waited with the step's budget used up")
    wait_kv_s: float | None = seconds("waited for pages")
    wait_adapter_s: float | None = seconds("waited for its adapter to reach the device")
    stall_s: float | None = seconds("of running sequences: others' prefill inside their steps")
    waiting_avg: float | None = gauge(Kind.AVG, "{request}", "requests waiting, time-weighted")
    waiting_max: float | None = gauge(Kind.MAX, "{request}", "requests waiting, most at once")
    oldest_wait_s: float | None = seconds("age of the oldest wait, most", Kind.MAX)
    resident_seqs_avg: float | None = gauge(Kind.AVG, "{sequence}", "running, time-weighted")
    resident_seqs_max: float | None = gauge(Kind.MAX, "{sequence}", "running, most at once")
    kv_bytes_avg: float | None = gauge(Kind.AVG, "By", "KV bytes held, time-weighted")
    kv_bytes_max: float | None = gauge(Kind.MAX, "By", "KV bytes held, most")
    adapter_bytes_avg: float | None = gauge(
        Kind.AVG, "By", "adapter bytes referenced, time-weighted; shared ones in equal parts"
    )
    adapter_bytes_max: float | None = gauge(Kind.MAX, "By", "adapter bytes referenced, most")

    adapter_lookups: int | None = count("lookup", "one a request that names an adapter")
    found_device: int | None = count("lookup", "state at arrival: on the device")
    found_loading: int | None = count("lookup", "state at arrival: on its way")
    found_host: int | None = count("lookup", "state at arrival: in host memory")
    found_disk: int | None = count("lookup", "state at arrival: on disk")
    swap_in_bytes: int | None = count("By", "adapter bytes copied to the device")
    swap_out_bytes: int | None = count("By", "adapter bytes evicted from the device")
    load_s: float | None = seconds("time its adapters were loading")
    evictions_suffered: int | None = count("eviction", "its adapters were evicted, by itself too")
    evictions_caused: float | None = gauge(
        Kind.SUM, "{eviction}", "evictions, in proportion to pages above fair share"
    )
    preemptions_suffered: int | None = count("preemption", "its sequences were preempted")
    preemptions_caused: float | None = gauge(
        Kind.SUM, "{preemption}", "preemptions, in proportion to pages above fair share"
    )

    slo_eligible: int | None = count("request", "met + missed")
    slo_met: int | None = count("request", "finished inside every target")
    slo_missed: int | None = count("request", "missed at least one target")
    slo_missed_ttft: int | None = count("request", "missed the TTFT target")
    slo_missed_tpot: int | None = count("request", "missed the TPOT target")
    slo_missed_gap: int | None = count("request", "missed the max-gap target")
    missed_waiting: int | None = count("request", "TTFT misses booked while still waiting")
    goodput_tokens: int | None = count("token", "output tokens of the requests that met")
    finished: int | None = count("request", "ended with all their tokens")
    aborted: int | None = count("request", "given up by the client")
    failed: int | None = count("request", "ended by an error")
    timed_out: int | None = count("request", "ended by a deadline")
    in_flight: float | None = gauge(Kind.LAST, "{request}", "in the worker, at the end")

    ttft: Counts | None = histogram("time to first token, in the bucket of the first token")
    tpot: Counts | None = histogram("time per output token, in the bucket of the end")
    max_gap: Counts | None = histogram("longest gap between two tokens, in the bucket of the end")

    vtc_counter: float | None = gauge(Kind.LAST, "1", "virtual token counter, shadow included")
    vtc_gap: float | None = gauge(
        Kind.LAST, "1", "counter minus the smallest one of those backlogged in the bucket"
    )
    vtc_gap_s: float | None = seconds(
        "vtc_gap over the pool's service a second: how far ahead of the last", Kind.LAST
    )
    vtc_lifts: int | None = count("lift", "counter lifts on return from idleness")
    weight: float | None = gauge(Kind.LAST, "1", "scheduling weight at the end")
    backlogged_s: float | None = seconds("time with at least one request waiting")
    observed_seconds: float | None = seconds("part of the bucket that was observed")
    policy_version: float | None = gauge(Kind.LAST, "1", "policy in force at the end")


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceMinute:
    """Seconds of one tenant's waiting charged to one holder, for one reason, in one bucket."""

    bucket_start: float = key("TIMESTAMP", "start of the bucket, UTC")
    bucket_s: float = key("DOUBLE", "length of the bucket, seconds")
    engine: str = key("VARCHAR", "one `serve`")
    run_id: str = key("VARCHAR", "one start of the pool's worker")
    pool: str = key("VARCHAR", "the tenants' shared scheduler")
    victim: str = key("VARCHAR", "the tenant that waited")
    reason: str = key("VARCHAR", "slot, budget, kv, adapter or stall")
    holder_kind: str = key("VARCHAR", "tenant, self, capacity, policy or others")
    holder: str = key("VARCHAR", "the tenant that held; empty unless holder_kind is tenant")
    charged_s: float | None = seconds("seconds charged: who held it, not an accusation")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterMinute:
    """Residency of one adapter in one bucket."""

    bucket_start: float = key("TIMESTAMP", "start of the bucket, UTC")
    bucket_s: float = key("DOUBLE", "length of the bucket, seconds")
    engine: str = key("VARCHAR", "one `serve`")
    run_id: str = key("VARCHAR", "one start of the pool's worker")
    pool: str = key("VARCHAR", "the tenants' shared scheduler")
    adapter: str = key("VARCHAR", "content hash of the adapter")
    lookups: int | None = count("lookup", "requests that named it")
    loads: int | None = count("load", "copies to the device")
    evictions: int | None = count("eviction", "evictions from the device")
    load_s: float | None = seconds("time spent loading")
    resident_s: float | None = seconds("time on the device")
    referenced_s: float | None = seconds("time with a running reference")
    device_bytes: float | None = gauge(Kind.MAX, "By", "bytes on the device")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMinute:
    """What the pool's worker did in one bucket. Written even when no tenant was active."""

    bucket_start: float = key("TIMESTAMP", "start of the bucket, UTC")
    bucket_s: float = key("DOUBLE", "length of the bucket, seconds")
    engine: str = key("VARCHAR", "one `serve`")
    run_id: str = key("VARCHAR", "one start of the pool's worker")
    pool: str = key("VARCHAR", "the tenants' shared scheduler")
    steps: int | None = count("step", "steps completed")
    busy_s: float | None = seconds("time inside steps, plan to plan")
    idle_s: float | None = seconds("time with no step under way")
    predicted_s: float | None = seconds("what the cost model expected of the busy time")
    capacity_s: float | None = seconds("busy time beyond the prediction: lost capacity")
    base_cost_s: float | None = seconds("the step's fixed cost, billed to nobody")
    prefill_tokens: int | None = count("token", "tokens of prefill and recompute")
    decode_tokens: int | None = count("token", "tokens of decode rows")
    step_time: Counts | None = histogram("duration of steps, plan to plan")
    running_avg: float | None = gauge(Kind.AVG, "{sequence}", "running, time-weighted")
    running_max: float | None = gauge(Kind.MAX, "{sequence}", "running, most at once")
    waiting_avg: float | None = gauge(Kind.AVG, "{request}", "waiting, time-weighted")
    waiting_max: float | None = gauge(Kind.MAX, "{request}", "waiting, most at once")
    slots: float | None = gauge(Kind.LAST, "{sequence}", "sequence slots")
    pool_bytes: float | None = gauge(Kind.LAST, "By", "the arena")
    kv_bytes_avg: float | None = gauge(Kind.AVG, "By", "held by KV, time-weighted")
    adapter_bytes_avg: float | None = gauge(Kind.AVG, "By", "held by adapters in use")
    cached_bytes_avg: float | None = gauge(Kind.AVG, "By", "held by adapters nobody uses now")
    free_bytes_avg: float | None = gauge(Kind.AVG, "By", "free, time-weighted")
    last_token_age_s: float | None = seconds(
        "since the last token, work waiting, at the end", Kind.LAST
    )
    last_token_age_max_s: float | None = seconds(
        "since the last token, work waiting, most", Kind.MAX
    )
    preemptions: int | None = count("preemption", "sequences preempted")
    evictions: int | None = count("eviction", "adapters evicted")
    loads: int | None = count("load", "adapters loaded")
    observed_seconds: float | None = seconds("part of the bucket that was observed")
    policy_version: float | None = gauge(Kind.LAST, "1", "policy in force at the end")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request's life. Milestones never reached are None."""

    engine: str = attr("VARCHAR", "one `serve`", required=True)
    run_id: str = attr("VARCHAR", "one start of the pool's worker", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    request_id: str = attr("VARCHAR", "unique in the engine", required=True)
    tenant: str = attr("VARCHAR", "the tenant", required=True)
    adapter: str | None = attr("VARCHAR", "name of the adapter; absent for the base model")
    outcome: str = attr(
        "VARCHAR", "finished, aborted, failed, timed_out or rejected", required=True
    )
    reject_reason: str | None = attr("VARCHAR", "rpm, tpm, concurrency, queue or impossible")
    policy_version: int | None = attr("BIGINT", "policy in force at the arrival")
    is_retry: bool | None = attr("BOOLEAN", "the arrival was a retry")
    arrived: float = attr("TIMESTAMP", "arrival at the front", required=True)
    admitted: float | None = attr("TIMESTAMP", "handed to the pool")
    first_scheduled: float | None = attr("TIMESTAMP", "first prefill chunk")
    first_token: float | None = attr("TIMESTAMP", "first token")
    last_token: float | None = attr("TIMESTAMP", "last token")
    ended: float | None = attr("TIMESTAMP", "the outcome")
    prompt_tokens: int | None = attr("BIGINT", "length of the prompt", "{token}")
    max_tokens: int | None = attr("BIGINT", "most tokens asked for", "{token}")
    cached_tokens: int | None = attr("BIGINT", "prompt tokens not computed", "{token}")
    output_tokens: int | None = attr("BIGINT", "tokens generated", "{token}")
    recomputed_tokens: int | None = attr("BIGINT", "computed again", "{token}")
    preemptions: int | None = attr("BIGINT", "times preempted", "{preemption}")
    adapter_state: str | None = attr("VARCHAR", "device, loading, host or disk, at arrival")
    wait_front_s: float | None = attr("DOUBLE", "in the front", "s")
    wait_slot_s: float | None = attr("DOUBLE", "for a slot, to the first token", "s")
    wait_budget_s: float | None = attr("DOUBLE", "for budget, to the first token", "s")
    wait_kv_s: float | None = attr("DOUBLE", "for pages, to the first token", "s")
    wait_adapter_s: float | None = attr("DOUBLE", "for the adapter, to the first token", "s")
    prefill_s: float | None = attr("DOUBLE", "in prefill, to the first token", "s")
    ttft_s: float | None = attr("DOUBLE", "front + waits + prefill", "s")
    rewait_slot_s: float | None = attr("DOUBLE", "for a slot, after the first token", "s")
    rewait_budget_s: float | None = attr("DOUBLE", "for budget, after the first token", "s")
    rewait_kv_s: float | None = attr("DOUBLE", "for pages, after the first token", "s")
    rewait_adapter_s: float | None = attr("DOUBLE", "for the adapter, after the first token", "s")
    stall_s: float | None = attr("DOUBLE", "others' prefill inside its steps", "s")
    tpot_s: float | None = attr("DOUBLE", "(last - first token) / (output tokens - 1)", "s")
    max_gap_s: float | None = attr("DOUBLE", "longest time between two tokens", "s")
    slo_met: bool | None = attr("BOOLEAN", "inside every target; absent when not eligible")
    missed_ttft: bool | None = attr("BOOLEAN", "passed the TTFT target")
    missed_tpot: bool | None = attr("BOOLEAN", "passed the TPOT target")
    missed_gap: bool | None = attr("BOOLEAN", "passed the max-gap target")
    trace_id: str | None = attr("VARCHAR", "the client's trace, hex; absent when it sent none")
    parent_span_id: str | None = attr("VARCHAR", "the client's span that asked, hex")
    trace_sampled: bool | None = attr("BOOLEAN", "the client keeps its trace")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something that happened once: a change, a preemption, an eviction, a clock jump."""

    engine: str = attr("VARCHAR", "one `serve`", required=True)
    run_id: str = attr("VARCHAR", "one start of the pool's worker", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    event_id: str = attr(
        "VARCHAR", "unique in the run; re-delivery does not double it", required=True
    )
    at: float = attr("TIMESTAMP", "when", required=True)
    kind: str = attr(
        "VARCHAR", f"one of the kinds of event: {', '.join(EVENT_KINDS)}", required=True
    )
    tenant: str | None = attr("VARCHAR", "whom it concerns")
    adapter: str | None = attr("VARCHAR", "which adapter")
    request_id: str | None = attr("VARCHAR", "which request")
    cause_tenant: str | None = attr("VARCHAR", "whose demand triggered it")
    detail: str | None = attr("VARCHAR", "one sentence for a person")
    value: float | None = attr("DOUBLE", "a number that belongs to it (bytes, seconds)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """A version of what decides: the policy's name and its parameters."""

    engine: str = attr("VARCHAR", "one `serve`", required=True)
    run_id: str = attr("VARCHAR", "one start of the pool's worker", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    version: int = attr("BIGINT", "counts up from 1 in a run", required=True)
    at: float = attr("TIMESTAMP", "in force from", required=True)
    policy: str = attr("VARCHAR", "vtc, fcfs, ...", required=True)
    previous: str | None = attr("VARCHAR", "what it replaced")
    who: str | None = attr("VARCHAR", "who changed it")
    why: str | None = attr("VARCHAR", "the reason given")
    parameters: str | None = attr("VARCHAR", "JSON: weights and limits in force")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """A sampled step: what the cost model is fitted and tested on."""

    engine: str = attr("VARCHAR", "one `serve`", required=True)
    run_id: str = attr("VARCHAR", "one start of the pool's worker", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    step: int = attr("BIGINT", "counts up from 1 in a run", required=True)
    at: float = attr("TIMESTAMP", "plan", required=True)
    duration_s: float = attr("DOUBLE", "plan to plan", "s", required=True)
    predicted_s: float = attr("DOUBLE", "by the cost model", "s", required=True)
    prefill_tokens: int = attr("BIGINT", "prefill and recompute", "{token}", required=True)
    decode_rows: int = attr("BIGINT", "decoding sequences", "{sequence}", required=True)
    context_tokens: int = attr(
        "BIGINT", "keys attended over all query tokens", "{token}", required=True
    )
    adapters: int = attr("BIGINT", "distinct adapters in the step", "{adapter}", required=True)
    cost_version: int = attr("BIGINT", "version of the cost model", required=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """One start of a worker: its configuration, arena and cost model."""

    engine: str = attr("VARCHAR", "one `serve`", required=True)
    run_id: str = attr("VARCHAR", "one start of the pool's worker", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    started: float = attr("TIMESTAMP", "when", required=True)
    model: str = attr("VARCHAR", "name of the base model", required=True)
    model_hash: str | None = attr("VARCHAR", "content hash of the base model")
    synthetic: bool | None = attr("BOOLEAN", "the model is a made-up stand-in")
    dtype: str | None = attr("VARCHAR", "compute type")
    page_bytes: int | None = attr("BIGINT", "size of a page", "By")
    pages: int | None = attr("BIGINT", "pages in the arena", "{page}")
    slots: int | None = attr("BIGINT", "sequence slots", "{sequence}")
    step_tokens: int | None = attr("BIGINT", "token budget of a step", "{token}")
    bucket_s: float | None = attr("DOUBLE", "length of a bucket", "s")
    cost_version: int | None = attr("BIGINT", "version of the cost model")
    costs: str | None = attr("VARCHAR", "JSON: the cost model's coefficients")
    config: str | None = attr("VARCHAR", "JSON: tenants' weights, limits and SLOs; no secrets")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecord:
    """An adapter known to a run. Identity is the content hash, not the name."""

    engine: str = attr("VARCHAR", "one `serve`", required=True)
    run_id: str = attr("VARCHAR", "one start of the pool's worker", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    adapter: str = attr("VARCHAR", "content hash", required=True)
    name: str = attr("VARCHAR", "name given by the operator", required=True)
    rank: int | None = attr("BIGINT", "largest rank")
    bytes: int | None = attr("BIGINT", "on the device", "By")
    synthetic: bool | None = attr("BOOLEAN", "made by `adapters make`")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMetric:
    """A point or log record of somebody else's vocabulary: kept apart, counted, used by nothing."""

    engine: str = attr("VARCHAR", "service.instance.id, else service.name, else empty",
                       required=True)  # fmt: skip
    run_id: str = attr("VARCHAR", "empty: a foreign sender has no runs", required=True)
    pool: str = attr("VARCHAR", "empty: a foreign sender has no pools", required=True)
    at: float = attr("TIMESTAMP", "the point's time", required=True)
    metric: str = attr("VARCHAR", "the metric's name, or a log record's event name", required=True)
    attributes: str = attr("VARCHAR", "the point's attributes, as JSON with sorted keys; of a log "
                           "record its severity alone", required=True)  # fmt: skip
    kind: str = attr(
        "VARCHAR",
        "gauge, sum, cumulative sum, histogram, cumulative histogram, summary or log",
        required=True,
    )
    unit: str | None = attr("VARCHAR", "the metric's unit, as it was sent")
    value: float | None = attr("DOUBLE", "the number of a gauge or sum")
    count: int | None = attr("BIGINT", "observations of a histogram or summary; log records")
    sum: float | None = attr("DOUBLE", "sum of a histogram's or summary's observations")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesState:
    """How far a generic OTLP sender's series has been counted: what makes its totals deltas."""

    engine: str = attr("VARCHAR", "the sender", required=True)
    run_id: str = attr("VARCHAR", "the run its rows are kept under", required=True)
    pool: str = attr("VARCHAR", "the tenants' shared scheduler", required=True)
    at: float = attr("TIMESTAMP", "start of the day whose rows hold it", required=True)
    metric: str = attr("VARCHAR", "the metric's name", required=True)
    attributes: str = attr("VARCHAR", "the series' keys, as JSON with sorted keys", required=True)
    start_ns: int = attr("BIGINT", "where its total begins, unix ns; 0 of deltas and gauges",
                         "ns", required=True)  # fmt: skip
    time_ns: int = attr("BIGINT", "the last point counted, unix ns", "ns", required=True)
    heard_ns: int = attr("BIGINT", "when the series was first heard, unix ns", "ns", required=True)
    value: str = attr("VARCHAR", "JSON: the total counted; of deltas the intervals counted",
                      required=True)  # fmt: skip


MinuteRow = TenantMinute | InterferenceMinute | AdapterMinute | EngineMinute
LogRow = (
    RequestRecord
    | EventRecord
    | PolicyRecord
    | StepSample
    | EngineRun
    | AdapterRecord
    | ForeignMetric
    | SeriesState
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One delivery: the rows of an interval that one process writes, all columns together.

    `sealed` and `seq` order deliveries of the same key: a sealed one beats an open one, then the
    higher seq wins, so re-delivery and re-ordering can neither double nor lose.
    """

    engine: str
    run_id: str
    pool: str
    emitter: Emitter
    sealed: bool
    seq: int
    minutes: tuple[MinuteRow, ...] = ()
    logs: tuple[LogRow, ...] = ()
