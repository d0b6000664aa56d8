"""Tells a retry from a new request. Owns salted prompt hashes, in memory, for a minute.

A prompt's text is never kept; the salt is made at start and never leaves, so a hash means nothing
outside this process.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections import OrderedDict
from collections.abc import Mapping

WINDOW_S = 60.0
_MOST = 65_536
RETRY_HEADERS = ("x-stainless-retry-count", "x-retry-count")


def says_retry(headers: Mapping[str, str]) -> bool:
    """True when the client itself counts this as a retry."""
    for name in RETRY_HEADERS:
        value = headers.get(name, "")
        if value.isascii() and value.isdigit() and int(value[:9]) > 0:
            return True
    return False


class RetryMemory:
    """Requests that ended badly (429, abort, timeout) within the last minute."""

    def __init__(self, window_s: float = WINDOW_S, most: int = _MOST) -> None:
        self._salt = secrets.token_bytes(32)
        self._window_s = window_s
        self._most = most
        self._ended_badly_s: OrderedDict[bytes, float] = OrderedDict()

    def print_of(self, tenant: str, model: str, prompt: str | tuple[int, ...]) -> bytes:
        """The salted hash that stands for a request."""
        h = hashlib.blake2b(key=self._salt, digest_size=16)
        for part in (tenant, model):
            raw = part.encode("utf-8", "surrogatepass")
            h.update(len(raw).to_bytes(8, "big") + raw)  # framed: no two splits read the same
        if isinstance(prompt, str):
            h.update(b"t" + prompt.encode("utf-8", "surrogatepass"))
        else:
            h.update(b"i" + array("q", prompt).tobytes())
        return h.digest()

    def note(self, mark: bytes, now_s: float) -> None:
        """Remember that the request `mark` stands for ended badly at `now_s`."""
        self._ended_badly_s.pop(mark, None)
        self._ended_badly_s[mark] = now_s
        self._forget(now_s)

    def seen(self, mark: bytes, now_s: float) -> bool:
        self._forget(now_s)
        return mark in self._ended_badly_s

    def __len__(self) -> int:
        return len(self._ended_badly_s)

    def _forget(self, now_s: float) -> None:
        kept = self._ended_badly_s
        while kept and (
            len(kept) > self._most or now_s - next(iter(kept.values())) > self._window_s
        ):
            kept.popitem(last=False)
