"""A running `Outbound` for tests: quick to try again, keeping every trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telemetry.outbound.lane import LaneStats, Pace
from telemetry.outbound.outbound import Outbound
from telemetry.outbound.settings import Export, Outgoing, endpoint_of
from telemetry.outbound.tail import Rates
from telemetry.prometheus.counting import Counting
from telemetry.records import EngineRun, RequestRecord
from tests.telemetry.delivered import RUN, T0, batch

FAST = Pace(first_s=0.01, longest_s=0.05)
ALL = Rates(ratio=1.0, most_per_s=1e9, always_most_per_s=1e9)


def traces_to(url: str, **columns: Any) -> Export:
    return Export(endpoint_of(url), **{"metrics": False, **columns})


def metrics_to(url: str, **columns: Any) -> Export:
    return Export(endpoint_of(url), **{"traces": False, "every_s": 0.02, **columns})


def counting(*tenants: str, at: float = T0) -> Counting:
    heard = Counting(at)
    config = json.dumps({"tenants": [{"name": t} for t in tenants]})
    heard.hear([batch(EngineRun(started=at, model="m", config=config, **RUN))], at)
    return heard


@contextmanager
def sending(*exports: Export, heard: Counting | None = None, pace: Pace = FAST) -> Iterator[Any]:
    outbound = Outbound(
        Outgoing(exports, ALL), heard or counting("a"), environment={}, pace=pace, clock=lambda: T0
    )
    try:
        yield outbound
    finally:
        outbound.stop(0.1)


def one(outbound: Outbound) -> LaneStats:
    [lane] = outbound.stats().lanes
    return lane


def losses(stats: LaneStats) -> dict[str, int]:
    return {why: count for why, count in stats.dropped.items() if count}


def hear(outbound: Outbound, *rows: RequestRecord) -> None:
    outbound.hear([batch(*rows)], T0)
