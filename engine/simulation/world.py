"""A virtual world for the real scheduler, pool, ledger and core: a clock, a feed and events.

Owns what happens when; re-implements no decision. The runner takes as long as the cost model
says, the link as long as its bandwidth says, and arrivals happen at their instants, in the
middle of a step too.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.clock import TurnedClock
from engine.core import EngineCore
from engine.costs import CostModel, StepFeatures
from engine.loading import LoadDone
from engine.memory.link import DISKS, LinkSpec, LoadPath
from engine.memory.moves import LoadOrder
from engine.scheduling.plan import StepOutcome, StepPlan

Slowdown = Callable[[float], float]


class Feed(Protocol):
    """Where a long row of things comes from, one at a time: no entry in the heap for each."""

    next_s: float  # engine time; infinite = nothing more

    def take(self) -> None:
        """Let happen what is due at `next_s`, and say when the next one is."""
        ...


class _Nothing:
    next_s = math.inf

    def take(self) -> None:
        """Never called: it has nothing."""


class World:
    """Events by instant (engine time) and one feed; the clock moves only through here."""

    def __init__(self, clock: TurnedClock) -> None:
        self.clock = clock
        self.feed: Feed = _Nothing()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, engine_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (engine_s, next(self._count), do))

    def every(self, interval_s: float, until_s: float, do: Callable[[], None]) -> None:
        steps = int((until_s - self.clock.now()) / interval_s)
        for i in range(1, steps + 1):
            self.at(self.clock.now() + i * interval_s, do)

    @property
    def next_s(self) -> float:
        """When the next thing happens; infinite = nothing will."""
        events = self._events
        fed = self.feed.next_s
        return events[0][0] if events and events[0][0] < fed else fed

    @property
    def empty(self) -> bool:
        return self.next_s == math.inf

    def run_to(self, engine_s: float) -> None:
        """Let everything up to the instant happen, each at its own time; events before arrivals."""
        events, feed, clock = self._events, self.feed, self.clock
        while True:
            if events and events[0][0] <= feed.next_s:
                if events[0][0] > engine_s:
                    break
                at, _, do = heapq.heappop(events)
                clock.turn_to(at)
                do()
            elif feed.next_s <= engine_s:
                clock.turn_to(feed.next_s)
                feed.take()
            else:
                break
        clock.turn_to(engine_s)

    def run_next(self) -> None:
        self.run_to(self.next_s)


def _even(now: float) -> float:
    """No slower than the cost model says, whenever."""
    return 1.0


class CostRunner:
    """Executes plans in virtual time. Nobody needs to know which tokens come out.

    `slowdown(now)` multiplies the predicted time; `freeze` = (instant, seconds): the first step
    begun after the instant takes so much longer. `sleep` lets the time of a step pass; by default
    the world runs to its end.
    """

    def __init__(
        self,
        world: World,
        costs: CostModel,
        slowdown: Slowdown = _even,
        freeze: tuple[float, float] | None = None,
        *,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._world = world
        self._costs = costs
        self._slowdown = slowdown
        self._freeze = freeze
        self._sleep = world.run_to if sleep is None else sleep

    def execute(self, plan: StepPlan) -> StepOutcome:
        now = self._world.clock.now()
        features = StepFeatures(
            plan.prefill_tokens, plan.decode_rows, plan.context_tokens, plan.adapter_count
        )
        duration = self._costs.predict(features) * self._slowdown(now)
        if self._freeze is not None and now >= self._freeze[0]:
            duration += self._freeze[1]
            self._freeze = None
        self._sleep(now + duration)
        return StepOutcome(None, {})

    def ends(
        self,
        costs: CostModel,
        rows: int,
        context: int,
        adapters: int,
        most: int,
        until_s: float,
        longest_s: float | None,
    ) -> tuple[list[float], list[float]]:
        """When decode steps like the last one would end, and how long each takes: at most `most`,
        none at or after `until_s`, none longer than `longest_s`. Their time passes here."""
        ends: list[float] = []
        predicted: list[float] = []
        if self._slowdown is not _even or costs is not self._costs:
            return ends, predicted
        if self._freeze is not None:
            until_s = min(until_s, self._freeze[0])
        at = self._world.clock.now()
        until_s = min(until_s, self._world.next_s)  # a load may have begun since it was said
        for _ in range(most):
            step_s = costs.totals(0, rows, context, adapters)
            at += step_s
            if at >= until_s or (longest_s is not None and step_s > longest_s):
                break
            ends.append(at)
            predicted.append(step_s)
            context += rows
        if ends:
            self._sleep(ends[-1])
        return ends, predicted


class VirtualLink:
    """Loads adapters as fast as a link of fixed bandwidth carries them, one at a time; what is not
    in host memory is read from disk before."""

    def __init__(
        self,
        world: World,
        page_bytes: int,
        bytes_per_s: float,
        disk: LinkSpec = DISKS["nvme-gen4"],
    ) -> None:
        self._world = world
        self._page_bytes = page_bytes
        self._path = LoadPath(LinkSpec(bytes_per_s), disk)
        self._done: Callable[[LoadDone], None] = lambda done: None
        self.forgotten: list[str] = []

    def on_done(self, callback: Callable[[LoadDone], None]) -> None:
        self._done = callback

    def begin(self, order: LoadOrder) -> None:
        size, now = len(order.pages) * self._page_bytes, self._world.clock.now()
        passage = self._path.begin(size, now, from_disk=order.from_disk)
        self._world.at(passage.end_s, lambda: self._done(LoadDone(order.key)))

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def drop_copy(self, key: str) -> None:
        """Copies in host memory are the library's; none are made here."""

    def close(self) -> None:
        """Nothing runs beside the world: there is nothing to stop."""


@dataclass(frozen=True, slots=True)
class Ran:
    steps: int
    tokens: int


def simulate(
    core: EngineCore, world: World, until_s: float = math.inf, *, jumping: bool = True
) -> Ran:
    """Step the core until nothing is left to happen, or `until_s` has passed. `jumping`: over
    runs of identical decode steps."""
    steps = tokens = 0
    while world.clock.now() < until_s:
        if core.wait_for_work(0):
            result = core.step(min(until_s, world.next_s) if jumping else None)
            steps += max(1, result.steps)
            tokens += result.made
        elif world.empty:
            break
        else:
            world.run_next()
    return Ran(steps, tokens)
