"""What the front costs: added to TTFT and per token, requests a second, under a flood of prompts.

    python -m benchmarks.front_cost [--quick]

A worker that computes nothing (a step of 5 ms, or of 1 ms under load) answers over its stream
directly, then through the front. Requests a second are counted by the front's CPU time: on a
machine with others on it the wall says less.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.front_rig import Connection, Rig, request_bytes, rig, settings_for
from engine.serving.link import WorkerLink
from telemetry.proto import tenantscope_pb2 as pb

TARGET_A_SECOND = 1_000
PROMPT = "select the users where the day is one"
TOKENS = 16


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one answer: to the first token, and from one to the next on average."""

    first_s: float
    each_s: float


async def direct(link: WorkerLink, number: int, prompt: list[int]) -> Timed:
    ask = pb.Ask(
        request_id=f"d{number}",
        tenant="t1",
        prompt=prompt,
        max_tokens=TOKENS,
        arrived_s=0.0,
        admitted_s=0.0,
        ignore_eos=True,
    )
    begin = time.perf_counter()
    flight = link.send(ask, lambda flight, end: None)
    first = None
    while True:
        news = await flight.next()
        assert news is not None
        if first is None and news[0]:
            first = time.perf_counter()
        if news[1] is not None:
            end = time.perf_counter()
            assert first is not None
            assert news[1].output_tokens == TOKENS
            return Timed(first - begin, (end - first) / (TOKENS - 1))


async def through(connection: Connection, request: bytes) -> Timed:
    begin = time.perf_counter()
    connection.send(request)
    status, _ = await connection.head()
    assert status == 200
    first = None
    async for _ in connection.chunks():
        first = first or time.perf_counter()
    end = time.perf_counter()
    assert first is not None
    return Timed(first - begin, (end - first) / (TOKENS - 1))


def at(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


async def added(r: Rig, times: int) -> None:
    """Both ways in turn, so that both see the same machine."""
    from engine.model.text import load_tokenizer

    prompt = load_tokenizer("synthetic").encode(PROMPT)
    request = request_bytes("t0", prompt=PROMPT, max_tokens=TOKENS, stream=True)
    link = WorkerLink(r.worker_address)
    link.start()
    assert await link.wait_up(10.0)
    ways: tuple[list[Timed], list[Timed]] = ([], [])
    async with Connection(r.port) as connection:
        for number in range(times + 10):
            pair = (await direct(link, number, prompt), await through(connection, request))
            if number >= 10:  # the first ones warm both
                for way, timed in zip(ways, pair, strict=True):
                    way.append(timed)
    await link.close()
    for name, values in (
        ("TTFT", [[t.first_s for t in way] for way in ways]),
        ("per token", [[t.each_s for t in way] for way in ways]),
    ):
        own, front = values
        print(
            f"{name:10} direct p50 {at(own, 0.5) * 1e3:7.3f} p99 {at(own, 0.99) * 1e3:7.3f} ms   "
            f"through the front p50 {at(front, 0.5) * 1e3:7.3f} p99 {at(front, 0.99) * 1e3:7.3f} ms"
            f"   added p50 {(at(front, 0.5) - at(own, 0.5)) * 1e3:+.3f} ms"
        )


async def sustained(r: Rig, name: str, seconds: float, at_once: int, **body: object) -> float:
    """Requests a second of the front's CPU, over all of the time; the best second is told beside:
    on a machine with others on it, it is the least disturbed."""
    requests = [request_bytes(f"t{i}", prompt=PROMPT, **body) for i in range(8)]
    until = time.monotonic() + seconds
    done = 0

    async def caller(number: int) -> None:
        nonlocal done
        async with Connection(r.port) as connection:
            while time.monotonic() < until:
                if body.get("stream"):
                    connection.send(requests[number % 8])
                    status, _ = await connection.head()
                    async for _ in connection.chunks():
                        pass
                else:
                    status, _ = await connection.whole(requests[number % 8])
                assert status == 200, status
                done += 1

    seconds_: list[float] = []

    async def sample() -> None:
        while True:
            had, cpu = done, r.front_cpu_s()
            await asyncio.sleep(1.0)
            spent = r.front_cpu_s() - cpu
            if spent > 0.1:  # in ticks of 10 ms: less says nothing
                seconds_.append((done - had) / spent)

    cpu, begin = r.front_cpu_s(), time.monotonic()
    sampling = asyncio.create_task(sample())
    await asyncio.gather(*(caller(i) for i in range(at_once)))
    sampling.cancel()
    wall, cpu = time.monotonic() - begin, r.front_cpu_s() - cpu
    rate = done / cpu
    print(
        f"{name:16} {done / wall:5.0f} req/s by the wall, the front busy {cpu / wall:4.0%}: "
        f"{rate:5.0f} req a CPU second ({cpu / done * 1e6:.0f} us each), "
        f"{max(seconds_, default=rate):.0f} in the best second"
    )
    return rate


async def first_tokens(r: Rig, seconds: float) -> tuple[list[float], list[float]]:
    """TTFT of a tenant with a short request now and then, and the part of it that is the front's
    by its own account, from the head of the request to its being handed over."""
    request = request_bytes("t1", prompt=PROMPT, max_tokens=2, stream=True, tell_waits=True)
    until = time.monotonic() + seconds
    found: tuple[list[float], list[float]] = ([], [])
    async with Connection(r.port) as connection:
        while time.monotonic() < until:
            begin = time.perf_counter()
            connection.send(request)
            _, headers = await connection.head()
            found[0].append(time.perf_counter() - begin)
            found[1].append(float(headers[b"x-tenantscope-wait-front-s"]))
            async for _ in connection.chunks():
                pass
            await asyncio.sleep(0.01)
    return found


async def flood(r: Rig, seconds: float, characters: int) -> None:
    """Another's TTFT while t0 sends long prompts over 16 connections."""
    words = ["select", "users", "where", "database", "hello", "world", "forty-two", "naive"]
    dice = random.Random(7)
    text = " ".join(f"{dice.choice(words)}{dice.randrange(999)}" for _ in range(characters // 8))
    request = request_bytes("t0", prompt=text[:characters], max_tokens=1)
    alone = await first_tokens(r, seconds)
    statuses: dict[int, int] = {}
    stop = asyncio.Event()

    async def flooding() -> None:
        async with Connection(r.port) as connection:
            while not stop.is_set():
                status, _ = await connection.whole(request)
                statuses[status] = statuses.get(status, 0) + 1

    floods = [asyncio.create_task(flooding()) for _ in range(16)]
    cpu, begin = r.front_cpu_s(), time.monotonic()
    beside = await first_tokens(r, seconds)
    cpu, wall = r.front_cpu_s() - cpu, time.monotonic() - begin
    stop.set()
    await asyncio.gather(*floods)
    told = ", ".join(f"{n} x {status}" for status, n in sorted(statuses.items()))
    print(f"flood of {characters:,} characters: {told}; the front busy {cpu / wall:.0%}")
    for what, was, now in zip(("TTFT", "its front part"), alone, beside, strict=True):
        print(
            f"  another's {what:14} alone p50 {at(was, 0.5) * 1e3:6.2f} p99 "
            f"{at(was, 0.99) * 1e3:6.2f} ms   beside it p50 {at(now, 0.5) * 1e3:6.2f} p99 "
            f"{at(now, 0.99) * 1e3:6.2f} ms (p50 x {at(now, 0.5) / at(was, 0.5):.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    parser.add_argument("--only", choices=("added", "rate", "flood"))
    args = parser.parse_args()
    times, seconds = (60, 2.0) if args.quick else (250, 10.0)
    if args.only in (None, "added"):
        with rig(settings_for(), 0.005) as r:
            asyncio.run(added(r, times))
    if args.only in (None, "rate"):
        with rig(settings_for(), 0.001) as r:
            asyncio.run(sustained(r, "warming", 1.0, 64, max_tokens=1))
            rates = [
                asyncio.run(sustained(r, "whole, 1 token", seconds, 64, max_tokens=1)),
                asyncio.run(sustained(r, "whole, 8 tokens", seconds, 64, max_tokens=8)),
                asyncio.run(sustained(r, "streamed, 8", seconds, 64, max_tokens=8, stream=True)),
            ]
        met = ["met" if rate >= TARGET_A_SECOND else "missed" for rate in rates]
        print(f"aim, {TARGET_A_SECOND} short requests a second of one core: {', '.join(met)}")
    if args.only in (None, "flood"):
        for limits in ({}, {"rpm": 1}):
            print("t0 without limits" if not limits else "t0 over its limit")
            with rig(settings_for(**limits), 0.002) as r:
                asyncio.run(flood(r, seconds, 8_000))


if __name__ == "__main__":
    main()
