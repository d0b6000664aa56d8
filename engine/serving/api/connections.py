"""The front's side of a connection: how long a caller may dawdle, how many may be there at once.

Owns timers and refusals below HTTP's own, and which requests are read without h11 (`plain_head`).
uvicorn waits for ever for a head that comes a byte at a time, and for a reader who does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from functools import partial
from typing import Any
from urllib.parse import unquote

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.serving.api import openai
from engine.serving.api.exchange import GONE, Exchange
from engine.serving.api.openai import ApiError
from engine.serving.api.plain_head import PlainHead, read_plain_head
from engine.serving.api.wire import Wire

HEAD_BYTES = 64 << 10
HEAD_S = 10.0  # from the connection, or the last answer's end, to the end of a request's head
# An unused connection is closed after so long. Python's HTTP clients drop theirs after 5 s: where
# both do so at once, a request goes out on what is just being closed. Before HEAD_S: that is said.
KEEP_ALIVE_S = 8
UNREAD_S = 30.0  # a reader who is behind and takes less than SLOWEST_BYTES for so long has gone
SLOWEST_BYTES = 64 << 10
MOST_CONNECTIONS = 4096
_ACKED = slice(120, 128)  # tcpi_bytes_acked in Linux's struct tcp_info
_SPARE_FILES = 256  # beside connections: sockets, pipes, modules being read


class PatientServer(uvicorn.Server):
    """Bounds what comes before HTTP too: uvicorn has no option for how long a TLS handshake takes,
    and one that is never made would hold a connection that no protocol counts."""

    handshake_s = HEAD_S

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """`sockets`: to listen on, one at least."""
        await super().startup([])  # all but the listening
        if not self.started:  # the app did not start: whoever runs this says why
            return
        config, loop = self.config, asyncio.get_running_loop()
        made: Any = config.http_protocol_class
        protocol = partial(
            made,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        for listening in sockets or ():
            server = await loop.create_server(
                protocol,
                sock=listening,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=self.handshake_s if config.ssl else None,
            )
            self.servers.append(server)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 for callers of any speed, none of whom may stay for nothing.

    A request whose head comes at once and says nothing unusual is read and answered here; all else
    is h11's, and between two requests either may have the next one.
    """

    head_s = HEAD_S
    unread_s = UNREAD_S
    most = MOST_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = Wire(HEAD_BYTES)
        self._is_plain = False  # the request under way, or the last one
        self._unread = 0  # bytes of its body that are still to come
        self._next = b""  # what came behind it
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Whatever cannot be sent starts the reader's timer: a little that stays unsent would keep a
        # connection from ever closing. (Under TLS asyncio itself ends one that does not close.)
        transport.set_write_buffer_limits(high=1)
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(
                ApiError(
                    503,
                    f"{self.most} connections are open already: try again in a moment",
                    kind="service_unavailable",
                    code="too_many_connections",
                    headers={"Retry-After": "1"},
                )
            )
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _stopped(self._head_timer)
        self._read_timer = _stopped(self._read_timer)
        super().connection_lost(exc)
        if isinstance(self.cycle, Exchange):
            self.cycle.hung_up()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # what follows a refusal is for nobody
        if self._is_plain and (self._unread or not self.cycle.response_complete):
            self._more(data)
        elif not self._begins(data):
            super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_head()
        if self._next and not self._unread and not self.transport.is_closing():
            data, self._next = self._next, b""
            self.data_received(data)

    def _begins(self, data: bytes) -> bool:
        """A plain request begins with this; False: h11 is to read it."""
        if self.conn.their_state is not h11.IDLE or self._came():
            return False
        head = read_plain_head(data)
        self._is_plain = head is not None
        if head is None:
            return False
        self._unset_keepalive_if_required()
        self._begin(head)
        self._unread = head.body_bytes
        if self._unread and len(data) == head.ends:
            return True
        self._more(data[head.ends :])
        return True

    def _begin(self, head: PlainHead) -> None:
        path, _, query = head.target.partition(b"?")
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "method": head.method.decode(),
            "root_path": self.root_path,
            "path": self.root_path + unquote(path.decode()),
            "raw_path": self.root_path.encode() + path,
            "query_string": query,
            "headers": head.headers,
            "state": self.app_state.copy(),
        }
        self.cycle = exchange = Exchange(
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        self.scope["extensions"] = {GONE: exchange.when_gone}  # type: ignore[dict-item]
        task = self.loop.create_task(exchange.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _more(self, data: bytes) -> None:
        """The body of a plain request, and what comes behind it."""
        body, behind = data[: self._unread], data[self._unread :]
        self._unread -= len(body)
        cycle = self.cycle
        if cycle.response_complete:  # it was answered before its body was there
            if behind:
                self.data_received(behind)
            return
        if cycle.more_body:
            cycle.body += body
            cycle.more_body = self._unread > 0
            if cycle.more_body and len(cycle.body) > HIGH_WATER_LIMIT:  # who asks for more resumes
                self.flow.pause_reading()
            cycle.message_event.set()
        if behind:  # in its turn
            self._next += behind
            if len(self._next) > HEAD_BYTES:  # until then a caller who leaves is noticed
                self.flow.pause_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_timer is None:
            self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_timer = _stopped(self._read_timer)

    def _watch_reader(self) -> None:
        self._read_timer = self.loop.call_later(self.unread_s, self._still_reads, self._taken())

    def _still_reads(self, before: int) -> None:
        """A slow reader may take as long as a long answer needs; one that takes nothing may not."""
        if self._taken() - before >= SLOWEST_BYTES:
            self._watch_reader()
        else:
            self.transport.abort()

    def _taken(self) -> int:
        """Bytes that the caller's side has taken so far: what TCP saw acknowledged. Buffers here
        say less: the kernel asks for more only when a third of its own is free, which of megabytes
        is long in coming, and under TLS there is one more. Else they have to do."""
        own = self.transport.get_extra_info("socket")
        with contextlib.suppress(AttributeError, OSError, TypeError):
            told = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.stop)
            if len(told) == _ACKED.stop:
                return int.from_bytes(told[_ACKED], sys.byteorder)
        return -self.transport.get_write_buffer_size()

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP, or a head that is too large: said as every other refusal."""
        self._refuse(
            ApiError(
                400,
                "this is no HTTP request, or its head is too large: send HTTP/1.1 with "
                f"headers of less than {HEAD_BYTES} bytes",
                code="invalid_http",
            )
        )

    def _watch_head(self) -> None:
        """The timer runs while nothing is being answered: it is not wound up again by a byte."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            self._head_timer = _stopped(self._head_timer)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_s, self._too_slow)

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._is_plain and self._unread:
            self.transport.close()  # it was answered before its body was there
            return
        if self.cycle is None and self.conn.their_state is h11.IDLE and not self._came():
            self.transport.close()  # a connection that was never used is owed no answer
            return
        self._refuse(
            ApiError(
                408,
                f"the request was not complete within {self.head_s:g} s: send it at once",
                code="request_timeout",
            )
        )

    def _came(self) -> bool:
        return bool(self.conn.trailing_data[0])

    def _refuse(self, error: ApiError) -> None:
        """Say it if HTTP still allows an answer, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = openai.encoded(error.body())
            headers = error.headers | {
                "content-type": "application/json",
                "content-length": str(len(body)),
                "connection": "close",
            }
            response = h11.Response(
                status_code=error.status,
                headers=[(k.lower().encode(), v.encode()) for k, v in headers.items()],
            )
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer, whether there was one or not."""
    if timer is not None:
        timer.cancel()
    return None


def too_few_files() -> str:
    """Raise the limit of open files; a sentence when it stays too low for all connections that
    may come, else nothing."""
    allowed = allow_many_files()
    if allowed >= MOST_CONNECTIONS + _SPARE_FILES:
        return ""
    return (
        f"this process may open {allowed} files, enough for some {max(0, allowed - _SPARE_FILES)} "
        f"connections of {MOST_CONNECTIONS}; what comes beyond is not answered: raise the hard "
        f"limit to {MOST_CONNECTIONS + _SPARE_FILES} (ulimit -Hn; LimitNOFILE= in a systemd unit)"
    )


def allow_many_files(most: int = MOST_CONNECTIONS + _SPARE_FILES) -> int:
    """Raise this process's own limit of open files as far as it may; returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
