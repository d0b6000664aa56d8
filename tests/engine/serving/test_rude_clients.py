"""Slow and rude clients over real sockets: each is shown out, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from front_bench import ALICE, Bench, settings, text_reply
from serving_fakes import FakeCore, FakeTokenizer, short_folder

from engine.serving.api import connections
from engine.serving.api.connections import HEAD_BYTES, PatientProtocol, allow_many_files
from engine.serving.api.intake import Intake
from engine.serving.front import uvicorn_config

HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
    b"authorization: Bearer " + ALICE.encode() + b"\r\ncontent-type: application/json\r\n"
)
BODY = json.dumps({"model": "tiny", "prompt": "abc", "max_tokens": 50}).encode()


class Quick(PatientProtocol):
    """Loses its patience soon."""

    head_s = 0.5
    unread_s = 0.2


class Small(PatientProtocol):
    """Has all the patience there is, and room for few."""

    most = 300


@contextmanager
def serving(
    core: FakeCore | None = None, http: type[PatientProtocol] = Quick, **alice: Any
) -> Iterator[tuple[Bench, int]]:
    """A front on a port of its own, over a fake worker."""
    core = core or FakeCore(text_reply("fine"))
    with short_folder() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        b = Bench([core], settings(**alice), folder)
        server = uvicorn.Server(uvicorn_config(b.front.app, http))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        port = listening.getsockname()[1]
        try:
            with client() as asks:
                for _ in range(20_000):
                    if asks.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                        break
            yield b, port
        finally:
            server.should_exit = True
            thread.join(20)
            b.worker.stop()
        assert not thread.is_alive()


def client() -> httpx.Client:
    """One that reads no certificates first: that takes longer than most tests here."""
    return httpx.Client(verify=False, trust_env=False, timeout=20)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def rest(s: socket.socket) -> bytes:
    """All that still comes, until the front closes."""
    parts = []
    try:
        while part := s.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def error_of(raw: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def polite(port: int) -> httpx.Response:
    headers = {"authorization": f"Bearer {ALICE}"}
    url = f"http://127.0.0.1:{port}/v1/completions"
    with client() as asks:
        return asks.post(url, content=BODY, headers=headers)


def test_a_connection_that_says_nothing_is_closed_and_one_half_open_too() -> None:
    with serving() as (_, port), connect(port) as silent, connect(port) as half:
        half.sendall(HEAD)  # never ends it
        assert polite(port).status_code == 200
        assert rest(silent) == b""
        status, error = error_of(rest(half))
    assert (status, error["code"]) == (408, "request_timeout")


def test_a_head_at_a_byte_a_time_does_not_buy_time() -> None:
    with serving() as (_, port), connect(port) as slow:
        for byte in HEAD * 20:
            try:
                slow.sendall(bytes([byte]))
            except OSError:
                break
            slow.settimeout(0.02)
            try:
                first = slow.recv(1)
            except TimeoutError:
                continue
            break
        else:
            pytest.fail("the front listened to the very end")
        slow.settimeout(20)
        raw = first + rest(slow)
        assert polite(port).status_code == 200
    assert raw == b"" or error_of(raw)[1]["code"] == "request_timeout"


def test_a_body_that_never_ends_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake.__init__, "__defaults__", (0.2,))
    with serving() as (b, port), connect(port) as slow:
        slow.sendall(HEAD + b"content-length: 500\r\n\r\n" + BODY[:20])
        status, error = error_of(rest(slow))
        assert polite(port).status_code == 200
    assert (status, error["code"]) == (408, "request_timeout")
    assert "20 bytes came" in error["message"]
    assert len(b.core.asks) == 1


def test_ten_megabytes_of_headers_are_refused_in_the_apis_own_words() -> None:
    with serving() as (_, port), connect(port) as rude:
        sent = 0
        try:
            rude.sendall(HEAD + b"x-long: ")
            while sent < 10 << 20:
                sent += rude.send(b"y" * 65536)
        except OSError:
            pass  # shown out before it had finished
        raw = rest(rude)
        assert polite(port).status_code == 200
    assert sent < 10 << 20
    assert raw == b"" or error_of(raw)[0] == 400  # a reset may overtake the answer


def test_a_long_head_is_let_pass_up_to_what_is_said() -> None:
    with serving() as (_, port), connect(port) as slow:
        head = HEAD.replace(b"POST /v1/completions", b"GET /v1/models") + b"connection: close\r\n"
        slow.sendall(head + b"x-long: " + b"y" * (HEAD_BYTES - len(head) - 20))
        slow.sendall(b"\r\n\r\n")
        assert rest(slow).startswith(b"HTTP/1.1 200 OK")


def test_bytes_that_are_no_http_get_an_answer_of_the_apis_shape() -> None:
    with serving() as (_, port):
        for some in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET\r\n\r\n",
            b"\0" * 100,
            b"HELO x\r\n\r\n",
        ):
            with connect(port) as odd:
                odd.sendall(some + b"\r\n\r\n")
                status, error = error_of(rest(odd))
            assert (status, error["code"]) == (400, "invalid_http"), some


class Wordy:
    """A decoder to which every token is a page of text."""

    def push(self, token: int) -> str:
        return "x" * 65_536

    def finish(self) -> str:
        return ""


def test_a_reader_who_does_not_read_is_cut_off_and_its_request_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeTokenizer, "stream", lambda self: Wordy())
    core = FakeCore()
    asked = {"model": "tiny", "prompt": "abc", "max_tokens": 190, "stream": True}
    body = json.dumps(asked).encode()
    with serving(core, concurrency=1) as (b, port), socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        core.wait_for(lambda: len(core.asks) == 1)
        while not core.aborted:
            core.make(core.asks[0], [ord("x")] * 20)
            core.wait_for(lambda: bool(core.aborted), 0.05)
        core.reply = text_reply("fine")
        while b.link.open_requests:
            core.wait_for(lambda: False, 0.01)
        assert polite(port).status_code == 200
    assert core.aborted == [core.asks[0].request_id]


def test_hundreds_of_idle_connections_leave_room_for_who_asks_and_the_rest_are_told() -> None:
    allow_many_files()
    with serving(http=Small) as (_, port):
        crowd = [connect(port) for _ in range(Small.most - 20)]
        assert polite(port).status_code == 200
        more = [connect(port) for _ in range(60)]
        told = [rest(s) for s in more[-30:]]
        for s in (*crowd, *more):
            # Hang up with a reset, as a client that crashed does.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        assert polite(port).status_code == 200
    refused = [error_of(raw) for raw in told]
    assert {(status, error["code"]) for status, error in refused} == {(503, "too_many_connections")}


class Patient(PatientProtocol):
    """Waits for a head as long as a thousand callers need to come."""

    head_s = 20.0


@pytest.mark.full
def test_a_thousand_slow_and_rude_connections_leave_everybody_else_served() -> None:
    """A third says nothing, a third stops in its head, a third in its body; meanwhile a hundred
    ask as usual, and afterwards nothing is left of any of them."""
    if allow_many_files() < 2500:
        pytest.skip("this process may not open 2,500 files")
    with serving(http=Patient, rpm=100_000) as (b, port):
        crowd = [connect(port) for _ in range(1000)]
        for i, s in enumerate(crowd):
            if i % 3 == 1:
                s.sendall(HEAD)
            elif i % 3 == 2:
                s.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY[: i % len(BODY)])
        assert [polite(port).status_code for _ in range(100)] == [200] * 100
        for i, s in enumerate(crowd):
            if i % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        assert polite(port).status_code == 200
        view = b.front._door.view("alice", b.clock.now())
        assert (b.link.open_requests, view.concurrency, view.reserved_tokens) == (0, 0, 0)
        assert len(b.core.asks) == 101


def test_a_caller_who_hangs_up_after_a_large_body_is_missed() -> None:
    core = FakeCore()
    asked = {"model": "tiny", "prompt": "abc", "max_tokens": 190}
    body = json.dumps(asked).encode() + b" " * (400 << 10)
    with serving(core, concurrency=1) as (_, port):
        with connect(port) as leaves:
            leaves.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            assert core.wait_for(lambda: len(core.asks) == 1)
        assert core.wait_for(lambda: bool(core.aborted)), "nobody waits for its tokens"


def test_who_asks_and_asks_and_reads_nothing_is_cut_off() -> None:
    request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    sent = 0
    with serving() as (_, port), connect(port) as deaf:
        deaf.settimeout(5 * Quick.unread_s)
        with contextlib.suppress(OSError):  # until nothing more is taken for so long
            while True:
                sent += deaf.send(request * 200)
        deaf.settimeout(20)
        answers = rest(deaf).count(b" 200 OK")
        assert polite(port).status_code == 200
    assert answers < sent // len(request), "the rest was for nobody"


class Dripping(asyncio.Transport):
    """What is unsent of an answer."""

    def __init__(self, unsent: int) -> None:
        super().__init__()
        self.unsent, self.aborted = unsent, False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


class Hasty(PatientProtocol):
    unread_s = 0.3


def test_a_reader_whom_the_kernel_has_megabytes_for_is_seen_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeTokenizer, "stream", lambda self: Wordy())
    monkeypatch.setattr(connections, "SLOWEST_BYTES", 1024)
    core = FakeCore()
    asked = {"model": "tiny", "prompt": "abc", "max_tokens": 190}
    body = json.dumps(asked).encode()
    with serving(core, Hasty) as (_, port), socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        slow.connect(("127.0.0.1", port))
        slow.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        core.wait_for(lambda: len(core.asks) == 1)
        core.make(core.asks[0], [ord("x")] * 60)
        core.end(core.asks[0], "length", 60)
        read = 0
        for _ in range(20):  # a second in all, at a pace that frees no third of anything
            read += len(slow.recv(20_000))
            core.wait_for(lambda: False, 0.05)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        slow.settimeout(20)
        while read < 60 * 65_536 and (part := slow.recv(1 << 20)):
            read += len(part)
    assert read >= 60 * 65_536, "all of the answer"


@pytest.mark.parametrize(("rate", "cut_off"), [(connections.SLOWEST_BYTES, False), (1000, True)])
def test_a_slow_reader_has_the_time_that_a_long_answer_needs(rate: int, cut_off: bool) -> None:
    """Where the kernel cannot be asked what was taken."""
    due: list[Any] = []
    slow: Any = object.__new__(PatientProtocol)
    slow.loop = SimpleNamespace(call_later=lambda after_s, call, *args: due.append((call, args)))
    slow.transport = Dripping(8 * rate)
    slow._watch_reader()
    for _ in range(8):
        slow.transport.unsent -= rate
        for call, args in due[-1:]:
            call(*args)
    assert slow.transport.aborted is cut_off


def test_an_unused_connection_outlives_what_python_clients_keep_theirs_for() -> None:
    """httpx, and so the official client, drops it after five seconds: both at once would lose a
    request that goes out meanwhile. And it is closed before a head is missed and that is said."""
    kept = uvicorn_config(lambda: None).timeout_keep_alive  # type: ignore[arg-type,return-value]
    assert httpx.Limits().keepalive_expiry + 1.0 < kept < connections.HEAD_S


def test_requests_one_behind_another_on_one_connection_are_answered_in_turn() -> None:
    request = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    with serving() as (_, port), connect(port) as eager:
        eager.sendall(request * 3)
        raw = rest(eager)
    assert raw.count(b"HTTP/1.1 200 OK") == 3


def test_a_caller_who_hangs_up_in_mid_stream_is_missed_whatever_it_had_still_asked() -> None:
    core = FakeCore()
    asked = {"model": "tiny", "prompt": "abc", "max_tokens": 190, "stream": True}
    body = json.dumps(asked).encode()
    with serving(core, concurrency=1) as (b, port):
        with connect(port) as leaves:
            leaves.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body + HEAD)
            core.wait_for(lambda: len(core.asks) == 1)
            core.make(core.asks[0], [ord("x")] * 2)
            assert leaves.recv(12) == b"HTTP/1.1 200"
        assert core.wait_for(lambda: bool(core.aborted))
        core.reply = text_reply("fine")
        while b.link.open_requests:
            core.wait_for(lambda: False, 0.01)
        assert polite(port).status_code == 200, "its place is free"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reads_whole_answers_and_streams() -> None:
    with serving() as (_, port):

        def curl(path: str, body: dict[str, Any]) -> str:
            command = ["curl", "-sSN", "-m", "20", f"http://127.0.0.1:{port}{path}"]
            command += ["-H", f"Authorization: Bearer {ALICE}", "-d", json.dumps(body)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        asked = {"model": "tiny", "max_tokens": 50}
        whole = json.loads(curl("/v1/completions", asked | {"prompt": "hi"}))
        chat = asked | {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        events = curl("/v1/chat/completions", chat).split("\n\n")
    assert whole["choices"][0]["text"] == "fine"
    parts = [json.loads(e[6:])["choices"][0]["delta"] for e in events[:-2]]
    assert "".join(p.get("content", "") for p in parts) == "fine"
    assert events[-2] == "data: [DONE]"


def test_a_limit_of_files_too_low_for_all_connections_is_said_with_its_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "allow_many_files", lambda: 1024)
    said = connections.too_few_files()
    assert "may open 1024 files, enough for some 768 connections of 4096" in said
    assert "ulimit -Hn" in said
    monkeypatch.setattr(connections, "allow_many_files", lambda: 4352)
    assert connections.too_few_files() == ""
