"""Warm-up: runs steps of many shapes on an empty pool and fits the cost model to them.

Owns the choice of shapes and the timing; the fit itself is `engine.costs`. Nothing here runs
while tenants are served, so no tenant pays for a first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.config import Limits
from engine.costs import CostModel, StepFeatures, fit
from engine.scheduling.plan import Runner, Segment, StepPlan

REPEATS = 3
FEWEST = 6  # shapes: the model has five coefficients
# What planning, settling and handing out a step costs beside the runner: measured with the core
# around an empty runner.
OVERHEAD_S = 0.0015


@dataclass(frozen=True, slots=True)
class Shape:
    """A step: `rows` decode rows at `context` tokens, a prefill chunk after `prefix` tokens."""

    rows: int = 0
    context: int = 0
    chunk: int = 0
    prefix: int = 0
    adapters: int = 0


def shapes(limits: Limits, adapters: int, pages: int) -> list[Shape]:
    """Shapes that separate the coefficients and fit the pool."""
    few, many = min(4, limits.slots), limits.slots
    chunk = limits.step_tokens
    # Rows carry adapters wherever there are any, as they will in service: a token with an adapter
    # costs more than one without, and the model has one price for both.
    one, some = min(1, adapters), min(4, adapters)
    wanted = [
        Shape(rows=1, context=64, adapters=one),
        Shape(rows=few, context=64, adapters=one),
        Shape(rows=few, context=64, adapters=some),
        Shape(rows=many, context=64, adapters=some),
        Shape(rows=few, context=768, adapters=one),
        Shape(rows=many, context=384, adapters=some),
        Shape(chunk=max(1, chunk // 4), adapters=one),
        Shape(chunk=max(1, chunk // 2), rows=few, context=64, adapters=some),
        Shape(chunk=chunk, adapters=one),
        Shape(chunk=chunk, prefix=768, adapters=one),
        Shape(chunk=max(1, chunk - many), rows=many, context=128, adapters=some),
        Shape(chunk=max(1, chunk - few), prefix=768, rows=few, context=384, adapters=some),
    ]
    size = limits.page_tokens
    longest = limits.max_context

    def fits(s: Shape) -> bool:
        row = s.context // size + 1
        prefill = (s.prefix + s.chunk) // size + 1
        inside = s.context < longest and s.prefix + s.chunk <= longest
        return inside and s.rows * row + prefill <= pages and s.adapters <= adapters

    kept = [s for s in wanted if fits(s)]
    if len(kept) < FEWEST:
        # A pool too small for these still has to be measured; steps of one page always fit.
        small = [Shape(chunk=n, adapters=one) for n in (1, 2, 4, size // 2, size - 1)]
        small += [Shape(rows=1, context=n, adapters=one) for n in (1, size // 2, size - 1)]
        kept += [s for s in small if fits(s)]
    return kept


def plan_of(shape: Shape, step: int, limits: Limits, keys: Sequence[str], pages: int) -> StepPlan:
    """A plan of that shape on pages counted from 0; adapters dealt round over the rows."""
    size, taken = limits.page_tokens, 0
    segments: list[Segment] = []

    def add(tokens: int, start: int, is_prefill: bool) -> None:
        nonlocal taken
        count = -(-(start + tokens) // size)
        own = tuple(p % pages for p in range(taken, taken + count))
        taken += count
        used = keys[: shape.adapters]
        adapter = used[len(segments) % len(used)] if used else None
        ids = tuple((7 * i + 11 * len(segments)) % 256 for i in range(tokens))
        name = f"warm-up-{len(segments)}"
        segments.append(Segment(name, "warm-up", adapter, ids, start, own, True, is_prefill))

    for _ in range(shape.rows):
        add(1, shape.context, False)
    if shape.chunk:
        add(shape.chunk, shape.prefix, True)
    return StepPlan(step, tuple(segments))


def calibrate(
    runner: Runner,
    limits: Limits,
    keys: Sequence[str],
    free_pages: int,
    say: Callable[[str], None] = lambda text: None,
) -> CostModel:
    """Time each shape and fit. `keys`: adapters resident during the warm-up; pages 0 ..
    free_pages-1 are free. The first run of a shape is not counted, the median of the rest is."""
    samples: list[tuple[StepFeatures, float]] = []
    todo = shapes(limits, len(keys), free_pages)
    for number, shape in enumerate(todo, 1):
        plan = plan_of(shape, number, limits, keys, free_pages)
        times: list[float] = []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            runner.execute(plan)
            times.append(time.perf_counter() - began)
        seconds = sorted(times[1:])[REPEATS // 2] + OVERHEAD_S
        features = StepFeatures(
            plan.prefill_tokens, plan.decode_rows, plan.context_tokens, len(plan.adapters)
        )
        samples.append((features, seconds))
        say(f"warm-up {number}/{len(todo)}: {seconds * 1000:.0f} ms a step")
    return fit(samples)
