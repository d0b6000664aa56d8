"""Re-delivered, re-ordered and re-batched points add up to the token, as `benchmarks/redelivery.py`
measures it at its own size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import redelivery
from telemetry.conventions import Emitter


@pytest.mark.full
def test_a_small_world_adds_up_to_the_token_over_a_restart_and_a_closed_day(tmp_path: Path):
    out = redelivery.run(tmp_path / "store", seed=3, tenants=4, minutes=2, restarts=2)
    assert (out.differ, out.first) == (0, "")
    assert out.restarts == 2
    assert out.numbers > 100


@pytest.mark.full
@pytest.mark.parametrize("seed", [11, 12])
def test_a_larger_world_adds_up_to_the_token(tmp_path: Path, seed: int):
    out = redelivery.run(tmp_path / "store", seed=seed, tenants=40, minutes=30)
    assert (out.differ, out.first) == (0, "")
    assert out.reopened_days > 0


def test_the_model_knows_a_lost_and_a_doubled_delivery_from_a_right_one():
    batches = list(redelivery.world(5, tenants=3, minutes=2))
    expected = redelivery.model(batches)
    assert redelivery.model(batches + batches[:7]) == expected
    sealed = [b for b in batches if b.sealed and b.emitter is Emitter.WORKER]
    without = [b for b in batches if b is not sealed[-1]]
    assert redelivery.model(without) != expected
    another_run = replace(
        sealed[-1],
        run_id="r9",
        minutes=tuple(replace(r, run_id="r9") for r in sealed[-1].minutes),
        logs=(),
    )
    assert redelivery.model([*batches, another_run]) != expected


def test_a_run_that_dies_in_a_minute_leaves_its_last_open_state_and_the_next_one_adds_to_it():
    batches = list(redelivery.world(5, tenants=2, minutes=4))
    died = [b for b in batches if (b.engine, b.run_id) == ("e1", "r1")][-1]
    began = next(b for b in batches if (b.engine, b.run_id) == ("e1", "r2"))
    assert not died.sealed
    assert died.minutes[0].bucket_start == began.minutes[0].bucket_start
