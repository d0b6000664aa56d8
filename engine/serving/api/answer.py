"""An answer while it runs, as an ASGI response of its own: one flight a choice, whole or streamed.

The caller's leaving is watched from the first moment, also while no token has come yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.serving.api import openai, shapes
from engine.serving.api.choice import CallerGone, Choice
from engine.serving.api.exchange import GONE
from engine.serving.api.openai import ApiError
from engine.serving.api.shapes import Part, Shape

MoreHeaders = Callable[[Sequence[Choice]], dict[str, str]]


def refusal(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    """An error as a response in OpenAI's shape."""
    return Response(
        openai.encoded(error.body()),
        status_code=error.status,
        headers=(headers or {}) | error.headers,
        media_type="application/json",
    )


def _failure(choice: Choice) -> ApiError | None:
    """What the caller is told when a choice did not finish."""
    end, ask = choice.end, choice.flight.ask
    if end is None or end.outcome == "finished" or choice.stopped:
        return None
    if end.lost:
        return openai.worker_lost()
    if end.outcome == "aborted":
        message = f"{end.reason}: send the request again in a moment"
        return ApiError(503, message, kind="service_unavailable", code="aborted")
    if end.outcome == "timed_out":
        return openai.timed_out(end.reason, ask.queue_timeout_s, ask.deadline_s)
    return ApiError(500, f"the request failed: {end.reason}", kind="server_error", code=end.outcome)


class Answer(Response):
    """Runs its choices to their end. Whoever of them is still under way when the caller goes, or
    another fails, is left. `more_headers` are known once a first token has come."""

    def __init__(
        self,
        choices: Sequence[Choice],
        shape: Shape,
        *,
        stream: bool,
        include_usage: bool,
        usage_so_far: bool = False,
        headers: dict[str, str],
        more_headers: MoreHeaders = lambda choices: {},
    ) -> None:
        self._choices = choices
        self._shape = shape
        self._stream = stream
        if not stream:
            for choice in choices:
                choice.in_bulk()
        self._include_usage = include_usage
        self._usage_so_far = usage_so_far
        self._extra = headers
        self._more_headers = more_headers
        self._around = [_around(shape, i) for i in range(len(choices))] if stream else []
        self._began: set[int] = set()  # choices of which something has been said
        self._unsent = b""
        self.status_code = 200
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        when_gone = scope.get("extensions", {}).get(GONE)
        watch = None
        if when_gone is None:
            watch = asyncio.create_task(self._watch(receive))
        else:
            when_gone(self._reader_gone)
        try:
            if self._stream:
                await self._send_stream(scope, receive, send)
            else:
                await (await self._whole())(scope, receive, send)
        except (CallerGone, OSError):
            pass  # nobody is left to tell; `leave` below gives the request up
        finally:
            if watch is not None:
                watch.cancel()
            for choice in self._choices:
                choice.leave()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._reader_gone()

    def _reader_gone(self) -> None:
        for choice in self._choices:
            choice.flight.reader_gone()

    async def _parts(self) -> AsyncGenerator[Part, None]:
        """What the choices say, as it comes, until all have ended. Raises CallerGone."""
        if len(self._choices) == 1:
            choice = self._choices[0]
            while choice.end is None:
                yield await choice.next()
            return
        # As many places as choices: each may have one piece that waits to be sent, no more.
        said: asyncio.Queue[Part | Exception] = asyncio.Queue(len(self._choices))
        readers = [asyncio.create_task(_read(choice, said)) for choice in self._choices]
        try:
            left = len(self._choices)
            while left:
                part = await said.get()
                if isinstance(part, Exception):
                    raise part
                left -= part.finish_reason is not None
                yield part
        finally:
            for reader in readers:
                reader.cancel()

    async def _whole(self) -> Response:
        texts: list[list[Part]] = [[] for _ in self._choices]
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                said = texts[part.index]
                if said and said[0].life != part.life:
                    said.clear()  # its worker was lost, and it began again
                said.append(part)
                failure = _failure(self._choices[part.index])
                if failure is not None:
                    return refusal(failure, self._extra)
        body = self._shape.whole([_joined(parts) for parts in texts], self._usage())
        headers = self._extra | self._more_headers(self._choices)
        return Response(openai.encoded(body), headers=headers, media_type="application/json")

    async def _send_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self._choices) == 1:  # as most are: by the shortest way
            choice = self._choices[0]
            while choice.end is None:
                if not await self._say(await choice.next(), scope, receive, send):
                    return
        else:
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    if not await self._say(part, scope, receive, send):
                        return
        data = self._unsent
        if self._include_usage:
            data += openai.event(self._shape.usage_chunk(self._usage()))
        await _body(send, data + openai.DONE, more=False)

    async def _say(self, part: Part, scope: Scope, receive: Receive, send: Send) -> bool:
        """Send what a part is. False: it has failed, the answer with it, and the caller knows."""
        choice = self._choices[part.index]
        if part.life != choice.flight.life:
            return True  # its worker was lost before this was said, and it begins again
        failure = None if part.finish_reason is None else _failure(choice)
        if not self._began:
            for each in self._choices:
                each.flight.hold()
            if failure is not None and not part.text:
                # Nothing has been said yet, so the status can still tell the truth.
                await refusal(failure, self._extra)(scope, receive, send)
                return False
            await self._start(send)
        data = self._unsent + self._events(part, failure)
        self._unsent = b""
        if failure is not None:
            await _body(send, data, more=False)
            return False
        if choice.end is not None and all(each.end is not None for each in self._choices):
            self._unsent = data  # what may still be queued is sent with the end
        elif data:
            await _body(send, data)
        return True

    def _events(self, part: Part, failure: ApiError | None) -> bytes:
        """What a part is as events: none for one that says nothing yet."""
        data = b""
        if part.index not in self._began:
            self._began.add(part.index)
            first = self._shape.first(part.index)
            data = openai.event(first) if first is not None else b""
        if failure is not None:
            if part.text:
                cut = Part(part.index, part.text, part.told)
                data += openai.event(self._chunk(cut))
            return data + openai.event(failure.body())
        if part.finish_reason is None and part.told is None and not self._usage_so_far:
            if part.text:
                before, after = self._around[part.index]
                data += before + openai.encoded(part.text) + after
        elif part.text or part.finish_reason is not None:
            data += openai.event(self._chunk(part))
        return data

    def _chunk(self, part: Part) -> dict[str, Any]:
        chunk = self._shape.chunk(part)
        if self._usage_so_far:
            flights = [c.flight for c in self._choices]
            received = sum(f.received for f in flights)
            chunk["usage"] = shapes.usage(len(flights[0].ask.prompt), received)
        return chunk

    async def _start(self, send: Send) -> None:
        headers = self._extra | self._more_headers(self._choices)
        headers |= {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
        }
        raw = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    def _usage(self) -> dict[str, int]:
        ends = [c.end for c in self._choices if c.end is not None]
        return shapes.usage(ends[0].prompt_tokens, sum(e.output_tokens for e in ends))


def _around(shape: Shape, index: int) -> tuple[bytes, bytes]:
    """What stands before and behind a text in the event of a chunk that says nothing else: of one
    choice it is the same each time, and most events are such."""
    mark = "\0"
    before, after = openai.event(shape.chunk(Part(index, mark))).split(openai.encoded(mark))
    return before, after


async def _read(choice: Choice, said: asyncio.Queue[Part | Exception]) -> None:
    try:
        while choice.end is None:
            await said.put(await choice.next())
    except Exception as e:  # whoever waits for the next piece must hear of it, or waits for ever
        await said.put(e)


def _joined(parts: Sequence[Part]) -> Part:
    told = None
    if parts[0].told is not None:
        told = tuple(t for p in parts for t in p.told or ())
    text = "".join(p.text for p in parts)
    return Part(parts[0].index, text, told, parts[-1].finish_reason)


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
