"""A cost model from measured steps: what it finds, and what it admits."""

from __future__ import annotations

import random

import pytest

from engine.costs import CostModel, StepFeatures
from engine.errors import WorkloadError
from engine.simulation.fit import MeasuredStep, errors, fit_steps
from engine.simulation.traces.splitwise import Machine, read_splitwise
from tests.engine.simulation.data import DATA, needs_data

TRUE = CostModel(0.02, 0.0002, 0.0008, 1e-7, 0.001)
HEADER = (
    "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,"
    "prompt_time,token_time,e2e_time,tensor_parallel\n"
)


def measured(noise=0.0, seed=1):
    rng = random.Random(seed)
    rows = []
    for _ in range(80):
        f = StepFeatures(
            rng.choice([0, 64, 512]), rng.randrange(1, 32), rng.randrange(50_000), rng.randrange(8)
        )
        rows += [MeasuredStep(f, TRUE.predict(f) * (1 + rng.uniform(-noise, noise)))] * 2
    return rows


def test_a_linear_machine_is_found_exactly():
    model, report = fit_steps(measured(), version=4)
    assert model.prefill_token_s == pytest.approx(TRUE.prefill_token_s, rel=1e-6)
    assert model.version == 4
    assert report.worst < 1e-6
    assert report.trained < 160
    assert report.tested <= 160


def test_noise_shows_as_error_of_its_own_size():
    _, report = fit_steps(measured(noise=0.2))
    assert 0.05 < report.median < 0.15
    assert report.median <= report.p95 <= report.worst < 0.5
    assert report.prefill is not None
    assert report.decode is not None


def test_a_step_seen_in_training_is_never_a_test_of_itself():
    # Every kind of step has a time of its own that no line explains: a model that had seen a
    # repetition of the tested step among few others would bend towards it.
    rng = random.Random(3)
    rows = []
    for n in range(1, 60):
        f = StepFeatures(n * 8, n, n * n, 0)
        rows += [MeasuredStep(f, 0.01 * (1 + n) * rng.choice([0.5, 2.0]))] * 20
    _, report = fit_steps(rows)
    assert report.tested < len(rows), "the largest kinds are not tested"
    assert report.median > 0.2


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="too few"):
        fit_steps(measured()[:6])
    with pytest.raises(ValueError, match="no steps"):
        errors(TRUE, [])


def test_a_measurement_faster_than_the_machine_is_left_out_and_counted(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(
        HEADER
        + "llama2-70b,h100-80gb,512,64,128,0,0,360.0,40.0,5400.0,2\n"
        + "llama2-70b,h100-80gb,512,1,128,0,0,80.0,40.0,5120.0,2\n"
    )
    found = read_splitwise(path)
    assert found.impossible == 1
    steps = found.steps[Machine("llama2-70b", "h100-80gb", 2)]
    assert [s.features.prefill_tokens for s in steps] == [0, 0, 512]
    # 126 tokens were generated, so on average 63 stand behind the prompt.
    assert steps[1].features.context_tokens == 512 + 63
    assert steps[1].seconds == pytest.approx(0.040)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("llama2-70b,h100-80gb,512,1,128,0,0,fast,40,100,2\n", ["line 2", "fast"]),
        ("llama2-70b,abacus,512,1,128,0,0,80,40,100,2\n", ["line 2", "abacus"]),
        ("llama2-70b,h100-80gb,0,1,128,0,0,80,40,100,2\n", ["line 2", "above 0"]),
        ("", ["no measurements"]),
    ],
)
def test_a_bad_table_is_refused_by_file_and_line(tmp_path, row, words):
    path = tmp_path / "table.csv"
    path.write_text(HEADER + row)
    with pytest.raises(WorkloadError) as e:
        read_splitwise(path)
    for word in [str(path), *words]:
        assert word in str(e.value)


@needs_data
def test_the_published_measurements_are_fitted_within_a_known_error():
    found = read_splitwise(DATA / "splitwise_perf_model.csv")
    assert sum(map(len, found.steps.values())) + found.impossible == 2 * 1260
    assert len(found.steps) == 12
    reports = {m: fit_steps(steps)[1] for m, steps in found.steps.items()}
    # A line through a curve: the error is what it is, and is printed by the benchmark.
    assert max(r.median for r in reports.values()) < 0.55
    assert sorted(r.median for r in reports.values())[6] < 0.25
