"""A console's memory over an hour that passes minute by minute, in virtual time, over gRPC.

    python benchmarks/console_hour.py [--tenants 10000] [--minutes 60] [--json]

A store process takes each minute as it ends; a console of its own process makes the picture of it
and draws the overview and the wide table. What it holds is read from /proc after each minute. A
crowd's console looks back on twelve minutes: from then on it is to stay as large as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

from seal_commit import ROOT, Process

from console.command import CYCLES, opening
from console.lines import Line
from console.overview import Look, overview_lines
from console.poller import tidy
from console.settings import ConsoleSettings
from console.sight import LiveEdge, Sight
from console.wide import View, wide_lines
from engine.arguments import amount, count

SETTLED_MINUTES = 20  # until then the history fills
MOST_GROWTH = 0.10  # of what it holds then: allocators keep some room
CELLS, LINES = 120, 40
Deliver = Callable[[float, float, int], list[bytes]]  # (start, part of the minute, seq)


def measure(folder: Path, deliver: Deliver, minutes: int) -> dict[str, Any]:
    """Resident bytes of the console after each minute."""
    started = float(int(time.time()) // 3600 * 3600 - 2 * 3600)
    process = Process(folder)
    console = subprocess.Popen(
        [sys.executable, __file__, "--console", f"unix:{folder}/s"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert console.stdin is not None
    assert console.stdout is not None
    held: list[int] = []
    try:
        for k in range(minutes):
            for data in deliver(started + 60.0 * k, 1.0, k + 1):
                process.client.export(data, None)
            print(started + 60.0 * (k + 1), file=console.stdin, flush=True)
            told = console.stdout.readline()
            if not told:
                raise RuntimeError(f"the console ended in minute {k + 1}")
            held.append(int(told))
    finally:
        with contextlib.suppress(BrokenPipeError):
            console.stdin.close()
        console.wait(30)
        process.stop()
    settled = held[min(SETTLED_MINUTES, len(held)) - 1 :]
    return {
        "minutes": minutes,
        "resident_bytes_by_minute": held,
        "settled_bytes": settled[0],
        "last_bytes": settled[-1],
        "most_bytes": max(settled),
        "growth": settled[-1] / settled[0] - 1.0,
    }


def text(r: dict[str, Any]) -> str:
    return (
        f"  resident, {r['minutes']} simulated minutes   {r['settled_bytes'] >> 20:5} MiB after "
        f"{min(SETTLED_MINUTES, r['minutes'])}, {r['last_bytes'] >> 20} at the end "
        f"({r['growth']:+.1%}, aim {MOST_GROWTH:+.0%} at most), {r['most_bytes'] >> 20} most"
    )


def look(address: str) -> int:
    """The console's side: an instant a line in, what it holds a line out."""
    now = [0.0]
    sight = Sight(opening(address), LiveEdge(lambda: now[0]), tz=UTC)
    gc.set_threshold(*CYCLES)
    sight.show_columns(True)
    for line in sys.stdin:
        now[0] = float(line)
        tidy()
        picture = sight.whole()
        drawn: list[Line] = [
            *overview_lines(picture, CELLS, LINES, Look(tz=UTC)),
            *wide_lines(picture, View(), CELLS, LINES, Look(tz=UTC), ConsoleSettings()),
        ]
        assert len(drawn) == 2 * LINES
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(pages * os.sysconf("SC_PAGE_SIZE"), flush=True)
    sight.close()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tenants", type=count, default=10_000)
    parser.add_argument("--waiting", type=amount, default=0.1, help="part of the tenants")
    parser.add_argument("--minutes", type=count, default=60)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--console", metavar="ADDR", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.console:
        return look(arguments.console)
    from console_cost import delivery

    def deliver(start: float, part: float, seq: int) -> list[bytes]:
        return delivery(start, part, seq, arguments.tenants, arguments.waiting)

    with tempfile.TemporaryDirectory(prefix="console-hour-") as name:
        r = measure(Path(name), deliver, arguments.minutes)
    print(json.dumps({"tenants": arguments.tenants, **r}) if arguments.json else text(r))
    return 0


if __name__ == "__main__":
    sys.exit(main())
