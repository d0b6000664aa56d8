"""API keys: who a caller is. Owns key digests; never keeps, logs or returns a key it was shown.

A key is 32 random bytes, so one SHA-256 is enough at rest: there is nothing to guess faster.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from engine.config import Tenant
from engine.errors import ConfigError

PREFIX = "ts-"
_BUCKET_HEX = 8  # digest digits that pick the candidates; the rest is compared in constant time
_ID_HEX = 12  # enough to tell one tenant's keys apart; says nothing about a key
_NOBODY = "0" * 64


def digest_of(key: str) -> str:
    """Hex SHA-256 of a key: what a settings file holds."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> tuple[str, str]:
    """A fresh key and its digest. The key exists nowhere else once the caller has shown it."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, digest_of(key)


class Caller(NamedTuple):
    """Who calls, and with which of the tenant's keys (the first digits of its digest)."""

    tenant: Tenant
    key_id: str


class KeyRing:
    """Finds the tenant of a key among digests. Raises ConfigError for a key of two tenants."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._by_bucket: dict[str, list[tuple[str, Tenant]]] = {}
        owners: dict[str, str] = {}
        for tenant in tenants:
            for digest in tenant.key_sha256:
                owner = owners.setdefault(digest, tenant.name)
                if owner != tenant.name:
                    raise ConfigError(
                        f"tenants {owner!r} and {tenant.name!r} have one key_sha256, "
                        f"{digest[:_BUCKET_HEX]}...: a key says who calls; give each its own"
                    )
                self._by_bucket.setdefault(digest[:_BUCKET_HEX], []).append((digest, tenant))

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._by_bucket.values())

    def tenant_of(self, authorization: str | None) -> Tenant | None:
        """The tenant of an `Authorization: Bearer ts-...` header, None for anybody else."""
        caller = self.caller_of(authorization)
        return None if caller is None else caller.tenant

    def caller_of(self, authorization: str | None) -> Caller | None:
        """The tenant and the key of a header, None for anybody else.

        A dictionary on the first digits of the *digest* picks the candidates (they tell nothing
        about a key), then `hmac.compare_digest` decides, once even when there is no candidate.
        """
        scheme, _, key = (authorization or "").strip().partition(" ")
        digest = digest_of(key.strip())
        found: Caller | None = None
        candidates = self._by_bucket.get(digest[:_BUCKET_HEX])
        if candidates is None:
            hmac.compare_digest(_NOBODY, digest)
        for stored, tenant in candidates or ():
            if hmac.compare_digest(stored, digest):
                found = Caller(tenant, digest[:_ID_HEX])
        return found if scheme.lower() == "bearer" else None
