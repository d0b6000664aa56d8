"""OpenAI's words that every endpoint shares: errors, events, the list of models. Pure values.

What a body may say is `bodies`, how an answer looks is `shapes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


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


def show(value: Any) -> str:
    """A caller's value, quoted short."""
    try:
        return short(json.dumps(value, ensure_ascii=True, default=str))
    except RecursionError:  # what could just be read may be too deep to be written
        return "(deeply nested)"


def short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


_JSON = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes one at each call


def encoded(value: Any) -> bytes:
    """JSON as bytes. Half a surrogate pair, which UTF-8 cannot carry, goes out as JSON's escape:
    a message may quote a caller's own words, whatever they are."""
    return _JSON(value).encode("utf-8", "backslashreplace")


def event(value: dict[str, Any] | str) -> bytes:
    """One server-sent event."""
    data = value.encode() if isinstance(value, str) else encoded(value)
    return b"data: " + data + b"\n\n"


DONE = event("[DONE]")


def model_list(names: Iterable[tuple[str, str | None]], created: int) -> dict[str, Any]:
    """GET /v1/models: (name, parent or None for the base model)."""
    return {"object": "list", "data": [model(name, parent, created) for name, parent in names]}


def model(name: str, parent: str | None, created: int) -> dict[str, Any]:
    """GET /v1/models/{name}."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "tenantscope",
        "root": name,
        "parent": parent,
    }


# The refusals of identity and place read the same wherever they arise.
def unauthorized() -> ApiError:
    return ApiError(
        401,
        "no valid API key: send the header 'Authorization: Bearer ts-...'; "
        "your operator makes keys with 'tenantscope keys new'",
        kind="authentication_error",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def key_expired(when: str) -> ApiError:
    """For who holds the key, whole: it says nothing to anybody else."""
    return ApiError(
        401,
        f"this API key expired at {when}: ask your operator for a new one",
        kind="authentication_error",
        code="expired_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def model_not_found(name: str) -> ApiError:
    return ApiError(
        404,
        f"the model {show(name)} does not exist or is not yours; GET /v1/models lists yours",
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
        503,
        "the pool's worker went away while it served this request; retry it, "
        "GET /ready says when the pool is back",
        kind="service_unavailable",
        code="worker_lost",
        headers={"Retry-After": "1"},
    )
