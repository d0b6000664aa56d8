"""How answers are shaped: OpenAI's objects for completions and chats, whole or in chunks.

Pure values. The texts of the chunks of a choice join to the text of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

LEAST_LOGPROB = -9999.0  # JSON has no infinity


@dataclass(frozen=True, slots=True)
class Told:
    """One token with its logprobs. `offset`: where its text begins, in characters of the choice;
    `top`: the likeliest tokens, best first."""

    token: int
    offset: int
    own: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What a choice says at once: a piece of its text, the logprobs of the tokens in it (None =
    not asked for) and, with its last piece, why it ended. `life`: its flight's; what an earlier
    one said counts for nothing."""

    index: int
    text: str
    told: tuple[Told, ...] | None = None
    finish_reason: str | None = None
    life: int = 1


Piece = Callable[[int], bytes]


class Shape(Protocol):
    """Builds the answers of one request."""

    def whole(self, parts: Sequence[Part], usage: dict[str, Any]) -> dict[str, Any]: ...
    def first(self, index: int) -> dict[str, Any] | None:
        """A chunk that comes before a choice's first text, where there is one."""
        ...

    def chunk(self, part: Part) -> dict[str, Any]: ...
    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class _Base:
    id: str
    created: int  # unix seconds
    model: str
    piece: Piece  # the bytes of a token
    include_usage: bool = False

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self._head(kind) | {"choices": [choice]}
        return chunk | {"usage": None} if self.include_usage else chunk


@dataclass(frozen=True, slots=True)
class CompletionShape(_Base):
    """Of POST /v1/completions."""

    def whole(self, parts: Sequence[Part], usage: dict[str, Any]) -> dict[str, Any]:
        head = self._head("text_completion")
        return head | {"choices": [self._choice(p) for p in parts], "usage": usage}

    def first(self, index: int) -> None:
        return None

    def chunk(self, part: Part) -> dict[str, Any]:
        return self._chunk("text_completion", self._choice(part))

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return self._head("text_completion") | {"choices": [], "usage": usage}

    def _choice(self, part: Part) -> dict[str, Any]:
        return {
            "text": part.text,
            "index": part.index,
            "logprobs": None if part.told is None else self._logprobs(part.told),
            "finish_reason": part.finish_reason,
        }

    def _logprobs(self, told: Sequence[Told]) -> dict[str, Any]:
        return {
            "tokens": [_label(self.piece(t.token)) for t in told],
            "token_logprobs": [_finite(t.own) for t in told],
            "top_logprobs": [
                {_label(self.piece(token)): _finite(value) for token, value in t.top} for t in told
            ],
            "text_offset": [t.offset for t in told],
        }


@dataclass(frozen=True, slots=True)
class ChatShape(_Base):
    """Of POST /v1/chat/completions."""

    def whole(self, parts: Sequence[Part], usage: dict[str, Any]) -> dict[str, Any]:
        choices = [
            {
                "index": p.index,
                "message": {"role": "assistant", "content": p.text, "refusal": None},
                "logprobs": self._logprobs(p.told),
                "finish_reason": p.finish_reason,
            }
            for p in parts
        ]
        return self._head("chat.completion") | {"choices": choices, "usage": usage}

    def first(self, index: int) -> dict[str, Any]:
        return self._delta(index, {"role": "assistant", "content": ""}, None, None)

    def chunk(self, part: Part) -> dict[str, Any]:
        delta = {"content": part.text} if part.text else {}
        return self._delta(part.index, delta, self._logprobs(part.told), part.finish_reason)

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return self._head("chat.completion.chunk") | {"choices": [], "usage": usage}

    def _delta(
        self, index: int, delta: dict[str, Any], logprobs: Any, finish_reason: str | None
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return self._chunk("chat.completion.chunk", choice)

    def _logprobs(self, told: Sequence[Told] | None) -> dict[str, Any] | None:
        if told is None:
            return None
        content = [
            self._token(t.token, t.own) | {"top_logprobs": [self._token(*pair) for pair in t.top]}
            for t in told
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        piece = self.piece(token)
        return {"token": _label(piece), "logprob": _finite(logprob), "bytes": list(piece)}


def _label(piece: bytes) -> str:
    """A token as text; bytes that are no character by themselves are spelt out, so that two
    tokens never read the same."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{b:02x}" for b in piece)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """The prompt counts once, however many choices answer it."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
