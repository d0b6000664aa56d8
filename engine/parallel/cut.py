"""How a model is cut into ranks, as arithmetic. Holds no tensor and no process.

Megatron's cut (Shoeybi et al., "Megatron-LM", 2019, section 3): q, k, v, gate and up by their
outputs, o and down by their inputs, so that a rank's attention and MLP need nothing of another's
and each half of a layer ends in one sum over the ranks. Adapters follow their linears: B of the
first kind is cut with its outputs and A is whole, A of the second with its inputs and B is whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.config_values import Settings
from engine.errors import ConfigError, ModelError
from engine.model.config import ModelConfig, model_config

BY_OUTPUT = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})
BY_INPUT = frozenset({"o_proj", "down_proj"})


@dataclass(frozen=True, slots=True)
class Cut:
    """Rank `rank` (from 0) of `of`."""

    rank: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.of:
            raise ConfigError(f"rank {self.rank} of {self.of}: ranks count from 0 to {self.of - 1}")

    def config(self, whole: ModelConfig) -> ModelConfig:
        """The shape of a rank's part: its heads, its KV heads, its slice of the MLP. Raises
        ConfigError as `check_cut`."""
        check_cut(whole, self.of)
        return replace(
            whole,
            heads=whole.heads // self.of,
            kv_heads=whole.kv_heads // self.of,
            ff=whole.ff // self.of,
        )

    def part(self, width: int) -> slice:
        """This rank's elements of `width`, which `of` divides: heads stay whole and in order, so
        that a query head meets the KV head it shares."""
        each = width // self.of
        return slice(self.rank * each, (self.rank + 1) * each)


def check_cut(whole: ModelConfig, of: int) -> None:
    """Raises ConfigError, with the numbers, for a model that cannot be cut into `of` ranks."""
    parts = {"heads": whole.heads, "KV heads": whole.kv_heads, "MLP columns": whole.ff}
    if of >= 1 and all(n % of == 0 for n in parts.values()):
        return
    has = ", ".join(f"{n} {what}" for what, n in parts.items())
    fits = ", ".join(str(n) for n in cuts(whole))
    raise ConfigError(f"tp = {of}: the model has {has}, and tp must divide each: use one of {fits}")


def check_pools_cut(settings: Settings) -> None:
    """Raises ConfigError for the first pool whose `tp` its model does not allow. Reads the model's
    shape, no weights, and only where a pool asks; one that cannot be had is no concern of this."""
    for pool in settings.all_pools():
        if pool.tp == 1:
            continue
        try:
            check_cut(model_config(settings.model), pool.tp)
        except ModelError:
            return
        except ConfigError as e:
            raise ConfigError(f"pool {pool.name!r}: {e}") from None


def cuts(whole: ModelConfig) -> tuple[int, ...]:
    """Into how many ranks a model can be cut, rising; 1 always."""
    most = math.gcd(whole.heads, whole.kv_heads, whole.ff)
    return tuple(n for n in range(1, most + 1) if most % n == 0)
