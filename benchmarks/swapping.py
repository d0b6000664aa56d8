"""Adapters that come and go: 64 of them on room for 8, drawn by Zipf, on the real engine.

    python benchmarks/swapping.py [--seconds 120] [--adapters 64] [--room 8] [--skew 1] [--json]

A real core with a real model and its loader threads; floors keep KV and adapters apart, so that
just `--room` adapters of rank 16 fit on the device; `--host` of them have a copy in host memory,
the rest are read from disk when they are wanted. Four clients ask again as soon as they are
answered (96 tokens in, 24 out), each time for an adapter drawn by Zipf shares. The first quarter
of the time fills the room and is not counted.

    hit rate    found on the device at arrival, beside a plain list that drops the least recently
                used, for the same draws
    loads       bytes moved to the device over the time, and while the loader copied
    TTFT        by where the adapter was when its request arrived
    steps       how long a step took over what the cost model expected of it, for steps beside
                which the loader worked and for the others; and the one over the other, which
                a machine that is slower than at the start does not change

Aim: steps with a load in flight take at most 1.3 of what was expected, in the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.threads import bound_spinning

bound_spinning()

from benchmarks.adapter_zipf import lru
from benchmarks.core_rig import CoreRig
from engine.arguments import amount, amount_or_none, count
from engine.bench import prompts
from engine.config import Limits
from engine.library import AdapterLibrary
from engine.model.loaders import load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.runner.arena import kv_page_bytes
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.request import Outcome
from engine.simulation.popularity import Zipf, generator
from telemetry.records import Batch, RequestRecord

AIM = 1.3
WARM = 0.25  # of the time
STATES = ("device", "loading", "host", "disk")
WORTH_S = 1e-4  # a look at a copy that is there is no load


@dataclass(frozen=True, slots=True)
class Work:
    """The loader at work: reading a folder, or copying into the arena (`bytes_`)."""

    began_s: float
    ended_s: float
    bytes_: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A step on the clock of `Work`."""

    began_s: float
    took_s: float
    expected_s: float


class Kept:
    """Takes the core's batches; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []

    def submit(self, batch: Batch) -> None:
        self.requests += [row for row in batch.logs if isinstance(row, RequestRecord)]


@contextmanager
def watched() -> Iterator[list[Work]]:
    """What the loader threads do while this lasts."""
    seen: list[Work] = []
    was_fetch, was_copy = AdapterLibrary.fetch, TorchRunner.copy_in

    def fetch(self: AdapterLibrary, key: str) -> Any:
        return _timed(seen, lambda: was_fetch(self, key), 0)

    def copy_in(self: TorchRunner, adapter: Any, pages: Sequence[int]) -> None:
        _timed(seen, lambda: was_copy(self, adapter, pages), adapter.device_bytes)

    AdapterLibrary.fetch = fetch  # type: ignore[method-assign]
    TorchRunner.copy_in = copy_in  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        AdapterLibrary.fetch = was_fetch  # type: ignore[method-assign]
        TorchRunner.copy_in = was_copy  # type: ignore[method-assign]


def _timed(seen: list[Work], call: Callable[[], Any], size: int) -> Any:
    began = time.perf_counter()
    try:
        return call()
    finally:
        ended = time.perf_counter()
        if ended - began >= WORTH_S:
            seen.append(Work(began, ended, size))


def limits_for(page_bytes: int, adapter_pages: int, args: argparse.Namespace) -> Limits:
    """Room for just so many adapters, and for what the clients' requests need."""
    held = args.room * adapter_pages * page_bytes
    kv = args.clients * (-(-(args.prompt + args.output) // Limits().page_tokens) + 2) * page_bytes
    return Limits(
        pool_bytes=held + kv,
        kv_floor_bytes=kv,
        adapter_floor_bytes=held,
        host_adapters=args.host,
        prefix_cache=False,
    )


def play(
    rig: CoreRig, args: argparse.Namespace, draws: Sequence[int]
) -> tuple[list[Seen], list[int]]:
    """The steps of the counted time, and the adapters in order of all arrivals."""
    core, vocab = rig.core, rig.runner.model.config.vocab
    steps: list[Seen] = []
    asked: list[int] = []
    began = time.perf_counter()

    def ask() -> None:
        number = len(asked)
        (text,) = prompts(vocab, 1, args.prompt, number)
        core.submit(rig.ask(str(number), text, draws[number], args.output))
        asked.append(draws[number])

    for _ in range(args.clients):
        ask()
    under_way = args.clients
    while under_way:
        core.wait_for_work(0.05)
        before = time.perf_counter()
        result = core.step()
        after = time.perf_counter()
        if result.steps and before - began >= WARM * args.seconds:
            steps.append(Seen(before, after - before, core.scheduler.expected_step_s))
        for ending in result.ended:
            if ending.outcome is not Outcome.FINISHED:
                raise RuntimeError(f"a request {ending.outcome.value}: {ending.reason}")
            if after - began < args.seconds and len(asked) < len(draws):
                ask()
            else:
                under_way -= 1
    return steps, asked


def beside_load(steps: Sequence[Seen], work: Sequence[Work]) -> tuple[list[float], list[float]]:
    """Took over expected: of steps beside which the loader worked, and of the others."""
    ordered = sorted(work, key=lambda w: w.began_s)
    with_load: list[float] = []
    without: list[float] = []
    first = 0
    for step in steps:
        while first < len(ordered) and ordered[first].ended_s < step.began_s:
            first += 1
        end = step.began_s + step.took_s
        # Reads and copies run side by side: one that ended early may stand behind one that lasts.
        beside = any(
            w.began_s < end and w.ended_s > step.began_s for w in ordered[first : first + 8]
        )
        if step.expected_s > 0:
            (with_load if beside else without).append(step.took_s / step.expected_s)
    return with_load, without


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "p50": statistics.median(ordered),
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    model = load_model(args.model, args.dtype, progress=say)
    page_bytes = kv_page_bytes(model.config, Limits().page_tokens, model.dtype)
    kept = Kept()
    zipf = Zipf(args.adapters, args.skew)
    draws = zipf.draw(generator("swapping", args.seed), 1_000_000)
    with tempfile.TemporaryDirectory(prefix="swapping-") as scratch, watched() as work:
        folders = [
            make_adapter(Path(scratch) / f"a{i}", model.config, args.rank, seed=i)
            for i in range(args.adapters)
        ]
        one = read_adapter(folders[0], model.config, model.dtype, page_bytes)
        limits = limits_for(page_bytes, one.pages, args)
        rig = CoreRig(model, folders, streams=args.clients, limits=limits, emitter=kept)
        say(f"{args.adapters} adapters of {one.device_bytes / 1e6:.1f} MB, room for {args.room}")
        work.clear()  # the warm-up's
        try:
            began = time.perf_counter()
            steps, asked = play(rig, args, draws.tolist())
            wall_s = time.perf_counter() - began
        finally:
            rig.close()
    from_s = began + WARM * args.seconds
    in_order = sorted(kept.requests, key=lambda r: int(r.request_id))
    counted = [r for r in in_order if r.arrived >= in_order[0].arrived + WARM * args.seconds]
    warm = len(in_order) - len(counted)
    copies = [w for w in work if w.bytes_ and w.began_s >= from_s]
    moved, copying = sum(w.bytes_ for w in copies), sum(w.ended_s - w.began_s for w in copies)
    with_load, without = beside_load(steps, work)
    waits = {
        state: quantiles([r.ttft_s for r in counted if r.adapter_state == state and r.ttft_s])
        for state in STATES
    }
    return {
        "model": model.name,
        "dtype": model.dtype_name,
        "adapters": args.adapters,
        "room": args.room,
        "skew": args.skew,
        "requests": len(counted),
        "wall_s": wall_s,
        "hit_rate": statistics.fmean(r.adapter_state == "device" for r in counted),
        "lru_hit_rate": lru(draws[: len(asked)], args.room, warm),
        "loads": len(copies),
        "moved_bytes_per_s": moved / (wall_s - WARM * args.seconds),
        "copying_bytes_per_s": moved / copying if copying else None,
        "ttft_s": waits,
        "with_load": quantiles(with_load),
        "without_load": quantiles(without),
        "beside_over_without": (
            statistics.median(with_load) / statistics.median(without)
            if with_load and without
            else None
        ),
    }


def text(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['model']}, {found['dtype']}: {found['adapters']} adapters on room for "
        f"{found['room']}, Zipf {found['skew']:g}; {found['requests']} requests counted",
        f"hit rate       {found['hit_rate']:.1%} (a plain LRU list: {found['lru_hit_rate']:.1%})",
        f"loads          {found['loads']}, {found['moved_bytes_per_s'] / 1e6:.1f} MB/s over the "
        f"time, {(found['copying_bytes_per_s'] or 0.0) / 1e9:.2f} GB/s while copying",
    ]
    for state, waits in found["ttft_s"].items():
        if waits is not None:
            lines.append(
                f"TTFT {state:<9} p50 {waits['p50']:.3f} s, p95 {waits['p95']:.3f} s "
                f"({waits['n']} requests)"
            )
    for name, what in (("with_load", "beside a load"), ("without_load", "without")):
        q = found[name]
        if q is not None:
            lines.append(
                f"steps {what:<14} took / expected p50 {q['p50']:.2f}, p95 {q['p95']:.2f} "
                f"({q['n']} steps)"
            )
    if found["beside_over_without"] is not None:
        lines.append(f"of them         beside a load ÷ without {found['beside_over_without']:.2f}")
    return lines


def claims(found: dict[str, Any]) -> list[tuple[bool, str]]:
    q = found["with_load"]
    if q is None:
        return [(False, "no step had a load beside it: nothing was swapped")]
    return [(q["p50"] <= AIM, f"steps beside a load: {q['p50']:.2f} of expected (aim {AIM})")]


def say(told: str) -> None:
    print(told, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--seconds", type=amount, default=120.0)
    parser.add_argument("--adapters", type=count, default=64)
    parser.add_argument("--room", type=count, default=8, help="adapters that fit on the device")
    parser.add_argument("--host", type=count, default=32, help="adapters kept in host memory")
    parser.add_argument("--rank", type=count, default=16)
    parser.add_argument("--skew", type=amount_or_none, default=1.0, help="Zipf's exponent")
    parser.add_argument("--clients", type=count, default=4)
    parser.add_argument("--prompt", type=count, default=96, help="tokens in")
    parser.add_argument("--output", type=count, default=24, help="tokens out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    try:
        found = measure(args)
    except KeyboardInterrupt:
        return 130
    judged = claims(found)
    if args.json:
        told = [{"met": ok, "claim": claim} for ok, claim in judged]
        print(json.dumps({**found, "claims": told}))
    else:
        print("\n".join(text(found)))
        for ok, claim in judged:
            print(f"{'PASS' if ok else 'MISS'}  {claim}")
    return 0 if all(ok for ok, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
