"""The demo's arithmetic and its words; the play itself is tested whole, elsewhere."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.demo import result as demo_result
from console.demo.command import demo, next_commands, stop_at_failure
from console.demo.script import Played, Script
from console.demo.setup import default_store, first_line
from engine.errors import ConfigError, ModelError
from engine.model.cache import cache_folder
from engine.simulation.workload import read_workload
from postmortem.report import drawing
from sample_incidents import incident_path
from telemetry.records import RequestRecord


def request(tenant, arrived, ttft=0.2, out=10, met=True, outcome="finished", gap=0.1):
    return RequestRecord(
        engine="e", run_id="r", pool="p", request_id=f"{tenant}{arrived}", tenant=tenant,
        outcome=outcome, arrived=arrived, ended=arrived + 1.0, prompt_tokens=50,
        output_tokens=out, ttft_s=ttft, max_gap_s=gap, slo_met=met,
    )  # fmt: skip


def script(tmp_path, scenario="fanout", scale=1.0):
    workload = read_workload(incident_path("five-pm-fanout") / "workload.toml")
    return Script(workload, ("fcfs", "vtc"), scenario, scale, "synthetic", tmp_path / "a b", 0)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3.0], 0.99, 3.0), ([1, 2, 3, 4], 0.5, 2), (range(1, 101), 0.99, 99)],
)
def test_percentiles_are_nearest_rank(values, share, expected):
    assert demo_result.percentile(values, share) == expected


def test_an_act_is_summed_from_request_rows():
    rows = [request("a", i, ttft=i / 10) for i in range(25)]
    rows += [request("b", 3.0, met=False), request("b", 4.0, met=None, outcome="rejected")]
    act = demo_result.act("vtc", rows, began=0.0)
    a, b = act.tenants
    assert (a.ttft_p50_s, a.ttft_p99_s) == (1.2, 2.4)
    assert (b.eligible, b.met, b.finished) == (1, 0, 1)
    assert act.ended == 25.0
    assert act.output_per_s == sum(r.output_tokens for r in rows) / 25.0


def test_the_table_is_side_by_side_and_fits_80_columns():
    rows = [request("[red]x[/] a very long tenant name", 1.0), request("b\n", 2.0)]
    acts = [demo_result.act(p, rows, 0.0) for p in ("fcfs", "vtc")]
    lines = demo_result.side_by_side(acts)
    assert all(len(line) <= 80 for line in lines)
    assert "FCFS" in lines[0]
    assert "VTC" in lines[0]
    assert any("throughput under VTC against FCFS: +0.0%" in line for line in lines)
    assert not any("\n" in line for line in lines)
    json.dumps([a.as_json() for a in acts])
    assert demo_result.side_by_side([]) == ["nothing was measured"]


def test_both_acts_get_the_very_same_arrivals_and_other_scenarios_have_no_flood(tmp_path):
    s = script(tmp_path)
    arrivals = s.arrivals()
    assert arrivals == script(tmp_path).arrivals()
    flood = [a for a in arrivals if a.prompt_tokens > 800]
    assert {a.tenant for a in flood} == {"acme"}
    assert min(a.at_s for a in flood) >= s.calm_s
    assert not [a for a in script(tmp_path, "slow").arrivals() if a.prompt_tokens > 800]
    half = script(tmp_path, scale=0.5).arrivals()
    assert [a.at_s for a in half] == [a.at_s / 2 for a in arrivals]


def test_a_refusal_by_a_limit_set_at_the_screen_is_counted_and_is_no_error():
    played = Played()
    played.note("acme", 429, "HTTP 429")
    played.note("acme", 200, None)
    played.note("globex", 500, "HTTP 500")
    assert (played.refused, played.errors) == (1, ["globex: HTTP 500"])


def test_faults_belong_to_their_scenarios(tmp_path):
    assert script(tmp_path, "slow").faults().slow_factor > 1
    assert script(tmp_path, "freeze").faults().freeze_at_s is not None
    assert script(tmp_path).faults().slow_factor == 1


def test_three_commands_to_go_on_with_are_exact(tmp_path):
    played = Played(incident=(1_800_000_000.0, 1_800_000_060.0))
    commands = next_commands(script(tmp_path), played)
    assert len(commands) == 3
    assert commands[0] == (
        f"tenantscope postmortem report --store '{tmp_path}/a b' "
        "--from 2027-01-15T08:00:00Z --to 2027-01-15T08:01:00Z"
    )
    assert len(next_commands(script(tmp_path), Played())) == 3


def test_the_first_line_says_what_will_be_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("TENANTSCOPE_CACHE", str(tmp_path))
    assert "Nothing will be downloaded" in first_line("synthetic")
    line = first_line("smollm2-135m")
    assert "MB" in line
    assert str(tmp_path) in line
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert str(default_store()).startswith("/data/tenantscope/demo-")
    assert first_line("synthetic", 30.0).endswith("This takes about 1 minute.")
    assert first_line("synthetic", 180.0).endswith("This takes about 4 minutes.")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "TENANTSCOPE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="--store DIR"):
        default_store()
    with pytest.raises(ModelError, match="TENANTSCOPE_CACHE"):
        cache_folder()
    assert drawing.cache_folder() is None


def test_a_model_there_is_none_of_is_refused_before_anything_is_promised():
    with pytest.raises(ModelError, match="nonsense"):
        first_line("nonsense")
    result = CliRunner().invoke(demo, ["--model", "nonsense"])
    assert (result.stdout, type(result.exception)) == ("", ModelError)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1", "1e999"])
@pytest.mark.parametrize("option", ["--duration", "--speed"])
def test_a_number_that_is_none_is_a_usage_error(option, number):
    if (option, number) == ("--speed", "1"):
        number = "0"
    args = [option, number, *(["--replay"] if option == "--speed" else [])]
    assert CliRunner().invoke(demo, args).exit_code == 2


@pytest.mark.parametrize(
    "options",
    [["--json"], ["--policy", "vtc"], ["--scenario", "slow"], ["--model", "synthetic"],
     ["--duration", "30"], ["--port", "80"]],
)  # fmt: skip
def test_an_option_that_a_replay_would_ignore_is_refused(options):
    result = CliRunner().invoke(demo, ["--replay", *options])
    assert result.exit_code == 2
    assert f"{options[0]} has no part in a replay" in result.stderr
    result = CliRunner().invoke(demo, ["--speed", "2"])
    assert "--speed goes with --replay only" in result.stderr


class Serving:
    """Processes that live for some looks, then one of them is dead."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def wait(self, timeout_s):
        self.looks -= 1
        return None if self.looks else "the worker process ended with signal 9 while serving"


class Play:
    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_a_process_that_dies_ends_the_play_at_once():
    play = Play()
    stop_at_failure(Serving(3), play, threading.Event())
    assert play.stopped


def test_a_play_that_is_over_is_watched_no_longer():
    play, over = Play(), threading.Event()
    over.set()
    stop_at_failure(Serving(1), play, over)
    assert not play.stopped
