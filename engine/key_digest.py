"""What a settings file holds of an API key: its digest and, for one that is on its way out, until
when it opens. Pure; never sees a key.

    <64 hex digits>
    <64 hex digits> until 2027-01-31T00:00:00Z
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

_HEX = frozenset("0123456789abcdef")
_UNTIL = " until "


class KeyDigest(NamedTuple):
    """`until_unix_s` None: it does not expire."""

    digest: str
    until_unix_s: float | None = None


def read_key_digest(text: str) -> KeyDigest:
    """Raises ValueError with what is wrong; the text itself, which may be a key, is not in it."""
    digest, until, when = text.partition(_UNTIL)
    if len(digest) != 64 or set(digest) - _HEX:
        what = "a key" if digest.startswith("ts-") else f"{len(digest)} characters long"
        raise ValueError(f"one of them is {what}: expected 64 lower-case hex digits each")
    if not until:
        return KeyDigest(digest)
    try:
        at = datetime.fromisoformat(when.strip())
    except ValueError:
        raise ValueError(
            f"{digest[:8]}...: until {when.strip()[:40]!r} is no time: expected like "
            "2027-01-31T00:00:00Z"
        ) from None
    return KeyDigest(digest, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def written(digest: str, until_unix_s: float | None = None) -> str:
    """As a settings file has it."""
    return digest if until_unix_s is None else f"{digest}{_UNTIL}{instant(until_unix_s)}"


def instant(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
