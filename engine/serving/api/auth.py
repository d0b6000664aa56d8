"""API keys: who a caller is. Owns key digests; never keeps, logs or returns a key it was shown.

A key is 32 random bytes, so one SHA-256 is enough at rest: there is nothing to guess faster. A
tenant may have several, which is how one is replaced by another: give out the new one, put
`until` behind the old one's digest, take it out later.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from engine.config import Tenant
from engine.errors import ConfigError
from engine.key_digest import KeyDigest, read_key_digest

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
    """Who calls, and with which of the tenant's keys (the first digits of its digest).

    `until_unix_s`: when that key stops to open, None = never. Whether it has is for who knows the
    time (`opens`).
    """

    tenant: Tenant
    key_id: str
    until_unix_s: float | None = None

    def opens(self, now_unix_s: float) -> bool:
        return self.until_unix_s is None or now_unix_s < self.until_unix_s


class KeyRing:
    """Finds the tenant of a key among digests. Raises ConfigError for a key of two tenants, and
    for what is no digest."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._by_bucket: dict[str, list[tuple[KeyDigest, Tenant]]] = {}
        owners: dict[str, str] = {}
        for tenant in tenants:
            for text in tenant.key_sha256:
                try:
                    kept = read_key_digest(text)
                except ValueError as e:
                    raise ConfigError(f"tenant {tenant.name!r}: key_sha256: {e}") from None
                owner = owners.setdefault(kept.digest, tenant.name)
                if owner != tenant.name:
                    raise ConfigError(
                        f"tenants {owner!r} and {tenant.name!r} have one key_sha256, "
                        f"{kept.digest[:_BUCKET_HEX]}...: a key says who calls; give each its own"
                    )
                self._by_bucket.setdefault(kept.digest[:_BUCKET_HEX], []).append((kept, tenant))

    def take(self, other: KeyRing) -> None:
        """Know the keys of another ring from now on, and no others."""
        self._by_bucket = other._by_bucket

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._by_bucket.values())

    def tenant_of(self, authorization: str | None) -> Tenant | None:
        """The tenant of an `Authorization: Bearer ts-...` header, None for anybody else."""
        caller = self.caller_of(authorization)
        return None if caller is None else caller.tenant

    def caller_of(self, authorization: str | None) -> Caller | None:
        """The tenant and the key of a header, None for anybody else. Ask the caller `opens`.

        A dictionary on the first digits of the *digest* picks the candidates (they tell nothing
        about a key), then `hmac.compare_digest` decides, once even when there is no candidate.
        """
        scheme, _, key = (authorization or "").strip().partition(" ")
        digest = digest_of(key.strip())
        found: Caller | None = None
        candidates = self._by_bucket.get(digest[:_BUCKET_HEX])
        if candidates is None:
            hmac.compare_digest(_NOBODY, digest)
        for kept, tenant in candidates or ():
            if hmac.compare_digest(kept.digest, digest):
                found = Caller(tenant, digest[:_ID_HEX], kept.until_unix_s)
        return found if scheme.lower() == "bearer" else None
