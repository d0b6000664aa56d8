"""RoPE: a model's frequencies, and the cos and sin of every position. Knows no weights."""

from __future__ import annotations

import math

import torch

from engine.model.config import ModelConfig
from engine.model.scaling import FrequencyDivisors, LinearScaling, Llama3Scaling, YarnScaling


def frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians a position of each pair of a head's elements: float32 [head_dim / 2].

    The arithmetic is transformers', operation for operation: at long contexts a last bit of a
    frequency is an angle.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    waves = config.rope_theta**half
    frequency = 1.0 / waves
    match config.rope_scaling:
        case None:
            return frequency
        case LinearScaling(factor):
            return frequency / factor
        case FrequencyDivisors(divisors):
            return frequency / torch.tensor(divisors, dtype=torch.float32)
        case Llama3Scaling() as s:
            return _llama3(frequency, s)
        case YarnScaling() as s:
            return _yarn(waves, config, s)


def rope_tables(config: ModelConfig, most: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and signed sin of every position: float32 [max_context, head_dim] each; of `most`
    positions where fewer can ever be held (a context of a million would take a gigabyte).

    The sign of the rotation of halves, (−second, first), is folded into sin.
    """
    rows = config.max_context if most is None else min(most, config.max_context)
    positions = torch.arange(rows, dtype=torch.float32)
    angle = positions[:, None] * frequencies(config)[None, :]
    cos, sin = angle.cos(), angle.sin()
    if isinstance(config.rope_scaling, YarnScaling):
        cos, sin = (t * config.rope_scaling.attention_factor for t in (cos, sin))
    return torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)


def _llama3(frequency: torch.Tensor, s: Llama3Scaling) -> torch.Tensor:
    """Long waves stretched, short ones kept, those between interpolated."""
    wave = 2 * math.pi / frequency
    share = (s.original_context / wave - s.low_freq_factor) / (
        s.high_freq_factor - s.low_freq_factor
    )
    between = (1 - share) * frequency / s.factor + share * frequency
    long = wave > s.original_context / s.low_freq_factor
    short = wave < s.original_context / s.high_freq_factor
    return torch.where(long, frequency / s.factor, torch.where(short, frequency, between))


def _yarn(waves: torch.Tensor, config: ModelConfig, s: YarnScaling) -> torch.Tensor:
    def pair_of(rotations: float) -> float:
        """The pair (as a real number) that turns so often over the original context."""
        turn = s.original_context / (rotations * 2 * math.pi)
        return (config.head_dim * math.log(turn)) / (2 * math.log(config.rope_theta))

    low, high = pair_of(s.beta_fast), pair_of(s.beta_slow)
    if s.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    width = high - low or 0.001
    ramp = ((torch.arange(len(waves), dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - ramp
    return 1.0 / (s.factor * waves) * (1 - kept) + 1.0 / waves * kept
