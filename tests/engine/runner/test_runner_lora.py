"""The runner's LoRA backend is the native one where it can be, and changes no answer."""

from __future__ import annotations

import pytest
import torch
from oracle import Bench

from engine.model.config import MODULES, synthetic_config
from engine.model.loaders import LoadedModel, synthetic_model
from engine.model.made_adapters import make_adapter
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan
from kernels.cpu import Absent, native
from kernels.cpu_lora import CpuLora
from kernels.torch_ops import GroupedLora

pytestmark = pytest.mark.skipif(isinstance(native(), Absent), reason=str(native()))
LENGTHS = (1, 1, 1, 7, 40, 70, 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    where = tmp_path_factory.mktemp("adapters")
    return [make_adapter(where / f"r{r}", synthetic_config(), r, seed=r) for r in (3, 16, 33)]


def plan(keys: list[str]) -> StepPlan:
    whose = [*keys, None]
    return StepPlan(
        1,
        tuple(
            Segment(
                str(i), "t", whose[i % 4], tuple((7 * i + j) % 512 for j in range(n)), 0,
                tuple(range(6 * i, 6 * i + 6)), samples=True, is_prefill=n > 1,
            )
            for i, n in enumerate(LENGTHS)
        ),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_native_lora_and_plain_torch_answer_alike(folders, dtype):
    model = synthetic_model(synthetic_config(), dtype)
    config = model.config
    shapes = {m: config.module_shape(m) for m in MODULES}
    bench = Bench(model, pages=200)
    bench.free = bench.free[6 * len(LENGTHS) :]
    assert bench.runner.kernels[0].startswith("LoRA: native kernels")
    keys = [bench.load(f) for f in folders]
    fast = bench.runner.logits(plan(keys))
    bench.runner._lora = GroupedLora(config.layers, shapes, dtype)
    slow = bench.runner.logits(plan(keys))
    room = 1e-4 if dtype == torch.float32 else 0.1
    for name, row in fast.items():
        assert torch.isfinite(row).all()
        assert float((row - slow[name]).abs().max()) <= room


def test_an_adapters_table_is_made_at_copy_in_not_in_a_step(folders, monkeypatch):
    made: list[str] = []
    table = CpuLora._table
    monkeypatch.setattr(CpuLora, "_table", lambda self, a: made.append(a.key) or table(self, a))
    bench = Bench(synthetic_model(synthetic_config()), pages=200)
    bench.free = bench.free[6 * len(LENGTHS) :]
    keys = [bench.load(f) for f in folders]
    assert made == keys
    for _ in range(2):
        assert bench.runner.execute(plan(keys)).failed == {}
    assert made == keys
    bench.evict(keys[0])
    again = bench.load(folders[0])
    assert made == [*keys, again]


def test_a_backend_that_is_given_is_used_and_named():
    config = synthetic_config()
    given = GroupedLora(config.layers, {m: config.module_shape(m) for m in MODULES}, torch.float32)
    model: LoadedModel = synthetic_model(config)
    assert TorchRunner(model, 4, 16, given).kernels[0] == "LoRA: GroupedLora"
