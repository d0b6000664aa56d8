"""Takes a request in: its body, bounded in size and time, and its prompt as tokens.

Prompt text goes to the tokenizer and nowhere else. A short prompt is tokenized on the loop; a long
one on a thread, in its tenant's turn, once it is known that it could be let in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from starlette.requests import Request

from engine.model.chat_template import ChatRefused
from engine.serving.api.bodies import Asked
from engine.serving.api.choice import Decoder
from engine.serving.api.lengths import Lengths
from engine.serving.api.openai import ApiError
from engine.serving.api.shaping import check_ids
from engine.serving.api.turns import Turns

_LEAST_BODY_BYTES = 1 << 20
_BODY_BYTES_PER_TOKEN = 16  # room for the longest allowed prompt, as text or as ids
INLINE_CHARACTERS = 1_024  # about a millisecond of the loop's time
_CHARACTERS_A_TURN = 64  # what rendering one costs beside its text
BODY_S = 30.0  # from the end of the head to the end of the body


class Tokenizer(Protocol):
    """Text to ids and back (see `engine.model.text`)."""

    @property
    def eos_ids(self) -> Sequence[int]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def longest_bytes(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def stream(self) -> Decoder: ...


class Guess(NamedTuple):
    """Tokens of a prompt that has not been counted: it has so many at least, and likely so many."""

    least: int
    likely: int


class Intake:
    """One front's. `body_s`: how long a caller may take to send a body."""

    def __init__(self, tokenizer: Tokenizer, body_s: float = BODY_S) -> None:
        self._tokenizer = tokenizer
        self._body_s = body_s
        self._lengths = Lengths(tokenizer.longest_bytes)
        self.turns = Turns()

    async def body(self, request: Request, max_context: int) -> bytes:
        """The whole body, of a pool whose requests hold so many tokens. Raises ApiError: 413 too
        large, 408 too slow."""
        most = max(_LEAST_BODY_BYTES, max_context * _BODY_BYTES_PER_TOKEN)
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            # As many digits as the interpreter reads; more is too long by any measure.
            size = int(declared[:20])
            if size > most:
                raise _too_long(size, most)
        parts, total = [], 0
        try:
            async with asyncio.timeout(self._body_s):
                async for part in request.stream():
                    total += len(part)
                    if total > most:
                        raise _too_long(total, most)
                    parts.append(part)
        except TimeoutError:
            raise ApiError(
                408,
                f"the body was not complete within {self._body_s:g} s ({total} bytes came): "
                "send it at once",
                code="request_timeout",
                headers={"Connection": "close"},
            ) from None
        return b"".join(parts)

    def guess(self, asked: Asked, max_context: int) -> Guess | None:
        """Of a prompt that takes long to count; None for one that does not. Ids count themselves,
        but more than a context holds are not worth being looked at one by one."""
        if isinstance(asked.prompt, tuple) and not asked.is_chat:
            ids = len(asked.prompt)
            return Guess(ids, ids) if ids > max_context else None
        if _size(asked) <= INLINE_CHARACTERS:
            return None
        text_bytes = sum(len(text.encode()) for text in _texts(asked))
        # A template may leave out of a conversation whatever it likes.
        least = 1 if asked.is_chat else self._lengths.least(text_bytes)
        return Guess(least, self._lengths.likely(text_bytes))

    def count(self, asked: Asked) -> tuple[int, ...]:
        """The prompt as ids, one at least. On the loop or on a thread. Raises ApiError (400)."""
        tokenizer, prompt = self._tokenizer, asked.prompt
        check_ids(asked.shaping, tokenizer.vocab_size)
        if asked.is_chat:
            messages = [{"role": m.role, "content": m.content} for m in asked.messages()]
            try:
                tokens = tuple(tokenizer.chat(messages))
            except ChatRefused as e:
                raise ApiError(400, str(e), param="messages", code="chat_template") from None
            if not tokens:
                raise ApiError(400, "messages: they hold no token", param="messages")
            return tokens
        if isinstance(prompt, str):
            tokens = tuple(tokenizer.encode(prompt))
            if not tokens:
                raise ApiError(400, "prompt: it holds no token", param="prompt")
            return tokens
        return self._checked(prompt)  # type: ignore[arg-type]

    async def count_in_turn(self, tenant: str, asked: Asked) -> tuple[int, ...]:
        """As `count`, on a thread. Raises TurnRefused too."""
        tokens = await self.turns.run(tenant, lambda: self.count(asked))
        self._lengths.learn(sum(len(text.encode()) for text in _texts(asked)), len(tokens))
        return tokens

    def _checked(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        vocab = self._tokenizer.vocab_size
        if min(prompt) >= 0 and max(prompt) < vocab:
            return prompt
        position = next(i for i, token in enumerate(prompt) if not 0 <= token < vocab)
        raise ApiError(
            400,
            f"prompt[{position}] = {str(prompt[position])[:20]}: "
            f"expected a token id from 0 to {vocab - 1}",
            param="prompt",
        )


def _texts(asked: Asked) -> Sequence[str]:
    if asked.is_chat:
        return [m.content for m in asked.messages()]
    return [asked.prompt] if isinstance(asked.prompt, str) else []


def _size(asked: Asked) -> int:
    """Characters, and what a conversation costs beside them."""
    return sum(map(len, _texts(asked))) + _CHARACTERS_A_TURN * len(asked.messages())


def _too_long(size: int, most: int) -> ApiError:
    return ApiError(
        413,
        f"the body has {size} bytes or more, and the most allowed is {most}",
        code="body_too_large",
        extra={"limit": most, "used": size},
        headers={"Connection": "close"},
    )
