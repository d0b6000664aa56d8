"""Where tenants call: host, port, and whether the way there may be open. Owns the listening socket.

API keys cross the network with every request. So off loopback there is TLS, or the operator says
that a proxy in front ends it; nothing is opened by chance.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.serving.process import ServeError
from telemetry.errors import StoreError
from telemetry.service import tls

_ANYWHERE = ("0.0.0.0", "::")


class DoorRefused(EngineError):
    """An address that must not, or cannot, be served at."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class HttpDoor:
    """`host` is an address or a name of this machine; `port` 0 = any free one. `tls_cert` and
    `tls_key` are PEM files; `plain_http` says that a proxy in front ends TLS."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert: str = ""
    tls_key: str = ""
    plain_http: bool = False

    @property
    def is_tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        return f"http{'s' if self.is_tls else ''}://{in_url(self.host)}:{self.port}"

    @property
    def loopback_host(self) -> str:
        """Where what asks for no key listens, whatever the tenants' address is."""
        if self.is_loopback:
            return self.host
        return "::1" if ":" in self.host else "127.0.0.1"

    def check(self) -> None:
        """Raises DoorRefused, in a sentence that says what to give."""
        if bool(self.tls_cert) != bool(self.tls_key):
            has, lacks = ("--tls-cert", "--tls-key")[:: 1 if self.tls_cert else -1]
            raise DoorRefused(f"{has} without {lacks}: a certificate and its key go together")
        if self.is_tls and self.plain_http:
            raise DoorRefused(
                "--plain-http with --tls-cert: TLS ends here, or at a proxy in front; give one"
            )
        if self.is_tls:
            try:
                tls.check(tls.TlsFiles(Path(self.tls_cert), Path(self.tls_key)))
            except StoreError as e:
                raise DoorRefused(f"--tls-cert, --tls-key: {e}") from None
        if not self.host.strip():
            raise DoorRefused("--host is empty: give an address or a name of this machine")
        if not (self.is_loopback or self.is_tls or self.plain_http):
            raise DoorRefused(
                f"--host {self.host} is no loopback address, so API keys and prompts would cross "
                "the network for anybody to read: give --tls-cert and --tls-key (PEM files), or "
                "--plain-http where a proxy in front of it ends TLS"
            )

    def said(self) -> str:
        """How far it is open, for the person who starts it; empty on loopback without TLS."""
        where = "every address of this machine" if self.host in _ANYWHERE else self.host
        if self.is_tls:
            return f"HTTPS at {where}, with the certificate {self.tls_cert}"
        if self.is_loopback:
            return ""
        return (
            f"plain HTTP at {where}: keys and prompts cross the network as they are; only a proxy "
            "that ends TLS should reach this port"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name: wherever it leads


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket; port 0 = any free one. "::" takes calls by IPv4 too. Raises ServeError
    when the port is taken or the address is not this machine's."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as e:
        why = str(getattr(e, "strerror", "") or e).lower()
        raise ServeError(
            f"--host {host}: {why}: give an address or a name of this machine"
        ) from None
    # A name may have both: IPv4 first, as clients of "localhost" expect it.
    family, _, _, _, address = min(found, key=lambda f: f[0] != socket.AF_INET)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listening.bind(address)
        listening.listen(2048)
    except OSError as e:
        listening.close()
        elsewhere = e.errno == errno.EADDRNOTAVAIL
        ours = "give an address or a name of this machine"
        raise ServeError(
            f"cannot listen on {host}, port {port} ({(e.strerror or str(e)).lower()}): "
            f"{ours if elsewhere else f'choose another one with {option}'}"
        ) from None
    return listening
