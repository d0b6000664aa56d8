"""Small pools and arrivals for the simulator's tests."""

from __future__ import annotations

import random
from collections.abc import Iterator

from engine.config import Limits, PoolSpec, Tenant
from engine.costs import CostModel
from engine.simulation.setup import Machine, Setup
from engine.simulation.workload import AdapterSpec, Arrival

MACHINE = Machine("test", CostModel(0.01, 0.0002, 0.0005, 1e-7, 0.001), 1 << 16, 1e8, 1 << 16)


def limits(**changed) -> Limits:
    small = {"slots": 8, "step_tokens": 64, "pool_bytes": 256 << 16, "prefix_cache": False}
    return Limits(**{**small, **changed})


def setup(*tenants: Tenant, **changed) -> Setup:
    given = {
        "name": "test",
        "machine": MACHINE,
        "pools": (PoolSpec("main", 1, limits()),),
        "tenants": tenants or (Tenant("a"), Tenant("b")),
        "bucket_s": 10.0,
    }
    return Setup(**{**given, **changed})


ADAPTER = (AdapterSpec("x", 8, 1),)


def poisson(
    count: int,
    rate_per_s: float,
    tenants: tuple[str, ...] = ("a", "b"),
    *,
    seed: int = 1,
    adapters: tuple[str | None, ...] = (None,),
    prompt: tuple[int, int] = (5, 60),
    output: tuple[int, int] = (1, 30),
) -> Iterator[Arrival]:
    rng = random.Random(seed)
    at = 0.0
    for i in range(count):
        at += rng.expovariate(rate_per_s)
        yield Arrival(
            at,
            rng.choice(tenants),
            rng.choice(adapters),
            rng.randint(*prompt),
            rng.randint(*output),
            i,
        )
