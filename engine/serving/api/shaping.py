"""Reads how a body wants its distribution shaped: top_k, min_p, penalties, logit_bias. Owns their
bounds (OpenAI's, and vLLM's for what OpenAI does not have); what they do is the model's room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.scheduling.shaping import PLAIN, Shaping
from engine.serving.api.openai import ApiError, short
from engine.serving.api.reading import bad, integer, kind, number

SHAPING_KEYS = (
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
)
MOST_BIASES = 1024
_LARGEST_BIAS = 100
_LARGEST_PENALTY = 2.0
_SMALLEST_REPETITION = 0.01  # vLLM's is above 0; far below this a logit leaves float32
_TOP_K_LIMIT = 1 << 31
_ID_LIMIT = 1 << 31


def read_shaping(raw: Mapping[str, Any]) -> Shaping:
    """Raises ApiError (400) naming the parameter, its value and what is allowed."""
    if not any(raw.get(name) is not None for name in SHAPING_KEYS):
        return PLAIN
    most = _LARGEST_PENALTY
    return Shaping(
        top_k=max(0, integer(raw, "top_k", 0, -1, _TOP_K_LIMIT)),  # 0 and -1: all
        min_p=number(raw, "min_p", 0.0, 0, 1),
        presence_penalty=number(raw, "presence_penalty", 0.0, -most, most),
        frequency_penalty=number(raw, "frequency_penalty", 0.0, -most, most),
        repetition_penalty=number(raw, "repetition_penalty", 1.0, _SMALLEST_REPETITION, most),
        logit_bias=_biases(raw.get("logit_bias")),
    )


def check_ids(shaping: Shaping, vocab: int) -> None:
    """Raises ApiError (400) when a bias is no token's of this model."""
    for token, _ in shaping.logit_bias:
        if token >= vocab:
            raise ApiError(
                400,
                f"logit_bias: {token} is no token id of this model, expected 0 to {vocab - 1}",
                param="logit_bias",
            )


def _biases(value: Any) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MOST_BIASES:
        got = f"{len(value)} entries" if isinstance(value, dict) else kind(value)
        raise ApiError(
            400,
            f"logit_bias: expected an object of up to {MOST_BIASES} token ids; got {got}",
            param="logit_bias",
        )
    return tuple(sorted((_token(name), _bias(held, name)) for name, held in value.items()))


def _token(name: str) -> int:
    is_plain = name.isascii() and name.isdigit() and len(name) <= 10
    if not is_plain or (name[0] == "0" and name != "0") or int(name) >= _ID_LIMIT:
        raise bad("logit_bias", short(name), 'expected token ids, written like "42"')
    return int(name)


def _bias(value: Any, name: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -_LARGEST_BIAS <= value <= _LARGEST_BIAS:
        allowed = f"expected numbers from -{_LARGEST_BIAS} to {_LARGEST_BIAS}"
        raise bad("logit_bias", {name: value}, allowed)
    return float(value)
