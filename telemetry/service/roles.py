"""Who may do what: tokens, their roles, and the guard before every method. Owns no address.

A tokens file holds SHA-256 digests, never tokens: whoever reads it can call nobody.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from telemetry.errors import NotAllowed, StoreError
from telemetry.settings import Reader, SettingsError, read_toml

log = logging.getLogger(__name__)

_PREFIX = "ts_"  # lets a scanner of leaked secrets know one
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_TOKENS = 10_000


class Role(enum.StrEnum):
    """What a method asks of its caller. `OPEN` is for everybody: it says nothing of anybody."""

    OPEN = "open"
    VIEWER = "viewer"
    OPERATOR = "operator"
    INGEST = "ingest"


GIVEN = (Role.VIEWER, Role.OPERATOR, Role.INGEST)  # roles that a token can have
_INCLUDES = {Role.OPERATOR: frozenset((Role.OPERATOR, Role.VIEWER))}


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token opens. `engine` binds a sender: batches of another engine are not its to send;
    None = of any."""

    role: Role
    engine: str | None = None
    note: str = ""

    def may(self, needed: Role) -> bool:
        return needed is Role.OPEN or needed in _INCLUDES.get(self.role, (self.role,))


def new_token() -> str:
    """A token nobody can guess: 256 bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What a tokens file holds of a token: SHA-256, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


class NoTokens(SettingsError):
    """A tokens file, well written, with no token in it."""


class Tokens:
    """The tokens of one file, by digest."""

    def __init__(self, grants: Mapping[str, Grant]) -> None:
        self._grants = dict(grants)

    def __len__(self) -> int:
        return len(self._grants)

    def find(self, token: str) -> Grant | None:
        """What the token opens; None for one that is not there. Every digest is compared, each in
        constant time: how long it takes says nothing of any token."""
        mine, found = digest(token), None
        for known, grant in self._grants.items():
            if hmac.compare_digest(mine, known):
                found = grant
        return found


def read_tokens(path: Path) -> Tokens:
    """A file of [[token]] tables: sha256, role, engine (of a sender), note.

    Raises SettingsError naming file, table and key; NoTokens for a file without one.
    """
    reader = Reader(str(path), read_toml(path))
    grants: dict[str, Grant] = {}
    tables = reader.tables("token")
    reader.done()
    if not tables:
        raise NoTokens(
            f"{path}: no [[token]] in it, so nobody could call: "
            "make one with `tenantscope collect token`"
        )
    if len(tables) > _MOST_TOKENS:
        raise SettingsError(f"{path}: {len(tables)} tokens: at most {_MOST_TOKENS}")
    for table in tables:
        sha256 = table.text("sha256")
        if not _DIGEST.fullmatch(sha256):
            # The value is not shown: people paste the token itself here.
            raise SettingsError(
                f"{table.where}: sha256 is no digest (64 hex digits, lower case): "
                "`tenantscope collect token` prints the lines to paste"
            )
        if sha256 in grants:
            raise SettingsError(f"{table.where}: this sha256 stands in the file twice")
        role = Role(table.text("role", choices=GIVEN))
        engine = table.text("engine", None)
        if engine is not None and role is not Role.INGEST:
            raise table.fail("engine", f"binds a sender (role ingest), not a {role}")
        grants[sha256] = Grant(role, engine, table.text("note", ""))
        table.done()
    return Tokens(grants)


class TokenFile:
    """A tokens file that may change: a token taken out of it opens nothing from then on."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError when the file is not usable now."""
        self._path = path
        self._lock = threading.Lock()
        self._seen = self._stamp()
        try:
            self._tokens = read_tokens(path)
        except SettingsError as e:
            raise StoreError(f"tokens: {e}") from None

    def find(self, token: str) -> Grant | None:
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                self._read_again()
            tokens = self._tokens
        return tokens.find(token)

    def _read_again(self) -> None:
        try:
            self._tokens = read_tokens(self._path)
            log.info("%s has changed: %d tokens", self._path, len(self._tokens))
        except NoTokens as e:
            # Whoever takes the last one out means it, as with any other.
            self._tokens = Tokens({})
            log.error("every caller is turned away now: %s", e)
        except SettingsError as e:
            log.error("the tokens read before are kept: %s", e)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


class Finder(Protocol):
    """Knows tokens."""

    def find(self, token: str) -> Grant | None: ...


def bearer(metadata: Iterable[tuple[str, Any]] | None) -> str | None:
    """The token of a call's `authorization: Bearer …`; None without one."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return token.strip()
    return None


class Guard(grpc.ServerInterceptor):  # type: ignore[misc]
    """Lets a call to its method or turns it away, before a byte of its message is read.

    `roles` are the methods' needs by full name; a method that has none is nobody's. Without
    `tokens` every caller has all roles: a socket only its owner opens, or loopback.
    """

    def __init__(
        self,
        roles: Mapping[str, Role],
        tokens: Finder | None,
        denied: Callable[[str, str], object] = lambda method, why: None,
    ) -> None:
        self._roles = roles
        self._tokens = tokens
        self._denied = denied

    def engine_of(self, metadata: Iterable[tuple[str, Any]] | None) -> str | None:
        """The one engine a caller may send for; None = any. Raises NotAllowed for a token that
        was taken out of the file since its call came through the guard."""
        if self._tokens is None:
            return None
        token = bearer(metadata)
        grant = self._tokens.find(token) if token is not None else None
        if grant is None:
            raise NotAllowed("this token was taken out of the store's tokens file")
        return grant.engine

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        method = handler_call_details.method
        handler = continuation(handler_call_details)
        if handler is None:
            return None  # unimplemented, whoever asks
        needed = self._roles.get(method)
        if needed is None:
            return self._no(grpc.StatusCode.PERMISSION_DENIED, method, f"{method} has no role")
        if self._tokens is None or needed is Role.OPEN:
            return handler
        token = bearer(handler_call_details.invocation_metadata)
        if token is None:
            why = f"{method} needs a token of role {needed}: send `authorization: Bearer TOKEN`"
            return self._no(grpc.StatusCode.UNAUTHENTICATED, method, why)
        grant = self._tokens.find(token)
        if grant is None:
            why = "this token is not in the store's tokens file: see whether it was taken out of it"
            return self._no(grpc.StatusCode.UNAUTHENTICATED, method, why)
        if not grant.may(needed):
            why = f"{method} needs a token of role {needed}; this one is of role {grant.role}"
            return self._no(grpc.StatusCode.PERMISSION_DENIED, method, why)
        return handler

    def _no(self, code: grpc.StatusCode, method: str, why: str) -> grpc.RpcMethodHandler:
        self._denied(method, why)

        def refuse(requests: object, context: grpc.ServicerContext) -> None:
            context.abort(code, why)

        # Takes a stream of messages, and takes none of it: 64 MiB of a stranger stay unread.
        return grpc.stream_unary_rpc_method_handler(refuse)
