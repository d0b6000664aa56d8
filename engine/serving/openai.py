"""The OpenAI completions dialect: what a body may say and how answers are shaped. Pure values.

Knows no sockets, quotas or tokens' meaning. A parameter that would change the answer and is not
supported is refused by name; it is never ignored.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

DEFAULT_MAX_TOKENS = 16
DEFAULT_TEMPERATURE = 1.0
LARGEST_TEMPERATURE = 2.0
_SEED_LIMIT = 1 << 63
_MAX_TOKENS_LIMIT = 1 << 31  # what is counted must fit the counters

# Values that leave the answer as it is; anything else is refused.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (),
    "stop": ([],),
    "logit_bias": ({},),
}
_TAKEN = (
    "model",
    "prompt",
    "max_tokens",
    "temperature",
    "seed",
    "stream",
    "stream_options",
    "ignore_eos",
)
_HARMLESS = ("user", "metadata")  # they say who or why, not what to answer


class ApiError(Exception):
    """An answer other than 2xx, in OpenAI's shape. `message` is written for the caller."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = headers or {}
        self.extra = extra or {}

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error | self.extra}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A well-formed body of POST /v1/completions. `prompt` is text or token ids, as it came."""

    model: str
    prompt: str | tuple[int, ...]
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = DEFAULT_TEMPERATURE
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    ignore_eos: bool = False


def parse_completion(body: bytes) -> CompletionRequest:
    """Read a body. Raises ApiError (400) naming the parameter, its value and what is allowed."""
    raw = _json_object(body)
    _refuse_unsupported(raw)
    model = raw.get("model")
    if not isinstance(model, str) or not model:
        raise _bad("model", model, "expected the name of a model; GET /v1/models lists yours")
    stream = _flag(raw, "stream")
    options = raw.get("stream_options")
    if options is not None and not stream:
        raise _bad("stream_options", options, "allowed only together with stream = true")
    return CompletionRequest(
        model=model,
        prompt=_prompt(raw.get("prompt")),
        max_tokens=_integer(raw, "max_tokens", DEFAULT_MAX_TOKENS, 1, _MAX_TOKENS_LIMIT),
        temperature=_temperature(raw.get("temperature")),
        seed=_integer(raw, "seed", None, 0, _SEED_LIMIT),
        stream=stream,
        include_usage=_include_usage(options),
        ignore_eos=_flag(raw, "ignore_eos"),
    )


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as e:
        raise ApiError(400, f"the body is not UTF-8 text (byte {e.start})") from None
    except json.JSONDecodeError as e:
        where = f"line {e.lineno}, column {e.colno}"
        raise ApiError(400, f"the body is not valid JSON: {e.msg} at {where}") from None
    except (RecursionError, ValueError):
        raise ApiError(
            400, "the body is not usable JSON: nested too deep or a number too long"
        ) from None
    if not isinstance(raw, dict):
        raise ApiError(400, f"the body must be a JSON object, not {_kind(raw)}")
    return raw


def _refuse_unsupported(raw: dict[str, Any]) -> None:
    for name, value in raw.items():
        if value is None or name in _TAKEN or name in _HARMLESS:
            continue
        neutral = _NEUTRAL.get(name)
        if neutral is None:
            near = difflib.get_close_matches(name, (*_TAKEN, *_NEUTRAL), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_TAKEN)}"
            raise _bad(_short(name), value, f"unknown parameter; {hint}", code="unknown_parameter")
        if not any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in neutral):
            allowed = ", ".join(["null", *(json.dumps(v) for v in neutral)])
            raise _bad(name, value, f"not supported; allowed: {allowed}", code="unsupported_value")


def _prompt(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        if not value:
            raise _bad("prompt", value, "expected at least one character")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as e:
            reason = f"holds half of a surrogate pair at character {e.start}"
            raise ApiError(400, f"prompt: {reason}; send valid Unicode", param="prompt") from None
        return value
    if isinstance(value, list) and value:
        if all(type(v) is int for v in value):
            return tuple(value)
        if all(isinstance(v, str | list) for v in value):
            raise ApiError(
                400,
                f"prompt: {len(value)} prompts in one request; send one prompt a request",
                param="prompt",
            )
    # A prompt's own text never goes into a message, so only its kind is named.
    raise ApiError(
        400,
        f"prompt: expected text or a list of token ids, one at least; got {_kind(value)}",
        param="prompt",
    )


def _temperature(value: Any) -> float:
    if value is None:
        return DEFAULT_TEMPERATURE
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # The comparison holds for no NaN, no infinity and no integer that a float cannot carry.
    if not number or not 0 <= value <= LARGEST_TEMPERATURE:
        raise _bad("temperature", value, f"expected a number from 0 to {LARGEST_TEMPERATURE:g}")
    return float(value)


def _include_usage(options: Any) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict) or set(options) - {"include_usage"}:
        raise _bad("stream_options", options, 'allowed: {"include_usage": true or false}')
    return _flag(options, "include_usage")


def _flag(raw: dict[str, Any], name: str) -> bool:
    value = raw.get(name)
    if value is not None and not isinstance(value, bool):
        raise _bad(name, value, "expected true or false")
    return bool(value)


def _integer(raw: dict[str, Any], name: str, default: Any, low: int, below: int) -> Any:
    value = raw.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value < below:
        raise _bad(name, value, f"expected a whole number >= {low} and < {below}")
    return value


def _bad(name: str, value: Any, allowed: str, code: str | None = None) -> ApiError:
    return ApiError(400, f"{name} = {_show(value)}: {allowed}", param=name, code=code)


def _show(value: Any) -> str:
    try:
        return _short(json.dumps(value, ensure_ascii=True, default=str))
    except RecursionError:  # what could just be read may be too deep to be written
        return "(deeply nested)"


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {bool: "true/false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "an object")


@dataclass(frozen=True, slots=True)
class Shape:
    """Builds the answers of one completion: whole, or as chunks whose texts join to the whole."""

    id: str
    created: int  # unix seconds
    model: str
    include_usage: bool = False
    _head: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        head = {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
        }
        object.__setattr__(self, "_head", head)

    def whole(self, text: str, finish_reason: str, usage: dict[str, int]) -> dict[str, Any]:
        return self._head | {"choices": [_choice(text, finish_reason)], "usage": usage}

    def chunk(self, text: str, finish_reason: str | None = None) -> dict[str, Any]:
        chunk = self._head | {"choices": [_choice(text, finish_reason)]}
        return chunk | {"usage": None} if self.include_usage else chunk

    def usage_chunk(self, usage: dict[str, int]) -> dict[str, Any]:
        return self._head | {"choices": [], "usage": usage}


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": finish_reason}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def encoded(value: Any) -> bytes:
    """JSON as bytes. Half a surrogate pair, which UTF-8 cannot carry, goes out as JSON's escape:
    a message may quote a caller's own words, whatever they are."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def event(value: dict[str, Any] | str) -> bytes:
    """One server-sent event."""
    data = value.encode() if isinstance(value, str) else encoded(value)
    return b"data: " + data + b"\n\n"


DONE = event("[DONE]")


def model_list(names: Iterable[tuple[str, str | None]], created: int) -> dict[str, Any]:
    """GET /v1/models: (name, parent or None for the base model)."""
    data = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "tenantscope",
            "root": name,
            "parent": parent,
        }
        for name, parent in names
    ]
    return {"object": "list", "data": data}


# The four refusals of identity and place read the same wherever they arise.
def unauthorized() -> ApiError:
    return ApiError(
        401,
        "no valid API key: send the header 'Authorization: Bearer ts-...'; "
        "your operator makes keys with 'tenantscope keys new'",
        kind="authentication_error",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def model_not_found(name: str) -> ApiError:
    return ApiError(
        404,
        f"the model {_show(name)} does not exist or is not yours; GET /v1/models lists yours",
        code="model_not_found",
        param="model",
    )


def timed_out(reason: str, queue_timeout_s: float, deadline_s: float) -> ApiError:
    """An admitted request that was given up. The worker's `reason` begins with queue_timeout or
    deadline; both are 504: the pool did not answer in time, and the request was not at fault."""
    code = reason.partition(":")[0]
    if code == "queue_timeout":
        said = f"it waited {queue_timeout_s:g} s without a first step (queue_timeout_s)"
        cure = "the pool is busy: send it again later"
    elif code == "deadline":
        said = f"it was not finished within {deadline_s:g} s (deadline_s)"
        cure = "send it again later, or with a smaller max_tokens"
    else:
        code, said, cure = "timed_out", reason, "send it again later"
    message = f"the request was timed out: {said}; {cure}"
    return ApiError(504, message, kind="timeout", code=code)


def worker_down() -> ApiError:
    return ApiError(
        503,
        "the pool's worker is not up; retry in a moment, GET /ready says when it is back",
        kind="service_unavailable",
        code="worker_down",
        headers={"Retry-After": "1"},
    )


def worker_lost() -> ApiError:
    return ApiError(
        502,
        "the pool's worker went away while it served this request; retry it, "
        "GET /ready says when the pool is back",
        kind="bad_gateway",
        code="worker_lost",
    )
