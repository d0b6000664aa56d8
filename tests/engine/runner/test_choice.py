"""A pool's device decides which runner serves it; the engine around it is the same."""

from __future__ import annotations

import pytest
import torch
from test_device_runner import on

from engine.build import build
from engine.clock import SystemClock
from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.costs import CostModel
from engine.errors import AdapterError, ConfigError
from engine.model.config import synthetic_config
from engine.model.loaders import synthetic_model
from engine.model.made_adapters import make_adapter
from engine.runner import cuda, device_runner
from engine.runner.choice import reader_for, runner_on
from engine.scheduling.request import Ask
from tests.kernels.called_again import Again
from tests.kernels.lists_in_torch import instead_of_triton

COSTS = CostModel(1e-3, 1e-5, 1e-5, 1e-9, 1e-5)


class Nowhere:
    def submit(self, batch):
        """Telemetry is no part of this."""


@pytest.fixture(scope="module")
def model():
    return synthetic_model(synthetic_config(layers=1))


def answers(model, folders, device: str):
    """(tokens by request, sentences) of a core of that device, in a pool too small for all
    adapters at once."""
    limits = Limits(slots=3, step_tokens=32, pool_bytes=700_000, adapters_per_step=2)
    settings = Settings(
        tenants=(Tenant("a"),),
        adapters=tuple((f.name, str(f)) for f in folders),
        pools=(PoolSpec("main", device=device, limits=limits),),
        limits=limits,
    )
    said: list[str] = []
    core = build(
        settings, SystemClock(), "run", model, Nowhere(), say=said.append, costs=COSTS
    ).core
    for i in range(6):
        name = folders[i % 3].name if i % 4 else None
        key = core.adapter_key(name) if name else None
        now = core._clock.now()
        prompt = tuple((i * 37 + j * 11) % 256 for j in range(5 + 9 * i))
        core.submit(Ask(f"r{i}", "a", prompt, 5, now, now, key, name))
    tokens: dict[str, list[int]] = {}
    ended = 0
    while ended < 6:
        assert core.wait_for_work(20)
        result = core.step()
        for request_id, token in result.tokens:
            tokens.setdefault(request_id, []).append(token)
        ended += len(result.ended)
    core.close()
    return tokens, said


def test_an_engine_on_a_device_answers_as_one_on_the_cpu(model, tmp_path, monkeypatch):
    folders = [make_adapter(tmp_path / f"a{r}", model.config, r, seed=r) for r in (4, 9, 16)]
    plain, _ = answers(model, folders, "cpu")
    recorder, asked = Again(), []

    def gpu(rows, sequences, adapters):
        asked.append((rows, sequences, adapters))
        return on(
            recorder=recorder, most_rows=rows, most_sequences=sequences, most_adapters=adapters
        )

    instead_of_triton(monkeypatch)
    monkeypatch.setattr(cuda, "gpu", gpu)
    monkeypatch.setattr(cuda, "pinned", lambda read: read)
    found, said = answers(model, folders, "cuda:0")
    assert asked == [(32, 3, 2)]
    assert found == plain
    assert all(len(t) == 5 for t in found.values())
    assert recorder.replayed > 5
    assert any(s.startswith("LoRA: Triton kernels, cpu, float32") for s in said)
    assert any(s == "decode: 8 recorded shapes of up to 3 rows and 2 adapters" for s in said)


def test_a_rank_that_a_device_has_no_room_for_is_refused_as_it_is_read(
    model, tmp_path, monkeypatch
):
    folders = [make_adapter(tmp_path / f"r{r}", model.config, r) for r in (8, 9)]
    monkeypatch.setattr(cuda, "pinned", lambda read: read)
    monkeypatch.setattr(device_runner, "MAX_RANK", 8)
    read = reader_for("cuda:0", model, 16)
    assert read(folders[0]).rank == 8
    with pytest.raises(AdapterError, match=r"r9': rank 9: on cuda:0 .* up to 8 .*the CPU any"):
        read(folders[1])
    assert reader_for("cpu", model, 16)(folders[1]).rank == 9


def test_a_device_that_is_too_small_is_told_with_what_to_make_smaller(model, monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(cuda, "gpu", lambda *most: on())
    monkeypatch.setattr(device_runner, "DeviceRunner", full)
    with pytest.raises(ConfigError, match=r"pool of 99 bytes .*lower limits.pool_bytes.*2\.00 GiB"):
        runner_on("cuda:0", model, 4, Limits(pool_bytes=99))
