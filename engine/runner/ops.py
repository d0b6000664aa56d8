"""Chooses what computes a step's ops on this machine. Computes nothing itself."""

from __future__ import annotations

from engine.model.config import ModelConfig
from engine.model.rope import rope_tables
from engine.runner.arena import Arena
from engine.runner.attention import TorchOps
from kernels.backend import OpsBackend
from kernels.cpu import Absent, native
from kernels.cpu_ops import NativeOps, OpsShape, refusal


def best_ops(config: ModelConfig, arena: Arena) -> tuple[OpsBackend, str]:
    """The fastest backend here, and a sentence about it for whoever starts the engine."""
    # A sequence's positions lie in pages of its own: there are no more than the arena has slots.
    rope = rope_tables(config, arena.pages * arena.page_tokens)
    found = native()
    why = found.reason if isinstance(found, Absent) else refusal(arena.dtype, config.head_dim)
    if isinstance(found, Absent) or why is not None:
        plain = TorchOps(config, arena, rope)
        return plain, f"attention: plain torch, which is slower: {why}"
    shape = OpsShape(
        config.hidden, config.heads, config.kv_heads, config.head_dim, config.ff, config.norm_eps
    )
    ops = NativeOps(found, shape, arena.elements, arena.page_tokens, rope)
    name = str(arena.dtype).removeprefix("torch.")
    return ops, f"attention: native kernels, {found.isa.name.lower()}, {name}"
