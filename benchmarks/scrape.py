"""What a scrape costs at 10,000 tenants: seconds, bytes, series; and what counting costs.

python benchmarks/scrape.py [--tenants 10000] [--minutes 5] [--json]

A pool of that many tenants, all active, is delivered minute by minute (open states and sealed
ones, a matrix of 8 holders a victim beside), then scraped over HTTP in both formats. Every fifth
name is made to break a line, a quote or a bound. A second run has every sender invent a new name
each minute. Two hundred tenants have targets, more than there are names. Seconds are the largest
seen, on the wall for scrapes. Exits 1 when a counter was ever seen to go back, a series to go, or
a name that no settings file lists became a label.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
import urllib.request
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.prometheus.counting import Counting
from telemetry.prometheus.exposed import OTHER
from telemetry.prometheus.port import MetricsPort, listen
from telemetry.records import Batch, EngineMinute, EngineRun, InterferenceMinute, TenantMinute

RUN = {"engine": "bench", "run_id": "r1", "pool": "main"}
ODD = ('quo"te ', "back\\slash ", "new\nline ", "{le='1'} ", "🐘\u202e ", "x" * 300, "other", " ")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def name_of(number: int) -> str:
    return f"{ODD[number // 5 % len(ODD)] if number % 5 == 0 else 'tenant-'}{number:05}"


def minute(start: float, part: float, tenants: list[str], rng: random.Random) -> tuple:
    """Rows of one minute, as far as `part` of it."""
    keys = {"bucket_start": start, "bucket_s": 60.0, **RUN}
    rows: list = [EngineMinute(**keys, steps=int(1000 * part), observed_seconds=60.0 * part)]
    for i, tenant in enumerate(tenants):
        base = 1 + rng.randrange(1000) // (1 + i // 50)
        counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        counts[i % len(counts)] = int(base * part)
        rows.append(
            TenantMinute(
                **keys,
                tenant=tenant,
                prompt_tokens=int(100 * base * part),
                output_tokens=int(20 * base * part),
                service=140.0 * base * part,
                engine_seconds=0.01 * base * part,
                wait_slot_s=0.1 * base * part,
                wait_kv_s=0.2 * base * part,
                slo_eligible=int(base * part),
                slo_missed=int(base * part) // 20,
                finished=int(base * part),
                kv_bytes_avg=1e6 * base,
                waiting_avg=0.1 * base,
                vtc_counter=1.0 * base,
                weight=1.0,
                ttft=tuple(counts),
                tpot=tuple(counts),
                max_gap=tuple(counts),
                observed_seconds=60.0 * part,
            )
        )
        rows += [
            InterferenceMinute(
                **keys, victim=tenant, reason="kv", holder_kind="tenant",
                holder=tenants[(i + j) % len(tenants)], charged_s=0.01 * base * part,
            )
            for j in range(1, 9)
        ]  # fmt: skip
    return tuple(rows)


def scrape(url: str, accept: str) -> tuple[float, bytes]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    began = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        body = answer.read()
    return time.perf_counter() - began, body


def measure(tenants: int, minutes: int, invented: bool) -> dict:
    started = float(int(time.time()) // 60 * 60 - 60 * minutes)
    names = [name_of(i) for i in range(tenants)]
    counting = Counting(started)
    config = json.dumps(
        {"tenants": [{"name": n, "slo": {"ttft_s": 1.0} if i < 200 else {}}
                     for i, n in enumerate(names)]}
    )  # fmt: skip
    run = EngineRun(**RUN, started=started, model="none", config=config)
    counting.hear([Batch(**RUN, emitter=Emitter.WORKER, sealed=True, seq=0, logs=(run,))], started)
    port = MetricsPort(counting, listen("127.0.0.1:0"))
    fold_s, text_s, open_s, resets = [], [], [], 0
    before: dict = {}
    labels: set[str] = set()
    text = openmetrics = b""
    seq = 0
    for m in range(minutes):
        start = started + 60 * m
        those = [f"{n}-{m}" for n in names] if invented else names
        for part, sealed in ((0.5, False), (1.0, True)):
            seq += 1
            rows = minute(start, part, those, random.Random(m))
            one = Batch(**RUN, emitter=Emitter.WORKER, sealed=sealed, seq=seq, minutes=rows)
            began = time.thread_time()
            counting.hear([one], start + 60 * part)
            fold_s.append(time.thread_time() - began)
            counting.hear([replace(one, seq=seq - 1)], start + 60 * part)  # late, and again
            took, text = scrape(port.url, "text/plain")
            text_s.append(took)
            took, openmetrics = scrape(port.url, OPENMETRICS)
            open_s.append(took)
            now = {
                (s.name, *sorted(s.labels.items())): s.value
                for f in text_string_to_metric_families(text.decode())
                if f.type in ("counter", "histogram")
                for s in f.samples
            }
            resets += sum(now.get(k, 0.0) < v for k, v in before.items())
            labels |= {v for _, *pairs in now for k, v in pairs if k in ("tenant", "holder")}
            before = now
    port.stop()
    listed = {OTHER, "", *names}
    return {
        "tenants": tenants,
        "names": "a new one each minute" if invented else "the same",
        "named": len(counting.naming.named),
        "series": sum(line[:1] != b"#" for line in text.splitlines()),
        "text_bytes": len(text),
        "text_s": max(text_s),
        "openmetrics_bytes": len(openmetrics),
        "openmetrics_s": max(open_s),
        "fold_cpu_s": max(fold_s),
        "resets": resets,
        "unlisted_labels": len(labels - listed),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    results = [
        measure(arguments.tenants, arguments.minutes, invented) for invented in (False, True)
    ]
    if arguments.json:
        print(json.dumps({"machine": platform.machine(), "results": results}))
    else:
        for r in results:
            print(f"{r['tenants']} tenants, names: {r['names']}")
            print(
                f"  series {r['series']}, named tenants {r['named']}, "
                f"resets seen {r['resets']}, unlisted names seen {r['unlisted_labels']}"
            )
            print(f"  scrape, text         {r['text_s']:.3f} s  {r['text_bytes']:>9} bytes")
            seconds, size = r["openmetrics_s"], r["openmetrics_bytes"]
            print(f"  scrape, OpenMetrics  {seconds:.3f} s  {size:>9} bytes")
            print(f"  counting a delivery  {r['fold_cpu_s']:.3f} s of CPU")
    return 1 if any(r["resets"] or r["unlisted_labels"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
