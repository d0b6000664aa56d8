"""The door's numbers are exact: for parallel requests, and for callers who leave anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from front_bench import ALICE, Bench, bench, settings, text_reply
from serving_fakes import FakeCore

PROMPT = "abc"


def scope(path: str = "/v1/completions") -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"authorization", f"Bearer {ALICE}".encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


class Call:
    """One request spoken in ASGI, on the front's own loop."""

    def __init__(self, b: Bench, **body: Any) -> None:
        asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 20} | body
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.said = asyncio.Event()
        self.body = json.dumps(asked).encode()
        self.task = asyncio.ensure_future(b.front.app(scope(), self.inbox.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.said.set()

    def ask(self, *, whole: bool = True) -> None:
        body = self.body if whole else self.body[:5]
        self.inbox.put_nowait({"type": "http.request", "body": body, "more_body": not whole})

    def hang_up(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        return next(m["status"] for m in self.sent if m["type"] == "http.response.start")


def test_of_twenty_at_once_with_tokens_left_for_one_exactly_one_gets_in() -> None:
    async def storm(b: Bench) -> list[int]:
        calls = [Call(b) for _ in range(20)]
        for call in calls:
            call.ask()
        await asyncio.wait_for(asyncio.gather(*(c.task for c in calls)), 20)
        return sorted(c.status for c in calls)

    core = FakeCore(text_reply("x" * 19))
    with bench(core, settings(tpm=40)) as (b, client):
        statuses = client.portal.call(storm, b)  # type: ignore[union-attr]
        view = b.front._door.view("alice", b.clock.now())
    assert statuses == [200] + [429] * 19
    assert len(core.asks) == 1
    assert (view.settled_tokens, view.reserved_tokens) == (len(PROMPT) + 20, 0)
    row = b.minute()
    assert (row.offered_requests, row.admitted_requests, row.rejected_tpm_requests) == (20, 1, 19)


# -- leaving at five points: before the body is whole, before the worker has it, before a token,
# -- in the middle, after a stop string was met


async def in_the_body(b: Bench, call: Call) -> None:
    call.ask(whole=False)
    await asyncio.sleep(0)


async def at_once(b: Bench, call: Call) -> None:
    call.ask()


async def before_a_token(b: Bench, call: Call) -> None:
    asked = len(b.core.asks)
    call.ask()
    await asyncio.to_thread(b.core.wait_for, lambda: len(b.core.asks) > asked)


async def in_the_middle(b: Bench, call: Call) -> None:
    await before_a_token(b, call)
    b.core.make(b.core.asks[-1], [ord(c) for c in "seven__"])
    await asyncio.wait_for(call.said.wait(), 20)


async def after_a_stop(b: Bench, call: Call) -> None:
    await before_a_token(b, call)
    b.core.make(b.core.asks[-1], [ord(c) for c in "four.END_"])
    await asyncio.to_thread(b.core.wait_for, lambda: bool(b.core.completed))


POINTS: list[tuple[Callable[[Bench, Call], Awaitable[None]], int]] = [
    (in_the_body, 0),
    (at_once, 0),
    (before_a_token, 0),
    (in_the_middle, 7),
    (after_a_stop, 9),
]


@pytest.mark.parametrize(("point", "made"), POINTS, ids=[p.__name__ for p, _ in POINTS])
def test_two_hundred_who_leave_cost_what_was_made_and_nothing_else(
    point: Callable[[Bench, Call], Awaitable[None]], made: int
) -> None:
    times = 40  # at each of the five points

    async def leave(b: Bench, n: int) -> None:
        b.core.completed.clear()
        call = Call(b, stream=True, stop="END", prompt=f"p{n:02}")
        await point(b, call)
        call.hang_up()
        await asyncio.wait_for(call.task, 20)
        while b.link.open_requests:
            await asyncio.sleep(0)

    before = 10_000
    with bench(FakeCore(), settings(tpm=before, concurrency=1)) as (b, client):
        for n in range(times):
            client.portal.call(leave, b, n)  # type: ignore[union-attr]
        view = b.front._door.view("alice", b.clock.now())
        under_way = b.link.open_requests
    used = times * (made + len(PROMPT) if made else 0)
    assert view.tpm_level == before - used
    assert (view.reserved_tokens, view.settled_tokens, view.concurrency) == (0, used, 0)
    assert under_way == 0
    ids = [a.request_id for a in b.core.asks]
    if point is after_a_stop:
        assert b.core.aborted == []
    elif point is not in_the_body:
        assert b.core.aborted == ids, "each was given up, once"
