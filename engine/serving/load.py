"""An open-loop client: sends a workload's arrivals to a front at their instants, and times them.

Arrivals are sent when they are due, however slow the answers are; nothing is retried. Owns no
judgement: what the client saw is returned, what it means is for others.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from engine.simulation.workload import Arrival

_TIMEOUT = httpx.Timeout(30.0, read=600.0)
# Nothing is retried here, so no connection is used that the front may be closing at that moment.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the client saw it; instants are unix seconds, None = never."""

    arrival: Arrival
    sent: float
    status: int
    first_token: float | None
    ended: float
    tokens: int
    error: str | None
    request_id: str | None = None  # as the front calls it


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send, whose keys to use, and how a prompt is made."""

    url: str
    base_model: str
    keys: Mapping[str, str]
    prompt: Callable[[Arrival], list[int]]


async def drive(
    target: Target,
    arrivals: Sequence[Arrival],
    offset_s: float,
    stop: asyncio.Event,
    on_seen: Callable[[Seen], None] = lambda seen: None,
) -> list[Seen]:
    """Send every arrival at (start + at_s - offset_s); return when all have ended.

    `stop` set: nothing more is sent, and what is under way is given up.
    """
    started = time.monotonic()
    async with httpx.AsyncClient(timeout=_TIMEOUT, limits=_LIMITS) as client:
        tasks: list[asyncio.Task[Seen]] = []
        for arrival in sorted(arrivals, key=lambda a: a.at_s):
            due = started + arrival.at_s - offset_s
            if await _stopped(stop, due - time.monotonic()):
                break
            tasks.append(asyncio.create_task(_send(client, target, arrival, on_seen)))
        pending = set(tasks)
        while pending and not stop.is_set():
            _, pending = await asyncio.wait(pending, timeout=0.2)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [t.result() for t in tasks if not t.cancelled() and t.exception() is None]


async def _stopped(stop: asyncio.Event, wait_s: float) -> bool:
    if wait_s <= 0:
        return stop.is_set()
    try:
        await asyncio.wait_for(stop.wait(), wait_s)
    except TimeoutError:
        return False
    return True


async def _send(
    client: httpx.AsyncClient,
    target: Target,
    arrival: Arrival,
    on_seen: Callable[[Seen], None],
) -> Seen:
    body = {
        "model": arrival.adapter or target.base_model,
        "prompt": target.prompt(arrival),
        "max_tokens": arrival.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {target.keys[arrival.tenant]}"}
    sent = time.time()
    status, tokens, first, error, name = 0, 0, None, None, None
    try:
        url = f"{target.url}/v1/completions"
        async with client.stream("POST", url, json=body, headers=headers) as response:
            status, name = response.status_code, response.headers.get("x-request-id")
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                if first is None:
                    first = time.time()
                if '"error"' in line:
                    error = json.loads(line[6:]).get("error", {}).get("message")
                tokens += 1
    except httpx.HTTPError as e:
        error = f"{type(e).__name__}: {e}"
    if status != 200:
        error = error or f"HTTP {status}"
    seen = Seen(arrival, sent, status, first, time.time(), tokens, error, name)
    on_seen(seen)
    return seen
