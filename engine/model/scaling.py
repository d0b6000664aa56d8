"""How a model stretches RoPE beyond the context it was trained on, as values. Computes nothing.

`rope.py` turns a scaling into frequencies; here it is only read out of a config and refused by name
where it is not one of these. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelError


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by `factor` (Chen et al. 2023, position interpolation)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Long waves are stretched by `factor`, short ones kept (Llama 3.1 and later)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): by parts between `beta_fast` and `beta_slow` rotations over
    `original_context` tokens; cos and sin are multiplied by `attention_factor`."""

    factor: float
    original_context: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class FrequencyDivisors:
    """Each frequency is divided by its own number: how GGUF files keep Llama 3.1's scaling."""

    divisors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FrequencyDivisors

_SERVED = "'default', 'linear', 'llama3' and 'yarn'"
_WHY = {
    "dynamic": "its frequencies change with each sequence's length",
    "longrope": "its frequencies change with each sequence's length",
}


def read_scaling(where: str, rope: Mapping[str, Any], max_context: int) -> RopeScaling | None:
    """The scaling of a config.json's `rope_parameters` (or `rope_scaling`); None for the default.

    `where` begins messages; `max_context` stands in for an absent original context, as
    transformers has it. Raises ModelError, and KeyError naming a missing key.
    """
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(positive(where, "factor", rope["factor"]))
    before = "original_max_position_embeddings"
    original = int(positive(where, before, rope.get(before) or max_context))
    if kind == "llama3":
        return Llama3Scaling(
            positive(where, "factor", rope["factor"]),
            positive(where, "low_freq_factor", rope["low_freq_factor"]),
            positive(where, "high_freq_factor", rope["high_freq_factor"]),
            original,
        )
    if kind == "yarn":
        return _yarn(where, rope, max_context, original)
    why = f" ({_WHY[kind]})" if kind in _WHY else ""
    raise ModelError(f"{where}: RoPE scaling {kind!r}{why}; only {_SERVED} are served")


def yarn_attention_factor(factor: float, scale: float = 1.0) -> float:
    """0.1 · scale · ln(factor) + 1 (YaRN, equation 22); 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def stretched_context(scaling: RopeScaling | None, max_context: int, named: bool) -> int:
    """Most positions a model is made for. `named`: its config says the context before stretching,
    so that with YaRN `max_context` may be that."""
    if named and isinstance(scaling, YarnScaling):
        return max(max_context, int(scaling.factor * scaling.original_context))
    return max_context


def _yarn(where: str, rope: Mapping[str, Any], max_context: int, original: int) -> YarnScaling:
    factor = rope.get("factor")
    factor = max_context / original if factor is None else positive(where, "factor", factor)
    attention = rope.get("attention_factor")
    if attention is None:
        above, below = rope.get("mscale"), rope.get("mscale_all_dim")
        attention = yarn_attention_factor(factor)
        if above and below:
            attention = yarn_attention_factor(factor, float(above))
            attention /= yarn_attention_factor(factor, float(below))
    return YarnScaling(
        factor,
        original,
        positive(where, "attention_factor", attention),
        positive(where, "beta_fast", rope.get("beta_fast") or 32.0),
        positive(where, "beta_slow", rope.get("beta_slow") or 1.0),
        bool(rope.get("truncate", True)),
    )


def positive(where: str, key: str, value: Any) -> float:
    """Raises ModelError for what is no finite number above 0."""
    number = float(value) if type(value) in (int, float) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise ModelError(f"{where}: {key} is {value!r}; expected a number above 0")
    return number
