"""Follows the files of the tenants' certificate under a running server. Opens no socket.

Looked at at every handshake, so that whoever renews a certificate only replaces the files; a
renewal that is no pair is left alone, and said.
"""

from __future__ import annotations

import logging
import ssl
import time

from telemetry.errors import StoreError
from telemetry.service import tls

_log = logging.getLogger(__name__)


def follow(context: ssl.SSLContext, files: tls.TlsFiles) -> None:
    """From now on `context`, which shows this certificate, shows a renewed one."""
    tls.say_if_ended(files.cert, time.time())
    context.sni_callback = _Renewing(files).at_handshake


class _Renewing:
    def __init__(self, files: tls.TlsFiles) -> None:
        self._files = files
        self._seen = self._stamps()

    def at_handshake(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        """Called by the TLS library; what it raises would break the handshake off."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            tls.check(self._files)
            fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            for shows in (fresh, context):
                shows.load_cert_chain(self._files.cert, self._files.key, password=lambda: b"")
        except (StoreError, OSError, ValueError) as e:
            _log.error("the certificate in use is kept: %s", e)
            return
        connection.context = fresh  # the context's own is for the connections after this one
        tls.say_if_ended(self._files.cert, time.time())

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        found: list[tuple[int, int] | None] = []
        for path in self._files.all():
            try:
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size))
            except OSError:
                found.append(None)
        return tuple(found)
