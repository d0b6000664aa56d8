"""What kernels are compiled for is known when the runner starts: no adapter and no mix of requests
that comes later brings another, so no tenant's first token waits for a compiler. And every operand
of theirs lies on the device."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from test_device_runner import on

from engine.model.config import MODULES, synthetic_config
from engine.model.decoder import Decoder
from engine.model.loaders import synthetic_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.runner.accelerator import Accelerator
from engine.runner.device_runner import DeviceRunner
from engine.runner.lanes import AtOnce
from engine.scheduling.plan import Segment
from kernels import attention, fused, sgmv
from tests.kernels.called_again import Again

UNSPECIALISED = {"attend_kernel": 6, "rotate_and_store_kernel": 7}  # the layer's number


class Launches:
    """Stands where Triton's functions do and keeps what each launch would be compiled for: types,
    constants, and of pointers and numbers what Triton specialises (by 16, and 1)."""

    def __init__(self):
        self.keys: set[tuple] = set()
        self.devices: set[str] = set()

    def module(self):
        names = ("shrink", "expand", "attend", "combine", "normed", "gated", "rotate_and_store")
        return SimpleNamespace(**{f"{n}_kernel": self.kernel(f"{n}_kernel") for n in names}), False

    def kernel(self, name):
        def launch(*arguments, **constants):
            kinds = [
                "any" if i == UNSPECIALISED.get(name) else _kind(a) for i, a in enumerate(arguments)
            ]
            self.devices |= {a.device.type for a in arguments if isinstance(a, torch.Tensor)}
            self.keys.add((name, *kinds, *sorted(constants.items())))

        class Kernel:
            def __getitem__(self, grid):
                assert all(grid)
                return launch

        return Kernel()


def _kind(argument):
    if isinstance(argument, torch.Tensor):
        return str(argument.dtype), argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0
    return type(argument).__name__


@pytest.mark.parametrize(("dtype", "recorder"), [(torch.float32, Again()), (torch.bfloat16, None)])
def test_nothing_is_compiled_once_the_runner_serves(tmp_path, monkeypatch, dtype, recorder):
    launches = Launches()
    for module in (sgmv, attention, fused):
        monkeypatch.setattr(module, "_kernels", launches.module)
    monkeypatch.setattr(DeviceRunner, "_agrees", lambda *a: True)  # nothing is computed here
    model = synthetic_model(synthetic_config(layers=3), dtype)
    runner = DeviceRunner(model, 200, 16, on(recorder=recorder, most_rows=200))
    known = set(launches.keys)
    assert {key[0] for key in known} >= {"shrink_kernel", "combine_kernel", "normed_kernel"}
    launches.keys.clear()
    keys, at = [], 100
    for rank, modules in (
        (1, ("q_proj",)),
        (3, MODULES),
        (17, ("o_proj", "up_proj")),
        (40, MODULES),
    ):
        folder = make_adapter(tmp_path / f"{rank}", model.config, rank, seed=rank, modules=modules)
        weights = read_adapter(folder, model.config, dtype, runner.page_bytes)
        runner.copy_in(weights, range(at, at + weights.pages))
        at += weights.pages
        keys.append(weights.key)
    choose = random.Random(2)
    for counts in [[1], [1, 1, 1], [1] * 4, [1] * 7, [30], [1, 1, 5, 2], [64, 70], [130, 1], [2]]:
        for whose in ([None], [None, *keys], keys[3:]):
            segments = []
            for i, count in enumerate(counts):
                start = choose.choice([0, 5, 300])
                pages = tuple(range(-(-(start + count) // 16)))
                adapter = choose.choice(whose)
                segments.append(
                    Segment(str(i), "t", adapter, (1,) * count, start, pages, True, count > 1)
                )
            runner.compute(segments)
    assert {key[0] for key in launches.keys} == {key[0] for key in known}
    assert launches.keys <= known


@pytest.mark.full  # the first op on `meta` imports two seconds' worth of torch
def test_a_step_lies_on_the_device_from_its_tokens_to_its_logits(tmp_path, monkeypatch):
    """On torch's `meta` device: there is nothing in its tensors, and what is on the CPU does not go
    together with them."""
    launches, there = Launches(), torch.device("meta")
    for module in (sgmv, attention, fused):
        monkeypatch.setattr(module, "_kernels", launches.module)
    monkeypatch.setattr(DeviceRunner, "_agrees", lambda *a: True)
    forward = Decoder.forward

    def checked(self, tokens, ops, lora, last):
        assert tokens.device == last.device == there
        return forward(self, tokens, ops, lora, last)

    monkeypatch.setattr(Decoder, "forward", checked)
    model = synthetic_model(synthetic_config(layers=2, biased=("q_proj",)), torch.bfloat16)
    on_meta = Accelerator(there, AtOnce(), AtOnce(), Again(), 64, 4, 2)
    runner = DeviceRunner(model, 100, 16, on_meta)
    folder = make_adapter(tmp_path / "a", model.config, 4)
    weights = read_adapter(folder, model.config, torch.bfloat16, runner.page_bytes)
    runner.copy_in(weights, range(20, 20 + weights.pages))
    for counts in ([1], [1, 1], [20, 1], [5]):
        segments = [
            Segment(str(i), "t", weights.key if i % 2 else None, (1,) * n, 3, (0, 1), True, n > 1)
            for i, n in enumerate(counts)
        ]
        computed = runner.compute(segments)
        assert computed.hidden.shape == (len(counts), model.config.hidden)
        assert computed.hidden.device == there
        assert runner._head.logits(computed.hidden).device == there
    assert launches.devices == {"meta"}
    assert {t.device for t in runner.model.weights.values()} == {there}
