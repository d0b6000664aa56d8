"""A completion's answer while it runs: tokens to text to bytes. An ASGI response of its own.

The same texts make the whole answer and the stream, so they join to the same. The caller's
leaving is watched from the first moment, also while no token has come yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.serving import openai
from engine.serving.link import End, Flight
from engine.serving.openai import ApiError, Shape
from telemetry.proto import tenantscope_pb2 as pb


class Decoder(Protocol):
    """Turns tokens into text piece by piece, never half a character."""

    def push(self, token: int) -> str: ...
    def finish(self) -> str: ...


class CallerGone(Exception):
    """The caller hung up."""


def refusal(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    """An error as a response in OpenAI's shape."""
    return Response(
        openai.encoded(error.body()),
        status_code=error.status,
        headers=(headers or {}) | error.headers,
        media_type="application/json",
    )


def _failure(end: End, ask: pb.Ask) -> ApiError | None:
    """What the caller is told when a request did not finish."""
    if end.outcome == "finished":
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
    """Runs one flight to its end. `leave` is called when the caller goes before that."""

    def __init__(
        self,
        flight: Flight,
        shape: Shape,
        decoder: Decoder,
        *,
        stop_tokens: frozenset[int],
        stream: bool,
        headers: dict[str, str],
        leave: Callable[[], None],
    ) -> None:
        self._flight = flight
        self._shape = shape
        self._decoder = decoder
        self._stop_tokens = stop_tokens
        self._stream = stream
        self._extra = headers
        self._leave = leave
        self.status_code = 200
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        try:
            if self._stream:
                await self._send_stream(scope, receive, send)
            else:
                await (await self._whole())(scope, receive, send)
        except (CallerGone, OSError):
            pass  # nobody is left to tell; `leave` below gives the request up
        finally:
            watch.cancel()
            if self._flight.end is None:
                self._leave()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._flight.reader_gone()

    async def _next(self) -> tuple[str, End | None]:
        """The next piece of text; with the end comes what the decoder still held back."""
        news = await self._flight.next()
        if news is None:
            raise CallerGone
        tokens, end = news
        text = "".join(self._decoder.push(t) for t in tokens if t not in self._stop_tokens)
        if end is not None:
            text += self._decoder.finish()
        return text, end

    async def _whole(self) -> Response:
        pieces: list[str] = []
        end: End | None = None
        while end is None:
            text, end = await self._next()
            pieces.append(text)
        failure = _failure(end, self._flight.ask)
        if failure is not None:
            return refusal(failure, self._extra)
        body = self._shape.whole("".join(pieces), end.reason, _usage(end))
        return Response(
            openai.encoded(body),
            headers=self._extra,
            media_type="application/json",
        )

    async def _send_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        text, end = await self._next()
        failure = _failure(end, self._flight.ask) if end is not None else None
        if failure is not None and not text:
            # Nothing has been said yet, so the status can still tell the truth.
            await refusal(failure, self._extra)(scope, receive, send)
            return
        await self._start(send)
        while end is None:
            if text:
                await _body(send, openai.event(self._shape.chunk(text)))
            text, end = await self._next()
        failure = _failure(end, self._flight.ask)
        if failure is not None:
            last = openai.event(self._shape.chunk(text)) if text else b""
            await _body(send, last + openai.event(failure.body()), more=False)
            return
        last = openai.event(self._shape.chunk(text, end.reason))
        if self._shape.include_usage:
            last += openai.event(self._shape.usage_chunk(_usage(end)))
        await _body(send, last + openai.DONE, more=False)

    async def _start(self, send: Send) -> None:
        headers = self._extra | {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
        }
        raw = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _usage(end: End) -> dict[str, int]:
    return openai.usage(end.prompt_tokens, end.output_tokens)
