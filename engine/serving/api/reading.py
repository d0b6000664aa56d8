"""Reads JSON bodies: an object out of bytes, a value out of an object, refusals that name both.

Owns the words of a 400; knows no endpoint. A prompt's own text never goes into a message.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.serving.api.openai import ApiError, short, show


def json_object(body: bytes) -> dict[str, Any]:
    """The object `body` holds. Raises ApiError (400)."""
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
        raise ApiError(400, f"the body must be a JSON object, not {kind(raw)}")
    return raw


def refuse_unsupported(
    raw: Mapping[str, Any], taken: Sequence[str], neutral: Mapping[str, tuple[Any, ...]]
) -> None:
    """A parameter that would change the answer and is not supported is refused by name. `taken`
    are read by somebody; `neutral` are values that leave the answer as it is."""
    for name, value in raw.items():
        if value is None or name in taken:
            continue
        allowed = neutral.get(name)
        if allowed is None:
            # Cut first: looking for what is near a name of a megabyte would hold up everybody.
            near = difflib.get_close_matches(short(name), (*taken, *neutral), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(taken)}"
            raise bad(short(name), value, f"unknown parameter; {hint}", code="unknown_parameter")
        if not any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in allowed):
            names = ", ".join(["null", *(json.dumps(v) for v in allowed)])
            raise bad(name, value, f"not supported; allowed: {names}", code="unsupported_value")


def flag(raw: Mapping[str, Any], name: str) -> bool:
    value = raw.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad(name, value, "expected true or false")
    return bool(value)


def integer(raw: Mapping[str, Any], name: str, default: Any, low: int, below: int) -> Any:
    value = raw.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value < below:
        raise bad(name, value, f"expected a whole number >= {low} and < {below}")
    return value


def number(raw: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = raw.get(name)
    if value is None:
        return default
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # The comparison holds for no NaN, no infinity and no integer that a float cannot carry.
    if not is_number or not low <= value <= high:
        raise bad(name, value, f"expected a number from {low:g} to {high:g}")
    return float(value)


def no_half_pairs(text: str, where: str) -> str:
    """`text`, when it is valid Unicode. Raises ApiError (400)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        reason = f"holds half of a surrogate pair at character {e.start}"
        raise ApiError(400, f"{where}: {reason}; send valid Unicode", param=where) from None
    return text


def bad(name: str, value: Any, allowed: str, code: str | None = None) -> ApiError:
    return ApiError(400, f"{name} = {show(value)}: {allowed}", param=name, code=code)


def kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {bool: "true/false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "an object")
