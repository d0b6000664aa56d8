"""How many tokens a text has, before it is tokenized: at least, and likely. Owns a running mean.

The least is sure: no token stands for more bytes than the longest does. What is likely is what
this front's prompts have had so far, bytes a token.
"""

from __future__ import annotations

_FIRST_BYTES_A_TOKEN = 4.0
_FORGET_BYTES = 4 << 20  # older text counts half as much after so much newer


class Lengths:
    """`longest_bytes`: of one token; None = a token may stand for any amount of text."""

    def __init__(self, longest_bytes: int | None) -> None:
        self._longest = longest_bytes
        self._bytes = 64 * _FIRST_BYTES_A_TOKEN
        self._tokens = 64.0

    def least(self, text_bytes: int) -> int:
        """Tokens, 1 at least."""
        if self._longest is None:
            return 1
        return max(1, -(-text_bytes // self._longest))

    def likely(self, text_bytes: int) -> int:
        """Tokens, an estimate; no fewer than the least."""
        return max(self.least(text_bytes), round(text_bytes * self._tokens / self._bytes))

    def learn(self, text_bytes: int, tokens: int) -> None:
        """A text was tokenized."""
        self._bytes += text_bytes
        self._tokens += tokens
        if self._bytes > _FORGET_BYTES:
            self._bytes, self._tokens = self._bytes / 2, self._tokens / 2
