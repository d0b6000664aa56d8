"""One time limit for a whole HTTP answer. Owns no connection: it ends one whose time is over.

An HTTP client's own limit is one for each read: who answers a byte a second holds it for ever.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_CONNECTED = "connection.connect_tcp.complete"


class CutOff:
    """For one httpx client at a time: give `extensions={"trace": cut_off}` to a request made
    inside `within`. What it cuts off raises as a connection that broke does; `over` tells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wire: socket.socket | None = None
        self.over = False

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """httpcore's trace: the connection as it is made."""
        if event != _CONNECTED:
            return
        # A second handle to the same connection: TLS takes the first one over.
        wire = info["return_value"].get_extra_info("socket").dup()
        with self._lock:
            self._let_go()
            self._wire = wire
            if self.over:
                self._shut()

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        with self._lock:
            self.over = False
        timer = threading.Timer(timeout_s, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        with self._lock:
            self._let_go()

    def _end(self) -> None:
        with self._lock:
            self.over = True
            self._shut()

    def _shut(self) -> None:
        if self._wire is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                self._wire.shutdown(socket.SHUT_RDWR)

    def _let_go(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
