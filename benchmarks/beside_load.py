"""What an adapter's load adds to the decode steps beside it, turn by turn with steps beside none.

    GOMP_SPINCOUNT=500 python benchmarks/beside_load.py [--rows 4] [--rounds 24] [--json]

One runner, plans made by hand. A round is a few steps beside each kind of load and beside none, in
an order that is drawn anew; ratios are within a round, so that what else a machine does meets all
of it. With each step a load begins, unless the one before still lasts: every step has a load in
flight, and never two.

    copy     the adapter is in host memory: a copy to the device
    known    it is read again from a folder that has not changed, and copied
    new      it is read for the first time from a folder that is not new, and copied
    whole    it is parsed, hashed and packed in Python, as a folder is that was written just now
             (and every one where the native library is absent), and copied

Told are the steps' ratio (median, least and most likely), and how long a load took. Aim: steps with
a load in flight take at most 1.3 of those without.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.threads import bound_spinning

bound_spinning()

from benchmarks.paired import ratios
from engine.arguments import count
from engine.model.adapter_reader import AdapterReader
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

PAGE_TOKENS = 16
CONTEXT = 128
AIM = 1.3
JUDGED = ("copy", "known")  # what a running worker's loads are
HOUR_S = 3600.0


@dataclass(slots=True)
class Kind:
    """A kind of load, and what was measured of it: medians of a round's steps, seconds a load."""

    load: Callable[[], None] | None
    steps_s: list[float] = field(default_factory=list)
    loads_s: list[float] = field(default_factory=list)


@contextmanager
def loading(kind: Kind) -> Iterator[Callable[[], None]]:
    """Yields what begins a load, or does nothing where one lasts; all have ended afterwards."""
    load = kind.load
    if load is None:
        yield lambda: None
        return
    wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
    idle = threading.Event()
    idle.set()

    def loads() -> None:
        while wanted.get():
            began = time.perf_counter()
            load()
            kind.loads_s.append(time.perf_counter() - began)
            idle.set()

    def begin() -> None:
        if idle.is_set():
            idle.clear()
            wanted.put(True)

    thread = threading.Thread(target=loads)
    thread.start()
    try:
        yield begin
    finally:
        wanted.put(False)
        thread.join()


def decode(rows: int, keys: list[str], dice: random.Random, vocab: int) -> StepPlan:
    """One token of each of `rows` sequences, each with an adapter and on pages of its own."""
    pages = CONTEXT // PAGE_TOKENS
    return StepPlan(
        0,
        tuple(
            Segment(
                str(i), "t", keys[i % len(keys)], (dice.randrange(vocab),), CONTEXT - 1,
                tuple(range(i * pages, (i + 1) * pages)), True, False,
            )
            for i in range(rows)
        ),
    )  # fmt: skip


def measure(args: argparse.Namespace) -> dict[str, Any]:
    model = load_model(args.model)
    dice = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="beside-") as scratch:
        folders = [
            make_adapter(Path(scratch) / f"a{i}", model.config, args.rank, seed=i)
            for i in range(args.adapters + 1)
        ]
        kv = args.rows * (CONTEXT // PAGE_TOKENS)
        runner = TorchRunner(model, kv + (args.adapters + 1) * 100 * args.rank, PAGE_TOKENS)
        sizes = (model.config, model.dtype, runner.page_bytes)
        old: dict[str, Any] = {"wall_s": lambda: time.time() + HOUR_S}
        known = AdapterReader(*sizes, **old)
        young = AdapterReader(*sizes, wall_s=lambda: 0.0)
        keys, first = [], kv
        for folder in folders[:-1]:
            weights = young(folder)
            runner.copy_in(weights, range(first, first + weights.pages))
            first += weights.pages
            keys.append(weights.key)
        host = known(folders[-1])
        place = range(first, first + host.pages)
        kinds = {
            "none": Kind(None),
            "copy": Kind(lambda: runner.copy_in(host, place)),
            "known": Kind(lambda: runner.copy_in(known(folders[-1]), place)),
            "new": Kind(lambda: runner.copy_in(AdapterReader(*sizes, **old)(folders[-1]), place)),
            "whole": Kind(lambda: runner.copy_in(young(folders[-1]), place)),
        }
        for round_ in range(args.rounds + 1):
            order = list(kinds.values())
            dice.shuffle(order)
            for kind in order:
                took = []
                with loading(kind) as begin:
                    for _ in range(args.steps):
                        plan = decode(args.rows, keys, dice, model.config.vocab)
                        begin()
                        began = time.perf_counter()
                        runner.execute(plan)
                        took.append(time.perf_counter() - began)
                kind.steps_s.append(statistics.median(took))
            if not round_:  # was warm-up
                for kind in order:
                    kind.steps_s.clear()
                    kind.loads_s.clear()
    base = kinds["none"].steps_s
    return {
        "model": model.name,
        "rows": args.rows,
        "adapter_bytes": host.device_bytes,
        "parsed": known.parsed,
        "step_s": statistics.median(base),
        "beside": {name: told(kind, base) for name, kind in kinds.items() if kind.load is not None},
    }


def told(kind: Kind, base: list[float]) -> dict[str, float]:
    found = ratios(list(zip(kind.steps_s, base, strict=True)))
    return {
        "ratio": found.median,
        "low": found.low,
        "high": found.high,
        "sure": found.sure,
        "load_s": statistics.median(kind.loads_s),
        "loads": len(kind.loads_s),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=count, default=4, help="sequences that decode")
    parser.add_argument("--adapters", type=count, default=4, help="that they use")
    parser.add_argument("--rank", type=count, default=16)
    parser.add_argument("--rounds", type=count, default=24)
    parser.add_argument("--steps", type=count, default=5, help="of each kind in a round")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    found = measure(args)
    missed = [name for name in JUDGED if found["beside"][name]["ratio"] > AIM]
    if args.json:
        print(json.dumps({**found, "aim": AIM, "missed": missed}))
        return 1 if missed else 0
    print(
        f"{found['model']}, {found['rows']} rows decode in {found['step_s'] * 1e3:.1f} ms; "
        f"adapters of {found['adapter_bytes'] / 1e6:.1f} MB, the known folder read whole "
        f"{found['parsed']} time(s)"
    )
    print(f"{'beside':<8}{'ratio':>7}{'of pairs':>16}{'a load':>11}")
    for name, k in found["beside"].items():
        between = f"{k['low']:.2f} - {k['high']:.2f}"
        print(f"{name:<8}{k['ratio']:>7.2f}{between:>16}{k['load_s'] * 1e3:>8.1f} ms")
    for name in JUDGED:
        ratio = found["beside"][name]["ratio"]
        print(
            f"{'MISS' if name in missed else 'PASS'}  steps beside {name}: {ratio:.2f} (aim {AIM})"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
