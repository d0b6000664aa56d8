"""`tenantscope bench`: figures are read off the times rightly, and a run measures a whole core."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.cli import invoke
from engine.bench import prompts, throughput
from engine.bench_cli import table
from engine.bench_figures import AtStreams, Figures, Load, StepSeen, Telemetry, round_of
from engine.costs import CostModel
from engine.errors import ConfigError
from engine.model.loaders import load_model


@pytest.fixture
def uncalibrated(monkeypatch):
    """The warm-up takes seconds, and what it fits is measured elsewhere."""
    costs = CostModel(0.01, 0.0002, 0.0005, 1e-7, 0.001)
    monkeypatch.setattr("engine.build.calibrate", lambda *_, **__: costs)


def test_decode_counts_only_the_time_in_which_all_streams_decode():
    steps = [
        StepSeen(1.0, (0,)),  # 1 is still at its prompt
        StepSeen(2.0, (0, 1)),
        StepSeen(2.5, (0, 1)),
        StepSeen(3.0, (0, 1)),  # 0 ends
        StepSeen(9.0, (1,)),
    ]
    r = round_of(steps, ours_s=[9.0, 9.0, 0.1, 0.3, 9.0])
    assert r.decode_tokens_per_s == pytest.approx(4 / 1.0)
    assert (r.step_s, r.ours_s) == (0.5, pytest.approx(0.2))
    assert (r.prefill_s, r.ttft_s, r.wall_s) == (2.0, 1.5, 9.0)
    assert r.end_to_end_tokens_per_s == pytest.approx(8 / 9.0)
    assert (r.streams, r.output_tokens) == (2, 8)


def test_without_such_a_time_decode_is_unknown_and_not_zero():
    r = round_of([StepSeen(1.0, (0,)), StepSeen(2.0, (1,))])
    assert (r.decode_tokens_per_s, r.step_s) == (None, None)
    assert r.end_to_end_tokens_per_s == 1.0
    with pytest.raises(ValueError):
        round_of([StepSeen(1.0, ())])


@given(st.lists(st.tuples(st.floats(0.01, 1), st.sets(st.integers(0, 4), min_size=1)), min_size=1))
def test_figures_agree_with_each_other_whatever_the_steps(made):
    steps, at_s = [], 0.0
    for took_s, streams in made:
        at_s += took_s
        steps.append(StepSeen(at_s, tuple(streams)))
    r = round_of(steps)
    assert r.output_tokens == sum(len(s) for _, s in made)
    assert r.ttft_s <= r.prefill_s <= r.wall_s
    assert (r.step_s is None) == (r.decode_tokens_per_s is None)
    if r.decode_tokens_per_s is not None:
        assert r.decode_tokens_per_s <= r.streams / min(t for t, _ in made) * (1 + 1e-9)


def figures(busy_before=0.0):
    r = round_of([StepSeen(1.0, (0, 1)), StepSeen(1.5, (0, 1))], [0.0, 0.002])
    told = Telemetry("a store process", 3, 999, 0)
    load, at = Load((2,), 4, 8, 10, 2, 1), (AtStreams(2, (r,)),)
    return Figures("m\x1b[2J", "float32", "here", 2, load, at, told, True, busy_before)


def test_a_table_says_what_was_measured_and_obeys_no_name():
    text = "\n".join(table(figures()))
    assert "m\\x1b[2J (synthetic), float32, 2 threads, 4 adapters of rank 8" in text
    (row,) = [line for line in text.splitlines() if line.startswith("      2")]
    assert row.split() == ["2", "4.0", "2.7", "500.0", "2.00", "20", "1000"]


def test_a_machine_that_was_busy_is_said():
    assert not any("busy" in line for line in table(figures(0.1)))
    assert any("load average 3.0" in line for line in table(figures(3.0)))


def test_an_unknown_number_of_streams_is_said():
    assert figures().of(2).streams == 2
    with pytest.raises(KeyError):
        figures().of(3)


@pytest.mark.usefixtures("uncalibrated")
def test_a_run_gives_every_token_it_was_asked_for_and_its_telemetry_arrives():
    load = Load(streams=(1, 3), adapters=2, rank=4, prompt_tokens=9, output_tokens=4, rounds=2)
    done = throughput(load_model("synthetic", "float32"), load, with_store=False)
    assert [(r.streams, r.output_tokens) for a in done.at for r in a.rounds] == [
        (1, 4), (1, 4), (3, 12), (3, 12),
    ]  # fmt: skip
    for at in done.at:
        assert at.decode_tokens_per_s > 0
        assert at.end_to_end_tokens_per_s > 0
        assert 0 < at.ours_s < at.step_s
    assert done.telemetry.requests > 0
    assert done.telemetry.lost == 0
    assert done.backend
    assert json.loads(json.dumps(done.to_json()))["at"][1]["streams"] == 3


@pytest.mark.full
def test_a_run_with_a_store_process_delivers_all_of_its_telemetry(uncalibrated):
    load = Load(streams=(2,), adapters=1, rank=4, prompt_tokens=9, output_tokens=4, rounds=1)
    done = throughput(load_model("synthetic", "float32"), load)
    assert done.telemetry.where == "a store process"
    assert done.telemetry.requests > 0
    assert done.telemetry.lost == 0


def test_as_many_adapters_as_the_load_says_must_be_given():
    with pytest.raises(ConfigError, match="0 adapter folders for adapters = 8"):
        throughput(load_model("synthetic", "float32"), Load(), folders=[], with_store=False)


def test_a_load_that_the_context_does_not_hold_is_refused_before_anything_is_built():
    load = Load(adapters=0, prompt_tokens=10**6)
    with pytest.raises(ConfigError, match="1000064: the model's context holds"):
        throughput(load_model("synthetic", "float32"), load, with_store=False)


def test_prompts_are_the_same_for_a_seed_and_in_the_vocabulary():
    assert prompts(50, 3, 7, 1) == prompts(50, 3, 7, 1) != prompts(50, 3, 7, 2)
    assert {t for p in prompts(50, 9, 99, 1) for t in p} == set(range(3, 50))


@pytest.mark.parametrize("streams", ["0", "1,1", "a", "", "5000"])
def test_streams_that_are_none_are_a_usage_error(capsys, streams):
    assert invoke(["bench", "throughput", "--streams", streams]) == 2
    assert "--streams" in capsys.readouterr().err
