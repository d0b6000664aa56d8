"""From the end of a minute to its COMMIT: seconds, stage by stage, and what it takes in memory.

    python benchmarks/seal_commit.py [--tenants 1000,10000] [--minutes 3] [--json]

A pool in which every tenant waits all the time, behind everybody, for a mix of reasons: the largest
matrix a minute can have; before it the same without its matrix, which is most of the rows. Each
minute is delivered open once, as it is every ten seconds, then sealed; that replaces the open one.
`seal to COMMIT` is from before the seal until a store process, over its unix socket, has
acknowledged. The stages of the store's side are taken apart in a second store, in this process.
Rows of requests travel apart and are not in it. Medians over the minutes; cpu is of the sending
thread and of the store process. The target is 0.5 s for 1,000 tenants; exits 1 when it is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ledger_cost import STEP_S, Life

from engine.arguments import count, counts
from telemetry.errors import TelemetryError
from telemetry.ledger.ledger import Ledger
from telemetry.otlp import decode_metrics, encode
from telemetry.pipeline.portions import portions
from telemetry.records import Batch, InterferenceMinute
from telemetry.service.client import MAX_MESSAGE_BYTES, StoreClient
from telemetry.store import ingest
from telemetry.store.store import Store

ROOT = Path(__file__).parents[1]
TARGET_TENANTS, TARGET_S = 1000, 0.5
FEW = 2000  # tenants; of more, one minute is measured
RUNNING, REQUESTS = 256, 4
BUCKET_S = 60.0
STAGES = ("seal", "take", "rows", "encode", "send", "decode", "merge", "commit")
T = TypeVar("T")


def timed(do: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = do()
    return time.perf_counter() - began, result


class Process:
    """A store process, and what it has used."""

    def __init__(self, folder: Path) -> None:
        address = f"unix:{folder}/s"
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", str(folder / "store"),
             "--listen", address],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self._popen.stdout is not None
        if not self._popen.stdout.readline().startswith("ready "):
            raise RuntimeError("the store process did not start: is the folder writable?")
        self.client = StoreClient(address, timeout_s=120.0)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self._popen.pid}/status").read_text()
        line = next(x for x in status.splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) << 10

    def stop(self) -> None:
        self.client.close()
        self._popen.terminate()
        self._popen.communicate(timeout=30)


def store_side(store: Store, requests: list[bytes]) -> dict[str, float]:
    """Seconds of decode, merge and commit of the requests, in this process."""
    merges: list[float] = []
    merge = ingest.merge

    def watched(*arguments: Any) -> int:
        seconds, rows = timed(lambda: merge(*arguments))
        merges.append(seconds)
        return rows

    decode_s = whole_s = 0.0
    ingest.merge = watched  # where the store looks it up at each delivery
    try:
        for data in requests:
            seconds, decoded = timed(lambda data=data: decode_metrics(data))
            decode_s += seconds
            whole_s += timed(lambda decoded=decoded: store.ingest(decoded))[0]
    finally:
        ingest.merge = merge
    return {"decode": decode_s, "merge": sum(merges), "commit": whole_s - sum(merges)}


def without_matrix(batch: Batch) -> Batch:
    kept = tuple(r for r in batch.minutes if not isinstance(r, InterferenceMinute))
    return replace(batch, minutes=kept)


def measure(tenants: int, minutes: int, matrix: bool, folder: Path) -> dict[str, Any]:
    wall_s = float(int(time.time()) // 60 * 60 - 60 * (minutes + 2))
    life = Life(min(RUNNING, tenants), tenants, wall_s)
    ledger = life.ledger
    assert isinstance(ledger, Ledger)
    process, inside = Process(folder), Store.open(folder / "inside")
    found: dict[str, list[float]] = {}
    rows = size = pieces = lost = 0
    why = ""
    steps_a_minute = int(BUCKET_S / STEP_S)

    def live(until: float) -> None:
        """Some steps of the minute; a long one stands for the rest."""
        for _ in range(min(200, steps_a_minute)):
            life.step(min(REQUESTS, tenants))
        if life.now < until:
            life.now = until
            ledger.tick(until)
        ledger._logs.clear()  # rows of requests travel apart

    def encoded(batch: Batch) -> list[bytes]:
        """The requests that it travels in, as the exporter cuts it."""
        return [data for part in portions(batch) if (data := encode(part)[0]) is not None]

    def deliver(requests: list[bytes]) -> list[bytes]:
        for data in requests:
            process.client.export(data, None)
        return requests

    try:
        for m in range(minutes + 1):
            live(BUCKET_S * m + BUCKET_S - 5.0)
            batch = ledger.take(life.now).batches()[-1]
            # The first minute makes tables and warms up; no more.
            part = without_matrix if m == 0 or not matrix else lambda batch: batch
            try:
                for data in deliver(encoded(part(batch))):
                    inside.ingest_metrics(data)
            except TelemetryError as e:
                lost, why = lost + 1, str(e)
            end = BUCKET_S * (m + 1)
            cpu_s, store_cpu_s = time.thread_time(), process.cpu_s()
            seal_s, _ = timed(lambda end=end: ledger.tick(end))
            life.now = end
            take_s, taken = timed(lambda end=end: ledger.take(end))
            rows_s, batches = timed(taken.batches)
            sealed = part(batches[0])
            encode_s, requests = timed(lambda sealed=sealed: encoded(sealed))
            try:
                send_s, _ = timed(lambda requests=requests: deliver(requests))
            except TelemetryError as e:
                lost, why, send_s = lost + 1, str(e), float("nan")
            row = {"seal": seal_s, "take": take_s, "rows": rows_s, "encode": encode_s}
            row["send"] = send_s
            row["whole"] = sum(row.values())
            row["cpu"] = time.thread_time() - cpu_s
            row["store_cpu"] = process.cpu_s() - store_cpu_s
            if m:
                row |= store_side(inside, requests)
                for name, value in row.items():
                    found.setdefault(name, []).append(value)
            rows, size = len(sealed.minutes), sum(map(len, requests))
            pieces = len(requests)
        peak = process.peak_bytes()
    finally:
        process.stop()
        inside.close()
    return {
        "tenants": tenants,
        "matrix": matrix,
        "rows": rows,
        "bytes": size,
        "requests": pieces,
        "lost": lost,
        "why": why,
        **{f"{name}_s": statistics.median(values) for name, values in found.items()},
        "whole_most_s": max(found["whole"]),
        "store_peak_bytes": peak,
        "sender_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    }


def text(r: dict[str, Any]) -> str:
    which = "with" if r["matrix"] else "without"
    lines = [
        f"{r['tenants']} tenants, {which} the matrix: {r['rows']} rows, "
        f"{r['bytes'] / 1e6:.1f} MB in {r['requests']} request(s)",
        f"  seal to COMMIT   {r['whole_s']:7.3f} s median, {r['whole_most_s']:.3f} most; "
        f"cpu {r['cpu_s']:.3f} s here, {r['store_cpu_s']:.3f} s in the store",
    ]
    lines += [f"    {name:<14} {r[f'{name}_s']:7.3f} s" for name in STAGES[:5]]
    lines.append("    of the sending, in the store:")
    lines += [f"      {name:<12} {r[f'{name}_s']:7.3f} s" for name in STAGES[5:]]
    lines.append(
        f"  peak memory      {r['store_peak_bytes'] >> 20} MiB in the store, "
        f"{r['sender_peak_bytes'] >> 20} MiB here"
    )
    if r["lost"]:
        lines.append(f"  REFUSED          {r['lost']} deliveries: {r['why']}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tenants", type=counts, default=[1000, 10000])
    parser.add_argument("--minutes", type=count, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    results = []
    for tenants in arguments.tenants:
        minutes = arguments.minutes if tenants <= FEW else 1
        for matrix in (False, True):
            with tempfile.TemporaryDirectory(prefix="seal-") as folder:
                results.append(measure(tenants, minutes, matrix, Path(folder)))
            if not arguments.json:
                print(text(results[-1]), flush=True)
    if arguments.json:
        limit = {"message_limit_bytes": MAX_MESSAGE_BYTES, "target_s": TARGET_S}
        print(json.dumps({"machine": platform.machine(), **limit, "results": results}))
    missed = [r for r in results if r["lost"]]
    missed += [r for r in results if r["tenants"] == TARGET_TENANTS and r["whole_s"] > TARGET_S]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
