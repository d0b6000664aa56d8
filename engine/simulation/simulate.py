"""Runs a setup's arrivals through fronts, doors and real cores in virtual time. Owns the loop.

One core: everything in one thread, a step's time is the world running to its end. Several: each
steps in a lane of its own (engine/simulation/lanes.py), one of them at a time. Deterministic: the
same arrivals and setup give the same result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from engine.clock import TurnedClock
from engine.collector import few_collections
from engine.scheduling.request import Outcome, Request
from engine.serving.front_book import Submit
from engine.simulation.columns import Columns
from engine.simulation.curves import Curves
from engine.simulation.front import Front, PoolFront
from engine.simulation.lanes import Lane
from engine.simulation.replica import Replica
from engine.simulation.results import Result, Wall, summarise
from engine.simulation.setup import Setup, check
from engine.simulation.workload import Arrival
from engine.simulation.world import World

SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a simulation is: engine time, requests that came and those still under way."""

    now_s: float
    offered: int
    under_way: int


def simulate(
    arrivals: Iterable[Arrival],
    setup: Setup,
    *,
    until_s: float = math.inf,
    rows: Submit | None = None,
    progress: Callable[[Progress], None] | None = None,
    sample_s: float = SAMPLE_S,
    jumping: bool = True,
) -> Result:
    """`arrivals` in order of time, taken one by one; the clock begins at 0.

    Runs until nothing is left to happen (drained), or cuts at `until_s`: what is under way then
    is counted as unfinished. `rows` takes the telemetry of fronts and workers; None = none is
    made. `progress` is called about once a simulated second. `jumping`: over runs of identical
    decode steps, which changes nothing but the time this takes. Raises WorkloadError for a setup
    that cannot be, or an arrival of a tenant or adapter that it does not name.
    """
    check(setup)
    began = time.perf_counter()
    run = _Run(arrivals, setup, until_s, rows, progress, sample_s, jumping)
    with few_collections():
        try:
            run.go()
        except BaseException:
            run.abandon()  # interrupted in the middle of anything: nothing more may be told
            raise
        run.close()
    result = run.result()
    return result.timed(Wall.of(time.perf_counter() - began, result))


class _Run:
    def __init__(
        self,
        arrivals: Iterable[Arrival],
        setup: Setup,
        until_s: float,
        rows: Submit | None,
        progress: Callable[[Progress], None] | None,
        sample_s: float,
        jumping: bool,
    ) -> None:
        self._jumping = jumping
        self._setup = setup
        self._until_s = until_s
        self._progress = progress
        self._clock = TurnedClock(wall_s=setup.start_unix_s)
        self._world = World(self._clock)
        self._columns = Columns()
        self._curves = Curves(sample_s)
        self._weights = {t.name: t.weight for t in setup.tenants}
        self._front = Front(iter(arrivals), setup, self._world, self._columns, until_s)
        self._replicas: list[Replica] = []
        pools: list[PoolFront] = []
        for spec in setup.pools:
            own = [
                Replica(
                    setup,
                    spec,
                    place,
                    len(self._replicas) + place,
                    self._world,
                    emit=None if rows is None else rows.submit,
                    ended=self._ended,
                    lost=self._front.lost,
                )
                for place in range(spec.replicas)
            ]
            self._replicas += own
            pools.append(PoolFront(setup, own, self._world, rows))
        self._front.open(pools)
        self._world.feed = self._front
        self._bucket_end_s = self._next_bucket()
        self._due_s = 0.0  # when something beside stepping is to be done

    def go(self) -> None:
        if len(self._replicas) == 1:
            self._alone()
        else:
            self._together()
        if self._front.error is not None:
            raise self._front.error

    # -- the two loops

    def _alone(self) -> None:
        world, clock, until_s = self._world, self._clock, self._until_s
        replica = self._replicas[0]
        front = self._front
        while (now := clock.now()) < until_s and front.error is None:
            if now >= self._due_s:
                self._keep_house()
            if replica.work(self._free_until()):
                continue
            next_s = world.next_s
            if next_s == math.inf:
                break
            world.run_to(min(next_s, until_s))

    def _together(self) -> None:
        world, clock, until_s = self._world, self._clock, self._until_s
        for replica in self._replicas:
            replica.lane = Lane(self._lane_work(replica), f"replica-{replica.number}")
        lanes = [(r, r.lane) for r in self._replicas if r.lane is not None]
        while True:
            if clock.now() >= self._due_s:
                self._keep_house()
            for replica, lane in lanes:
                if lane.wake_s is None and replica.has_work:
                    lane.resume()
            at = min(
                (lane.wake_s for _, lane in lanes if lane.wake_s is not None), default=math.inf
            )
            at = min(at, world.next_s)
            if at == math.inf or clock.now() >= until_s or self._front.error is not None:
                break
            world.run_to(min(at, until_s))
            for _, lane in lanes:
                if lane.wake_s is not None and lane.wake_s <= clock.now():
                    lane.resume()

    def _lane_work(self, replica: Replica) -> Callable[[], bool]:
        return lambda: replica.work(self._free_until())

    def _free_until(self) -> float | None:
        """Until when nothing comes from outside; other replicas' steps are no matter to one."""
        return min(self._world.next_s, self._due_s) if self._jumping else None

    # -- beside the steps

    def _ended(self, replica: Replica, request: Request, outcome: Outcome) -> None:
        self._front.ended(replica, request, outcome)

    def _next_bucket(self) -> float:
        """End of the bucket that holds the present instant; buckets are cut in UTC."""
        length, base = self._setup.bucket_s, self._clock.base
        return base.engine((base.unix(self._clock.now()) // length + 1) * length)

    def _keep_house(self) -> None:
        now = self._clock.now()
        if now >= self._bucket_end_s:
            for replica in self._replicas:
                replica.seal()
            self._front.seal()
            self._bucket_end_s = self._next_bucket()
        if now >= self._curves.next_s:
            self._sample()
            if self._progress is not None:
                front = self._front
                self._progress(Progress(now, front.offered, len(front.live)))
        self._due_s = min(self._bucket_end_s, self._curves.next_s)

    def _sample(self) -> None:
        tenants, index = self._columns.tenants, self._columns.index
        service = np.zeros(len(tenants))
        backlogged: set[int] = set()
        for replica in self._replicas:
            service += replica.services(tenants)
            if replica.up:
                backlogged.update(index[t] for t in replica.core.scheduler.backlogged)
        weights = np.fromiter(
            (self._weights[t] for t in tenants), dtype=np.float64, count=len(tenants)
        )
        self._curves.sample(self._clock.now(), service, weights, backlogged)

    # -- the end

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        self._front.seal(closing=True)

    def abandon(self) -> None:
        """No more steps and no more rows."""
        for replica in self._replicas:
            replica.abandon()

    def result(self) -> Result:
        self._sample()
        return summarise(
            self._setup,
            self._columns,
            self._curves,
            simulated_s=self._clock.now(),
            steps={r.pool.name: 0 for r in self._replicas} | self._steps(),
            under_way=[flight[0] for flight in self._front.live.values()],
        )

    def _steps(self) -> dict[str, int]:
        steps: dict[str, int] = {}
        for replica in self._replicas:
            steps[replica.pool.name] = steps.get(replica.pool.name, 0) + replica.steps
        return steps
