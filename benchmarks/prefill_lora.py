"""What adapters add to a prefill step: the same 512 tokens with and without, turn by turn.

    GOMP_SPINCOUNT=500 python benchmarks/prefill_lora.py [--adapters 8] [--repeats 9] [--json]

Plans made by hand for one runner, no scheduler: steps with adapters and steps without take turns,
so that a machine whose speed swings from second to second (this is told by the spread) swings for
both. Half a minute. Aim: 8 adapters at most 1.3 of the base.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.threads import bound_spinning

bound_spinning()

from engine.arguments import count
from engine.model.loaders import load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

PAGE_TOKENS = 16
TOKENS = 512  # a step's usual budget
AIM_ADAPTERS, AIM = 8, 1.3


@dataclass(frozen=True, slots=True)
class Shape:
    """Medians of a shape: seconds of a step without and with adapters, and of their ratios."""

    segments: int
    base_s: float
    with_s: float
    ratio: float
    least: float
    most: float


def plan(keys: list[str | None], dice: random.Random, vocab: int) -> StepPlan:
    """As many prompts as keys, together 512 tokens, each on pages of its own."""
    length = TOKENS // len(keys)
    pages = -(-length // PAGE_TOKENS)
    segments = [
        Segment(
            str(i), "t", key, tuple(dice.randrange(vocab) for _ in range(length)), 0,
            tuple(range(i * pages, (i + 1) * pages)), True, True,
        )
        for i, key in enumerate(keys)
    ]  # fmt: skip
    return StepPlan(0, tuple(segments))


def measure(model: str, adapters: int, rank: int, repeats: int) -> list[Shape]:
    """Prompts of several lengths, each in turn with and without. Raises ModelError."""
    loaded = load_model(model)
    dice = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="prefill-") as scratch:
        folders = [make_adapter(Path(scratch) / f"a{i}", loaded.config, rank, seed=i)
                   for i in range(adapters)]  # fmt: skip
        first = adapters * (TOKENS // PAGE_TOKENS + 1)
        runner = TorchRunner(loaded, first + adapters * (400 + 100 * rank), PAGE_TOKENS)
        keys = []
        for folder in folders:
            own = read_adapter(folder, loaded.config, loaded.dtype, runner.page_bytes)
            runner.copy_in(own, range(first, first + own.pages))
            first += own.pages
            keys.append(own.key)
    out = []
    for segments in sorted({1, adapters // 2 or 1, adapters}):
        took: list[tuple[float, float]] = []
        for _ in range(repeats + 1):  # the first is warm-up
            turn = []
            for chosen in ([None] * segments, keys[:segments]):
                asked = plan(list(chosen), dice, loaded.config.vocab)
                began = time.perf_counter()
                runner.execute(asked)
                turn.append(time.perf_counter() - began)
            took.append((turn[0], turn[1]))
        ratios = sorted(w / b for b, w in took[1:])
        out.append(
            Shape(
                segments,
                statistics.median(b for b, _ in took[1:]),
                statistics.median(w for _, w in took[1:]),
                statistics.median(ratios),
                ratios[0],
                ratios[-1],
            )
        )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--adapters", type=count, default=AIM_ADAPTERS)
    parser.add_argument("--rank", type=count, default=16)
    parser.add_argument("--repeats", type=count, default=9)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    shapes = measure(args.model, args.adapters, args.rank, args.repeats)
    met = all(s.ratio <= AIM for s in shapes)
    if args.json:
        print(json.dumps({"shapes": [asdict(s) for s in shapes], "aim": AIM, "met": met}))
    else:
        print(f"{'prompts':<9}{'base ms':>9}{'with ms':>9}{'ratio':>7}  least - most")
        for s in shapes:
            print(
                f"{s.segments:<9}{s.base_s * 1e3:>9.1f}{s.with_s * 1e3:>9.1f}{s.ratio:>7.2f}"
                f"  {s.least:.2f} - {s.most:.2f}"
            )
        print(f"{'PASS' if met else 'MISS'}  prefill with {args.adapters} adapters (aim {AIM})")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
