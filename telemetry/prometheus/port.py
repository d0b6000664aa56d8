"""The metrics port: HTTP, `GET /metrics`, for Prometheus. Owns one listening socket and its thread.

Loopback only, apart from the tenants' port: what it says names tenants, and it asks for no token.
Nothing that happens here touches ingest; a scrape too many is answered 503.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from telemetry.errors import StoreError
from telemetry.service.listen import is_port

if TYPE_CHECKING:
    from telemetry.alerts import Alerts
    from telemetry.outbound.outbound import Outbound
    from telemetry.prometheus.counting import Counting
    from telemetry.source import Source

log = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_AT_ONCE = 4  # scrapes; each holds a copy of all series for its length
_SLOW_CLIENT_S = 10.0
_POLL_S = 0.1  # how long `stop` may wait
# Senders deliver again what a killed store process did not acknowledge: the buckets that were open
# so long ago, at most, and end within the longest one.
_REMEMBER_S, _LONGEST_S = 120.0, 3600.0


class MetricsPort:
    """Serves a `Counting`, what `exports` send and what `alerts` found, until `stop`. Takes the
    socket over."""

    def __init__(
        self,
        counting: Counting,
        listening: socket.socket,
        exports: Outbound | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        from prometheus_client import make_wsgi_app

        from telemetry.prometheus.collector import registry_of

        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._app: Any = make_wsgi_app(registry_of(counting, exports=exports, alerts=alerts))
        self._server = _Server(listening)
        self._server.set_app(self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics-port", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def stop(self) -> None:
        """Scrapes under way are cut off."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        plain = [("Content-Type", "text/plain; charset=utf-8")]
        if environ.get("PATH_INFO") != "/metrics":
            start_response("404 Not Found", plain)
            return [b"GET /metrics\n"]
        if not self._turns.acquire(blocking=False):
            start_response("503 Service Unavailable", plain)
            return [f"more than {_AT_ONCE} scrapes at once: scrape less often\n".encode()]
        try:
            body: Iterable[bytes] = self._app(environ, start_response)
            return body
        finally:
            self._turns.release()


def listen(address: str) -> socket.socket:
    """A listening socket at `host:port`; port 0 is any. Raises StoreError when it cannot be."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host not in _LOOPBACK or not (port.isascii() and port.isdigit()):
        raise StoreError(
            f"{address[:80]} is no loopback address with a port: metrics name tenants and ask for "
            "no token; use 127.0.0.1:port, and let a proxy with TLS stand before it"
        )
    if not is_port(port):
        raise StoreError(
            f"cannot serve metrics at {address[:80]} (a port is a number, 0 to 65535): "
            "choose another port"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, int(port)))
        listening.listen(16)
    except OSError as e:
        listening.close()
        why = e.strerror or str(e)
        raise StoreError(
            f"cannot serve metrics at {address} ({why.lower()}): choose another port"
        ) from None
    return listening


def recall(counting: Counting, source: Source, now: float) -> None:
    """Tell a new `Counting` what its store holds, so that what is delivered again is not counted.
    Raises StoreError, as the source does."""
    runs = source.read("engine_run", float("-inf"), float("inf"))
    longest_s = max((min(r.bucket_s or 0.0, _LONGEST_S) for r in runs), default=0.0)
    start = now - _REMEMBER_S - longest_s
    tables = ("tenant_minute", "engine_minute", "interference_minute")
    known = {t: source.read(t, start, float("inf")) for t in tables}
    counting.remember({"engine_run": runs, **known}, now)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        address = listening.getsockname()
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = address
        self.server_name, self.server_port = str(address[0]), int(address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a scrape by %s was cut off", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _SLOW_CLIENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no news."""
