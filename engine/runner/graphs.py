"""Decode steps as recorded calls: a bounded set of shapes, each over memory that never moves.

Owns the choice of shapes and what is recorded of each; which device records is a `Recorder`'s to
know. All are recorded before anybody is served. A step takes the smallest recorded shape that
holds it and fills its lists; rows, items and adapters that it has less of do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.model.decoder import Decoder
from engine.runner.accelerator import Recorder, Replay
from engine.runner.batch import StepBatch
from kernels.attention import PagedLists
from kernels.backend import AdapterBlocks
from kernels.gpu_lora import SgmvLora
from kernels.gpu_ops import TritonOps
from kernels.gpu_room import FixedRoom

MOST = 48  # recorded shapes: each takes memory, and a part of a second at the start
# A recorded step is launched over room for so many items a row, empty or not. Of 256 keys an item
# that is 2,048 tokens a row on average; a step of longer contexts takes a shape of more rows.
ITEMS_A_ROW = 8
# And over room for adapters of this rank; of higher ones fewer fit, or a shape of more rows.
RANK = 64


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Up to so many decode rows, with up to so many adapters among them."""

    rows: int
    adapters: int


def shapes(most_rows: int, most_adapters: int, most: int = MOST) -> tuple[Shape, ...]:
    """Powers of two of rows x of adapters, the largest of each as it is; in order. Of more than
    `most` every other number of adapters is left out, and again: a step with fewer pays for empty
    items, a shape that is not there for every launch."""
    rows = _powers(most_rows)
    apart = 1
    while True:
        made = []
        for r in rows:
            counts = _powers(min(r, most_adapters))
            kept = counts[::-1][::apart] if counts else []
            made += [Shape(r, a) for a in (0, *reversed(kept))]
        if len(made) <= most or apart >= len(_powers(most_adapters)):
            return tuple(made)
        apart += 1


def candidates(known: Sequence[Shape], rows: int, adapters: int) -> list[Shape]:
    """The shapes that hold such a step, the cheapest first."""
    return [s for s in known if s.rows >= rows and s.adapters >= adapters]


class DecodeGraphs:
    """One runner's recorded decode steps."""

    def __init__(
        self,
        decoder: Decoder,
        ops: TritonOps,
        lora: SgmvLora,
        known: Sequence[Shape],
        recorder: Recorder,
        spare_page: int,
    ) -> None:
        """Records all of them, the largest first: the others then fit into its memory."""
        self.shapes = tuple(sorted(known))
        self._ops = ops
        self._graphs: dict[Shape, _Graph] = {}
        for shape in reversed(self.shapes):
            self._graphs[shape] = _Graph(decoder, ops, lora, shape, recorder, spare_page)

    def try_run(
        self, batch: StepBatch, resident: Mapping[str, AdapterBlocks]
    ) -> torch.Tensor | None:
        """Final hidden states of a step of decode rows, as `Decoder.forward`'s: they hold until
        the next step. None: the step must be launched, for no recorded shape holds it."""
        rows = len(batch.segments)
        if rows != batch.rows.first_row[-1]:
            return None  # a prompt's chunk
        adapters = len({r.adapter for r in batch.lora if r.adapter is not None})
        held = candidates(self.shapes, rows, adapters)
        if not held:
            return None
        lists = self._ops.lists(batch.rows)
        for shape in held:
            graph = self._graphs[shape]
            if graph.try_fill(lists, batch, resident):
                return graph.run(batch)[:rows]
        return None

    def replay(self, shape: Shape, batch: StepBatch) -> torch.Tensor:
        """What that shape's recorded call answers to a step without adapters, which it must
        hold."""
        graph = self._graphs[shape]
        if not graph.try_fill(self._ops.lists(batch.rows), batch, {}):
            raise ValueError(f"{len(batch.segments)} rows do not fit {shape}")
        return graph.run(batch)[: len(batch.segments)]


class _Graph:
    """One shape's lists and its recorded call."""

    def __init__(
        self,
        decoder: Decoder,
        ops: TritonOps,
        lora: SgmvLora,
        shape: Shape,
        recorder: Recorder,
        spare_page: int,
    ) -> None:
        device = ops.arena.device
        self._ops = ops.fixed(shape.rows, ITEMS_A_ROW * shape.rows, spare_page)
        self._lora = lora.fixed(shape.rows, shape.adapters, RANK) if shape.adapters else None
        self._tokens = FixedRoom([np.zeros(shape.rows)], device)
        last = torch.arange(shape.rows, device=device)
        step, own = self._ops.step, None if self._lora is None else self._lora.step
        [tokens] = self._tokens.views
        self._replay: Replay = recorder.record(lambda: decoder.forward(tokens, step, own, last))

    def try_fill(
        self, lists: PagedLists, batch: StepBatch, resident: Mapping[str, AdapterBlocks]
    ) -> bool:
        """The lists are this batch's from now on; False: it has more work than they hold."""
        if self._lora is not None and not self._lora.try_fill(batch.lora, resident):
            return False
        return self._ops.try_fill(lists)

    def run(self, batch: StepBatch) -> torch.Tensor:
        """Of the batch that it was filled with."""
        self._tokens.fill([batch.tokens.numpy()])
        self._replay()
        return self._replay.out


def _powers(most: int) -> list[int]:
    """1, 2, 4 ... and `most`; nothing where that is 0."""
    made = [1 << i for i in range(max(0, most).bit_length()) if 1 << i < most]
    return [*made, most] if most > 0 else []
