"""Requests that are read without h11 are read and answered to the byte as with it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import h11
import pytest
import uvicorn
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from engine.serving.api.connections import PatientProtocol
from engine.serving.api.exchange import Exchange
from engine.serving.api.plain_head import LONGEST, read_plain_head

HOST = b"host: x\r\n"
names = st.sampled_from(
    [b"host", b"Host", b"content-length", b"Content-Length", b"connection", b"x-a", b"X-A",
     b"transfer-encoding", b"expect", b"upgrade", b"bad name", b"", b"x\x00", b"\xc3\xa9"]
)  # fmt: skip
values = st.one_of(
    st.sampled_from([b"", b"x", b" x ", b"\tx\t", b"a  b", b"0", b"5", b"+5", b"5, 5", b"close",
                     b"keep-alive", b"chunked", b"100-continue", b"\x00", b"\xff", b"a\rb"]),
    st.binary(max_size=6),
)  # fmt: skip
ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r\n "])
lines = st.builds(
    lambda n, colon, v, e: n + colon + v + e, names, st.sampled_from([b":", b": ", b" :"]), values,
    ends,
)  # fmt: skip
first = st.one_of(
    st.sampled_from([b"GET / HTTP/1.1", b"POST /a?b=c HTTP/1.1", b"GET /%20 HTTP/1.0", b"GET  /",
                     b"PUT / HTTP/1.1", b"GET * HTTP/1.1", b"get / HTTP/1.1", b"GET /\x7f HTTP/1.1",
                     ]),
    st.binary(max_size=12),
)  # fmt: skip
heads = st.builds(
    lambda f, ls, host: f + b"\r\n" + (HOST if host else b"") + b"".join(ls) + b"\r\n",
    first, st.lists(lines, max_size=4), st.booleans(),
)  # fmt: skip


@given(heads)
@example(b"GET / HTTP/1.1\r\nhost: x\r\nHost: y\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n")
def test_every_head_that_is_taken_reads_as_h11_has_it(raw: bytes) -> None:
    head = read_plain_head(raw)
    if head is None:
        return
    plain = h11.Connection(h11.SERVER)
    plain.receive_data(raw[: head.ends] + b"x" * head.body_bytes)
    request = plain.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target, request.http_version) == (
        head.method, head.target, b"1.1",
    )  # fmt: skip
    assert list(request.headers) == head.headers
    body = plain.next_event()
    if head.body_bytes:
        assert isinstance(body, h11.Data)
        assert len(body.data) == head.body_bytes
        body = plain.next_event()
    assert isinstance(body, h11.EndOfMessage)
    assert not plain.they_are_waiting_for_100_continue
    plain.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
    plain.send(h11.EndOfMessage())
    plain.start_next_cycle()  # raises where h11 would close the connection
    assert plain.trailing_data[0] == b""


def test_what_clients_send_is_taken_and_what_is_unusual_is_left_to_h11() -> None:
    usual = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x:80\r\nAccept: */*\r\nConnection: keep-alive\r\n"
        b"Authorization: Bearer ts-x\r\nContent-Length: 7\r\nUser-Agent: a (b; c) \r\n\r\n1234567"
    )
    head = read_plain_head(usual)
    assert head is not None
    assert (head.method, head.target, head.body_bytes) == (b"POST", b"/v1/completions", 7)
    assert usual[head.ends :] == b"1234567"
    for word in (
        b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close", b"x:\x80",
        b"Upgrade: h2c", b"Content-Length: 7", b" folded", b"Host: y",
    ):  # fmt: skip
        assert read_plain_head(usual.replace(b"Accept: */*", word)) is None, word
    assert read_plain_head(usual[: head.ends - 1]) is None, "it is not there as a whole"
    assert read_plain_head(usual.replace(b"*/*", b"*" * LONGEST)) is None


# -- whole connections, against uvicorn's own protocol


class Transport(asyncio.Transport):
    """Keeps what is written; knows whether it may be read from."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.paused = self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 1, "whatever is unsent starts the reader's timer"

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def tells(scope: Any, receive: Any, send: Any) -> None:
    """Says what it was sent: to GET at once and without looking at a body, in chunks where the
    target asks for it, with the connection's end where it asks for that."""
    body, more = b"", scope["method"] == "POST"
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    heard = [scope["method"], scope["path"], scope["query_string"].decode(), body.decode("latin-1"),
             [[n.decode(), v.decode()] for n, v in scope["headers"]]]  # fmt: skip
    if b"nothing" in scope["query_string"]:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
        return
    said = json.dumps(heard).encode()
    headers = [(b"x-a", b"b")]
    if b"chunks" not in scope["query_string"]:
        headers.append((b"content-length", b"%d" % len(said)))
    if b"close" in scope["query_string"]:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    half = len(said) // 2
    await send({"type": "http.response.body", "body": said[:half], "more_body": True})
    await send({"type": "http.response.body", "body": said[half:]})


async def talk(made: type[H11Protocol], pieces: list[bytes]) -> tuple[bytes, bool]:
    """What is answered to these pieces, and whether the connection is closed then."""
    config = uvicorn.Config(tells, log_level="critical", ws="none", lifespan="off")
    config.load()
    protocol, transport = made(config, ServerState(), {}), Transport()
    protocol.connection_made(transport)
    try:
        for piece in pieces:
            if transport.closed:
                break
            protocol.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)
                if not (transport.paused or protocol.tasks):
                    break
        for _ in range(200):
            if not protocol.tasks:
                break
            await asyncio.sleep(0)
        return transport.written, transport.closed
    finally:
        protocol.connection_lost(None)


def request(kind: str, body: bytes, query: bytes) -> bytes:
    method = b"GET" if kind == "early" else b"POST"
    head = b"%b /a%%20b?%b HTTP/1.1\r\n" % (method, query) + HOST
    if kind == "chunked":
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return head + b"transfer-encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
    more = {"close": b"Connection: close\r\n", "alive": b"Connection: keep-alive\r\n"}
    return head + more.get(kind, b"") + b"Content-Length: %d\r\n\r\n" % len(body) + body


requests = st.builds(
    request,
    st.sampled_from(["plain", "plain", "alive", "early", "chunked", "close"]),
    st.binary(max_size=30),
    st.sampled_from([b"", b"chunks", b"close", b"chunks&close", b"nothing"]),
)


@given(st.lists(requests, min_size=1, max_size=4), st.lists(st.integers(1, 400), max_size=6))
@example([request("plain", b"", b"")] * 3, [])
@example([request("early", b"x" * 20, b"chunks"), request("plain", b"y", b"")], [40, 75])
@example(
    [request("plain", b"a", b""), request("chunked", b"b", b""), request("alive", b"c", b"")], []
)
def test_a_connection_answers_as_uvicorns_own_however_its_bytes_are_cut(
    asked: list[bytes], cuts: list[int]
) -> None:
    raw = b"".join(asked)
    places = sorted({0, len(raw), *(c for c in cuts if c < len(raw))})
    pieces = [raw[a:b] for a, b in pairwise(places)]
    ours = asyncio.run(talk(PatientProtocol, pieces))
    assert ours == asyncio.run(talk(H11Protocol, pieces))


def test_a_body_that_does_not_come_after_its_answer_gets_no_second_one() -> None:
    async def run() -> None:
        config = uvicorn.Config(tells, log_level="critical", ws="none", lifespan="off")
        config.load()
        protocol, transport = PatientProtocol(config, ServerState(), {}), Transport()
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
        while protocol.tasks:
            await asyncio.sleep(0)
        assert protocol._head_timer is not None
        assert not transport.closed
        protocol._too_slow()
        assert transport.closed
        assert transport.written.count(b"HTTP/1.1 ") == 1
        protocol.connection_lost(None)

    asyncio.run(run())


async def _exchange(*messages: dict[str, Any]) -> None:
    made: Any = Exchange.__new__(Exchange)
    made.flow = type("Flow", (), {"write_paused": False})
    made.transport, made.message_event = Transport(), asyncio.Event()
    made.default_headers, made.on_response = [], lambda: None
    made.disconnected = made.response_started = made.response_complete = False
    made.keep_alive = True
    for message in messages:
        await made.send(message)


START = {"type": "http.response.start", "status": 200}
SHORT = START | {"headers": [(b"content-length", b"3")]}


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "http.response.body", "body": b"x"}],
        [START, START],
        [SHORT, {"type": "http.response.body", "body": b"four"}],
        [SHORT, {"type": "http.response.body", "body": b"2."}],
        [START, {"type": "http.response.body"}, {"type": "http.response.body"}],
        [START | {"headers": [(b"x", b"a\r\nset-cookie: b")]}],
        [START | {"headers": [(b"x", b"a\nb")]}],
    ],
)
def test_an_answer_that_is_none_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeError):
        asyncio.run(_exchange(*messages))
