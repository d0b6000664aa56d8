"""Re-delivered, re-ordered, re-batched: are the totals right to the token?

python benchmarks/redelivery.py [--points 2000000] [--seed 1] [--json]

Four runs of two engines send their minutes: open states that grow, then the sealed one, front and
worker apart. One run dies inside a minute and the next one begins in it; two runs share an engine's
name and all their minutes. Every delivery is cut into pieces by row, pieces are put together to
requests across runs, all of it comes in random order, part of it up to four times, over restarts of
the store and a day that is closed and opened again. The totals in the store are compared with those
of a plain dictionary. Exits 1 when one number differs.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.instants import day_of
from telemetry.otlp import encode
from telemetry.records import (
    Batch,
    EngineMinute,
    InterferenceMinute,
    RequestRecord,
    TenantMinute,
)
from telemetry.source import StoreSource
from telemetry.store.store import Store

T0 = 1_800_057_300.0  # five minutes before midnight: two days are written at once
BUCKET_S = 60.0
STATES = (0.3, 0.7, 1.0)  # how much of a minute each delivery knows
WHOLE = (
    "offered_requests", "offered_tokens", "admitted_requests", "prompt_tokens", "cached_tokens",
    "output_tokens", "recomputed_tokens", "finished",
)  # fmt: skip
BUCKETS = len(LATENCY_BOUNDS_S) + 1
Totals = dict[tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Run:
    """One run, the minutes it lives in, and whether it dies in the last of them."""

    engine: str
    run_id: str
    pool: str
    first: int
    last: int
    dies: bool


def runs(minutes: int) -> list[Run]:
    half = minutes // 2
    return [
        Run("e1", "r1", "main", 0, half, True),
        Run("e1", "r2", "main", half, minutes - 1, False),
        Run("twin", "ta", "main", 0, minutes - 1, False),
        Run("twin", "tb", "main", 0, minutes - 1, False),
    ]


def world(seed: int, tenants: int, minutes: int) -> Iterator[Batch]:
    """Every delivery, in the order in which it was made."""
    rng = random.Random(seed)
    for run in runs(minutes):
        names = {"engine": run.engine, "run_id": run.run_id, "pool": run.pool}
        seq = 0
        for index in range(run.first, run.last + 1):
            bases = [rng.randrange(1, 500) for _ in range(tenants)]
            dies = run.dies and index == run.last
            for part in STATES[:-1] if dies else STATES:
                seq += 1
                sealed = part == 1.0
                front, worker = _rows(names, T0 + BUCKET_S * index, bases, part, seq)
                logs = (_request(names, index, seq),)
                yield Batch(**names, emitter=Emitter.FRONT, sealed=sealed, seq=seq, minutes=front)
                yield Batch(**names, emitter=Emitter.WORKER, sealed=sealed, seq=seq,
                            minutes=worker, logs=logs)  # fmt: skip


def _rows(
    names: dict[str, str], start: float, bases: list[int], part: float, seq: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    keys = {"bucket_start": start, "bucket_s": BUCKET_S, **names}
    front: list[Any] = []
    worker: list[Any] = [EngineMinute(**keys, steps=int(1_000 * part), observed_seconds=60 * part)]
    for i, base in enumerate(bases):
        n = int(base * part)
        counts = [0] * BUCKETS
        counts[i % BUCKETS] = n
        front.append(
            TenantMinute(**keys, tenant=f"t{i}", offered_requests=n, offered_tokens=200 * n,
                         admitted_requests=n, wait_front_s=0.001 * n)
        )  # fmt: skip
        worker.append(
            TenantMinute(**keys, tenant=f"t{i}", prompt_tokens=100 * n, cached_tokens=7 * n,
                         output_tokens=31 * n, recomputed_tokens=n // 9, finished=n,
                         service=162.0 * n, kv_bytes_avg=1e6 * n, weight=1.0, ttft=tuple(counts))
        )  # fmt: skip
        # Who holds changes from state to state: what an older one said must not linger.
        worker.append(
            InterferenceMinute(**keys, victim=f"t{i}", reason="kv", holder_kind="tenant",
                               holder=f"t{(i + seq) % len(bases)}", charged_s=float(n))
        )  # fmt: skip
    return tuple(front), tuple(worker)


def _request(names: dict[str, str], index: int, seq: int) -> RequestRecord:
    return RequestRecord(**names, request_id=f"q{seq}", tenant="t0", outcome="finished",
                         arrived=T0 + BUCKET_S * index, output_tokens=seq)  # fmt: skip


def model(batches: list[Batch]) -> Totals:
    """What must be in the end: of every writer's bucket the newest state, sealed before open."""
    newest: dict[tuple[Any, ...], tuple[tuple[bool, int], list[Any]]] = {}
    requests: dict[tuple[str, ...], int] = {}
    for batch in batches:
        mark = (batch.sealed, batch.seq)
        by_bucket: dict[float, list[Any]] = defaultdict(list)
        for row in batch.minutes:
            by_bucket[row.bucket_start].append(row)
        for start, rows in by_bucket.items():
            key = (batch.engine, batch.run_id, batch.pool, batch.emitter, start)
            if key not in newest or newest[key][0] <= mark:
                newest[key] = (mark, rows)
        for row in batch.logs:
            requests[row.engine, row.run_id, row.request_id] = row.output_tokens
    rows = [row for _, some in newest.values() for row in some]
    totals = summed(rows)
    totals["requests",] = len(requests)
    totals["requests", "output_tokens"] = sum(requests.values())
    return totals


def summed(rows: list[Any]) -> Totals:
    """Integer totals a run and tenant, of rows wherever they are from."""
    totals: Totals = Counter()
    for row in rows:
        if type(row) is TenantMinute:
            whose = (row.engine, row.run_id, row.tenant)
            for name in WHOLE:
                totals[(*whose, name)] += getattr(row, name) or 0
            for i, n in enumerate(row.ttft or ()):
                totals[(*whose, f"ttft[{i}]")] += n
        elif type(row) is InterferenceMinute:
            totals[row.engine, row.run_id, row.victim, "held by", row.holder] += int(row.charged_s)
        elif type(row) is EngineMinute:
            totals[row.engine, row.run_id, "steps"] += row.steps or 0
    return {k: n for k, n in totals.items() if n}


def stored(source: Any) -> Totals:
    """The same of what a store holds."""
    everything = (float("-inf"), float("inf"))
    rows = [
        row
        for table in ("tenant_minute", "interference_minute", "engine_minute")
        for row in source.read(table, *everything)
    ]
    totals = summed(rows)
    requests = source.read("request", *everything)
    totals["requests",] = len(requests)
    totals["requests", "output_tokens"] = sum(r.output_tokens for r in requests)
    return totals


def pieces(batch: Batch, rng: random.Random) -> list[Batch]:
    """The delivery cut by row, into up to four."""
    parts: list[list[Any]] = [[] for _ in range(rng.randint(1, 4))]
    for row in (*batch.minutes, *batch.logs):
        rng.choice(parts).append(row)
    logs = set(map(id, batch.logs))
    return [
        replace(batch, minutes=tuple(r for r in part if id(r) not in logs),
                logs=tuple(r for r in part if id(r) in logs))
        for part in parts if part
    ]  # fmt: skip


def requests_of(batches: list[Batch], seed: int) -> Iterator[tuple[bytes, bytes]]:
    """(metrics, logs) requests, each of one to three pieces of anybody, each piece at least once,
    in no order."""
    rng = random.Random(seed)
    deck = [piece for batch in batches for piece in pieces(batch, rng)]
    deck += [piece for piece in deck if rng.random() < 0.3 for _ in range(rng.randint(1, 3))]
    rng.shuffle(deck)
    while deck:
        taken = [deck.pop() for _ in range(min(len(deck), rng.randint(1, 3)))]
        encoded = [encode(piece) for piece in taken]
        # Protobuf messages add up when they are put one behind the other.
        yield b"".join(m for m, _ in encoded if m), b"".join(g for _, g in encoded if g)


@dataclass(frozen=True, slots=True)
class Outcome:
    points: int
    requests: int
    restarts: int
    reopened_days: int
    seconds: float
    numbers: int
    differ: int
    first: str


def run(folder: Path, seed: int, tenants: int, minutes: int, restarts: int = 6) -> Outcome:
    """Deliver a world to a new store in `folder` and compare."""
    batches = list(world(seed, tenants, minutes))
    expected = model(batches)
    rng = random.Random(seed + 1)
    sent = list(requests_of(batches, seed + 2))
    again = set(rng.sample(range(len(sent)), min(restarts, len(sent))))
    store = Store.open(folder)
    points = reopened = 0
    began = time.perf_counter()
    for index, (metrics, logs) in enumerate(sent):
        if index in again:
            day = day_of(T0)
            if day in store.days() and not store.days()[day]:
                store.close_day(day)
                reopened += 1
            store.close()
            store = Store.open(folder)
        for data, ingest in ((metrics, store.ingest_metrics), (logs, store.ingest_logs)):
            if data:
                receipt = ingest(data)
                points += receipt.accepted
                if receipt.refused:
                    raise ValueError(f"refused {receipt.refused}: {receipt.reasons}")
    seconds = time.perf_counter() - began
    found = stored(StoreSource(store))
    store.close()
    differ = [k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)]
    first = f"{differ[0]}: {expected.get(differ[0])} != {found.get(differ[0])}" if differ else ""
    return Outcome(
        points, len(sent), len(again), reopened, seconds, len(expected), len(differ), first
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", type=int, default=2_000_000, help="how many, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args(argv)
    minutes = 12
    # A tenant and minute: 3 runs, 3 states of 14 points each, delivered 1.6 times; measured: 190.
    tenants = max(2, round(arguments.points / (minutes * 185)))
    with tempfile.TemporaryDirectory(prefix="redelivery-") as scratch:
        out = run(Path(scratch) / "store", arguments.seed, tenants, minutes)
    facts = {
        "seed": arguments.seed,
        "tenants": tenants,
        "minutes": minutes,
        "points": out.points,
        "requests": out.requests,
        "restarts": out.restarts,
        "days_closed_and_opened_again": out.reopened_days,
        "seconds": round(out.seconds, 1),
        "points_a_second": round(out.points / out.seconds),
        "numbers_compared": out.numbers,
        "numbers_that_differ": out.differ,
        "python": platform.python_version(),
    }
    if arguments.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<30} {value}")
    if out.differ:
        print(f"the first that differs: {out.first}", file=sys.stderr)
    return 1 if out.differ else 0


if __name__ == "__main__":
    sys.exit(main())
