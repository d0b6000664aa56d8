"""Others' logs become rows of what they hold; the rest is absent, and findings abstain for it."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postmortem.importers.load import FALLBACK_UNIX_S, Importing, Options, run_of
from postmortem.importers.logged import ImportProblem, Logged
from postmortem.importers.minutes import BRIDGED, Minutes, Place, coverage, record_of
from telemetry.case import open_case
from telemetry.findings import examine
from telemetry.findings.finding import Holds
from telemetry.source import open_source
from telemetry.verdict import judge
from telemetry.window import read_window

T0 = 1_796_000_000.0
PLACE = Place("run", "imported", 60.0)
EVER = (float("-inf"), float("inf"))


def load(path: Path, store: Path, form: str = "csv", **options: object):
    with Importing(store) as importing:
        return importing.load(path, Options(form, options.pop("mapping", {}), **options))  # type: ignore[arg-type]


def rows(store: Path, table: str) -> list:
    source = open_source(str(store))
    try:
        return source.read(table, *EVER)
    finally:
        source.close()


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


HEAD = "user_id,ts,input_tokens,output_tokens,max_tokens,ttft_ms,latency_ms,status"


def test_a_csv_becomes_requests_and_minutes_of_what_it_holds(tmp_path):
    log = write(tmp_path / "a.csv", HEAD, f"y,{T0},100,11,50,300,1300,200",
                f"y,{T0 + 1},100,,50,,,429", f"x,{T0 + 2},7,2,9,100,200,500")  # fmt: skip
    done = load(log, tmp_path / "s", slo_ttft_s=0.2)
    assert (done.read, done.kept, done.bad, done.tenants) == (3, 3, 0, 2)
    first = next(r for r in rows(tmp_path / "s", "request") if r.tenant == "y" and r.output_tokens)
    assert first.first_token == pytest.approx(T0 + 0.3)
    assert first.tpot_s == pytest.approx(0.1)
    assert (first.outcome, first.slo_met, first.missed_ttft) == ("finished", False, True)
    assert first.wait_slot_s is None
    assert first.admitted is None
    y = next(m for m in rows(tmp_path / "s", "tenant_minute") if m.tenant == "y")
    assert (y.offered_requests, y.admitted_requests, y.finished) == (2, 1, 1)
    assert (y.slo_eligible, y.slo_missed, y.slo_missed_ttft) == (1, 1, 1)
    assert (y.prompt_tokens, y.output_tokens, y.service) == (100, 11, 122.0)
    assert sum(y.ttft) == 1
    absent = (
        "wait_slot_s",
        "wait_kv_s",
        "kv_bytes_avg",
        "engine_seconds",
        "swap_in_bytes",
        "in_flight",
    )
    assert all(getattr(y, c) is None for c in absent)


def test_without_a_promise_there_is_no_slo_column(tmp_path):
    log = write(tmp_path / "a.csv", HEAD, f"y,{T0},100,11,50,300,1300,200")
    load(log, tmp_path / "s")
    [minute] = rows(tmp_path / "s", "tenant_minute")
    assert minute.slo_eligible is None
    assert minute.slo_missed is None


def test_findings_abstain_for_what_the_log_lacks(tmp_path):
    lines = [f"t{i % 9},{T0 + i},100,{1 + i % 7},50,300,900,200" for i in range(900)]
    load(write(tmp_path / "a.csv", HEAD, *lines), tmp_path / "s")
    source = open_source(str(tmp_path / "s"))
    window = read_window(source, T0 + 600, T0 + 900)
    source.close()
    findings = examine(open_case(window))
    for name in ("change", "hurt", "holder", "engine", "frozen", "adapter_thrash"):
        assert findings[name].holds is Holds.UNKNOWN, findings[name].sentence
    assert findings["everyone"].holds is Holds.NO  # what was asked for, the log does hold
    assert judge(window).kind == "unknown"


def test_with_a_promise_the_hurt_are_found_and_nobody_is_named(tmp_path):
    lines = [f"t{i % 9},{T0 + i},100,5,50,{300 if i < 600 else 9000},9900,200" for i in range(900)]
    load(write(tmp_path / "a.csv", HEAD, *lines), tmp_path / "s", slo_ttft_s=1.0)
    source = open_source(str(tmp_path / "s"))
    window = read_window(source, T0 + 600, T0 + 900)
    source.close()
    findings = examine(open_case(window))
    assert findings["hurt"].holds is Holds.YES
    assert findings["holder"].holds is Holds.UNKNOWN
    assert judge(window).tenant is None


def test_the_same_file_is_refused_and_another_one_joins_it(tmp_path):
    one = write(tmp_path / "a.csv", HEAD, f"y,{T0},100,11,50,300,1300,200")
    two = write(tmp_path / "b.csv", HEAD, f"y,{T0 + 5},100,11,50,300,1300,200")
    load(one, tmp_path / "s")
    same = write(tmp_path / "copy.csv", HEAD, f"y,{T0},100,11,50,300,1300,200")
    with pytest.raises(ImportProblem, match="this very file already"):
        load(same, tmp_path / "s")
    load(two, tmp_path / "s")
    assert len(rows(tmp_path / "s", "request")) == 2
    assert sum(m.offered_requests for m in rows(tmp_path / "s", "tenant_minute")) == 2


def test_an_interrupted_import_leaves_no_new_folder(tmp_path):
    log = write(tmp_path / "a.csv", HEAD, *(f"y,{T0 + i},1,1,5,3,5,200" for i in range(3000)))

    def interrupt(path: str, kept: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Importing(tmp_path / "s") as importing:
        importing.load(log, Options("csv", {}), interrupt)
    assert not (tmp_path / "s").exists()


def test_an_interrupted_import_into_a_store_is_completed_by_doing_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr("postmortem.importers.load.BATCH_ROWS", 100)
    monkeypatch.setattr("postmortem.importers.load.PROGRESS_ROWS", 50)
    load(write(tmp_path / "b.csv", HEAD, f"z,{T0},1,1,5,3,5,200"), tmp_path / "s")
    log = write(tmp_path / "a.csv", HEAD, *(f"y,{T0 + i / 9},1,1,5,3,5,200" for i in range(900)))
    seen = []

    def interrupt(path: str, kept: int) -> None:
        seen.append(kept)
        if len(seen) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Importing(tmp_path / "s") as importing:
        importing.load(log, Options("csv", {}), interrupt)
    assert 0 < len(rows(tmp_path / "s", "request")) < 901
    load(log, tmp_path / "s")
    assert len(rows(tmp_path / "s", "request")) == 901
    minutes = rows(tmp_path / "s", "tenant_minute")
    assert sum(m.offered_requests for m in minutes if m.tenant == "y") == 900


def test_minutes_written_in_parts_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr("postmortem.importers.load.MOST_CELLS", 3)
    # Backwards, so that every minute is met again after it was written.
    lines = [f"t{i % 4},{T0 + (i * 37) % 300},10,5,50,300,900,200" for i in range(200)]
    load(write(tmp_path / "a.csv", HEAD, *lines), tmp_path / "s")
    source = open_source(str(tmp_path / "s"))
    window = read_window(source, T0 - 60, T0 + 400)
    source.close()
    offered = sum(m.offered_requests or 0 for b in window.buckets for m in b.tenants.values())
    assert offered == 200


def test_a_bad_line_is_named_with_its_value_or_counted(tmp_path):
    log = write(tmp_path / "a.csv", HEAD, f"y,{T0},many,11,50,300,1300,200",
                f"y,{T0},10,11,50,300,1300,200", "y,1")  # fmt: skip
    with pytest.raises(ImportProblem, match=r"a\.csv:2: input_tokens = 'many'.*--skip-bad"):
        load(log, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    done = load(log, tmp_path / "s", skip_bad=True)
    assert (done.read, done.kept, done.bad) == (3, 1, 2)
    assert any("a.csv:4: 2 cells" in e for e in done.examples)


def test_a_clock_that_goes_back_is_said_and_rows_go_where_their_stamps_say(tmp_path):
    log = write(tmp_path / "a.csv", HEAD, f"y,{T0 + 120},1,1,1,1,1,200", f"y,{T0},1,1,1,1,1,200")
    done = load(log, tmp_path / "s")
    assert any("goes back 1 times, first at" in n for n in done.notes)
    assert [m.bucket_start for m in rows(tmp_path / "s", "tenant_minute")] == [
        T0 // 60 * 60, (T0 + 120) // 60 * 60,
    ]  # fmt: skip


def test_ids_that_come_again_stay_apart(tmp_path):
    log = write(tmp_path / "a.csv", "id,ts", f"q,{T0}", f"q,{T0 + 1}")
    done = load(log, tmp_path / "s")
    assert {r.request_id for r in rows(tmp_path / "s", "request")} == {"q", "q#2"}
    assert any("came again" in n for n in done.notes)
    assert {r.outcome for r in rows(tmp_path / "s", "request")} == {"unknown"}


def test_json_lines_and_parquet_tell_the_same_as_csv(tmp_path):
    values = [
        {"user_id": "a|<b>", "ts": "2026-11-29T17:00:00+01:00", "input_tokens": 5, "ttft_ms": 10.0},
        {"user_id": "c", "ts": "2026-11-29T16:00:01Z", "input_tokens": 6, "ttft_ms": None},
    ]
    lines = write(tmp_path / "a.jsonl", *(json.dumps(v) for v in values))
    with duckdb.connect() as con:
        read = con.read_json(str(lines))
        read.write_parquet(str(tmp_path / "a.parquet"))
    load(lines, tmp_path / "j", "jsonl")
    load(tmp_path / "a.parquet", tmp_path / "p", "parquet")

    def told(store):
        return [(r.tenant, r.arrived, r.prompt_tokens, r.ttft_s) for r in rows(store, "request")]

    assert told(tmp_path / "j") == told(tmp_path / "p")
    assert told(tmp_path / "j")[0][0] == "a|<b>"


def test_a_long_silence_is_unknown_and_a_short_one_idle():
    bridged = coverage({0.0, 60.0 * BRIDGED}, PLACE)
    assert len(bridged.rows) == BRIDGED + 1
    assert bridged.silences == 0
    cut = coverage({0.0, 60.0 * (BRIDGED + 2)}, PLACE)
    assert [r.bucket_start for r in cut.rows] == [0.0, 60.0 * (BRIDGED + 2)]
    assert cut.silences == 1


def test_the_run_of_a_file_hangs_on_its_content_alone(tmp_path):
    one, two = write(tmp_path / "a.csv", "x"), write(tmp_path / "b.csv", "x")
    other = write(tmp_path / "c.csv", "y")
    assert run_of(one) == run_of(two) != run_of(other)


requests = st.builds(
    lambda at, **k: Logged(where="x", arrived=T0 + at, **k),
    st.floats(0, 600),
    tenant=st.sampled_from([None, "a", "b"]),
    prompt_tokens=st.none() | st.integers(0, 999),
    output_tokens=st.none() | st.integers(0, 99),
    ttft_s=st.none() | st.floats(0, 100),
    latency_s=st.none() | st.floats(100, 200),
    outcome=st.none() | st.sampled_from(["finished", "failed", "aborted", "rejected", "timed_out"]),
)


@given(st.lists(requests, max_size=40))
def test_minutes_hold_each_request_once(log):
    place = Place("run", "p", 60.0, 1.0)
    minutes = Minutes(place)
    records = []
    for i, row in enumerate(log):
        minutes.add(row)
        records.append(record_of(row, place, str(i)))
    made = list(minutes.drain("run"))

    def total(column):
        return sum(getattr(m, column) or 0 for m in made)

    assert total("offered_requests") == len(log)
    ended = sum(total(o) for o in ("finished", "failed", "aborted", "timed_out"))
    assert ended == total("admitted_requests")
    assert total("slo_eligible") == total("slo_met") + total("slo_missed")
    assert total("slo_missed") == sum(r.slo_met is False for r in records)
    served = [r for r in log if r.ending != "rejected"]
    assert total("prompt_tokens") == sum(r.prompt_tokens or 0 for r in served)
    timed = sum(r.ttft_s is not None for r in served)
    assert sum(sum(m.ttft) for m in made if m.ttft) == timed


def test_vllm_results_are_read_by_their_own_clock(tmp_path):
    run = {
        "date": "20261129-170100", "duration": 60.0, "start_times": [1000.0, 1001.5],
        "input_lens": [10, 20], "output_lens": [3, 0], "ttfts": [0.2, 0.0],
        "itls": [[0.1, 0.3], []], "errors": ["", "refused"],
    }  # fmt: skip
    log = write(tmp_path / "a.jsonl", json.dumps(run))
    load(log, tmp_path / "s", "vllm-bench")
    good, bad = rows(tmp_path / "s", "request")
    assert good.arrived == pytest.approx(1_795_971_600.0)
    assert bad.arrived - good.arrived == pytest.approx(1.5)
    assert (good.ttft_s, good.max_gap_s, good.tpot_s) == (0.2, 0.3, pytest.approx(0.2))
    assert (bad.outcome, bad.ttft_s) == ("failed", None)
    del run["start_times"]
    with pytest.raises(ImportProblem, match="start_times"):
        load(write(tmp_path / "b.jsonl", json.dumps(run)), tmp_path / "t", "vllm-bench")


DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the public traces are not beside here")


@needs_data
def test_azures_rows_keep_their_own_instants_and_name_no_tenant(tmp_path):
    done = load(DATA / "azure_llm_2023/AzureLLMInferenceTrace_code.csv", tmp_path / "s", "azure")
    assert done.kept == 8819
    first = rows(tmp_path / "s", "request")[0]
    assert first.arrived == pytest.approx(1_700_158_623.97996, abs=1e-4)
    assert (first.tenant, first.ttft_s, first.outcome) == ("unknown", None, "finished")
    with pytest.raises(ImportProblem, match="instants of its own"):
        load(
            DATA / "azure_llm_2023/AzureLLMInferenceTrace_code.csv", tmp_path / "t", "azure",
            origin=T0,
        )  # fmt: skip


@needs_data
def test_the_vtc_runs_latencies_are_kept_and_minus_one_is_none(tmp_path):
    done = load(DATA / "vtc_synthetic/VTC_increase.jsonl", tmp_path / "s", "vtc")
    read = rows(tmp_path / "s", "request")
    assert len(read) == done.kept
    assert read[0].ttft_s == pytest.approx(0.1331946849822998)
    assert all(r.ttft_s is None or r.ttft_s >= 0 for r in read)
    assert read[0].arrived == pytest.approx(FALLBACK_UNIX_S + 2.0)
