"""What a step must take on given accelerators: roofline arithmetic, and its straight-line form.

With W parameters read in a step (all but the input embedding), b bytes each, on g accelerators:

    compute = (2*W*tokens + 4*layers*heads*head_size*keys) / (g * peak FLOP/s * efficiency)
    memory  = (b*W + kv*(decode_keys + prefill_keys/TILE + tokens) + adapters) / (g * B/s * eff.)
    network = 2*layers*(latency + 2*(g-1)/g * tokens*hidden*b / (peer B/s * eff.)), 0 if g = 1
    step    = overhead + max(compute, memory) + network

`kv` is the KV bytes of a token over all layers; `keys` are keys attended, summed over the query
tokens. A decode row reads each of its keys from memory; a prefill chunk reads them once for every
tile of 128 queries. Two all-reduces a layer (after attention and after the MLP) are what tensor
parallelism costs (Shoeybi et al., Megatron-LM, 2019). Left out, as less than 1% each: norms, the
sampled rows' share of the head, the adapters' own multiplications (their bytes are in).

The cost model of `engine/costs.py` is linear: it has a sum where the step has max(), and one
coefficient for all keys, where a decode key costs 20 to 100 times a prefill key. `linear` fits it
to the steps of a stated mix and says how far off it is there; outside the mix it is further off.
Pure; owns no data sheet (engine/simulation/hardware.py does).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.costs import CostModel, StepFeatures, fit
from engine.memory.packing import padded_row_bytes
from engine.simulation.fit import FitReport, MeasuredStep, errors

TARGETS = ("all", "attention")  # projections an adapter is on: all seven, or q, k, v and o
TILE = 128  # queries that share one reading of their keys in a prefill kernel


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device, by its data sheet (dense 16-bit matrix throughput, no sparsity).

    `host_bytes_per_s` is what copies from pinned host memory reach; `peer_bytes_per_s` is one
    direction of the link between devices, 0 where there is none.
    """

    name: str
    flops_per_s: float
    memory_bytes: float
    memory_bytes_per_s: float
    host_bytes_per_s: float
    peer_bytes_per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of the Llama family, by its model card."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    max_context: int
    source: str
    itemsize: int = 2

    @property
    def modules(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of a layer's projections: q, k, v, o, gate, up, down."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        h, m = self.hidden, self.mlp
        return (h, q), (h, kv), (h, kv), (q, h), (h, m), (h, m), (m, h)

    @property
    def streamed_parameters(self) -> int:
        """Read in every step: the layers and the head; of the embedding only single rows are."""
        layer = sum(i * o for i, o in self.modules) + 2 * self.hidden
        return self.layers * layer + self.hidden + self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        return self.streamed_parameters + self.hidden * self.vocabulary

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.itemsize

    @property
    def kv_token_bytes(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * self.itemsize

    def adapter_blocks(self, rank: int, targets: str = "all") -> list[tuple[int, int]]:
        """(rows, row_bytes) of an adapter on those projections, as `memory.packing` lays them."""
        modules = self.modules[:4] if targets == "attention" else self.modules
        return [
            (rank, padded_row_bytes(width, self.itemsize))
            for _ in range(self.layers)
            for module in modules
            for width in module
        ]

    def adapter_bytes(self, rank: int, targets: str = "all") -> int:
        return sum(rows * row_bytes for rows, row_bytes in self.adapter_blocks(rank, targets))


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a good serving stack reaches of the data sheet. Judgements, not measurements."""

    compute: float = 0.5
    memory: float = 0.8
    peer: float = 0.7
    overhead_s: float = 0.002  # launches, sampling and the hand-over to the next step
    all_reduce_s: float = 10e-6  # latency of one


@dataclass(frozen=True, slots=True)
class StepShape:
    """A step, with the keys of prefill and decode kept apart."""

    prefill_tokens: int = 0
    prefill_keys: int = 0
    decode_rows: int = 0
    decode_keys: int = 0
    adapters: int = 0

    @property
    def features(self) -> StepFeatures:
        keys = self.prefill_keys + self.decode_keys
        return StepFeatures(self.prefill_tokens, self.decode_rows, keys, self.adapters)


@dataclass(frozen=True, slots=True)
class Mix:
    """The steps a linear model is meant for: requests so long, a step budget, `rows` decoding
    sequences where the pool is full. `decode_context` is their mean context, when those who decode
    are others than those who prefill; None = prompt and half an answer."""

    prompt_tokens: int
    output_tokens: int
    step_tokens: int
    rows: int
    decode_context: int | None = None

    def steps(self) -> Iterator[StepShape]:
        """Batches from one row to full, contexts around the mean; as many steps of decode alone
        as with prefill, because that is what most steps of a run are."""
        context = self.decode_context or self.prompt_tokens + self.output_tokens // 2
        for part in (0.0, 1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0):
            rows = int(self.rows * part)
            for spread in (0.7, 1.0, 1.3):
                keys = int(rows * context * spread)
                for adapters in (0, min(8, rows)):
                    room = max(1, self.step_tokens - rows)
                    for chunk in (room, room // 2, min(room, self.prompt_tokens)):
                        for begun in (0.0, 0.5):
                            inside = self._chunk_keys(chunk, begun)
                            if chunk:
                                yield StepShape(chunk, inside, rows, keys, adapters)
                            if rows:
                                yield StepShape(0, 0, rows, keys, adapters)

    def _chunk_keys(self, tokens: int, begun: float) -> int:
        """Keys of a chunk that fills `tokens`: of one long prompt, begun so far, or whole ones."""
        prompt = self.prompt_tokens
        if tokens >= prompt:
            whole, rest = divmod(tokens, prompt)
            return whole * prompt * (prompt + 1) // 2 + rest * (rest + 1) // 2
        return tokens * int(begun * (prompt - tokens)) + tokens * (tokens + 1) // 2


@dataclass(frozen=True, slots=True)
class Roofline:
    """`gpus` accelerators that hold one model in equal shards."""

    accelerator: Accelerator
    model: ModelShape
    gpus: int = 1
    efficiency: Efficiency = Efficiency()
    rank: int = 16  # of the adapters a step reads
    targets: str = "all"

    def compute_s(self, s: StepShape) -> float:
        m = self.model
        flops = 2.0 * m.streamed_parameters * (s.prefill_tokens + s.decode_rows)
        flops += 4.0 * m.layers * m.heads * m.head_size * (s.prefill_keys + s.decode_keys)
        return flops / (self.gpus * self.accelerator.flops_per_s * self.efficiency.compute)

    def memory_s(self, s: StepShape) -> float:
        m = self.model
        keys = s.decode_keys + s.prefill_keys / TILE + s.prefill_tokens + s.decode_rows
        moved = m.streamed_parameters * m.itemsize + m.kv_token_bytes * keys
        moved += s.adapters * m.adapter_bytes(self.rank, self.targets) if s.adapters else 0
        per_s = self.gpus * self.accelerator.memory_bytes_per_s * self.efficiency.memory
        return moved / per_s

    def network_s(self, s: StepShape) -> float:
        if self.gpus == 1:
            return 0.0
        m = self.model
        tokens = s.prefill_tokens + s.decode_rows
        moved = 2 * (self.gpus - 1) / self.gpus * tokens * m.hidden * m.itemsize
        per_s = self.accelerator.peer_bytes_per_s * self.efficiency.peer
        return 2 * m.layers * (self.efficiency.all_reduce_s + moved / per_s)

    def step_s(self, s: StepShape) -> float:
        """max of compute and memory: both at once, the slower one is felt."""
        slower = max(self.compute_s(s), self.memory_s(s))
        return self.efficiency.overhead_s + slower + self.network_s(s)

    def linear(self, mix: Mix, *, version: int = 1) -> tuple[CostModel, FitReport]:
        """The cost model nearest to this roofline over the mix, and how far off it is."""
        rows = [MeasuredStep(s.features, self.step_s(s)) for s in mix.steps()]
        model = fit([(r.features, r.seconds) for r in rows], version=version)
        return model, errors(model, rows)

    def pool_bytes(self, of_memory: float = 0.9) -> int:
        """What is left for KV and adapters when the weights are in, over all accelerators."""
        room = self.gpus * self.accelerator.memory_bytes * of_memory
        return int(room) - self.model.weight_bytes
