"""Executes plans on an accelerator: the arena and the model lie there, adapters come on a lane of
their own, decode steps are replayed.

Knows no device but by `Accelerator`: a GPU's is made in `engine.runner.cuda`. What kernels compile
for, and what is recorded, depends on the model alone, never on an adapter: all of it is paid at the
start, before anybody is served.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from engine.errors import ConfigError
from engine.model.config import MODULES
from engine.model.loaders import LoadedModel
from engine.model.lora import AdapterWeights
from engine.model.rope import rope_tables
from engine.runner.accelerator import Accelerator, Recorder
from engine.runner.arena import Arena
from engine.runner.batch import StepBatch, build_batch
from engine.runner.graphs import DecodeGraphs, Shape, shapes
from engine.runner.page_order import PageOrder
from engine.runner.placing import placed
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import HostAdapter, Segment, StepOutcome, StepPlan
from kernels.backend import AdapterBlocks, LoraBackend, OpsBackend
from kernels.cpu_ops import OpsShape
from kernels.errors import KernelError
from kernels.gpu_lora import SgmvLora
from kernels.gpu_ops import TritonOps

# Room in the lists, not in the arena: an adapter takes its true rank there. Larger ones are
# refused as they are loaded.
MAX_RANK = 256
_NEAR = 2.0**-6  # of the largest state: products of as many rows by the same kernels
SLOTS = 64  # adapters whose rows are known on the device: another's first step writes a slot anew


class DeviceRunner(TorchRunner):
    """A model on an arena of `pages` pages of an accelerator's memory (`Runner` and
    `AdapterDevice`)."""

    def __init__(
        self,
        model: LoadedModel,
        pages: int,
        page_tokens: int,
        on: Accelerator,
        lost: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Compiles and records all that steps will need; that takes a while. `lost` hears, on any
        thread, that the device will compute nothing more. Raises ConfigError as `Arena`, and where
        the kernels cannot compute this model."""
        self._on = on
        self._lost = lost
        super().__init__(placed(model, on.device), pages, page_tokens)
        self._order = PageOrder(on.steps, on.copies)
        self._pages_of: dict[str, tuple[int, ...]] = {}
        self._graphs: DecodeGraphs | None = None
        with torch.inference_mode():
            self._warm()
            if on.recorder is not None:
                self._graphs = self._recorded(on.recorder)

    def _backends(
        self, pages: int, page_tokens: int, lora: LoraBackend | None
    ) -> tuple[Arena, OpsBackend, LoraBackend, tuple[str, ...]]:
        c, on, dtype = self.model.config, self._on, self.model.dtype
        arena = Arena(c, pages, page_tokens, dtype, on.device, spare=True)
        shape = OpsShape(c.hidden, c.heads, c.kv_heads, c.head_dim, c.ff, c.norm_eps)
        rope = rope_tables(c, pages * page_tokens)
        try:
            self._triton = TritonOps(
                shape, arena.elements, page_tokens, rope, max_rows=on.most_rows
            )
            self._sgmv = SgmvLora(
                c.layers,
                {m: c.module_shape(m) for m in MODULES},
                arena.elements,
                slots=max(SLOTS, on.most_adapters),
                max_rank=MAX_RANK,
                max_rows=on.most_rows,
            )
        except KernelError as e:
            raise ConfigError(f"model {self.model.name}: {e}") from None
        name = f"{on.device}, {str(dtype).removeprefix('torch.')}"
        said = (f"LoRA: Triton kernels, {name}", f"attention: Triton kernels, {name}")
        return arena, self._triton, self._sgmv, said

    def copy_in(self, adapter: HostAdapter, pages: Sequence[int]) -> None:
        """As `TorchRunner.copy_in`. Returns when the bytes are there; steps do not wait for this
        thread, and no step waits for a copy that it does not read."""
        weights = self._fitting(adapter, pages)
        with self._watched():
            self._copied(weights, tuple(pages))

    def _copied(self, weights: AdapterWeights, own: tuple[int, ...]) -> None:
        image = torch.from_numpy(weights.image)
        mark = self._order.copy(own, lambda: self.arena.load_all(own, image))
        before = self._pages_of.get(weights.key, ())
        # Both: a step may be made of an earlier copy of the key until the new one is published.
        self._pages_of[weights.key] = (*own, *before)
        published = before
        try:
            self._publish(weights, own)
            published = own
        finally:
            self._pages_of[weights.key] = published
            # Refused or not: the pages are given to others once this returns.
            mark.wait()

    def drop(self, key: str) -> None:
        super().drop(key)
        self._pages_of.pop(key, None)

    def execute(self, plan: StepPlan) -> StepOutcome:
        with self._watched():  # to the tokens: a device says late what went wrong
            return super().execute(plan)

    def _hidden(
        self, segments: Sequence[Segment], resident: dict[str, AdapterBlocks]
    ) -> tuple[StepBatch, torch.Tensor]:
        batch = build_batch(segments, self.page_tokens)
        keys = {r.adapter for r in batch.lora if r.adapter is not None}
        adapters = [self._pages_of[key] for key in keys]
        with self._order.step(lambda: {*batch.rows.pages, *itertools.chain(*adapters)}):
            hidden = None if self._graphs is None else self._graphs.try_run(batch, resident)
            if hidden is None:
                hidden = self._launched(batch, resident)
        return batch, hidden

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """A failure is its own request's or load's, unless the device is lost with it."""
        try:
            yield
        except Exception:
            if (why := self._on.broken()) is not None:
                self._lost(why)
            raise

    def _launched(self, batch: StepBatch, resident: dict[str, AdapterBlocks]) -> torch.Tensor:
        """Kernel by kernel."""
        ops = self._ops.prepare(batch.rows)
        lora = self._lora.prepare(batch.lora, resident)
        device = self._on.device
        return self._decoder.forward(batch.tokens.to(device), ops, lora, batch.last.to(device))

    def _warm(self) -> None:
        """Launch every kernel in every form that a step may take, on the spare page."""
        size = self.page_tokens
        self.arena.elements[self.pages :].zero_()  # what is read there must be numbers
        most = min(self.max_context, self.pages * size)  # tokens of one sequence
        several = min(self._triton.tiles.decode.split + size, most - 1)  # items of its context
        for start, count in ((0, 1), (several, 1), (0, min(2, most))):
            pages = (self.pages,) * (-(-(start + count) // size))
            segment = Segment("warm-up", "warm-up", None, (0,) * count, start, pages, True, True)
            self._launched(build_batch([segment], size), {})
        self._sgmv.warm()

    def _recorded(self, recorder: Recorder) -> DecodeGraphs | None:
        """Recorded decode steps, where they answer as launched ones do: a device that replays them
        otherwise serves without them, and says so."""
        on = self._on
        known = shapes(on.most_sequences, on.most_adapters)
        graphs = DecodeGraphs(self._decoder, self._triton, self._sgmv, known, recorder, self.pages)
        # The largest again: the others use its memory.
        for shape in (known[-1], known[0], known[-1]):
            if not self._agrees(graphs, shape):
                self.kernels += (
                    f"decode: launched kernel by kernel, which is slower: a recorded step of "
                    f"{shape.rows} rows does not answer as a launched one does on {on.device}",
                )
                return None
        self.kernels += (
            f"decode: {len(known)} recorded shapes of up to {on.most_sequences} rows and "
            f"{on.most_adapters} adapters",
        )
        return graphs

    def _agrees(self, graphs: DecodeGraphs, shape: Shape) -> bool:
        """Rows of one sequence at its first positions, one each, on pages that nobody holds yet."""
        size = self.page_tokens
        rows = min(shape.rows, self.pages * size, self.max_context)
        batch = build_batch(
            [
                Segment(
                    "check", "check", None, (i % 7,), i, tuple(range(i // size + 1)), True, False
                )
                for i in range(rows)
            ],
            size,
        )
        launched = self._launched(batch, {}).clone()
        apart = (graphs.replay(shape, batch) - launched).abs().amax()
        return bool(apart <= _NEAR * launched.abs().amax())  # and not where either is NaN
