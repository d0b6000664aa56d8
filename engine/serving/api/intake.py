"""Takes a request in: its body, bounded in size and time, and its prompt as tokens.

Prompt text goes to the tokenizer and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from starlette.requests import Request

from engine.config import Settings
from engine.model.chat_template import ChatRefused
from engine.serving.api.bodies import Asked
from engine.serving.api.choice import Decoder
from engine.serving.api.openai import ApiError

_LEAST_BODY_BYTES = 1 << 20
_BODY_BYTES_PER_TOKEN = 16  # room for the longest allowed prompt, as text or as ids
_INLINE_CHARACTERS = 16_384  # longer prompts are tokenized off the event loop
_CHARACTERS_A_TURN = 64  # what rendering one costs beside its text
BODY_S = 30.0  # from the end of the head to the end of the body


class Tokenizer(Protocol):
    """Text to ids and back (see `engine.model.text`)."""

    @property
    def eos_ids(self) -> Sequence[int]: ...
    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def stream(self) -> Decoder: ...


class Intake:
    """One front's. `body_s`: how long a caller may take to send a body."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer, body_s: float = BODY_S) -> None:
        self._tokenizer = tokenizer
        self._body_s = body_s
        self._body_bytes = max(
            _LEAST_BODY_BYTES, settings.limits.max_context * _BODY_BYTES_PER_TOKEN
        )

    async def body(self, request: Request) -> bytes:
        """The whole body. Raises ApiError: 413 too large, 408 too slow."""
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            # As many digits as the interpreter reads; more is too long by any measure.
            size = int(declared[:20])
            if size > self._body_bytes:
                raise self._too_long(size)
        parts, total = [], 0
        try:
            async with asyncio.timeout(self._body_s):
                async for part in request.stream():
                    total += len(part)
                    if total > self._body_bytes:
                        raise self._too_long(total)
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

    async def tokens(self, asked: Asked) -> tuple[int, ...]:
        """The prompt as ids, one at least. Raises ApiError (400)."""
        if asked.is_chat:
            return await self._conversation(asked)
        prompt = asked.prompt
        if isinstance(prompt, str):
            if len(prompt) > _INLINE_CHARACTERS:
                tokens = tuple(await asyncio.to_thread(self._tokenizer.encode, prompt))
            else:
                tokens = tuple(self._tokenizer.encode(prompt))
            if not tokens:
                raise ApiError(400, "prompt: it holds no token", param="prompt")
            return tokens
        return self._checked(prompt)  # type: ignore[arg-type]

    async def _conversation(self, asked: Asked) -> tuple[int, ...]:
        messages = [{"role": m.role, "content": m.content} for m in asked.messages()]
        size = sum(len(m.content) + _CHARACTERS_A_TURN for m in asked.messages())
        try:
            if size > _INLINE_CHARACTERS:
                tokens = tuple(await asyncio.to_thread(self._tokenizer.chat, messages))
            else:
                tokens = tuple(self._tokenizer.chat(messages))
        except ChatRefused as e:
            raise ApiError(400, str(e), param="messages", code="chat_template") from None
        if not tokens:
            raise ApiError(400, "messages: they hold no token", param="messages")
        return tokens

    def _checked(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        vocab = self._tokenizer.vocab_size
        for position, token in enumerate(prompt):
            if not 0 <= token < vocab:
                raise ApiError(
                    400,
                    f"prompt[{position}] = {str(token)[:20]}: "
                    f"expected a token id from 0 to {vocab - 1}",
                    param="prompt",
                )
        return prompt

    def _too_long(self, size: int) -> ApiError:
        return ApiError(
            413,
            f"the body has {size} bytes or more, and the most allowed is {self._body_bytes}",
            code="body_too_large",
            extra={"limit": self._body_bytes, "used": size},
            headers={"Connection": "close"},
        )
