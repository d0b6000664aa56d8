"""Where an operator's door is, and how one is found. Owns no connection.

A unix socket in the runtime folder by default, its owner's alone. Over TCP there is no door
without TLS and a tokens file, on loopback neither: who holds it can stop every tenant.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from telemetry.errors import StoreError
from telemetry.service import listen, tls
from telemetry.service.tls import TlsFiles

SOCKET = "admin.sock"
VARIABLE = "TENANTSCOPE_ADMIN"


class NoDoor(EngineError):
    """An operator's door that must not, or cannot, be opened or found."""

    exit_code = 2


class NobodyHere(NoDoor):
    """No engine answers. Trying later can help."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class AdminListen:
    """`unix:/path.sock`, or `host:port` with a certificate, its key and a tokens file."""

    address: str
    tls_cert: str = ""
    tls_key: str = ""
    tokens: str = ""

    @property
    def is_unix(self) -> bool:
        return self.address.startswith(listen.UNIX)

    @property
    def guards(self) -> tuple[str, str, str]:
        """Certificate, key, tokens."""
        return self.tls_cert, self.tls_key, self.tokens

    @property
    def files(self) -> TlsFiles | None:
        if self.is_unix:
            return None
        return TlsFiles(Path(self.tls_cert), Path(self.tls_key))

    def check(self) -> None:
        """Raises NoDoor, one sentence, for what must not be served."""
        given = {
            "--admin-tls-cert": self.tls_cert,
            "--admin-tls-key": self.tls_key,
            "--admin-tokens": self.tokens,
        }
        try:
            if self.is_unix:
                extra = [option for option, value in given.items() if value]
                if extra:
                    raise NoDoor(
                        f"{self.address} is a unix socket, its owner's alone: leave out "
                        + ", ".join(extra)
                    )
                return
            listen.host_and_port(self.address)
            missing = [option for option, value in given.items() if not value]
            if missing:
                raise NoDoor(
                    f"--admin-listen {self.address}: an operator's door over TCP needs TLS and "
                    f"tokens; {', '.join(missing)} missing. Or leave --admin-listen out: then it "
                    "is a unix socket"
                )
            tls.check(TlsFiles(Path(self.tls_cert), Path(self.tls_key)))
        except StoreError as e:
            raise NoDoor(f"--admin-listen {self.address}: {e}") from None


def find(environ: Mapping[str, str] | None = None, folders: Sequence[str] | None = None) -> str:
    """The address of the one operator's door on this machine that is this user's: the variable
    TENANTSCOPE_ADMIN, else the socket of the one `serve` that runs. `folders`: where a `serve`
    makes its runtime folder. Raises NoDoor."""
    given = (os.environ if environ is None else environ).get(VARIABLE)
    if given:
        return given
    found = []
    for parent in dict.fromkeys(folders or (tempfile.gettempdir(), "/tmp")):
        for path in sorted(Path(parent).glob(f"tenantscope-*/{SOCKET}")):
            address = f"{listen.UNIX}{path}"
            try:
                mine = path.lstat().st_uid == os.getuid()
            except OSError:
                continue  # it ended meanwhile
            if mine and listen.answers(address):
                found.append(address)
    if len(found) == 1:
        return found[0]
    if not found:
        raise NobodyHere(
            "no engine of yours answers on this machine: start `tenantscope serve`, or name its "
            f"operator's address with --connect or {VARIABLE}"
        )
    raise NoDoor(f"several engines run here, name one with --connect: {', '.join(found)}")
