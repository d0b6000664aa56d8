"""Settings and workloads: errors name file, key and value."""

from __future__ import annotations

import json

import pytest

from engine.clock import ClockBase, SystemClock
from engine.config import Limits, Settings, Slo, Tenant, load_settings, read_settings
from engine.errors import ConfigError, WorkloadError
from engine.simulation.workload import read_workload

GOOD = """
policy = "fcfs"
[limits]
slots = 4
[[tenant]]
name = "[red]x[/]"
weight = 2
rpm = 0
adapters = ["one"]
slo = { ttft_s = 1.5 }
[[adapter]]
name = "one"
path = "adapters/one"
"""


def test_a_good_file_reads_and_survives_the_way_to_a_child(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(GOOD)
    s = read_settings(path)
    assert s.tenants[0] == Tenant("[red]x[/]", 2.0, rpm=0, slo=Slo(ttft_s=1.5), adapters=("one",))
    assert s.adapters == (("one", str(tmp_path / "adapters/one")),)
    assert load_settings(s.dump()) == s
    assert "key_sha256" not in json.dumps(s.public())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("slots = 4", "slots = 0"), ["limits", "slots", "0", ">= 1"]),
        (("slots = 4", 'slots = "4k"'), ["slots", "'4k'", "whole number"]),
        (("slots = 4", "slot = 4"), ["unknown key 'slot'", "did you mean slots"]),
        (("weight = 2", "weight = -1"), ["weight", "-1", "> 0"]),
        (("weight = 2", "weight = nan"), ["weight", "nan"]),
        (("rpm = 0", "rpm = true"), ["rpm", "True", "whole number"]),
        (("rpm = 0", "rpm = -5"), ["rpm", "-5", ">= 0"]),
        (('name = "one"', 'name = " "'), ["name", "not blank"]),
        (('name = "one"', 'name = "two"'), ["lists adapter 'one'"]),
        (('policy = "fcfs"', 'policy = "lifo"'), ["policy", "'lifo'", "vtc, fcfs"]),
        (("[limits]", "[[limits]]"), ["limits", "expected a table"]),
        (('name = "[red]x[/]"', f'name = "{"n" * 300}"'), ["name", "200"]),
        (("ttft_s = 1.5", "ttft_s = 0"), ["slo", "ttft_s", "> 0"]),
        (("policy =", "policy"), ["not valid TOML", "line 2"]),
    ],
)
def test_a_bad_value_is_named_with_its_file_and_what_is_allowed(tmp_path, change, words):
    path = tmp_path / "pool.toml"
    assert change[0] in GOOD
    path.write_text(GOOD.replace(*change))
    with pytest.raises(ConfigError) as e:
        read_settings(path)
    for word in [str(path), *words]:
        assert word in str(e.value)


def test_a_missing_file_or_a_folder_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_settings(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_settings(tmp_path)


WORKLOAD = """
name = "w"
title = "t"
seed = 3
calm_s = 10
incident_s = 20
suspect = "x"
[[tenant]]
name = "x"
[[adapter]]
name = "a"
rank = 4
[[traffic]]
tenant = "x"
adapters = ["a"]
start_s = 0
end_s = 30
rate_per_s = 2
prompt_tokens = [10, 20]
output_tokens = [1, 5]
[[traffic]]
tenant = "x"
start_s = 10
end_s = 20
rate_per_s = 4
spacing = "even"
prompt_tokens = [10, 10]
output_tokens = [5, 5]
"""


def test_the_same_span_gives_the_same_arrivals(tmp_path):
    path = tmp_path / "workload.toml"
    path.write_text(WORKLOAD)
    w = read_workload(path)
    whole = w.arrivals(0, 30)
    assert whole == read_workload(path).arrivals(0, 30)
    assert [a for a in whole if a.at_s >= 10] == w.arrivals(10, 30)
    assert [a.at_s for a in whole] == sorted(a.at_s for a in whole)
    assert all(10 <= a.prompt_tokens <= 20 for a in whole)
    assert sum(a.adapter is None for a in whole) == 39


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('tenant = "x"\nadapters', 'tenant = "y"\nadapters'), ["tenant", "'y'"]),
        (('adapters = ["a"]', 'adapters = ["b"]'), ["'b'"]),
        (("end_s = 20", "end_s = 5"), ["end_s", "more than start_s = 10"]),
        (("prompt_tokens = [10, 20]", "prompt_tokens = [20, 10]"), ["low <= high"]),
        (("rate_per_s = 2", "rate_per_s = 0"), ["rate_per_s", "> 0"]),
    ],
)
def test_a_bad_workload_is_refused_by_name(tmp_path, change, words):
    path = tmp_path / "workload.toml"
    assert change[0] in WORKLOAD
    path.write_text(WORKLOAD.replace(change[0], change[1], 1))
    with pytest.raises(WorkloadError) as e:
        read_workload(path)
    for word in [str(path), *words]:
        assert word in str(e.value)


def test_engine_time_survives_a_wall_clock_that_is_set_back(monkeypatch):
    clock = SystemClock(ClockBase(1000.0, 0.0))
    monkeypatch.setattr("time.monotonic", lambda: 50.0)
    monkeypatch.setattr("time.time", lambda: 1050.0)
    assert clock.now() == 50.0
    assert clock.take_wall_jump_s(2.0) == 0.0
    monkeypatch.setattr("time.monotonic", lambda: 51.0)
    monkeypatch.setattr("time.time", lambda: 451.0)
    assert clock.now() == 51.0
    assert clock.take_wall_jump_s(2.0) == -600.0
    assert clock.take_wall_jump_s(2.0) == 0.0, "a jump is told once"
    assert ClockBase.load(clock.base.dump()) == clock.base


def test_defaults_are_valid():
    assert Limits().slots > 0
    assert Settings().policy == "vtc"
