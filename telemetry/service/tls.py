"""Certificates: read from files, checked, renewed under a running server. Opens no socket.

Certificate, key and CA are PEM files. A server looks at them again at every new connection, so
that whoever renews a certificate only replaces the files.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import StoreError

if TYPE_CHECKING:
    import grpc

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a listener shows of itself; with `client_ca` it asks its callers for certificates."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def all(self) -> tuple[Path, ...]:
        return (self.cert, self.key, *((self.client_ca,) if self.client_ca else ()))


def read(path: Path, what: str) -> bytes:
    """A file's bytes. Raises StoreError naming what it was to be."""
    try:
        return path.read_bytes()
    except OSError as e:
        raise StoreError(f"the {what} {path} cannot be read: {e.strerror}") from None


def check(files: TlsFiles) -> None:
    """Raises StoreError where certificate and key are not there, no PEM, or no pair."""
    read(files.cert, "TLS certificate")
    read(files.key, "TLS key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            files.cert, files.key, password=lambda: b""
        )
    except (ssl.SSLError, ValueError) as e:
        raise StoreError(
            f"{files.cert} and {files.key} are no certificate with its key ({_short(e)}): "
            "give PEM files that belong together, the key without a passphrase"
        ) from None
    if files.client_ca is not None:
        read_ca(files.client_ca)


def read_ca(path: Path) -> bytes:
    """A file of CA certificates. Raises StoreError when it has none."""
    data = read(path, "CA file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError) as e:
        raise StoreError(f"{path} holds no CA certificate in PEM ({_short(e)})") from None
    return data


def _short(error: Exception) -> str:
    return str(getattr(error, "reason", "") or error).lower().replace("_", " ")


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that follow their files. A renewal that is no pair is left alone, and said.

    Raises StoreError when the files are not usable now.
    """
    import grpc

    renewing = _Renewing(files)
    say_if_ended(files.cert, time.time())
    return grpc.dynamic_ssl_server_credentials(
        renewing.first, renewing.fetch, require_client_authentication=files.client_ca is not None
    )


def say_if_ended(cert: Path, now: float) -> None:
    """Log an error where a certificate's time is over: every caller will turn away from it."""
    try:
        ended = not_after(cert.read_bytes())
    except (OSError, ValueError) as e:
        log.warning("how long %s is good for cannot be read: %s", cert, e)
        return
    if ended <= now:
        day = datetime.fromtimestamp(ended, UTC).isoformat(timespec="minutes")[:16]
        log.error(
            "the certificate %s ended at %sZ, so no caller will take it: put a renewed one in its "
            "place, it is taken up by itself",
            cert,
            day,
        )


class _Renewing:
    """Asked at each handshake; answers with something only when the files have changed."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen = _stamps(files)
        self.first = _configuration(files)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            stamps = _stamps(self._files)
            if stamps == self._seen:
                return None
            self._seen = stamps
            try:
                renewed = _configuration(self._files)
            except StoreError as e:
                log.error("the certificate in use is kept: %s", e)
                return None
            log.info("took the renewed certificate %s", self._files.cert)
            say_if_ended(self._files.cert, time.time())
            return renewed


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    import grpc

    check(files)
    pair = (read(files.key, "TLS key"), read(files.cert, "TLS certificate"))
    ca = read_ca(files.client_ca) if files.client_ca is not None else None
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=ca)


def _stamps(files: TlsFiles) -> tuple[tuple[int, int] | None, ...]:
    found: list[tuple[int, int] | None] = []
    for path in files.all():
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def channel_credentials(
    ca: Path | None, cert: Path | None = None, key: Path | None = None
) -> grpc.ChannelCredentials:
    """A caller's credentials: whom it trusts (the system's roots without `ca`), and the
    certificate it shows where the server wants one. Raises StoreError."""
    import grpc

    if (cert is None) != (key is None):
        raise StoreError("a client certificate needs its key, and the key its certificate")
    chain = private = None
    if cert is not None and key is not None:
        check(TlsFiles(cert, key))
        chain, private = read(cert, "client certificate"), read(key, "client key")
    roots = read_ca(ca) if ca is not None else _system_roots()
    return grpc.ssl_channel_credentials(roots, private, chain)


def _system_roots() -> bytes | None:
    """The machine's own roots; None: those that come with gRPC."""
    file = ssl.get_default_verify_paths().cafile
    try:
        return Path(file).read_bytes() if file else None
    except OSError:
        return None


def not_after(pem: bytes) -> float:
    """The last instant, unix seconds, of the first certificate in PEM text. Raises ValueError."""
    text = pem.decode("ascii")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start = text.index(begin)
    der = ssl.PEM_cert_to_DER_cert(text[start : text.index(end, start) + len(end)])
    return _validity_end(der)


def _validity_end(der: bytes) -> float:
    """Walks RFC 5280 (section 4.1): Certificate { tbs { [0] version, serial, algorithm, issuer,
    validity { notBefore, notAfter } … } }."""
    tbs = _inside(_inside(der))
    if tbs[:1] == b"\xa0":  # the version is left out in old certificates
        tbs = _after(tbs)
    validity = _inside(_after(_after(_after(tbs))))
    last = _after(validity)
    stamp = _inside(last).decode("ascii")
    if last[0] == 0x17:  # UTCTime: two digits of the year, 50 and above are of the last century
        stamp = ("19" if int(stamp[:2]) >= 50 else "20") + stamp
    return datetime.strptime(stamp, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _measure(der: bytes) -> tuple[int, int]:
    """(bytes of tag and length, bytes of the content) of the element that `der` begins with."""
    if len(der) < 2:
        raise ValueError("the certificate ends early")
    length = der[1]
    if length < 0x80:
        return 2, length
    size = length & 0x7F
    return 2 + size, int.from_bytes(der[2 : 2 + size], "big")


def _inside(der: bytes) -> bytes:
    head, length = _measure(der)
    return der[head : head + length]


def _after(der: bytes) -> bytes:
    head, length = _measure(der)
    return der[head + length :]
