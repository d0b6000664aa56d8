"""One plain request and its answer, between a connection and the app. Owns the answer's bytes.

The bytes are what h11 would send. Reading is the connection's, and so is what comes after.
"""

from __future__ import annotations

import http
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import RequestResponseCycle

# In a scope's `extensions`: takes a function that is called when the caller hangs up before the
# answer is over; nobody has to wait in `receive` to hear of it.
GONE = "tenantscope.gone"
_PHRASES = {s.value: s.phrase.encode() for s in http.HTTPStatus}
_STATUS = {n: b"HTTP/1.1 %d %b\r\n" % (n, _PHRASES.get(n, b"")) for n in range(200, 600)}
_WITHOUT_BODY = (204, 304)


class Exchange(RequestResponseCycle):
    """As uvicorn's for h11, without h11: for a request over HTTP/1.1 whose connection stays."""

    _head = b""  # written with what follows it
    _left: int | None = None  # bytes of the body that are still to come; None = it goes in chunks
    _gone: Callable[[], None] | None = None

    def when_gone(self, call: Callable[[], None]) -> None:
        """Hear of it, when the caller hangs up before the answer is over."""
        self._gone = call
        if self.disconnected:
            call()

    def hung_up(self) -> None:
        """The connection is lost."""
        if self.disconnected and self._gone is not None:
            self._gone()

    async def send(self, message: Any) -> None:
        """Raises RuntimeError for an answer that is none."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if not self.response_started:
            _expect(kind, "http.response.start")
            self.response_started = True
            self._begin(message)
            return
        if self.response_complete:
            raise RuntimeError(f"{kind!r} after the whole answer")
        _expect(kind, "http.response.body")
        body, ends = message.get("body", b""), not message.get("more_body", False)
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (ends and self._left):
                raise RuntimeError("the body is not as long as the answer's head says")
        elif body:
            body = b"%x\r\n%b\r\n" % (len(body), body)
        if ends and self._left is None:
            body += b"0\r\n\r\n"
        head, self._head = self._head, b""
        if head or body:
            self.transport.write(head + body)
        if ends:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _begin(self, message: Any) -> None:
        headers = [*self.default_headers, *message.get("headers", ())]
        parts = [_STATUS[message["status"]]]
        if message["status"] in _WITHOUT_BODY:
            self._left = 0
        for name, value in headers:
            parts.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
        if self._left is None:
            parts.append(b"Transfer-Encoding: chunked\r\n")
        head = b"".join(parts)
        if head.count(b"\n") != len(parts) or head.count(b"\r") != len(parts):
            raise RuntimeError("a header of the answer holds a line's end")
        self._head = head + b"\r\n"


def _expect(kind: str, wanted: str) -> None:
    if kind != wanted:
        raise RuntimeError(f"{kind!r}: expected {wanted!r}")
