"""Millions of tenant-minutes: bytes a row, and how fast the store answers while it is written to.

    python benchmarks/tenant_minutes.py [--tenants 1000] [--days 10] [--seconds 12] [--scale 1]
                                        [--json]

1,000 tenants, 1,440 minutes, 10 days: 14.4 million rows, made by DuckDB. One day is closed by the
store's own close, the earlier ones are that day's Parquet with other instants, today is open and
whole. Then the store answers the same questions about its last hour, half hour and day in two
ways, over and over for `--seconds` each: asked in its own process, and through gRPC; a writer
delivers a tenth of the tenants every second meanwhile and waits for each COMMIT. `cpu` is of the
whole process that answers, writer included where it is the same one; under an answer it is of the
thread that asks, in the process only, and `least` is the least time one took: on a machine that
does other work too, they say what the answer itself costs. Aims: at most 300 bytes a row with all
active, 75 a tenant-minute over a day of Zipf traffic, at 10 and at 100 requests a second; the first
50 of the last hour within 10 ms (p50) in the process and 20 ms through gRPC. Exits 1 when an aim is
missed.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import made_minutes as made
from seal_commit import Process

from engine.arguments import amount, count
from telemetry.conventions import Emitter
from telemetry.instants import DAY_S, day_of, day_start
from telemetry.otlp import encode
from telemetry.records import Batch, EngineMinute, TenantMinute
from telemetry.source import LiveSource, Source, StoreSource
from telemetry.store import sql
from telemetry.store.store import Store

MINUTES = 1440
ZIPF_REQUESTS_A_SECOND = (10.0, 100.0)  # of 1,000 tenants
MOST_BYTES_ACTIVE, MOST_BYTES_ZIPF = 300.0, 75.0
MOST_FILE_S, MOST_GRPC_S = 0.010, 0.020
DELIVERY_S = 1.0


def fill(store: Store, day: str, tenants: int, requests_a_minute: float | None) -> int:
    """Make a day, open; returns how many rows of tenants."""
    with store.alone(f"{day} cannot be filled") as shelf:
        shelf.open_part(day)
        shelf.con.execute(made.insert_tenants(day, tenants, MINUTES, requests_a_minute)).fetchall()
        shelf.con.execute(made.insert_engine(day, MINUTES)).fetchall()
        counted = shelf.con.execute(sql.count(sql.in_part(day, "tenant_minute"))).fetchall()
    return int(counted[0][0])


def zipf_name(requests_a_second: float) -> str:
    return f"zipf_{requests_a_second:g}"


def sizes(folder: Path, tenants: int) -> dict[str, float]:
    """Bytes of a closed day, all active and of Zipf traffic."""
    found = {}
    day = "2026-01-01"
    of_zipf = {zipf_name(r): r * 60.0 * tenants / 1000 for r in ZIPF_REQUESTS_A_SECOND}
    for name, requests in ({"active": None} | of_zipf).items():
        with Store.open(folder / name) as store:
            rows = fill(store, day, tenants, requests)
            began = time.perf_counter()
            store.close_day(day)
            found[f"{name}_close_s"] = time.perf_counter() - began
        size = (folder / name / day / "tenant_minute.parquet").stat().st_size
        found |= {
            f"{name}_rows": rows,
            f"{name}_bytes_a_row": size / rows,
            f"{name}_bytes_a_tenant_minute": size / (tenants * MINUTES),
        }
    return found


def make_store(folder: Path, closed: Path, days: int, tenants: int) -> tuple[str, int]:
    """A store of so many days from one closed day; returns today's name and all rows."""
    today = day_of(time.time())
    source = closed / "tenant_minute.parquet"
    con = duckdb.connect()
    first = day_start(closed.name)
    for back in range(1, days):
        day = datetime.fromtimestamp(day_start(today) - back * DAY_S, UTC).strftime("%Y-%m-%d")
        target = folder / day
        shutil.copytree(closed, target, ignore=shutil.ignore_patterns("*.parquet"))
        shift = int((first - day_start(day)) / DAY_S)
        for file in closed.glob("*.parquet"):
            made_there = sql.literal(target / file.name)
            con.execute(made.copy_day(sql.parquet(file), shift, made_there)).fetchall()
    con.close()
    rows = 0
    if days > 1:
        rows = (days - 1) * int(duckdb.read_parquet(str(source)).count("*").fetchall()[0][0])
    with Store.open(folder) as store:
        rows += fill(store, today, tenants, None)
    return today, rows


class Writer:
    """Delivers a tenth of the tenants each second, as what is known of the open minute. Deliveries
    are encoded beforehand: that is the work of a sender, in a process of its own."""

    def __init__(
        self, deliver: Callable[[bytes], object], end: float, tenants: int, seconds: float
    ) -> None:
        self._deliver = deliver
        self._start, self._tenants = end, tenants
        most = math.ceil(seconds / DELIVERY_S) + 2
        self._encoded = [self._open_minute(seq) for seq in range(1, most + 1)]
        self._stop = threading.Event()
        self.commits_s: list[float] = []
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for data in self._encoded:
            if self._stop.is_set():
                break
            due = time.monotonic() + DELIVERY_S
            began = time.perf_counter()
            self._deliver(data)
            self.commits_s.append(time.perf_counter() - began)
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _open_minute(self, seq: int) -> bytes:
        keys = {"bucket_start": self._start, "bucket_s": made.MINUTE_S, **made.ENGINE}
        rows: list[Any] = [EngineMinute(**keys, steps=seq, observed_seconds=1.0 * seq)]
        for i in range(seq % 10, self._tenants, 10):
            rows.append(
                TenantMinute(
                    **keys, tenant=made.tenant_name(i), offered_requests=seq, finished=seq,
                    prompt_tokens=100 * seq, output_tokens=20 * seq, service=140.0 * seq,
                    wait_slot_s=0.1 * seq, wait_kv_s=0.2 * seq, observed_seconds=1.0 * seq,
                )
            )  # fmt: skip
        batch = Batch(
            **made.ENGINE, emitter=Emitter.WORKER, sealed=False, seq=seq, minutes=tuple(rows)
        )
        metrics, _ = encode(batch)
        assert metrics is not None
        return metrics


def questions(end: float, tenants: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is asked, by a name for people."""
    hour, half, day = end - 3600.0, end - 1800.0, end - DAY_S
    middle = made.tenant_name(tenants // 2)
    return {
        "first 50, last 60 min": ("top_tenants", {"start": hour, "end": end, "n": 50}),
        "one tenant, a day": ("tenant_series", {"start": day, "end": end, "tenant": middle}),
        "token share, 30 min": ("token_share", {"start": half, "end": end, "n": 10}),
        "all of all, 60 min": ("tenants_now", {"start": hour, "end": end}),
    }


def ask(
    source: Source, deliver: Callable[[bytes], object], end: float, tenants: int, seconds: float
) -> dict[str, Any]:
    """Ask each question for its part of the time while the writer writes."""
    asked = questions(end, tenants)
    for name, parameters in asked.values():
        source.query(name, **parameters)
    writer = Writer(deliver, end, tenants, seconds)
    answers: dict[str, Any] = {}
    try:
        for label, (name, parameters) in asked.items():
            until, times, cpu = time.monotonic() + seconds / len(asked), [], []
            rows = 0
            while time.monotonic() < until:
                began, cpu_began = time.perf_counter(), time.thread_time()
                rows = len(source.query(name, **parameters).rows)
                times.append(time.perf_counter() - began)
                cpu.append(time.thread_time() - cpu_began)
            answers[label] = {"rows": rows, **spread(times), "cpu_p50_s": statistics.median(cpu)}
    finally:
        writer.stop()
    return {"answers": answers, "commits": spread(writer.commits_s)}


def spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "n": len(times),
        "p50_s": statistics.median(ordered),
        "least_s": ordered[0],
        "p99_s": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "most_s": ordered[-1],
    }


def measure(folder: Path, tenants: int, days: int, seconds: float) -> dict[str, Any]:
    began = time.perf_counter()
    found: dict[str, Any] = {"tenants": tenants, "days": days, **sizes(folder, tenants)}
    closed = folder / "active" / "2026-01-01"
    store_folder = folder / "store"
    store_folder.mkdir()
    today, found["rows"] = make_store(store_folder, closed, days, tenants)
    found["made_in_s"] = time.perf_counter() - began
    open_file = store_folder / f"{today}.duckdb"
    found["open_bytes_a_row"] = open_file.stat().st_size / (tenants * MINUTES)
    found["store_bytes"] = sum(f.stat().st_size for f in store_folder.rglob("*") if f.is_file())
    end = day_start(today) + DAY_S  # the writer's minute begins there, and no question reaches it
    minute = end - made.MINUTE_S
    with Store.open(store_folder) as store:
        cpu = time.process_time()
        asked = ask(StoreSource(store), store.ingest_metrics, minute, tenants, seconds)
        found["file"] = {**asked, "cpu_share": (time.process_time() - cpu) / seconds}
    process = Process(folder)
    try:
        live = LiveSource(f"unix:{folder}/s")
        cpu = process.cpu_s()
        asked = ask(live, lambda data: process.client.export(data, None), minute, tenants, seconds)
        found["grpc"] = {**asked, "cpu_share": (process.cpu_s() - cpu) / seconds}
        found["store_peak_bytes"] = process.peak_bytes()
        live.close()
    finally:
        process.stop()
    found["took_s"] = time.perf_counter() - began
    return found


def text(r: dict[str, Any]) -> str:
    lines = [
        f"{r['rows']:,} tenant-minutes of {r['tenants']} tenants over {r['days']} days, "
        f"made in {r['made_in_s']:.0f} s; {r['store_bytes'] / 1e6:.0f} MB on disk",
        f"  bytes a row, all active  {r['active_bytes_a_row']:7.1f} closed "
        f"(aim {MOST_BYTES_ACTIVE:.0f}), {r['open_bytes_a_row']:.1f} open; "
        f"a day is closed in {r['active_close_s']:.1f} s",
    ]
    for rate in ZIPF_REQUESTS_A_SECOND:
        zipf = zipf_name(rate)
        lines.append(
            f"  a day of Zipf, {rate:3.0f} a s     {r[f'{zipf}_bytes_a_tenant_minute']:7.1f} "
            f"a tenant-minute (aim {MOST_BYTES_ZIPF:.0f}), {r[f'{zipf}_bytes_a_row']:.1f} a row: "
            f"{r[f'{zipf}_rows'] / (r['tenants'] * MINUTES):.0%} of them have one"
        )
    for where, name in (("file", "in the store's process"), ("grpc", "through gRPC")):
        part = r[where]
        commits = part["commits"]
        lines.append(
            f"  {name}, {commits['n']} deliveries committed beside: p50 "
            f"{commits['p50_s'] * 1e3:.0f} ms, p99 {commits['p99_s'] * 1e3:.0f}; "
            f"cpu {part['cpu_share']:.0%} of a core"
        )
        for label, a in part["answers"].items():
            lines.append(
                f"    {label:<22} p50 {a['p50_s'] * 1e3:7.1f} ms  p99 {a['p99_s'] * 1e3:7.1f}  "
                f"least {a['least_s'] * 1e3:6.1f}  cpu {a['cpu_p50_s'] * 1e3:6.1f}  "
                f"({a['n']} times, {a['rows']} rows)"
            )
    lines.append(f"  peak memory of the store process {r['store_peak_bytes'] >> 20} MiB")
    lines += [f"  MISSED  {what}" for what in missed(r)]
    return "\n".join(lines)


def missed(r: dict[str, Any]) -> list[str]:
    first = next(iter(r["file"]["answers"]))
    aims = (
        ("bytes a row, all active", r["active_bytes_a_row"], MOST_BYTES_ACTIVE),
        *(
            (
                f"bytes a tenant-minute, Zipf at {rate:g} a second",
                r[f"{zipf_name(rate)}_bytes_a_tenant_minute"],
                MOST_BYTES_ZIPF,
            )
            for rate in ZIPF_REQUESTS_A_SECOND
        ),
        (f"{first}, in the process, s", r["file"]["answers"][first]["p50_s"], MOST_FILE_S),
        (f"{first}, through gRPC, s", r["grpc"]["answers"][first]["p50_s"], MOST_GRPC_S),
    )
    return [f"{what}: {value:.4g}, aim {most:g}" for what, value, most in aims if value > most]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tenants", type=count, default=1000)
    parser.add_argument("--days", type=count, default=10)
    parser.add_argument("--seconds", type=amount, default=12.0, help="of asking, each way")
    parser.add_argument("--scale", type=amount, default=1.0, help="so many times the tenants")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    tenants = max(1, round(arguments.tenants * arguments.scale))
    with tempfile.TemporaryDirectory(prefix="minutes-") as folder:
        found = measure(Path(folder), tenants, arguments.days, arguments.seconds)
    if arguments.json:
        print(json.dumps({"machine": platform.machine(), **found, "missed": missed(found)}))
    else:
        print(text(found))
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
