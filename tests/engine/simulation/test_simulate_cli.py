"""`tenantscope simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import pytest

from console.cli import USAGE, invoke
from engine.simulate_cli import PRESET_NAMES, bar_line
from engine.simulation.hardware import PRESETS
from engine.simulation.simulate import Progress
from engine.simulation.store_out import StoreOut
from telemetry.errors import StoreError
from telemetry.pipeline.exporter import Inline
from telemetry.source import open_source
from telemetry.store.store import Store
from tests.telemetry import simulated

WORKLOAD = simulated.WORKLOAD.replace('"flood"', '"two"')


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(WORKLOAD)
    return str(path)


@pytest.fixture
def vtc_trace(tmp_path):
    rows = [
        {"adapter_dir": f"client-{i % 2}", "req_time": i / 4, "prompt_len": 64, "output_len": 8}
        for i in range(40)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"result": {"responses": rows}}))
    return str(path)


def runs(capsys, *args):
    assert invoke(["simulate", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["runs"]


def timeless(run):
    return {k: v for k, v in run.items() if k != "wall"}


def test_the_report_names_tenants_waits_and_curves(workload, capsys):
    assert invoke(["simulate", workload]) == 0
    out, err = capsys.readouterr()
    for said in ("heavy", "light", "TTFT p50", "adapter", "Jain", "Service over time", "rpm"):
        assert said in out
    assert err == ""  # no bar where nobody looks


def test_the_same_seed_gives_the_same_json_and_another_one_does_not(workload, capsys):
    first, second = (timeless(runs(capsys, workload)[0]) for _ in range(2))
    assert first == second
    assert timeless(runs(capsys, workload, "--seed", "5")[0]) != first


def test_json_holds_every_figure(workload, capsys):
    (run,) = runs(capsys, workload)
    light = next(t for t in run["tenants"] if t["tenant"] == "light")
    assert run["policy"] == "vtc"
    assert light["offered"] == light["admitted"] + sum(light["rejected"].values())
    assert set(light["waits_s"]) == {"slot", "budget", "kv", "adapter"}
    assert {"n", "mean_s", "p50_s", "p90_s", "p99_s", "max_s"} == set(light["ttft"])
    assert len(run["service_over_time"]["at_s"]) > 10
    assert run["wall"]["requests_per_s"] > 0
    (shown,) = runs(capsys, workload, "--top", "1")
    assert [t["tenant"] for t in shown["tenants"]] == ["heavy"]
    assert shown["tenant_count"] == 2


def test_compared_policies_meet_the_same_arrivals_and_differ(workload, capsys):
    vtc, fcfs = runs(capsys, workload, "--compare", "vtc,fcfs")
    assert [vtc["policy"], fcfs["policy"]] == ["vtc", "fcfs"]
    assert vtc["offered"] == fcfs["offered"]
    waited = [
        next(t for t in run["tenants"] if t["tenant"] == "light")["ttft"]["p90_s"]
        for run in (vtc, fcfs)
    ]
    assert waited[0] < waited[1] / 2
    assert vtc["accumulated_difference"] < fcfs["accumulated_difference"]
    assert invoke(["simulate", workload, "--compare", "vtc, fcfs"]) == 0
    assert "the same under each policy" in capsys.readouterr().out


def test_a_cut_leaves_requests_under_way(workload, capsys):
    (run,) = runs(capsys, workload, "--policy", "fcfs", "--until", "10")
    assert 10 <= run["simulated_s"] < 11
    assert sum(t["unfinished"] for t in run["tenants"]) > 0


def test_the_store_holds_what_the_result_says(workload, tmp_path, capsys):
    store = tmp_path / "store"
    (run,) = runs(capsys, workload, "--policy", "fcfs", "--store", str(store))
    source = open_source(str(store))
    try:
        span = (1_767_225_600.0, 1_767_225_600.0 + 600)
        minutes = source.read("tenant_minute", *span)
        requests = source.read("request", *span)
        policies = source.read("policy", *span)
        started = source.read("engine_run", *span)
    finally:
        source.close()
    for t in run["tenants"]:
        own = [m for m in minutes if m.tenant == t["tenant"]]
        ended = [r for r in requests if r.tenant == t["tenant"]]
        for column, figure in (
            ("offered_requests", t["offered"]),
            ("admitted_requests", t["admitted"]),
            ("rejected_rpm_requests", t["rejected"].get("rpm", 0)),
            ("output_tokens", t["output_tokens"]),
            ("service", t["service"]),
            ("finished", t["finished"]),
            ("slo_missed", t["slo_missed"]),
            ("goodput_tokens", t["goodput_tokens"]),
            *((f"wait_{r}_s", s) for r, s in t["waits_s"].items()),
        ):
            booked = sum(getattr(m, column) or 0 for m in own)
            assert booked == pytest.approx(figure, abs=1e-6), column
        assert sum(r.outcome == "rejected" for r in ended) == sum(t["rejected"].values())
        assert sum(r.outcome == "finished" for r in ended) == t["finished"]
    assert [p.policy for p in policies] == ["fcfs"]
    assert [(s.engine, s.synthetic) for s in started] == [("simulation", True)]
    assert invoke(["postmortem", "report", "--store", str(store)]) in (0, 1)
    assert "pool main" in capsys.readouterr().out


def test_a_store_is_never_added_to(workload, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    assert invoke(["simulate", workload, "--store", str(tmp_path / "full")]) == USAGE
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize("there_before", [False, True])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (StoreError, 1)])
def test_a_run_that_ends_early_leaves_no_half_store(
    workload, tmp_path, capsys, monkeypatch, there_before, error, code
):
    folder = tmp_path / "store"
    if there_before:
        folder.mkdir()
    take, calls = Store.take, []

    def third_fails(self, metrics, logs):
        calls.append(1)
        if len(calls) == 3:
            raise error("full\nand more")
        take(self, metrics, logs)

    monkeypatch.setattr(Store, "take", third_fails)
    assert invoke(["simulate", workload, "--store", str(folder)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip().count("\n") == 0
    assert len(calls) == 3  # nothing was told afterwards
    assert folder.exists() == there_before
    assert not there_before or not list(folder.iterdir())


def test_an_interrupt_during_a_commit_waits_for_its_end(tmp_path, monkeypatch):
    committed = []

    def interrupted(self, batch):
        signal.raise_signal(signal.SIGINT)
        committed.append(1)

    monkeypatch.setattr(Inline, "submit", interrupted)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), StoreOut(tmp_path / "store") as out:
        out.submit("a batch")
    signal.signal(signal.SIGINT, usual)
    assert committed == [1]
    assert not (tmp_path / "store").exists()


def test_what_was_answered_503_stands_in_no_row(workload, tmp_path, capsys):
    path, store = Path(workload), tmp_path / "store"
    path.write_text(WORKLOAD + '[[fault]]\nkind = "lost"\nat_s = 8\nduration_s = 4\n')
    (run,) = runs(capsys, workload, "--store", str(store))
    unserved = sum(t["rejected"].get("unserved", 0) for t in run["tenants"])
    assert unserved > 0
    source = open_source(str(store))
    try:
        rows = source.read("tenant_minute", 1_767_225_600.0, 1_767_225_600.0 + 600)
    finally:
        source.close()
    offered = sum(m.offered_requests or 0 for m in rows)
    assert offered == run["offered"] - unserved


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("kv_floor_bytes = 39_999_999", ["kv_floor_bytes = 39999999", "whole pages"]),
        ("kv_floor_bytes = 36_000_000", ["adapter 'x'", "may take", "kv_floor_bytes = 36000000"]),
        ("pool_bytes = 9_000_000_000_000_000", ["pool_bytes = 9000000000000000", "replicas = 1"]),
        ("page_tokens = 1_000_000", ["page_tokens = 1000000", "two pages"]),
    ],
)
def test_sizes_that_cannot_be_are_said_with_file_pool_key_and_value(workload, capsys, limits, said):
    usual = "pool_bytes = 40_000_000\n"
    whole = limits + "\n" if limits.startswith("pool_bytes") else limits + "\n" + usual
    Path(workload).write_text(WORKLOAD.replace(usual, whole))
    assert invoke(["simulate", workload]) == USAGE
    err = capsys.readouterr().err
    for word in (workload, "pool 'main'", *said):
        assert word in err


def test_beside_the_adapters_floor_a_prompt_that_cannot_fit_is_refused_at_the_door(
    workload, capsys
):
    floor = "[limits]\nadapter_floor_bytes = 39_000_000"
    Path(workload).write_text(WORKLOAD.replace("[limits]", floor))
    (run,) = runs(capsys, workload)
    heavy = next(t for t in run["tenants"] if t["tenant"] == "heavy")
    assert heavy["rejected"] == {"impossible": heavy["offered"]}


def test_a_workload_of_which_nothing_comes_says_so(workload, capsys):
    assert invoke(["simulate", workload, "--until", "1e-9"]) == 0
    out = capsys.readouterr().out
    assert "no request came" in out
    assert "TTFT" not in out


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("azure", b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no rows in it"),
        ("azure", b"\xff\x98\x00\n", "UTF-8"),
        ("mooncake", b"a,b\n1,2\n", "none of its 2 rows can be played: dropped 2 unreadable"),
        ("mooncake", b"\xff\x98\x00\n", "UTF-8"),
        ("vtc", b"\xff\x98\x00\n", "UTF-8"),
        ("vtc", b'{"result": {"responses": []}}', "no rows in it"),
    ],
)
def test_a_trace_of_nothing_is_refused_by_name(tmp_path, capsys, form, text, said):
    path = tmp_path / "trace"
    path.write_bytes(text)
    args = ["--trace", str(path), "--format", form, "--preset", "a10g-llama2-7b"]
    assert invoke(["simulate", *args]) == USAGE
    err = capsys.readouterr().err
    assert str(path) in err
    assert said in err
    assert err.count("\n") == 1


def test_a_trace_is_played_on_a_preset_without_a_workload(vtc_trace, capsys):
    args = ("--trace", vtc_trace, "--format", "vtc", "--preset", "a10g-llama2-7b")
    assert invoke(["simulate", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    (run,) = json.loads(out)["runs"]
    assert run["machine"] == "a10g-llama2-7b"
    assert [(t["tenant"], t["offered"]) for t in run["tenants"]] == [
        ("client-0", 20),
        ("client-1", 20),
    ]
    assert "40 rows read" in err.replace(",", "")


def test_a_trace_plays_at_another_speed_and_from_later_on(workload, vtc_trace, capsys):
    args = (workload, "--trace", vtc_trace, "--format", "vtc", "--from", "5")
    (usual,) = runs(capsys, *args)
    (slow,) = runs(capsys, *args, "--speed", "0.1")
    assert usual["offered"] == slow["offered"] == 20
    last_s = 4.75  # of the twenty arrivals, four a second
    assert last_s < usual["simulated_s"] < 10 * last_s < slow["simulated_s"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "WORKLOAD.toml"),
        (("{w}", "--format", "vtc"), "--trace only"),
        (("{w}", "--trace", "{w}"), "--format"),
        (("{w}", "--policy", "fcfs", "--compare", "vtc"), "--policy"),
        (("{w}", "--compare", "vtc,vtc"), "twice"),
        (("{w}", "--compare", "vtc,nothing"), "no policy"),
        (("{w}", "--policy", "nothing"), "nothing"),
        (("{w}", "--preset", "abacus"), "a10g-llama2-7b"),
        (("{w}", "--preset", "a10g-llama-7b"), "did you mean a10g-llama2-7b"),
        (("",), "blank"),
        (("{w}", "--store", " "), "blank"),
        (("{w}", "--store", "{w}"), "is a file"),
        (("{w}", "--trace", "{w}", "--format", "azure", "--tenants", "99999999999"), "1000000"),
        (("{w}", "--seed", "99999999999999999999999999"), "--seed"),
        (("{w}", "--until", "0"), "until"),
        (("{w}", "--until", "nan"), "until"),
        (("{w}", "--store", "s", "--compare", "vtc,fcfs"), "one run"),
        (("{w}", "--trace", "gone", "--format", "vtc"), "gone"),
        (("gone.toml",), "gone.toml"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(args, said, workload, capsys):
    assert invoke(["simulate", *(a.format(w=workload) for a in args)]) == USAGE
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_a_workload_that_cannot_be_names_the_file_and_the_key(workload, tmp_path, capsys):
    bad = tmp_path / "bad.toml"
    bad.write_text(WORKLOAD.replace("rate_per_s = 2.0", 'rate_per_s = "2"'))
    assert invoke(["simulate", str(bad)]) == USAGE
    err = capsys.readouterr().err
    assert "bad.toml" in err
    assert "rate_per_s" in err


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
@pytest.mark.parametrize("end_s", [0.0, 1e7, math.inf])
def test_the_bar_never_wraps(width, end_s):
    line = bar_line("deficit-round-robin", end_s, Progress(1_234_567.0, 123_456_789, 4096), width)
    assert len(line) < max(width, 1)
    if width == 200:
        assert line.endswith("1,234,567 s simulated, 123,456,789 requests, 4,096 under way")
        assert ("[###" in line and "12%" in line) == (end_s == 1e7)


def test_help_names_every_preset():
    assert tuple(PRESETS) == PRESET_NAMES


def test_help_teaches_with_examples(capsys):
    assert invoke(["simulate", "--help"]) == 0
    out = capsys.readouterr().out
    for said in ("Examples:", "--compare vtc,fcfs,round-robin", "postmortem report --store"):
        assert said in out
