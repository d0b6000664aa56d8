"""The benchmarks of the engine's own speed: what they read off, and that they hang together."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import beside_load as turns
from benchmarks import prefill_lora
from benchmarks.step_meter import Meter, metered
from benchmarks.step_split import step_bytes
from benchmarks.swapping import Seen, Work, beside_load
from engine.model.config import SMOLLM2_135M, synthetic_config
from engine.model.loaders import synthetic_model
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

ROOT = Path(__file__).resolve().parents[2]
TINY = ("--model", "synthetic", "--dtype", "float32")


def run(script: str, *arguments: str) -> dict[str, Any]:
    """Its JSON. It may exit 1 for an aim missed, never otherwise."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments, "--json"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_step_reads_every_weight_once_and_each_adapter_once():
    # 134.5 M weights, the embedding counted as the head's; 2 bytes each.
    assert step_bytes(SMOLLM2_135M, 2, 0, 16, 0) == 2 * 134_479_872
    with_keys = step_bytes(SMOLLM2_135M, 2, 0, 16, 1000) - step_bytes(SMOLLM2_135M, 2, 0, 16, 0)
    assert with_keys == 1000 * 30 * 2 * 192 * 2
    one, three = (step_bytes(SMOLLM2_135M, 2, n, 16, 0) for n in (1, 3))
    assert three - one == 2 * (one - step_bytes(SMOLLM2_135M, 2, 0, 16, 0)) > 0


def test_a_step_is_beside_a_load_when_the_loader_worked_at_any_instant_of_it():
    steps = [Seen(float(i), 0.9, 0.45) for i in range(5)]
    work = [Work(1.95, 3.5, 100), Work(2.0, 2.1, 0)]
    with_load, without = beside_load(steps, work)
    assert with_load == [2.0, 2.0]
    assert len(without) == 3


def test_a_meter_sees_every_seam_of_a_step_and_leaves_nothing_behind():
    runner = TorchRunner(synthetic_model(synthetic_config(layers=2)), 8, 16)
    plan = StepPlan(1, (Segment("r", "t", None, (5, 6), 0, (0,), True, True),))
    before = runner._ops, runner._lora
    with metered(runner) as meter:
        runner.execute(plan)
        assert not any(meter.seconds.values())
        meter.on = True
        runner.execute(plan)
        seen = {part for part, seconds in meter.seconds.items() if seconds > 0}
        assert seen == {"linears", "attention", "fused", "head", "batch"}  # no row has an adapter
    assert (runner._ops, runner._lora) == before


def test_what_a_part_calls_is_its_own():
    meter = Meter()
    inner = meter.around("linears", lambda: sum(range(1000)))
    outer = meter.around("head", inner)
    meter.on = True
    outer()
    assert meter.seconds["linears"] == 0 < meter.seconds["head"]
    assert meter.own_s > 0


@pytest.mark.full
def test_a_step_is_split_whole():
    found = run(
        "step_split.py", *TINY, "--streams", "4", "--adapters", "1,4", "--prompt", "16",
        "--output", "12", "--rounds", "1",
    )  # fmt: skip
    base, one, four = found["rows"]
    assert (base["adapters"], one["adapters"], four["adapters"]) == (0, 1, 4)
    assert base["split"]["lora"] == 0 < one["split"]["lora"]
    assert all(0 < r["python_share"] < 1 and r["split"]["core"] > 0 for r in found["rows"])


def test_prefill_with_and_without_adapters_take_turns():
    shapes = prefill_lora.measure("synthetic", adapters=2, rank=4, repeats=1)
    assert [s.segments for s in shapes] == [1, 2]
    assert all(s.ratio == s.least == s.most == pytest.approx(s.with_s / s.base_s) for s in shapes)


def test_steps_beside_each_kind_of_load_take_turns_with_steps_beside_none():
    args = argparse.Namespace(
        model="synthetic", rows=2, adapters=1, rank=2, rounds=1, steps=1, json=True
    )
    found = turns.measure(args)
    assert set(found["beside"]) == {"copy", "known", "new", "whole"}
    assert all(k["loads"] == 1 and k["load_s"] > 0 for k in found["beside"].values())
    assert found["parsed"] == 1, "the known folder is not parsed again"


@pytest.mark.full
def test_adapters_are_swapped_and_every_request_says_where_it_found_its_own():
    found = run(
        "swapping.py", *TINY, "--seconds", "3", "--adapters", "12", "--room", "5", "--host", "6",
        "--prompt", "16", "--output", "4",
    )  # fmt: skip
    assert 0 < found["hit_rate"] < 1
    assert found["loads"] > 0 < found["moved_bytes_per_s"]
    assert sum(w["n"] for w in found["ttft_s"].values() if w) == found["requests"]


@pytest.mark.full
def test_in_float32_peft_gives_our_tokens():
    found = run(
        "peers.py", *TINY, "--only", "peft-mixed", "--streams", "6", "--adapters", "3",
        "--prompt", "16", "--output", "8", "--rounds", "1", "--no-base",
    )  # fmt: skip
    (row,) = [r for r in found["rows"] if r["contender"] == "peft-mixed"]
    assert row["agrees"]["same_whole"] == row["agrees"]["streams"] == 6
    assert {r["contender"] for r in found["rows"]} == {"ours", "peft-mixed"}
