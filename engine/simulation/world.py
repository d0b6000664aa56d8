"""A virtual world for the real scheduler, pool, ledger and core: a clock and its events.

Owns what happens when; re-implements no decision. The runner takes as long as the cost model
says, the link as long as its bandwidth says, and arrivals happen at their instants, in the
middle of a step too.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from engine.clock import TurnedClock
from engine.core import EngineCore
from engine.costs import CostModel
from engine.loading import LoadDone
from engine.memory.residency import LoadOrder
from engine.scheduling.plan import StepOutcome, StepPlan

Slowdown = Callable[[float], float]


class World:
    """Events by instant (engine time); the clock moves only through here."""

    def __init__(self, clock: TurnedClock) -> None:
        self.clock = clock
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, engine_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (engine_s, next(self._count), do))

    def every(self, interval_s: float, until_s: float, do: Callable[[], None]) -> None:
        steps = int((until_s - self.clock.now()) / interval_s)
        for i in range(1, steps + 1):
            self.at(self.clock.now() + i * interval_s, do)

    @property
    def empty(self) -> bool:
        return not self._events

    def run_to(self, engine_s: float) -> None:
        """Let everything up to the instant happen, each at its own time."""
        while self._events and self._events[0][0] <= engine_s:
            at, _, do = heapq.heappop(self._events)
            self.clock.turn_to(at)
            do()
        self.clock.turn_to(engine_s)

    def run_next(self) -> None:
        self.run_to(self._events[0][0])


class CostRunner:
    """Executes plans in virtual time. Tokens are made up: position in the answer, modulo 1000.

    `slowdown(now)` multiplies the predicted time; `freeze` = (instant, seconds): the first step
    begun after the instant takes so much longer.
    """

    def __init__(
        self,
        world: World,
        costs: CostModel,
        slowdown: Slowdown = lambda now: 1.0,
        freeze: tuple[float, float] | None = None,
    ) -> None:
        self._world = world
        self._costs = costs
        self._slowdown = slowdown
        self._freeze = freeze

    def execute(self, plan: StepPlan) -> StepOutcome:
        now = self._world.clock.now()
        duration = self._costs.of(plan).predicted_s * self._slowdown(now)
        if self._freeze is not None and now >= self._freeze[0]:
            duration += self._freeze[1]
            self._freeze = None
        self._world.run_to(now + duration)
        return StepOutcome({s.request_id: s.sampled % 1000 for s in plan.segments if s.samples}, {})


class VirtualLink:
    """Loads one adapter at a time at a fixed bandwidth."""

    def __init__(self, world: World, page_bytes: int, bytes_per_s: float) -> None:
        self._world = world
        self._page_bytes = page_bytes
        self._bytes_per_s = bytes_per_s
        self._busy_until = 0.0
        self._done: Callable[[LoadDone], None] = lambda done: None
        self.forgotten: list[str] = []

    def on_done(self, callback: Callable[[LoadDone], None]) -> None:
        self._done = callback

    def begin(self, order: LoadOrder) -> None:
        start = max(self._world.clock.now(), self._busy_until)
        self._busy_until = start + len(order.pages) * self._page_bytes / self._bytes_per_s
        self._world.at(self._busy_until, lambda: self._done(LoadDone(order.key)))

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def close(self) -> None:
        """Nothing runs beside the world: there is nothing to stop."""


@dataclass(frozen=True, slots=True)
class Ran:
    steps: int
    tokens: int


def simulate(core: EngineCore, world: World, until_s: float = float("inf")) -> Ran:
    """Step the core until nothing is left to happen, or `until_s` has passed."""
    steps = tokens = 0
    while world.clock.now() < until_s:
        if core.wait_for_work(0):
            result = core.step()
            steps += 1
            tokens += len(result.tokens)
        elif world.empty:
            break
        else:
            world.run_next()
    return Ran(steps, tokens)
