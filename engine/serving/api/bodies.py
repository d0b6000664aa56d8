"""What a body may ask for: POST /v1/completions and /v1/chat/completions, read to one value.

Knows no sockets, quotas or tokens' meaning. A parameter that would change the answer and is not
supported is refused by name; it is never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.scheduling.shaping import PLAIN, Shaping
from engine.serving.api import reading
from engine.serving.api.openai import ApiError, short
from engine.serving.api.reading import bad, flag, integer, kind, no_half_pairs, number
from engine.serving.api.shaping import SHAPING_KEYS, read_shaping

DEFAULT_MAX_TOKENS = 16  # of a completion, as OpenAI has it
DEFAULT_CHAT_TOKENS = 512  # of a chat, or what the context still holds
DEFAULT_TEMPERATURE = 1.0
LARGEST_TEMPERATURE = 2.0
MOST_CHOICES = 8
MOST_STOPS = 4
LONGEST_STOP = 256  # characters
_SEED_LIMIT = 1 << 63
_MAX_TOKENS_LIMIT = 1 << 31  # what is counted must fit the counters
_ROLES = ("system", "developer", "user", "assistant")

_BOTH = (
    "model",
    "max_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "logprobs",
    "stream",
    "stream_options",
    "ignore_eos",
    *SHAPING_KEYS,
)
# They say who or why, not what to answer. A salt from a client changes nothing either: whose
# cached prefixes a request may meet is the server's to say.
_HARMLESS = ("user", "metadata", "safety_identifier", "prompt_cache_key", "cache_salt")
COMPLETION_KEYS = ("prompt", *_BOTH, *_HARMLESS)
CHAT_KEYS = ("messages", "max_completion_tokens", "top_logprobs", *_BOTH, *_HARMLESS)
COMPLETION_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
CHAT_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "store": (False,),
}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


Prompt = str | tuple[int, ...] | tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A well-formed body. `prompt` is text, token ids or messages, as it came.

    `max_tokens` None: what the endpoint has by default. `logprobs`: alternatives wanted beside
    each token's own, None = no logprobs at all.
    """

    model: str
    prompt: Prompt
    is_chat: bool = False
    max_tokens: int | None = None
    temperature: float = DEFAULT_TEMPERATURE
    top_p: float = 1.0
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    stream: bool = False
    include_usage: bool = False
    usage_so_far: bool = False  # with each chunk
    ignore_eos: bool = False
    shaping: Shaping = PLAIN

    def identity(self, most_ids: int) -> str | tuple[int, ...]:
        """The prompt as what two requests can have in common; of more ids than can ever be let in,
        which nobody has looked at, nothing."""
        if isinstance(self.prompt, str):
            return self.prompt
        if not self.is_chat:
            return self.prompt if len(self.prompt) <= most_ids else ()  # type: ignore[return-value]
        return json.dumps([[m.role, m.content] for m in self.messages()])

    def messages(self) -> tuple[Message, ...]:
        """Of a chat."""
        return self.prompt if self.is_chat else ()  # type: ignore[return-value]

    def room(self, prompt_tokens: int, max_context: int) -> int:
        """The most tokens one choice may have: what was asked for, else the default."""
        if self.max_tokens is not None:
            return self.max_tokens
        if not self.is_chat:
            return DEFAULT_MAX_TOKENS
        return max(1, min(DEFAULT_CHAT_TOKENS, max_context - prompt_tokens))


def parse_completion(body: bytes) -> Asked:
    """Read a body. Raises ApiError (400) naming the parameter, its value and what is allowed."""
    raw = reading.json_object(body)
    reading.refuse_unsupported(raw, COMPLETION_KEYS, COMPLETION_NEUTRAL)
    return Asked(
        prompt=_prompt(raw.get("prompt")),
        max_tokens=_max_tokens(raw, "max_tokens"),
        logprobs=integer(raw, "logprobs", None, 0, 6),
        **_both(raw),
    )


def parse_chat(body: bytes) -> Asked:
    """Read a body. Raises ApiError (400) naming the parameter, its value and what is allowed."""
    raw = reading.json_object(body)
    reading.refuse_unsupported(raw, CHAT_KEYS, CHAT_NEUTRAL)
    old, new = _max_tokens(raw, "max_tokens"), _max_tokens(raw, "max_completion_tokens")
    if old is not None and new is not None and old != new:
        raise bad("max_tokens", old, f"max_completion_tokens = {new} says another: send one")
    return Asked(
        prompt=_messages(raw.get("messages")),
        is_chat=True,
        max_tokens=old if new is None else new,
        logprobs=_chat_logprobs(raw),
        **_both(raw),
    )


def _both(raw: Mapping[str, Any]) -> dict[str, Any]:
    model = raw.get("model")
    if not isinstance(model, str) or not model:
        raise bad("model", model, "expected the name of a model; GET /v1/models lists yours")
    stream = flag(raw, "stream")
    options = raw.get("stream_options")
    if options is not None and not stream:
        raise bad("stream_options", options, "allowed only together with stream = true")
    return {
        "model": model,
        "temperature": number(raw, "temperature", DEFAULT_TEMPERATURE, 0, LARGEST_TEMPERATURE),
        "top_p": _top_p(raw),
        "n": integer(raw, "n", 1, 1, MOST_CHOICES + 1),
        "stop": _stops(raw.get("stop")),
        "seed": integer(raw, "seed", None, 0, _SEED_LIMIT),
        "stream": stream,
        **_usage_options(options),
        "ignore_eos": flag(raw, "ignore_eos"),
        "shaping": read_shaping(raw),
    }


def _max_tokens(raw: Mapping[str, Any], name: str) -> int | None:
    found: int | None = integer(raw, name, None, 1, _MAX_TOKENS_LIMIT)
    return found


def _top_p(raw: Mapping[str, Any]) -> float:
    top_p = number(raw, "top_p", 1.0, 0, 1)
    # Nothing at all is not to be drawn from: the smallest nucleus is the likeliest token.
    return max(top_p, 1e-9)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if stops is None:
        return ()
    if (
        not isinstance(stops, list)
        or len(stops) > MOST_STOPS
        or not all(isinstance(s, str) and 0 < len(s) <= LONGEST_STOP for s in stops)
    ):
        raise ApiError(
            400,
            f"stop: expected up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters; "
            f"got {kind(value)}",
            param="stop",
        )
    return tuple(dict.fromkeys(no_half_pairs(s, "stop") for s in stops))


def _chat_logprobs(raw: Mapping[str, Any]) -> int | None:
    wanted, top = flag(raw, "logprobs"), integer(raw, "top_logprobs", None, 0, 21)
    if top is not None and not wanted:
        raise bad("top_logprobs", top, "allowed only together with logprobs = true")
    return (top or 0) if wanted else None


def _usage_options(options: Any) -> dict[str, bool]:
    if options is None:
        return {}
    allowed = {"include_usage", "continuous_usage_stats", "include_obfuscation"}
    if not isinstance(options, dict) or set(options) - allowed:
        raise bad(
            "stream_options", options, "allowed: include_usage and continuous_usage_stats, flags"
        )
    if flag(options, "include_obfuscation"):
        raise bad("stream_options", options, "include_obfuscation is not supported")
    wanted = flag(options, "include_usage")
    # As the servers that load generators know do it: without the first the second says nothing.
    so_far = flag(options, "continuous_usage_stats")
    return {"include_usage": wanted, "usage_so_far": wanted and so_far}


def _prompt(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        if not value:
            raise bad("prompt", value, "expected at least one character")
        return no_half_pairs(value, "prompt")
    if isinstance(value, list) and value:
        kinds = set(map(type, value))  # a body may hold half a million of them
        if kinds == {int}:
            return tuple(value)
        if kinds <= {str, list}:
            raise ApiError(
                400,
                f"prompt: {len(value)} prompts in one request; send one prompt a request",
                param="prompt",
            )
    # A prompt's own text never goes into a message, so only its kind is named.
    raise ApiError(
        400,
        f"prompt: expected text or a list of token ids, one at least; got {kind(value)}",
        param="prompt",
    )


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ApiError(
            400,
            f"messages: expected a list of messages, one at least; got {kind(value)}",
            param="messages",
        )
    return tuple(_message(m, f"messages[{i}]") for i, m in enumerate(value))


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise ApiError(400, f"{where}: expected an object, got {kind(value)}", param=where)
    role = value.get("role")
    if role not in _ROLES:
        raise bad(f"{where}.role", role, f"expected one of {', '.join(_ROLES)}")
    for name, held in value.items():
        if name not in ("role", "content", "name", "refusal") and held not in (None, []):
            what = f"{where}.{short(name)}"
            raise ApiError(400, f"{what}: not supported; allowed: role, content", param=what)
    content = _content(value.get("content"), f"{where}.content")
    return Message("system" if role == "developer" else role, content)


def _content(value: Any, where: str) -> str:
    """Text, or parts that are all text."""
    parts = [value] if isinstance(value, str) else value
    if isinstance(parts, list) and parts:
        texts = [p.get("text") if _is_text_part(p) else p for p in parts]
        if all(isinstance(t, str) for t in texts):
            return no_half_pairs("".join(texts), where)
    raise ApiError(
        400, f"{where}: expected text, or a list of text parts; got {kind(value)}", param=where
    )


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"
