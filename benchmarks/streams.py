"""1,000 streams at once, 30 % of them cut off by their callers: is everything back, is memory flat?

    python -m benchmarks.streams [--quick] [--streams 1000] [--seconds 120]

Callers keep so many streams open for the whole time: who ends begins again. Three in ten hang up at
a random point, some before the first token. Afterwards nothing may be open or reserved, every page
must be free, and the tokens that the front charged must be those that the worker made and computed.
Ends with 1 where one of these is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from dataclasses import dataclass, field

from benchmarks.front_rig import PAGE_BYTES, Connection, Rig, request_bytes, rig, settings_for
from engine.config import Limits
from engine.model.text import load_tokenizer
from engine.serving.api.connections import allow_many_files
from engine.serving.client import WorkerClient, WorkerStatus

CUT = 0.3
TENANTS = 8
PROMPT = "select the users where the day is one"
SHORTEST, LONGEST = 10, 60  # tokens of one answer
PAGES = 16_384


@dataclass
class Seen:
    """What the callers have met."""

    whole: int = 0
    cut: int = 0
    cut_with_token: int = 0
    errors: list[str] = field(default_factory=list)
    bytes_: list[tuple[float, int]] = field(default_factory=list)  # the front's memory, in time


async def caller(r: Rig, number: int, until: float, step_s: float, seen: Seen) -> None:
    dice = random.Random(number)
    while time.monotonic() < until:
        tokens = dice.randint(SHORTEST, LONGEST)
        cut_s = dice.uniform(0.0, tokens * step_s) if dice.random() < CUT else None
        request = request_bytes(
            f"t{number % TENANTS}", prompt=PROMPT, max_tokens=tokens, stream=True
        )
        async with Connection(r.port) as connection:
            letters = [0]
            try:
                async with asyncio.timeout(cut_s):
                    await read(connection, request, letters)
            except TimeoutError:
                seen.cut += 1
                seen.cut_with_token += letters[0] > 0
                continue
            except Exception as e:
                seen.errors.append(f"{type(e).__name__}: {e}")
                continue
            if letters[0] != tokens:
                seen.errors.append(f"{letters[0]} of {tokens} tokens came")
            else:
                seen.whole += 1


async def read(connection: Connection, request: bytes, letters: list[int]) -> None:
    """All of one stream; counts its letters. Raises ValueError for anything but a whole answer."""
    connection.send(request)
    status, _ = await connection.head()
    if status != 200:
        raise ValueError(f"status {status}")
    last = b""
    async for data in connection.chunks():
        last = data
        for event in data.split(b"\n\n"):
            head, _, rest = event.partition(b'"text": "')
            if rest:
                letters[0] += len(rest.partition(b'"')[0])
            elif b'"error"' in head:
                raise ValueError(event.decode())
    if not last.endswith(b"data: [DONE]\n\n"):
        raise ValueError("the stream ended without its end")


async def watch(r: Rig, seen: Seen, begin: float) -> None:
    while True:
        seen.bytes_.append((time.monotonic() - begin, r.front_bytes()))
        await asyncio.sleep(1.0)


async def crowd(r: Rig, streams: int, seconds: float, step_s: float, seen: Seen) -> None:
    begin = time.monotonic()
    watching = asyncio.create_task(watch(r, seen, begin))
    until = begin + seconds
    await asyncio.gather(*(caller(r, i, until, step_s, seen) for i in range(streams)))
    watching.cancel()


def settled(r: Rig, worker: WorkerClient, patience_s: float = 30.0) -> WorkerStatus:
    """The worker's state once nothing is under way, or as it is when patience ends."""
    until = time.monotonic() + patience_s
    while True:
        status = worker.status()
        idle = not status.running and not status.waiting and not r.front_state()["open"]
        if idle or time.monotonic() > until:
            return status
        time.sleep(0.1)


def growth(seen: Seen, seconds: float, longest_s: float) -> float | None:
    """Memory in the last fifth of the time against that in the first fifth after the longest
    answers have ended for the first time; None when the run is too short to say."""
    early = [b for at, b in seen.bytes_ if longest_s <= at <= longest_s + 0.2 * seconds]
    late = [b for at, b in seen.bytes_ if 0.8 * seconds <= at <= seconds]
    if not early or not late or seconds < 3 * longest_s:
        return None
    return max(late) / max(early)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten seconds")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--step-s", type=float, default=0.4, help="one token of every stream")
    args = parser.parse_args()
    seconds = 10.0 if args.quick else args.seconds
    allow_many_files()
    limits = Limits(
        slots=1024,
        step_tokens=65_536,
        max_context=8192,
        pool_bytes=PAGES * PAGE_BYTES,
        prefix_cache=False,
        queue=1 << 16,
        queue_per_tenant=1 << 16,
    )
    prompt = len(load_tokenizer("synthetic").encode(PROMPT))
    seen = Seen()
    with rig(settings_for(TENANTS, limits), args.step_s) as r:
        cpu = r.front_cpu_s()
        asyncio.run(crowd(r, args.streams, seconds, args.step_s, seen))
        cpu = r.front_cpu_s() - cpu
        with WorkerClient(r.worker_address) as worker:
            status = settled(r, worker)
        left = r.front_state()
    ratio, bytes_ = growth(seen, seconds, LONGEST * args.step_s), max(b for _, b in seen.bytes_)
    prompts, odd = divmod(left["settled"] - status.output_tokens, prompt)
    least, most = seen.whole + seen.cut_with_token, seen.whole + seen.cut
    claims = {
        "no error in any stream": not seen.errors,
        "nothing open or reserved": not any(
            left[k] for k in ("open", "link_tokens", "reserved", "concurrency")
        ),
        "every page is free": status.free_pages == status.pages,
        "charged = made + computed": not odd and least <= prompts <= most,
    }
    if ratio is not None:
        claims["memory is flat (under 5 % more)"] = ratio < 1.05
    grew = "too short a run to say whether it grows" if ratio is None else f"x {ratio:.3f}"
    print(
        f"{args.streams} streams for {seconds:.0f} s: {seen.whole} whole, {seen.cut} cut off "
        f"({seen.cut_with_token} after a token); {status.output_tokens} tokens made, "
        f"{left['settled']:.0f} charged with {prompts:.0f} prompts of {prompt}; the front's memory "
        f"{bytes_ / 1e6:.0f} MB at most ({grew}), {cpu / status.output_tokens * 1e6:.0f} us of its "
        "CPU a token"
    )
    for error in dict.fromkeys(seen.errors[:5]):
        print(f"  error: {error}")
    for claim, holds in claims.items():
        print(f"{'yes' if holds else 'NO':4} {claim}")
    sys.exit(0 if all(claims.values()) else 1)


if __name__ == "__main__":
    main()
