"""Presets: an accelerator, a model and a pool of the size people run. Data; the arithmetic is in
engine/simulation/roofline.py.

Figures are those of vendors' data sheets and models' cards, named at each entry; what is reached
of them (`Efficiency`) is a judgement, the same for all. Beside the steps measured by Splitwise
(Llama-2-70B on two and four A100 and H100) the median measured step takes 0.8 to 1.3 times the
roofline's in prefill and 1.3 to 1.8 times in decode: `benchmarks/fit_splitwise.py` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from engine.config import Limits
from engine.costs import CostModel
from engine.memory.packing import lay_out
from engine.simulation.fit import FitReport
from engine.simulation.roofline import Accelerator, Mix, ModelShape, Roofline

GB = 1e9
PCIE_GEN4_X16 = 25 * GB  # what pinned copies reach of the 31.5 GB/s of a direction
PCIE_GEN5_X16 = 64 * GB  # the link's own rate, one direction

A10G = Accelerator(
    "A10G", 70e12, 24 * GB, 600 * GB, PCIE_GEN4_X16, 0.0,
    "NVIDIA A10G data sheet: 70 TFLOP/s FP16 tensor, 24 GB GDDR6, 600 GB/s, PCIe Gen4 x16",
)  # fmt: skip
A100_80 = Accelerator(
    "A100-80GB SXM", 312e12, 80 * GB, 2039 * GB, PCIE_GEN4_X16, 300 * GB,
    "NVIDIA A100 data sheet: 312 TFLOP/s BF16 tensor, 80 GB HBM2e, 2,039 GB/s, NVLink 600 GB/s "
    "both ways, PCIe Gen4 x16",
)  # fmt: skip
H100 = Accelerator(
    "H100-80GB SXM", 989e12, 80 * GB, 3350 * GB, PCIE_GEN5_X16, 450 * GB,
    "NVIDIA H100 data sheet: 989 TFLOP/s BF16 tensor dense (1,979 with sparsity), 80 GB HBM3, "
    "3.35 TB/s, NVLink 900 GB/s both ways, PCIe Gen5 x16",
)  # fmt: skip

LLAMA2_7B = ModelShape(
    "Llama-2-7B", 32, 4096, 32, 32, 128, 11008, 32000, 4096,
    "Touvron et al., Llama 2, 2023, and the model's config.json",
)  # fmt: skip
LLAMA2_13B = ModelShape(
    "Llama-2-13B", 40, 5120, 40, 40, 128, 13824, 32000, 4096,
    "Touvron et al., Llama 2, 2023, and the model's config.json",
)  # fmt: skip
LLAMA2_70B = ModelShape(
    "Llama-2-70B", 80, 8192, 64, 8, 128, 28672, 32000, 4096,
    "Touvron et al., Llama 2, 2023, and the model's config.json",
)  # fmt: skip
LLAMA3_70B = ModelShape(
    # The context is that of 3.1, whose shape is the same: 3.0's is 8,192.
    "Llama-3-70B", 80, 8192, 64, 8, 128, 28672, 128256, 131072,
    "Llama 3 model card and config.json, 2024",
)  # fmt: skip

PAGE_TOKENS = 16


@dataclass(frozen=True)  # no slots: what is derived is kept
class Preset:
    """Hardware, model and pool. `pool_tokens` None: all the memory that the weights leave."""

    name: str
    roofline: Roofline
    mix: Mix
    slots: int
    pool_tokens: int | None = None

    @property
    def page_bytes(self) -> int:
        """A page's bytes over all shards: each accelerator holds 1/gpus of every page."""
        return PAGE_TOKENS * self.roofline.model.kv_token_bytes

    @property
    def pages(self) -> int:
        if self.pool_tokens is not None:
            return self.pool_tokens // PAGE_TOKENS
        return self.roofline.pool_bytes() // self.page_bytes

    @cached_property
    def limits(self) -> Limits:
        """The pool's sizes; a workload's own [limits] go before them."""
        return Limits(
            slots=self.slots,
            step_tokens=self.mix.step_tokens,
            adapters_per_step=max(16, self.slots // 4),
            page_tokens=PAGE_TOKENS,
            pool_bytes=self.pages * self.page_bytes,
            host_adapters=4096,
            max_context=min(self.roofline.model.max_context, self.pages * PAGE_TOKENS),
        )

    @property
    def costs(self) -> CostModel:
        """The linear cost model for this preset's own mix."""
        return self._linear[0]

    @property
    def report(self) -> FitReport:
        """How far `costs` is from the roofline, over the mix."""
        return self._linear[1]

    @cached_property
    def _linear(self) -> tuple[CostModel, FitReport]:
        return self.roofline.linear(self.mix)

    def costs_for(self, mix: Mix) -> tuple[CostModel, FitReport]:
        """For other traffic: one coefficient for all keys fits only requests of like lengths."""
        return self.roofline.linear(mix)

    @property
    def link_bytes_per_s(self) -> float:
        """From host memory, all shards at once: each accelerator has a link of its own."""
        return self.roofline.gpus * self.roofline.accelerator.host_bytes_per_s

    def adapter_bytes(self, rank: int, targets: str = "all") -> int:
        return self.roofline.model.adapter_bytes(rank, targets)

    def adapter_pages(self, rank: int, targets: str = "all") -> int:
        """Pages an adapter of that rank on those projections takes."""
        return lay_out(self.roofline.model.adapter_blocks(rank, targets), self.page_bytes).pages


PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        # The pool of the published VTC runs (Sheng et al., OSDI 2024): 10,000 tokens, 256 in, 256
        # out, so 26 rows of mean context; slots are never what is short there.
        Preset("a10g-llama2-7b", Roofline(A10G, LLAMA2_7B), Mix(256, 256, 512, 26), 64, 10_000),
        Preset("a100-80-llama2-13b", Roofline(A100_80, LLAMA2_13B), Mix(512, 256, 1024, 80), 128),
        Preset(
            "4xh100-llama3-70b", Roofline(H100, LLAMA3_70B, gpus=4), Mix(128, 64, 2048, 1024), 1024
        ),
    )
}
