"""What leaves the ledger: a bucket's numbers as they were at an instant, and the rows of them.

`Bucket` is made under the ledger's lock and holds copies; rows are built here, outside the lock,
by whoever wants them. A `Taken` that nobody asks for rows costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from telemetry.at_once import rows_at_once
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
    charges = result.charges
    rows += rows_at_once(
        InterferenceMinute,
        len(charges),
        keys,
        {
            "victim": charges.victims,
            "reason": charges.reasons,
            "holder_kind": charges.kinds,
            "holder": charges.holders,
            "charged_s": charges.seconds,
        },
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

    def levels(level: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
        """(time-weighted average over the bucket, most)."""
        area, most = level
        return (area / observed if observed > 0 else most), most

    counts, places = numbers.counts, numbers.places.astype(np.int64)
    service = WP * counts[:, _PROMPT] + WQ * counts[:, _OUTPUT]
    oldest_s = numbers.oldest_s.tolist()
    rate = sum(service.tolist()) / observed if observed > 0 else 0.0
    gaps = _gaps(bucket.counters, oldest_s, rate)
    waiting, running = levels(numbers.waiting), levels(numbers.running)
    kv, adapters = levels(numbers.kv_bytes), levels(numbers.adapter_bytes)
    whole = np.rint(counts).astype(np.int64)
    columns: dict[str, list[Any]] = {
        "tenant": list(numbers.names),
        "oldest_wait_s": oldest_s,
        "vtc_counter": list(bucket.counters),
        "vtc_gap": [gap for gap, _ in gaps],
        "vtc_gap_s": [gap_s for _, gap_s in gaps],
        "weight": [weights.get(name or "", 1.0) for name in numbers.names],
    }
    for i, (name, real) in enumerate(zip(COLUMNS, _IS_REAL, strict=True)):
        columns[name] = (counts if real else whole)[:, i].tolist()
    for name, at in (("ttft", TTFT), ("tpot", TPOT), ("max_gap", MAX_GAP)):
        columns[name] = list(map(tuple, places[:, at : at + BUCKETS].tolist()))
    nothing = np.zeros(n)
    for name, values in (
        *((f"wait_{r}_s", result.waits.get(r, nothing)) for r in WAIT_REASONS),
        ("stall_s", result.stall_s),
        ("service", service),
        ("waiting_avg", waiting[0]),
        ("waiting_max", waiting[1]),
        ("resident_seqs_avg", running[0]),
        ("resident_seqs_max", running[1]),
        ("kv_bytes_avg", kv[0]),
        ("kv_bytes_max", kv[1]),
        ("adapter_bytes_avg", adapters[0]),
        ("adapter_bytes_max", adapters[1]),
        ("in_flight", numbers.in_flight),
        ("backlogged_s", numbers.backlogged_s),
    ):
        columns[name] = values.tolist()
    there = [i for i, name in enumerate(numbers.names) if name is not None]
    if len(there) < n:
        columns = {name: [values[i] for i in there] for name, values in columns.items()}
    same = {"observed_seconds": observed, "policy_version": float(bucket.policy_version)}
    return rows_at_once(TenantMinute, len(there), {**keys, **same}, columns)


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
