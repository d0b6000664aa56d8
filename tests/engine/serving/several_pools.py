"""Settings of several pools, and what tests of them wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from front_bench import Bench, settings

from engine.config import Limits, PoolSpec, Settings

ROOM = Limits(max_context=200, page_tokens=16)


def pooled(*pools: PoolSpec, bob: dict[str, Any] | None = None, **alice: Any) -> Settings:
    """Alice in the first pool, bob in the last."""
    chosen = settings(**alice)
    own = replace(chosen.tenants[1], pool=pools[-1].name, **(bob or {}))
    return replace(chosen, pools=pools, tenants=(chosen.tenants[0], own))


def pool(name: str, replicas: int = 1, **limits: Any) -> PoolSpec:
    return PoolSpec(name, replicas, limits=replace(ROOM, **limits))


async def said(b: Bench) -> None:
    import asyncio

    while not all(f._held for f in b.link._flights.values()):
        await asyncio.sleep(0)
