"""What goes out is to the byte what h11 would send, whatever the pieces."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.api.wire import Wire

pieces = st.lists(st.binary(max_size=40), max_size=6)
version = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0"])
method = st.sampled_from([b"GET", b"HEAD"])


def asked(connection: h11.Connection, request: bytes) -> h11.Connection:
    connection.receive_data(request)
    while not isinstance(connection.next_event(), h11.EndOfMessage):
        pass
    return connection


def sent(connection: h11.Connection, body: list[bytes], length: bool) -> bytes:
    headers = [(b"content-length", b"%d" % sum(map(len, body)))] if length else []
    events = [
        h11.Response(status_code=200, headers=headers, reason=b"OK"),
        *(h11.Data(data=piece) for piece in body),
        h11.EndOfMessage(),
    ]
    return b"".join(connection.send(event) or b"" for event in events)


@given(pieces, st.booleans(), version, method)
def test_every_answer_reads_the_same(
    body: list[bytes], length: bool, version: bytes, method: bytes
) -> None:
    request = b"%b / %b\r\nhost: x\r\n\r\n" % (method, version)
    body = [b"" for _ in body] if method == b"HEAD" else body  # as the server has it
    ours, plain = asked(Wire(1 << 16), request), asked(h11.Connection(h11.SERVER), request)
    assert sent(ours, body, length) == sent(plain, body, length)
    assert ours.our_state is plain.our_state


def test_a_head_waits_for_what_follows_and_pieces_go_out_at_once() -> None:
    wire = asked(Wire(1 << 16), b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert wire.send(h11.Response(status_code=200, headers=[], reason=b"OK")) == b""
    first = wire.send(h11.Data(data=b"ab")) or b""
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert first.endswith(b"2\r\nab\r\n")
    assert wire.send(h11.Data(data=b"c")) == b"1\r\nc\r\n"


def test_what_h11_refuses_is_refused() -> None:
    wire = asked(Wire(1 << 16), b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    with pytest.raises(h11.LocalProtocolError):
        wire.send(h11.Data(data=b"before its head"))
    ended = asked(Wire(1 << 16), b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    sent(ended, [b"x"], length=False)
    with pytest.raises(h11.LocalProtocolError):
        ended.send(h11.Data(data=b"after its end"))
