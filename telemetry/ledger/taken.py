"""What leaves the ledger: a bucket's numbers as they were at an instant, and the rows of them.

`Bucket` is made under the ledger's lock and holds copies; rows are built here, outside the lock,
by whoever wants them. A `Taken` that nobody asks for rows costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from telemetry.conventions import WAIT_REASONS, Emitter
from telemetry.ledger.books import adapter_row
from telemetry.ledger.fold import Reading, Result
from telemetry.ledger.sampling import StepFacts
from telemetry.ledger.tenants import BUCKETS, COLUMN, COLUMNS, MAX_GAP, TPOT, TTFT, TenantNumbers
from telemetry.ledger.vectors import Vector
from telemetry.ledger.views import Identity
from telemetry.records import (
    Batch,
    EngineMinute,
    InterferenceMinute,
    LogRow,
    MinuteRow,
    StepSample,
    TenantMinute,
)

WP, WQ = 1.0, 2.0  # service = WP * prompt + WQ * output, unweighted
_REAL = ("engine_seconds", "prefill_cost_s", "load_s", "evictions_caused", "preemptions_caused")
_IS_REAL = tuple(name in _REAL for name in COLUMNS)
_PROMPT, _OUTPUT = COLUMN["prompt_tokens"], COLUMN["output_tokens"]
# A row for export, or what makes it: a function and its argument, called outside the lock.
Log = LogRow | tuple[Callable[[Any], LogRow], Any]


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket, sealed or as far as it was. `observed_s` is the part that was observed."""

    sealed: bool
    seq: int
    start: float  # unix seconds
    bucket_s: float
    observed_s: float
    policy_version: int
    engine: EngineMinute
    tenants: TenantNumbers
    counters: list[float | None]  # virtual token counters, by index
    reading: Reading
    adapters: list[tuple[str, tuple[int, int, int, float, float, float, float]]]


class Taken:
    """Buckets and logs handed out by the ledger. `batches` may be called in any thread, once or
    often; logs travel with the first batch."""

    def __init__(
        self,
        identity: Identity,
        weights: Mapping[str, float],
        buckets: Sequence[Bucket],
        logs: Sequence[Log],
    ) -> None:
        self._identity = identity
        self._weights = weights
        self._buckets = buckets
        self._logs = logs
        self._batches: list[Batch] | None = None

    def batches(self) -> list[Batch]:
        """One a bucket, in order of time; the open one is the last."""
        if self._batches is None:
            who = self._identity
            logs = tuple(
                item[0](item[1]) if isinstance(item, tuple) else item for item in self._logs
            )
            batches = []
            for bucket in self._buckets:
                rows = _rows(bucket, who, self._weights)
                batches.append(
                    Batch(
                        who.engine,
                        who.run_id,
                        who.pool,
                        Emitter.WORKER,
                        bucket.sealed,
                        bucket.seq,
                        rows,
                        logs,
                    )
                )
                logs = ()
            self._batches = batches
            self._buckets, self._logs = (), ()
        return list(self._batches)


def bucket_keys(start: float, bucket_s: float, who: Identity) -> dict[str, Any]:
    return {
        "bucket_start": start,
        "bucket_s": bucket_s,
        "engine": who.engine,
        "run_id": who.run_id,
        "pool": who.pool,
    }


def sample_row(who: Identity, wall_s: float, facts: StepFacts) -> StepSample:
    step, at_s, duration_s, predicted_s, prefill, rows, context, adapters, version = facts
    return StepSample(
        engine=who.engine,
        run_id=who.run_id,
        pool=who.pool,
        step=step,
        at=wall_s + at_s,
        duration_s=duration_s,
        predicted_s=predicted_s,
        prefill_tokens=prefill,
        decode_rows=rows,
        context_tokens=context,
        adapters=adapters,
        cost_version=version,
    )


def _rows(bucket: Bucket, who: Identity, weights: Mapping[str, float]) -> tuple[MinuteRow, ...]:
    keys = bucket_keys(bucket.start, bucket.bucket_s, who)
    result = bucket.reading.result()
    rows: list[MinuteRow] = [bucket.engine]
    rows += _tenant_rows(bucket, keys, result, weights)
    for c in result.charges:
        rows.append(
            InterferenceMinute(
                **keys,
                victim=c.victim,
                reason=c.reason,
                holder_kind=c.kind,
                holder=c.holder,
                charged_s=c.seconds,
            )
        )
    for key, numbers in bucket.adapters:
        rows.append(adapter_row({**keys, "adapter": key}, numbers))
    return tuple(rows)


def _tenant_rows(
    bucket: Bucket, keys: dict[str, Any], result: Result, weights: Mapping[str, float]
) -> list[TenantMinute]:
    numbers = bucket.tenants
    observed = bucket.observed_s
    n = len(numbers.names)

    def column(values: Vector | None) -> list[float]:
        return [0.0] * n if values is None else values.tolist()

    def levels(level: tuple[Vector, Vector]) -> tuple[list[float], list[float]]:
        """(time-weighted average over the bucket, most)."""
        area, most = level
        return (area / observed if observed > 0 else most).tolist(), most.tolist()

    waits = {f"wait_{r}_s": column(result.waits.get(r)) for r in WAIT_REASONS}
    stall_s = column(result.stall_s)
    waiting, waiting_most = levels(numbers.waiting)
    running, running_most = levels(numbers.running)
    kv, kv_most = levels(numbers.kv_bytes)
    adapters, adapters_most = levels(numbers.adapter_bytes)
    oldest, backlogged = numbers.oldest_s.tolist(), numbers.backlogged_s.tolist()
    in_flight = numbers.in_flight.tolist()
    service = [WP * c[_PROMPT] + WQ * c[_OUTPUT] for c in numbers.counts.tolist()]
    rate = sum(service) / observed if observed > 0 else 0.0
    gaps = _gaps(bucket.counters, oldest, rate)
    out: list[TenantMinute] = []
    for i, name in enumerate(numbers.names):
        if name is None:
            continue
        counts = numbers.counts[i].tolist()
        plain = _plain(counts) | {reason: values[i] for reason, values in waits.items()}
        places = [int(p) for p in numbers.places[i].tolist()]
        out.append(
            TenantMinute(
                **keys,
                tenant=name,
                **plain,
                service=service[i],
                stall_s=stall_s[i],
                waiting_avg=waiting[i],
                waiting_max=waiting_most[i],
                oldest_wait_s=oldest[i],
                resident_seqs_avg=running[i],
                resident_seqs_max=running_most[i],
                kv_bytes_avg=kv[i],
                kv_bytes_max=kv_most[i],
                adapter_bytes_avg=adapters[i],
                adapter_bytes_max=adapters_most[i],
                in_flight=in_flight[i],
                ttft=tuple(places[TTFT : TTFT + BUCKETS]),
                tpot=tuple(places[TPOT : TPOT + BUCKETS]),
                max_gap=tuple(places[MAX_GAP : MAX_GAP + BUCKETS]),
                vtc_counter=bucket.counters[i],
                vtc_gap=gaps[i][0],
                vtc_gap_s=gaps[i][1],
                weight=weights.get(name, 1.0),
                backlogged_s=backlogged[i],
                observed_seconds=observed,
                policy_version=float(bucket.policy_version),
            )
        )
    return out


def _gaps(
    counters: list[float | None], oldest_s: list[float], rate: float
) -> list[tuple[float | None, float | None]]:
    """By index: the counter over the smallest one of those that waited in the bucket, and that in
    seconds of the pool's service (`rate` a second). None where nobody waited, or nothing was
    served. Below zero is who has had less and does not wait."""
    behind = [c for c, s in zip(counters, oldest_s, strict=True) if c is not None and s > 0]
    if not behind:
        return [(None, None)] * len(counters)
    least = min(behind)
    gaps = [None if c is None else c - least for c in counters]
    return [(g, None if g is None or rate <= 0 else g / rate) for g in gaps]


def _plain(counts: list[float]) -> dict[str, Any]:
    return {
        name: value if real else round(value)
        for name, value, real in zip(COLUMNS, counts, _IS_REAL, strict=True)
    }
