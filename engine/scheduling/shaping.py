"""What a request may ask of its next-token distribution beyond temperature and top_p. Values only;
what they do to logits is `engine.model.penalties` and `engine.model.sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Shaping:
    """Neutral values leave a distribution as it is.

    `top_k`: draw among so many likeliest, 0 = all. `min_p`: only tokens at least so likely as this
    times the likeliest. The penalties and `logit_bias` (token id, added logit) move logits, so
    they move greedy choices too.
    """

    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def penalises(self) -> bool:
        """What the request has said or made before counts."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def moves_logits(self) -> bool:
        return bool(self.logit_bias) or self.penalises


PLAIN = Shaping()


class History(NamedTuple):
    """The tokens before a sampled one: the prompt's, and what was generated since."""

    prompt: Sequence[int]
    output: tuple[int, ...]
