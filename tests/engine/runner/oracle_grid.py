"""The grid of requests: four families of small models, twelve adapters each, prompts that mix.

Owns shapes, ranks and prompts; runs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from oracle import HfModel, save_adapter
from oracle_engine import TENANTS, Wanted

from engine.model.config import ModelConfig
from engine.model.made_adapters import make_adapter

RANKS = (1, 3, 4, 8, 12, 16, 24, 32, 33, 48, 64)
MIXED: Mapping[str, Any] = {
    "r": 4,
    "lora_alpha": 8,
    "rank_pattern": {"down_proj": 9, "layers.0.self_attn.q_proj": 2},
    "alpha_pattern": {r"layers\.1\.mlp\.gate_proj": 40},
    "use_rslora": True,
}
SHARING = 5  # prompts that begin alike

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "Llama": {**SMALL, "tie_word_embeddings": True},
    "Qwen2": {**SMALL, "num_key_value_heads": 1, "tie_word_embeddings": True},
    "Qwen3": {**SMALL, "head_dim": 32, "tie_word_embeddings": False},
    "Mistral": {**SMALL, "head_dim": 24, "sliding_window": None, "tie_word_embeddings": False},
}


class Family(HfModel):
    """A small random model of a family; `twelve` are its adapters by name."""

    def __init__(self, folder: Path, family: str) -> None:
        super().__init__(folder, family, ranks=(), **FAMILIES[family])
        self.twelve = twelve(folder, self.loaded.config, self.model)


def twelve(folder: Path, config: ModelConfig, model: torch.nn.Module) -> dict[str, Path]:
    """One adapter of each rank on all projections, and one of many ranks written by PEFT itself.
    `model`: of transformers, without adapters; stays so."""
    made = {
        f"rank-{r}": make_adapter(folder / f"{r}", config, r, seed=r, alpha=2 * r) for r in RANKS
    }
    made["mixed"] = save_adapter(model, folder / "mixed", seed=99, **MIXED)
    return made


def grid(
    prompts: Sequence[tuple[int, ...]],
    adapters: Sequence[str | None],
    *,
    lengths: Sequence[int] = (6, 9, 14, 24),
    each: int | None = None,
    told_each: int = 1,
    within: int = 65,
    seed: int = 0,
) -> list[Wanted]:
    """Every prompt with `each` adapters (all of them by default; None = base rows), the same for
    prompts that begin alike; shuffled `within` so many neighbours, so that those meet. One request
    of `told_each` tells its logits."""
    out: list[Wanted] = []
    count = len(adapters)
    each = count if each is None else each
    for i, prompt in enumerate(prompts):
        first = i // SHARING * each
        for k in (n % count for n in range(first, first + each)):
            name = f"p{i}-{adapters[k] or 'base'}"
            tenant = TENANTS[(i // SHARING + k) % len(TENANTS)]
            length = lengths[(3 * i + k) % len(lengths)]
            told = (i + k) % told_each == 0
            out.append(Wanted(name, tenant, adapters[k], prompt, length, told))
    rng = random.Random(seed)
    places = [i + rng.random() * within for i in range(len(out))]
    return [out[i] for i in sorted(range(len(out)), key=places.__getitem__)]


def prompts(count: int, seed: int, page_tokens: int, vocab: int = 512) -> list[tuple[int, ...]]:
    """Random ones. `SHARING` neighbours begin alike, with whole pages or a little more; some are
    nothing but that beginning."""
    rng = random.Random(seed)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(1, vocab) for _ in range(n))

    out: list[tuple[int, ...]] = []
    while len(out) < count:
        head = ids(rng.choice((5, page_tokens, 2 * page_tokens, 3 * page_tokens + 3)))
        out += [head + ids(rng.choice((0, 1, 3, 7, 8, 20, 33, 60))) for _ in range(SHARING)]
    return out[:count]
