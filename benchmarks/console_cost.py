"""What a console costs at 10,000 tenants, 1 s refresh, over gRPC: CPU, memory, key to paint, start.

    python benchmarks/console_cost.py [--tenants 10000] [--seconds 60] [--waiting 0.1] [--json]
    python benchmarks/console_cost.py --start-rows 14400000   start on a store of so many rows, too
    python benchmarks/console_cost.py --feed                  the feed's CPU a delivery, no terminal
    python benchmarks/console_cost.py --hour                  its memory over a simulated hour, too

A store process has an hour of a pool in which every tenant is active; `--waiting` of them wait,
each behind eight holders. Its open minute is delivered every ten seconds, as an engine does, by
this process (encoded beforehand). `tenantscope console --connect` runs on a terminal of its own
(a pty, 120x40); keys are pressed at random times, and a key is painted when the screen that it
opens has reached the terminal. CPU of the console and of the store process by /proc, the store's
also over the same deliveries to a second store that no console looks at. On a machine that does
other work too seconds of the wall say little: what they took of a core is said beside. `first
row`: from the start of the process until the first tenant's name is on the terminal.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import console_hour
import made_minutes as made
from console_terminal import Terminal, cpu_of, press_esc, press_keys, resident_bytes
from seal_commit import Process

from console.sight import LiveEdge, Sight
from engine.arguments import amount, count
from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.instants import day_of, day_start
from telemetry.otlp import encode
from telemetry.pipeline.portions import portions
from telemetry.records import Batch, EngineMinute, InterferenceMinute, TenantMinute
from telemetry.source import open_source
from telemetry.store.store import Store

MINUTE_S, DELIVERY_S = 60.0, 10.0
# From the first delivery until the console's share is measured: its picture is whole by then.
SETTLE_S = 8.0
HISTORY = 65  # minutes
HOLDERS = 8
MOST_CPU, MOST_STORE_CPU, MOST_KEY_S = 0.25, 0.03, 0.100
MOST_START_S, MOST_START_ON_A_STORE_S = 1.0, 1.5


def make_history(folder: Path, tenants: int, end: float, minutes: int = HISTORY) -> None:
    """An hour of closed minutes up to `end`, on one day or two."""
    with Store.open(folder) as store, store.alone("the benchmark cannot be filled") as shelf:
        at = end - minutes * MINUTE_S
        while at < end:
            day = day_of(at)
            begun = day_start(day)
            first, last = (round((t - begun) / MINUTE_S) for t in (at, min(end, begun + 86_400.0)))
            shelf.open_part(day)
            shelf.con.execute(made.insert_tenants(day, tenants, last, None, first)).fetchall()
            shelf.con.execute(made.insert_engine(day, last, first)).fetchall()
            at = begun + last * MINUTE_S


def minute(start: float, part: float, tenants: int, waiting: float) -> tuple[Any, ...]:
    """Rows of one minute, as far as `part` of it; some wait behind one large holder and others."""
    keys = {"bucket_start": start, "bucket_s": MINUTE_S, **made.ENGINE}
    names = [made.tenant_name(i) for i in range(tenants)]
    draw = random.Random(tenants)
    rows: list[Any] = []
    for i, name in enumerate(names):
        n = int(draw.randint(1, 20) * part) * (50 if i == 0 else 1)
        waits = draw.random() < waiting and i > 0
        counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        counts[9 if waits else 5] = n
        rows.append(
            TenantMinute(
                **keys, tenant=name, offered_requests=n, admitted_requests=n, finished=n,
                prompt_tokens=400 * n, output_tokens=120 * n, service=640.0 * n,
                engine_seconds=0.01 * n, wait_slot_s=4.0 * part if waits else 0.0,
                wait_budget_s=0.0, wait_kv_s=9.0 * part if waits else 0.0, wait_adapter_s=0.0,
                stall_s=0.1 * part, waiting_avg=0.2 if waits else 0.0, oldest_wait_s=3.0,
                resident_seqs_avg=0.02, kv_bytes_avg=2e5 * (100.0 if i == 0 else 1.0),
                adapter_bytes_avg=1e4, slo_eligible=n, slo_missed=n // 2 if waits else 0,
                weight=1.0, backlogged_s=10.0 * part if waits else 0.0, ttft=tuple(counts),
                observed_seconds=MINUTE_S * part,
            )
        )  # fmt: skip
        for j in range(HOLDERS) if waits else ():
            holder = names[0] if j == 0 else names[(7 * i + j) % tenants]
            rows.append(
                InterferenceMinute(
                    **keys, victim=name, reason="kv" if j % 2 == 0 else "slot",
                    holder_kind="tenant" if holder != name else "self",
                    holder=holder if holder != name else "",
                    charged_s=(7.0 if j == 0 else 0.8) * part,
                )
            )  # fmt: skip
    rows.append(
        EngineMinute(
            **keys, steps=int(1500 * part), busy_s=50.0 * part, predicted_s=49.0 * part,
            slots=256.0, running_avg=250.0, waiting_avg=0.2 * waiting * tenants, pool_bytes=8e9,
            kv_bytes_avg=5e9, adapter_bytes_avg=1e9, cached_bytes_avg=1e8, free_bytes_avg=1.9e9,
            last_token_age_s=0.04, observed_seconds=MINUTE_S * part,
        )
    )  # fmt: skip
    return tuple(rows)


def delivery(start: float, part: float, seq: int, tenants: int, waiting: float) -> list[bytes]:
    """The requests in which the minute so far travels."""
    rows = minute(start, part, tenants, waiting)
    batch = Batch(**made.ENGINE, emitter=Emitter.WORKER, sealed=part == 1.0, seq=seq, minutes=rows)
    encoded = (encode(portion)[0] for portion in portions(batch))
    return [e for e in encoded if e is not None]


class Sender:
    """Delivers the open minute every ten seconds of the wall clock."""

    def __init__(self, process: Process, encoded: list[list[bytes]]) -> None:
        self._process, self._encoded = process, encoded
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender")
        self._thread.start()

    def _run(self) -> None:
        for requests in self._encoded:
            due = time.monotonic() + DELIVERY_S
            for data in requests:
                self._process.client.export(data, None)
            if self._over.wait(max(0.0, due - time.monotonic())):
                return

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def measure(folder: Path, tenants: int, seconds: float, waiting: float) -> dict[str, Any]:
    parts = int((SETTLE_S + seconds) / DELIVERY_S) + 2
    started = float(int(time.time()) // 60 * 60)
    encoded = [
        delivery(started + 60.0 * (k // 6), (k % 6 + 1) / 6, k, tenants, waiting)
        for k in range(1, 1 + parts)
    ]
    # Of a crowd a console looks back on a few minutes only.
    make_history(folder / "store", tenants, started, HISTORY if tenants <= 1_000 else 20)
    (folder / "alone").mkdir()
    shutil.copytree(folder / "store", folder / "alone" / "store")
    found: dict[str, Any] = {"tenants": tenants, "waiting": waiting, "seconds": seconds}
    process = Process(folder)
    try:
        found |= beside_deliveries(folder, process, encoded, seconds)
    finally:
        process.stop()
    # The same deliveries again to a store as young: what it does with them by itself (alerts look
    # at them, and put what fires into words) is no console's.
    found["store_alone_of_a_core"] = store_alone(folder / "alone", encoded, seconds)
    return found


def beside_deliveries(
    folder: Path, process: Process, encoded: list[list[bytes]], seconds: float
) -> dict[str, Any]:
    """A console that looks at the store while it is delivered to, and then at a quiet one."""
    found: dict[str, Any] = {}
    sender = Sender(process, encoded)
    settled = time.perf_counter() + SETTLE_S
    screen = Terminal("--connect", f"unix:{folder}/s")
    try:
        shown = screen.wait_for(b"tenant-", screen.began)
        found["first_row_s"], found["first_row_cpu_s"] = shown - screen.began, cpu_of(screen.pid)
        whole = screen.wait_for(b"not tenants", screen.began)  # first looks do not say it
        found["whole_picture_s"] = whole - screen.began
        time.sleep(max(0.0, settled - time.perf_counter()))
        began, cpu, store = time.perf_counter(), cpu_of(screen.pid), process.cpu_s()
        held = [resident_bytes(screen.pid)]
        found["key_s"] = press_keys(screen, began + seconds)
        passed = time.perf_counter() - began
        found["of_a_core"] = (cpu_of(screen.pid) - cpu) / passed
        found["store_of_a_core"] = (process.cpu_s() - store) / passed
        found["resident_bytes"] = [*held, resident_bytes(screen.pid)]
        sender.stop()
        time.sleep(6.0)
        began, cpu = time.perf_counter(), cpu_of(screen.pid)
        time.sleep(10.0)
        quiet = (cpu_of(screen.pid) - cpu) / (time.perf_counter() - began)
        found["quiet_of_a_core"] = quiet
        began, cpu = time.perf_counter(), cpu_of(screen.pid)
        pressed = press_keys(screen, began + 10.0)
        passed = time.perf_counter() - began
        found["quiet_key_s"] = pressed
        found["key_cpu_s"] = (cpu_of(screen.pid) - cpu - quiet * passed) / pressed["n"]
        found["esc_s"] = press_esc(screen)
    finally:
        sender.stop()
        screen.stop()
    return found


def store_alone(folder: Path, encoded: list[list[bytes]], seconds: float) -> float:
    """Of a core, over the same time of the same deliveries, without a console."""
    process = Process(folder)
    try:
        sender = Sender(process, encoded)
        try:
            time.sleep(SETTLE_S)
            began, cpu = time.perf_counter(), process.cpu_s()
            time.sleep(seconds)
            return (process.cpu_s() - cpu) / (time.perf_counter() - began)
        finally:
            sender.stop()
    finally:
        process.stop()


def feed_cost(folder: Path, tenants: int, waiting: float) -> dict[str, Any]:
    """CPU of the feed alone, in virtual time: its first picture, a delivery, a second without one;
    and of the store process for it. Drawing is not in it."""
    now = [float(int(time.time()) // 60 * 60)]
    started = now[0]
    make_history(folder / "store", tenants, started, HISTORY if tenants <= 1_000 else 20)
    process = Process(folder)
    sight = Sight(lambda: open_source(f"unix:{folder}/s"), LiveEdge(lambda: now[0]))

    def cost() -> tuple[float, float]:
        own, store = time.process_time(), process.cpu_s()
        sight.snapshot()
        return time.process_time() - own, process.cpu_s() - store

    try:
        first, _ = cost()
        sight.whole()
        made, quiet = [], []
        for k in range(1, 6):
            now[0] = started + DELIVERY_S * k
            for data in delivery(started, k / 6, k, tenants, waiting):
                process.client.export(data, None)
            made.append(cost())
            now[0] += 1.0
            quiet.append(cost()[0])
    finally:
        sight.close()
        process.stop()
    return {
        "tenants": tenants,
        "waiting": waiting,
        "first_picture_cpu_s": first,
        "delivery_cpu_s": statistics.median(own for own, _ in made),
        "delivery_store_cpu_s": statistics.median(store for _, store in made),
        "quiet_second_cpu_s": statistics.median(quiet),
    }


def start_on_a_store(folder: Path, rows: int) -> dict[str, Any]:
    """From the start of a console to its first row, on a closed folder of so many rows."""
    tenants = 1_000
    minutes = rows // tenants
    today = float(int(time.time()) // 86_400 * 86_400)
    make_history(folder / "big", tenants, today, minutes)
    with Store.open(folder / "big") as store:
        store.close_old_days(today + 60.0)
    took, cpu = [], []
    for _ in range(3):
        screen = Terminal("--store", str(folder / "big"))
        try:
            took.append(screen.wait_for(b"tenant-", screen.began) - screen.began)
            cpu.append(cpu_of(screen.pid))
        finally:
            screen.stop()
    return {
        "start_rows": minutes * tenants,
        "first_row_on_a_store_s": statistics.median(took),
        "first_row_on_a_store_cpu_s": statistics.median(cpu),
    }


def text(r: dict[str, Any]) -> str:
    key, before, after = r["key_s"], *r["resident_bytes"]
    quiet = r["quiet_key_s"]
    lines = [
        f"{r['tenants']} tenants, {r['waiting']:.0%} of them waiting; {r['seconds']:.0f} s",
        f"  first row after the start      {r['first_row_s']:7.2f} s (aim {MOST_START_S:g}), "
        f"{r['first_row_cpu_s']:.2f} s of CPU",
        f"  ... the whole picture, judged  {r['whole_picture_s']:7.2f} s",
        f"  console                        {r['of_a_core']:7.1%} of a core (aim {MOST_CPU:.0%})",
        f"  ... nothing delivered, no key  {r['quiet_of_a_core']:7.1%}",
        f"  key to paint, {key['n']:3} keys         {key['p50'] * 1e3:7.0f} ms p50, "
        f"{key['p95'] * 1e3:.0f} p95 (aim {MOST_KEY_S * 1e3:.0f}), {key['most'] * 1e3:.0f} most",
        f"  ... nothing delivered beside   {quiet['p50'] * 1e3:7.0f} ms p50, "
        f"{quiet['p95'] * 1e3:.0f} p95; {r['key_cpu_s'] * 1e3:.0f} ms of CPU a key",
        f"  ... esc (which is waited with) {r['esc_s'] * 1e3:7.0f} ms p50",
        f"  resident                       {before >> 20:7} MiB, then {after >> 20}",
        f"  store process, for the console {r['store_of_a_core'] - r['store_alone_of_a_core']:7.1%}"
        f" of a core (aim {MOST_STORE_CPU:.0%}); {r['store_alone_of_a_core']:.1%} without it",
    ]
    if "start_rows" in r:
        lines.append(
            f"  first row, {r['start_rows']:,} rows stored  {r['first_row_on_a_store_s']:.2f} s "
            f"(aim {MOST_START_ON_A_STORE_S:g}), {r['first_row_on_a_store_cpu_s']:.2f} s of CPU"
        )
    if "hour" in r:
        lines.append(console_hour.text(r["hour"]))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tenants", type=count, default=10_000)
    parser.add_argument("--seconds", type=amount, default=60.0)
    parser.add_argument("--waiting", type=float, default=0.1, help="part of the tenants")
    parser.add_argument("--start-rows", type=int, default=0, help="also start on such a store")
    parser.add_argument("--hour", action="store_true", help="also an hour in virtual time")
    parser.add_argument("--feed", action="store_true", help="only the feed's CPU, no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="console-") as name:
        folder = Path(name)
        if arguments.feed:
            print(json.dumps(feed_cost(folder, arguments.tenants, arguments.waiting)))
            return 0
        r = measure(folder, arguments.tenants, arguments.seconds, arguments.waiting)
        if arguments.start_rows:
            r |= start_on_a_store(folder, arguments.start_rows)
        if arguments.hour:
            (folder / "hour").mkdir()
            r["hour"] = console_hour.measure(
                folder / "hour",
                lambda start, part, seq: delivery(
                    start, part, seq, arguments.tenants, arguments.waiting
                ),
                60,
            )
    print(json.dumps({"machine": platform.machine(), **r}) if arguments.json else text(r))
    return 0


if __name__ == "__main__":
    sys.exit(main())
