"""The whole core over two ranks: scheduler, pool, residency and loader threads are the engine's."""

from __future__ import annotations

import pytest

from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.errors import ConfigError
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter
from engine.scheduling.request import Ask, Outcome
from telemetry.records import EngineMinute, EngineRun

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("ranks")]

STUCK_S = 60.0


class Kept:
    def __init__(self) -> None:
        self.batches = []

    def submit(self, batch) -> None:
        self.batches.append(batch)


@pytest.fixture(scope="module")
def model():
    return load_model("synthetic", "float32")


def answers(model, folders, tp: int, pool_bytes: int):
    """Twelve requests over four adapters; and what the ledger wrote of the run."""
    limits = Limits(slots=4, step_tokens=24, pool_bytes=pool_bytes)
    settings = Settings(
        model="synthetic",
        dtype="float32",
        tenants=(Tenant("a"),),
        adapters=tuple((f.name, str(f)) for f in folders),
        limits=limits,
        pools=(PoolSpec("main", limits=limits, tp=tp),),
    )
    kept = Kept()
    core = build_core(settings, SystemClock(), "run", model, kept)
    try:
        for i in range(12):
            now, name = core._clock.now(), f"a{i % 4}" if i % 5 else None
            key = core.adapter_key(name) if name else None
            assert (key is None) == (name is None), f"{name} was left out"
            prompt = tuple((i * 37 + j * 11) % 256 for j in range(20 + 3 * i))
            core.submit(Ask(f"r{i}", "a", prompt, 40, now, now, key, name))
        tokens: dict[str, list[int]] = {}
        ended = 0
        while ended < 12:
            assert core.wait_for_work(STUCK_S)
            result = core.step()
            for name, token in result.tokens:
                tokens.setdefault(name, []).append(token)
            for ending in result.ended:
                assert ending.outcome is Outcome.FINISHED, ending.reason
                ended += 1
        core.scheduler.check_integrity()
    finally:
        core.close()
    kept.batches += core.ledger.collect(core._clock.now())
    minutes = {
        m.bucket_start: m for b in kept.batches for m in b.minutes if isinstance(m, EngineMinute)
    }
    run = next(r for b in kept.batches for r in b.logs if isinstance(r, EngineRun))
    return tokens, sum(m.evictions or 0 for m in minutes.values()), run


def test_eviction_over_two_ranks_changes_no_token(model, tmp_path) -> None:
    folders = [tmp_path / f"a{i}" for i in range(4)]
    for i, folder in enumerate(folders):
        make_adapter(folder, model.config, 4 * (i + 1), seed=i)
    ample, _, one = answers(model, folders, 1, 8 << 20)
    tight, evictions, two = answers(model, folders, 2, 1400 << 10)
    assert evictions > 0
    assert tight == ample
    # What the pool's figures are counted in does not depend on how many ranks it is cut into.
    assert two.page_bytes == one.page_bytes
    assert two.pages == (1400 << 10) // two.page_bytes


def test_a_pool_whose_model_cannot_be_cut_so_has_no_core(model) -> None:
    with pytest.raises(ConfigError, match="tp = 3: the model has 4 heads"):
        answers(model, [], 3, 8 << 20)
