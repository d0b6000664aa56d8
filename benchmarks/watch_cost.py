"""What one watcher costs a second, at 10,000 tenants: CPU of following deliveries and of a frame.

    python benchmarks/watch_cost.py [--tenants 10000] [--minutes 2] [--n 20] [--json]

A pool of that many tenants, all active, delivers its open minute every ten seconds and a sealed one
at its end, as it does; a watcher wants the first n by service, once a second, over 60 s. In virtual
time, by this thread's own CPU: what hearing and folding in a delivery takes, what a frame takes
after one and while nothing is new, and all of it over the seconds that passed. The frame's
message is encoded; gRPC's own work is not in it.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from scrape import RUN, minute, name_of

from engine.arguments import count
from telemetry.conventions import Emitter
from telemetry.records import Batch, InterferenceMinute
from telemetry.watch import wire as watch_wire
from telemetry.watch.frame import Asked, Frame, frame
from telemetry.watch.state import WatchState

MINUTE_S, DELIVERY_S = 60, 10
START = 1_800_000_000.0


def cpu_of(do: Callable[[], Any]) -> tuple[float, Any]:
    began = time.thread_time()
    result = do()
    return time.thread_time() - began, result


def one_frame(state: WatchState, asked: Asked, now: float) -> Frame:
    """Ranked, and encoded as it is sent."""
    made = frame(state.look(now, asked.window_s), asked, None, now)
    watch_wire.message(made, columns=False).SerializeToString()
    return made


def measure(tenants: int, minutes: int, n: int) -> dict[str, Any]:
    state, asked = WatchState(), Asked(sort="service", n=n)
    names = [name_of(i) for i in range(tenants)]
    hear_s, fresh_s, quiet_s = [], [], []
    shown = seq = 0
    for second in range(1, minutes * MINUTE_S + 1):
        now = START + second
        new = second % DELIVERY_S == 0
        if new:
            start = START + (second - 1) // MINUTE_S * MINUTE_S
            part = (now - start) / MINUTE_S
            rows = minute(start, part, names, random.Random(second // MINUTE_S))
            kept = tuple(r for r in rows if not isinstance(r, InterferenceMinute))
            seq += 1
            batch = Batch(**RUN, emitter=Emitter.WORKER, sealed=part == 1.0, seq=seq, minutes=kept)
            hear_s.append(cpu_of(lambda batch=batch, now=now: state.hear([batch], now))[0])
        seconds, made = cpu_of(lambda now=now: one_frame(state, asked, now))
        (fresh_s if new else quiet_s).append(seconds)
        shown = len(made.rows)
    passed = minutes * MINUTE_S
    return {
        "tenants": tenants,
        "rows_shown": shown,
        "hear_s": statistics.median(hear_s),
        "frame_after_delivery_s": statistics.median(fresh_s),
        "frame_s": statistics.median(quiet_s),
        "of_a_core": (sum(hear_s) + sum(fresh_s) + sum(quiet_s)) / passed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tenants", type=count, default=10_000)
    parser.add_argument("--minutes", type=count, default=2)
    parser.add_argument("--n", type=count, default=20, help="rows of a frame")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    r = measure(arguments.tenants, arguments.minutes, arguments.n)
    if arguments.json:
        print(json.dumps({"machine": platform.machine(), **r}))
        return 0
    print(f"{r['tenants']} tenants, a frame of {r['rows_shown']} rows every second")
    print(f"  a delivery heard and put aside {1e3 * r['hear_s']:8.2f} ms of CPU")
    print(f"  a frame that folds it in       {1e3 * r['frame_after_delivery_s']:8.2f} ms")
    print(f"  a frame with nothing new       {1e3 * r['frame_s']:8.2f} ms")
    print(f"  all of it, a second            {r['of_a_core']:8.2%} of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
