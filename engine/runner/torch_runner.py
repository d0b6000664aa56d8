"""Executes plans with torch: owns the arena, the decoder and the adapters that are on the device.

Knows no queues and no tenants. One thread executes; a loader thread may copy adapters in meanwhile.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from engine.errors import ConfigError
from engine.model.config import MODULES
from engine.model.decoder import Decoder
from engine.model.head import OutputHead
from engine.model.loaders import LoadedModel
from engine.model.lora import AdapterWeights
from engine.runner.arena import Arena, kv_page_bytes
from engine.runner.batch import StepBatch, build_batch
from engine.runner.next_tokens import NextTokens
from engine.runner.ops import best_ops
from engine.scheduling.plan import HostAdapter, Segment, StepOutcome, StepPlan
from kernels.backend import AdapterBlocks, Block, LoraBackend, OpsBackend
from kernels.cpu_lora import best_lora

__all__ = ["TorchRunner", "kv_page_bytes"]


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """A step's rows, and float32 [segments, hidden]: each segment's last row, in the batch's
    order."""

    batch: StepBatch
    hidden: torch.Tensor


class TorchRunner:
    """A model on an arena of `pages` pages (`Runner` and `AdapterDevice`)."""

    def __init__(
        self,
        model: LoadedModel,
        pages: int,
        page_tokens: int,
        lora: LoraBackend | None = None,
        join: Callable[[torch.Tensor], None] | None = None,
    ) -> None:
        """`lora` computes the adapters, by default the fastest here. `join`: the model is one
        rank's part of a whole (see `Decoder`). Raises ConfigError as `Arena`."""
        self.model = model
        self.arena, self._ops, self._lora, self.kernels = self._backends(pages, page_tokens, lora)
        self._decoder = Decoder(model, join)
        self._resident: dict[str, AdapterBlocks] = {}
        self._resident_lock = threading.Lock()
        self._generations = itertools.count(1)

    def _backends(
        self, pages: int, page_tokens: int, lora: LoraBackend | None
    ) -> tuple[Arena, OpsBackend, LoraBackend, tuple[str, ...]]:
        """What computes, and a sentence each about it: for whoever starts the engine."""
        model = self.model
        arena = Arena(model.config, pages, page_tokens, model.dtype)
        ops, ops_said = best_ops(model.config, arena)
        said = f"LoRA: {type(lora).__name__}"
        if lora is None:
            shapes = {m: model.config.module_shape(m) for m in MODULES}
            lora, said = best_lora(model.config.layers, shapes, model.dtype)
        return arena, ops, lora, (said, ops_said)

    @property
    def page_bytes(self) -> int:
        return self.arena.page_bytes

    @property
    def pages(self) -> int:
        return self.arena.pages

    @property
    def page_tokens(self) -> int:
        return self.arena.page_tokens

    @property
    def max_context(self) -> int:
        """Most tokens of one sequence that the model's positions allow."""
        return self.model.config.max_context

    def copy_in(self, adapter: HostAdapter, pages: Sequence[int]) -> None:
        """Copy a packed adapter into `pages` and make it usable. Safe beside `execute`, on pages
        nobody else holds. Raises ConfigError when it was packed for another arena."""
        weights = self._fitting(adapter, pages)
        for page, data in zip(pages, weights.image, strict=True):
            self.arena.load(page, data)
        self._publish(weights, pages)

    def _fitting(self, adapter: HostAdapter, pages: Sequence[int]) -> AdapterWeights:
        """The adapter, where it can be copied into these pages."""
        if not isinstance(adapter, AdapterWeights):
            raise ConfigError(f"{type(adapter).__name__} was not made by read_adapter")
        if adapter.image.shape[1] != self.page_bytes or adapter.dtype != self.model.dtype:
            raise ConfigError(
                f"adapter {adapter.key[:12]} was packed for pages of {adapter.image.shape[1]} "
                f"bytes in {adapter.dtype}; the arena has {self.page_bytes} in {self.model.dtype}"
            )
        if len(pages) != adapter.pages or not all(0 <= p < self.pages for p in pages):
            raise ConfigError(
                f"adapter {adapter.key[:12]} needs {adapter.pages} pages of 0..{self.pages - 1}, "
                f"was given {list(pages)[:8]} ({len(pages)})"
            )
        return adapter

    def _publish(self, adapter: AdapterWeights, pages: Sequence[int]) -> None:
        """From the next step on it is there, in these pages."""
        blocks = self._views(adapter, pages)
        made = AdapterBlocks(adapter.key, next(self._generations), adapter.rank, blocks)
        self._lora.adopt(made)
        with self._resident_lock:
            self._resident[adapter.key] = made

    def drop(self, key: str) -> None:
        """Forget an adapter: its pages are taken back. An unknown key is no error."""
        with self._resident_lock:
            self._resident.pop(key, None)
        self._lora.forget(key)

    @cached_property
    def _head(self) -> OutputHead:
        """Made at the first step, a warm-up's: a rank that chooses no tokens never needs one."""
        return OutputHead(self.model)

    @cached_property
    def _next(self) -> NextTokens:
        return NextTokens(self._head)

    def execute(self, plan: StepPlan) -> StepOutcome:
        """Compute a step. Segments that cannot be computed are named in `failed`, alone."""
        resident = self._snapshot()
        segments, failed = self._sifted(plan, resident)
        if not segments:
            return StepOutcome({}, failed)
        with torch.inference_mode():
            return self._answer(Computed(*self._hidden(segments, resident)), failed)

    def sift(self, plan: StepPlan) -> tuple[list[Segment], dict[str, str]]:
        """Those that can be computed, and why the others cannot, by request."""
        return self._sifted(plan, self._snapshot())

    def compute(self, segments: Sequence[Segment]) -> Computed:
        """All layers over segments that `sift` let through; nothing is chosen."""
        with torch.inference_mode():
            return Computed(*self._hidden(segments, self._snapshot()))

    def answer(self, computed: Computed, failed: dict[str, str]) -> StepOutcome:
        """The next tokens; whose row is not sound joins `failed`."""
        with torch.inference_mode():
            return self._answer(computed, failed)

    def _snapshot(self) -> dict[str, AdapterBlocks]:
        """The adapters that are there now: another thread may bring one in meanwhile."""
        with self._resident_lock:
            return dict(self._resident)

    def _sifted(
        self, plan: StepPlan, resident: dict[str, AdapterBlocks]
    ) -> tuple[list[Segment], dict[str, str]]:
        failed: dict[str, str] = {}
        segments: list[Segment] = []
        for s in plan.segments:
            reason = self._refusal(s, resident)
            if reason is None:
                segments.append(s)
            else:
                failed[s.request_id] = reason
        return segments, failed

    def _answer(self, computed: Computed, failed: dict[str, str]) -> StepOutcome:
        segments, hidden = computed.batch.segments, computed.hidden
        tokens = self._next.choose(segments, hidden, failed)
        logprobs = self._next.logprobs(segments, hidden, tokens)
        return StepOutcome(tokens, failed, logprobs)

    def logits(self, plan: StepPlan) -> dict[str, torch.Tensor]:
        """Execute, but return each segment's last float32 logits [vocab] by request: for tests
        and measurements. Raises ValueError for a segment that `execute` would name as failed: the
        kernels write where they are told."""
        segments, failed = self.sift(plan)
        if failed:
            name, why = next(iter(failed.items()))
            raise ValueError(f"request {name}: {why}")
        return self.logits_from(self.compute(segments))

    def logits_from(self, computed: Computed) -> dict[str, torch.Tensor]:
        """As `logits`, of a step that was computed."""
        with torch.inference_mode():
            rows = self._head.logits(computed.hidden)
        return {s.request_id: row for s, row in zip(computed.batch.segments, rows, strict=True)}

    def _hidden(
        self, segments: Sequence[Segment], resident: dict[str, AdapterBlocks]
    ) -> tuple[StepBatch, torch.Tensor]:
        batch = build_batch(segments, self.page_tokens)
        ops = self._ops.prepare(batch.rows)
        lora = self._lora.prepare(batch.lora, resident)
        hidden = self._decoder.forward(batch.tokens, ops, lora, batch.last)
        return batch, hidden

    def _refusal(self, s: Segment, resident: dict[str, AdapterBlocks]) -> str | None:
        end = s.start + len(s.tokens)
        if not s.tokens:
            return "the segment has no tokens"
        if s.start < 0:
            return f"position {s.start} is before the beginning"
        if s.adapter is not None and s.adapter not in resident:
            return f"adapter {s.adapter[:12]} is not on the device"
        if end > self.max_context:
            return f"position {end} is beyond the model's context of {self.max_context} tokens"
        vocab = self.model.config.vocab
        if min(s.tokens) < 0 or max(s.tokens) >= vocab:
            bad = next(t for t in s.tokens if not 0 <= t < vocab)
            return f"token id {bad} is outside the vocabulary of {vocab}"
        size = self.arena.page_tokens
        used = s.pages[: -(-end // size)]
        if len(used) * size < end or min(used) < 0 or max(used) >= self.arena.pages:
            return f"{len(s.pages)} pages do not hold {end} tokens of this arena"
        return None

    def _views(self, adapter: AdapterWeights, pages: Sequence[int]) -> dict[tuple[int, str], Block]:
        pieces: list[list[torch.Tensor]] = [[] for _ in adapter.blocks]
        for span in adapter.layout.spans:
            spec = adapter.blocks[span.block]
            pieces[span.block].append(
                self.arena.block(
                    pages[span.page], span.offset, span.rows, spec.row_bytes, spec.width
                )
            )
        sides: dict[tuple[int, str], dict[str, tuple[torch.Tensor, ...]]] = {}
        for spec, views in zip(adapter.blocks, pieces, strict=True):
            sides.setdefault((spec.layer, spec.module), {})[spec.side] = tuple(views)
        ranks = {(s.layer, s.module): s.rank for s in adapter.blocks}
        return {at: Block(ranks[at], both["A"], both["Bt"]) for at, both in sides.items()}
