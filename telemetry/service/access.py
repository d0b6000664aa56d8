"""What a caller shows at a store's door: a token, a CA it trusts, a certificate. Opens nothing.

Read from the environment, so that every command and every process of a `serve` has the same:
TENANTSCOPE_TOKEN or TENANTSCOPE_TOKEN_FILE, TENANTSCOPE_CA, TENANTSCOPE_CERT, TENANTSCOPE_KEY.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import NotAllowed

if TYPE_CHECKING:
    import grpc

TOKEN, TOKEN_FILE = "TENANTSCOPE_TOKEN", "TENANTSCOPE_TOKEN_FILE"
CA, CERT, KEY = "TENANTSCOPE_CA", "TENANTSCOPE_CERT", "TENANTSCOPE_KEY"
_LONGEST_TOKEN = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """A token, or the file it is read from at every call (so that it can be changed); the CA of
    the store's certificate, None = the system's; the caller's own certificate."""

    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> Access:
        """What the variables say; an empty one says nothing."""
        given = os.environ if environ is None else environ
        path = {k: Path(given[k]) for k in (TOKEN_FILE, CA, CERT, KEY) if given.get(k)}
        return cls(
            given.get(TOKEN) or None,
            path.get(TOKEN_FILE),
            path.get(CA),
            path.get(CERT),
            path.get(KEY),
        )

    def read_token(self) -> str | None:
        """The token to send now; the file goes before the value. Raises NotAllowed, naming the
        file, when it cannot be read or holds no token."""
        if self.token_file is None:
            return _checked(self.token.strip(), TOKEN) if self.token else None
        try:
            text = self.token_file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as e:
            why = e.strerror if isinstance(e, OSError) else "not ASCII text"
            raise NotAllowed(f"the token file {self.token_file} cannot be read: {why}") from None
        return _checked(text.strip(), f"the token file {self.token_file}")

    def credentials(self) -> grpc.ChannelCredentials:
        """For an encrypted channel. Raises StoreError."""
        from telemetry.service import tls

        return tls.channel_credentials(self.ca, self.cert, self.key)


def _checked(token: str, where: str) -> str:
    printable = token.isascii() and token.isprintable() and " " not in token
    if not token or not printable or len(token) > _LONGEST_TOKEN:
        raise NotAllowed(
            f"{where} holds no token: one word is expected, as `tenantscope collect token` printed"
        )
    return token
