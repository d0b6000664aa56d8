"""A decoder of random weights made on the device, and one decode step of it as a call."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, cast

import torch
from gpu_rig import Rig

from engine.model.config import MODULES, ModelConfig, synthetic_config
from engine.model.decoder import Decoder
from engine.model.loaders import LoadedModel
from engine.model.rope import rope_tables
from engine.model.tensor_names import expected_shapes
from engine.model.weights import Weights
from kernels.backend import AdapterBlocks, Block, PagedRows, Rows, StepOps
from kernels.cpu_ops import OpsShape
from kernels.gpu_lora import SgmvLora
from kernels.gpu_ops import TritonOps

PAGE_TOKENS, RANK = 16, 16


def shape_of(toy: bool) -> ModelConfig:
    """Layers of an 8-billion-parameter Llama, eight of them; or a toy."""
    if toy:
        return synthetic_config(layers=1, hidden=64, heads=4, kv_heads=2, head_dim=16, ff=96)
    return synthetic_config(
        vocab=1024, layers=8, hidden=4096, heads=32, kv_heads=8, head_dim=128, ff=14336,
        max_context=8192, tied=True,
    )  # fmt: skip


def made_weights(rig: Rig, config: ModelConfig) -> Weights:
    """Random ones, made on the device."""
    with rig.device:
        weights = Weights(config, rig.dtype)
        for name, shape in expected_shapes(config).items():
            made = torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02
            weights.put(name, made)
    return weights


class Made:
    """The model, an arena and 64 adapters on seven modules, all on the device."""

    def __init__(self, rig: Rig) -> None:
        self.config = c = shape_of(rig.toy)
        self.rig = rig
        # The step calls no tokenizer, and a bare machine has none.
        weights = made_weights(rig, c)
        model = LoadedModel("made", c, weights, cast(Any, None), "made", True, rig.dtype)
        self.decoder = Decoder(model)
        page = c.layers * PAGE_TOKENS * 2 * c.kv_width
        self.pages = 16 if rig.toy else 64 * 40
        adapters = 4 if rig.toy else 64
        align = 128 // rig.dtype.itemsize
        rows = [
            (layer, module, side, -(-c.module_shape(module)[1 - side] // align) * align)
            for layer in range(c.layers)
            for module in MODULES
            for side in (0, 1)
        ]
        one = sum(RANK * stride for *_, stride in rows)
        more = -(-adapters * one // page)
        self.arena = torch.randn(self.pages + more, page, device=rig.device, dtype=rig.dtype) * 0.02
        shapes = {m: c.module_shape(m) for m in MODULES}
        self.lora = SgmvLora(c.layers, shapes, self.arena, slots=adapters, max_rank=RANK)
        self.adapters = {
            str(i): self._adapter(str(i), rows, self.pages * page + i * one)
            for i in range(adapters)
        }
        for made in self.adapters.values():
            self.lora.adopt(made)
        shape = OpsShape(c.hidden, c.heads, c.kv_heads, c.head_dim, c.ff, c.norm_eps)
        self.ops = TritonOps(shape, self.arena, PAGE_TOKENS, rope_tables(c, 2048))

    def step(self, many: int, context: int, adapters: int) -> Callable[[], object]:
        """A decode step of `many` rows, row i with adapter i % adapters; 0 = none."""
        each = -(-context // PAGE_TOKENS)
        order = torch.randperm(self.pages)[: many * each].tolist()
        rows = PagedRows(
            array("q", range(many + 1)),
            array("q", [context - 1] * many),
            array("q", range(0, many * each + 1, each)),
            array("q", order),
        )
        lora_rows = [Rows(str(i % adapters) if adapters else None, i, i + 1) for i in range(many)]
        tokens = torch.arange(many, device=self.rig.device) % self.config.vocab
        last = torch.arange(many, device=self.rig.device)
        ops: StepOps = self.ops.prepare(rows)
        lora = self.lora.prepare(lora_rows, self.adapters)
        return lambda: self.decoder.forward(tokens, ops, lora, last)

    def _adapter(
        self, key: str, rows: list[tuple[int, str, int, int]], first: int
    ) -> AdapterBlocks:
        flat, sides = self.arena.view(-1), {}
        for layer, module, side, stride in rows:
            view = flat[first : first + RANK * stride].view(RANK, stride)
            first += RANK * stride
            sides[layer, module, side] = view[:, : self.config.module_shape(module)[1 - side]]
        blocks = {
            (layer, module): Block(RANK, (sides[layer, module, 0],), (sides[layer, module, 1],))
            for layer, module, side, _ in rows
            if side == 0
        }
        return AdapterBlocks(key, 1, RANK, blocks)
