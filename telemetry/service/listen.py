"""Where a store process listens, and how an address is written. Owns no connection.

Off loopback a listener needs TLS and tokens, or there is none. A unix socket is its owner's alone
(mode 0600), so its callers are trusted.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from telemetry.errors import StoreError
from telemetry.service.tls import TlsFiles
from telemetry.settings import Reader

UNIX = "unix:"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
LONGEST_SOCKET_PATH = 100  # the kernel's own limit is 107 bytes
_MOST_LISTENERS = 16
_PROBE_S = 1.0
_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Listen:
    """One address to serve at: `unix:/path.sock` or `host:port`, port 0 = any free one. Without
    `must`, a server that cannot serve there says so and goes on without it."""

    address: str
    tls: TlsFiles | None = None
    tokens: Path | None = None
    must: bool = True

    @property
    def is_unix(self) -> bool:
        return self.address.startswith(UNIX)


@dataclass(frozen=True, slots=True)
class Target:
    """An address as a caller writes it: what gRPC is given, and whether the way is encrypted."""

    address: str
    tls: bool = False

    @property
    def is_local(self) -> bool:
        """Whether nobody else can listen in: a unix socket, or loopback."""
        return self.address.startswith(UNIX) or is_loopback(host_and_port(self.address)[0])


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")


def is_port(text: str) -> bool:
    """Whether a text is a port's number in plain figures: `²` and `٢` are digits too, of a sort."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _LAST_PORT


def host_and_port(address: str) -> tuple[str, int]:
    """`host:port` taken apart; an IPv6 host stands in brackets. Raises StoreError."""
    host, colon, port = address.rpartition(":")
    bare = host.strip("[]")
    if not colon or not bare or not is_port(port):
        raise StoreError(f"{address} is no address: write unix:/path.sock, host:port or [::1]:port")
    if ":" in bare and not host.startswith("["):
        raise StoreError(f"{address} is not clear: write an IPv6 host in brackets, [::1]:port")
    return bare, int(port)


def is_address(text: str) -> bool:
    """Whether `text` is a live store's address rather than a path."""
    try:
        target(text)
    except StoreError:
        return False
    return True


def target(text: str) -> Target:
    """What a caller may write: `unix:/path.sock`, `host:port`, `https://host:port` (TLS), or
    `http://host:port` (not encrypted). Raises StoreError."""
    if text.startswith(UNIX):
        if text == UNIX:
            raise StoreError(f"{text} names no socket: write unix:/path.sock")
        return Target(text)
    if "://" in text:
        try:
            parts = urlsplit(text)
        except ValueError:
            raise StoreError(f"{text} is no store's address: write https://host:port") from None
        if parts.scheme not in ("http", "https") or parts.path.strip("/") or parts.query:
            raise StoreError(f"{text} is no store's address: write https://host:port")
        host_and_port(parts.netloc)
        return Target(parts.netloc, parts.scheme == "https")
    host_and_port(text)
    return Target(text)


def check(listen: Listen) -> None:
    """Raises StoreError, one sentence, where the address must not or cannot be served."""
    if listen.is_unix:
        if listen.address == UNIX:
            raise StoreError(f"{listen.address} names no socket: write unix:/path.sock")
        if listen.tls is not None or listen.tokens is not None:
            raise StoreError(f"{listen.address} is a unix socket: it takes no TLS and no tokens")
        return
    host, _ = host_and_port(listen.address)
    if is_loopback(host):
        return
    missing = (
        [] if listen.tls is not None else ["a certificate and its key (--tls-cert, --tls-key)"]
    )
    if listen.tokens is None:
        missing.append("a tokens file (--tokens)")
    if missing:
        raise StoreError(
            f"{listen.address} is not a loopback address: TLS and tokens are required there; "
            f"{' and '.join(missing)} missing. Or listen on unix:/path.sock or 127.0.0.1:port"
        )


def free_socket(address: str) -> Path:
    """The path of a unix socket nobody listens at; a stale one is cleared away. Raises StoreError.

    Only for the process that goes on to listen there.
    """
    path = Path(address.removeprefix(UNIX))
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise StoreError(
            f"{path} is longer than the {LONGEST_SOCKET_PATH} bytes a unix socket may have: "
            "choose a shorter folder"
        )
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise StoreError(f"{path} is there and is no socket: choose another path")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
    if answers(address):
        raise StoreError(f"another process listens at {path}: choose another path, or stop it")
    path.unlink(missing_ok=True)  # its process is gone
    return path


def answers(address: str, within_s: float = _PROBE_S) -> bool:
    """Whether anything takes a connection at an address (`unix:` or `host:port`)."""
    try:
        if address.startswith(UNIX):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(within_s)
                probe.connect(address.removeprefix(UNIX))
        else:
            host, port = host_and_port(address)
            here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            socket.create_connection((here, port), within_s).close()
    except OSError:
        return False
    return True


def why_not(address: str) -> str:
    """Why an address could not be bound, in the system's words."""
    if address.startswith(UNIX):
        path = Path(address.removeprefix(UNIX))
        if path.exists():
            return "it is taken"
        may = os.access(path.parent, os.W_OK | os.X_OK)
        return "the system refuses it" if may else "its folder cannot be written"
    try:
        host, port = host_and_port(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
    except OSError as e:
        return (e.strerror or str(e)).lower()
    return "the system refuses it"


def read_section(reader: Reader) -> tuple[Listen, ...]:
    """Tables [[listen]] of a store's settings: address, tls_cert, tls_key, tls_client_ca, tokens.
    Paths are taken from the settings file's folder. Raises SettingsError."""
    here = Path(reader.where).parent
    listens = []
    for table in reader.tables("listen"):
        found = {
            key: here / text if (text := table.text(key, None)) is not None else None
            for key in ("tls_cert", "tls_key", "tls_client_ca", "tokens")
        }
        address = table.text("address")
        try:
            listen = Listen(address, tls_of(*list(found.values())[:3]), found["tokens"])
            check(listen)
        except StoreError as e:
            raise table.fail("address", str(e)) from None
        table.done()
        listens.append(listen)
    if len(listens) > _MOST_LISTENERS:
        raise reader.fail("listen", f"at most {_MOST_LISTENERS} of them")
    return tuple(listens)


def tls_of(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsFiles | None:
    """The files of a listener; None when none is given. Raises StoreError when one is missing."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        gone = "certificate (tls_cert, --tls-cert)" if cert is None else "key (tls_key, --tls-key)"
        raise StoreError(f"TLS needs a certificate and its key: the {gone} is missing")
    return TlsFiles(cert, key, client_ca)
