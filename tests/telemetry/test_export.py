"""A window written out: whole or not at all, the same rows as the store's."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.cli import FAILED, OK, USAGE, invoke
from telemetry.ask import export as exporting
from telemetry.ask import pacing, perfetto
from telemetry.ask.export import export
from telemetry.errors import StoreError
from telemetry.instants import micros
from telemetry.service.process import StoreServer
from telemetry.source import FileSource, LiveSource, MemorySource, Source, open_source
from telemetry.store.store import Store
from telemetry.tables import TABLES
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    DAY_S,
    ODD_NAMES,
    RUN_ROW,
    T0,
    batch,
    charge,
    deliver,
    engine_minute,
    event,
    everything,
    minute,
    request,
)
from tests.telemetry.simulated import simulated

ALWAYS = {"start": float("-inf"), "end": float("inf")}
MIDNIGHT = T0 + 16 * 3600


def rows() -> list[Any]:
    return [
        *(minute(name, output_tokens=i, ttft=tuple(range(21))) for i, name in enumerate(ODD_NAMES)),
        *(minute("a", MIDNIGHT + 60 * i, output_tokens=i + 5) for i in range(-5, 5)),
        *(engine_minute(MIDNIGHT + 60 * i, steps=1, waiting_avg=2.0) for i in range(-5, 5)),
        charge("a", ODD_NAMES[0], 1.5),
        *(request(n, MIDNIGHT - 15 + n, tenant=ODD_NAMES[n % 6]) for n in range(30)),
        event(1, T0 + 30, tenant=ODD_NAMES[4], detail="x,\n\"y\"", value=1.0),
        RUN_ROW,
        ADAPTER_ROW,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "store"
    with Store.open(path) as store:
        deliver(store, batch(*rows()))
        store.close_day("2027-01-15")
    return path


@pytest.fixture
def source(folder: Path) -> Iterator[Source]:
    made = FileSource(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("flood"))


def test_exported_parquet_is_asked_like_the_store_it_came_from(
    source: Source, tmp_path: Path
) -> None:
    done = export(source, "parquet", tmp_path / "out", **ALWAYS)
    assert everything(open_source(tmp_path / "out")) == everything(source)
    assert done.rows["request"] == 30
    assert done.bytes == sum(f.stat().st_size for f in (tmp_path / "out").iterdir())
    assert not (tmp_path / "out" / "policy.parquet").exists()  # no rows, no file


def test_a_live_store_exports_the_same_files(source: Source, tmp_path: Path, folder: Path) -> None:
    store = Store.open(tmp_path / "live")
    deliver(store, batch(*rows()))
    server = StoreServer(store, f"unix:{tmp_path}/s")
    server.start()
    live = LiveSource(server.address)
    for form in ("csv", "perfetto"):
        here, there = tmp_path / f"{form}-files", tmp_path / f"{form}-live"
        export(source, form, here, **ALWAYS)
        export(live, form, there, **ALWAYS)
        if here.is_dir():
            files = {p.name: p.read_bytes() for p in here.iterdir()}
            assert {p.name: p.read_bytes() for p in there.iterdir()} == files
        else:
            assert there.read_bytes() == here.read_bytes()
    live.close()
    server.stop(0.2)


def test_csv_keeps_odd_names_and_absent_values(source: Source, tmp_path: Path) -> None:
    export(source, "csv", tmp_path / "m.csv", tables=["tenant_minute"], **ALWAYS)
    with (tmp_path / "m.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert {r["tenant"] for r in found} == {*ODD_NAMES, "a"}
    assert tuple(found[0]) == TABLES["tenant_minute"].column_names
    assert {r["service"] for r in found} == {""}
    export(source, "csv", tmp_path / "e.csv", tables=["event"], **ALWAYS)
    with (tmp_path / "e.csv").open(newline="", encoding="utf-8") as file:
        [one] = csv.DictReader(file)
    assert one["detail"] == 'x,\n"y"'


def test_a_window_over_midnight_has_its_rows_and_no_others(source: Source, tmp_path: Path) -> None:
    window = {"start": MIDNIGHT - 120, "end": MIDNIGHT + 60}
    done = export(source, "parquet", tmp_path / "out", **window)
    assert (done.rows["tenant_minute"], done.rows["request"], done.rows["event"]) == (3, 30, 0)
    assert done.rows["engine_run"] == 1  # of its run, whatever the window
    for table in ("tenant_minute", "request"):
        wanted = source.read(table, window["start"], window["end"])
        assert open_source(tmp_path / "out").read(table, 0, 1e10) == wanted


def test_pieces_are_all_rows_once_however_long_they_are(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = source.read("request", T0, T0 + DAY_S)
    for rows_a_piece in (1, 4, 1000):
        monkeypatch.setattr(pacing, "ROWS_A_PIECE", rows_a_piece)
        found = list(pacing.pieces(source, "request", T0, T0 + DAY_S))
        assert [r for some in found for r in some] == wanted
    assert len(found) < 100


def test_an_empty_window_and_an_empty_store_write_no_rows(source: Source, tmp_path: Path) -> None:
    empty = {"start": T0 - DAY_S, "end": T0 - 1}
    done = export(source, "csv", tmp_path / "none", tables=["request", "event"], **empty)
    assert (done.rows, done.bytes) == ({"request": 0, "event": 0}, 0)
    assert list((tmp_path / "none").iterdir()) == []
    export(source, "csv", tmp_path / "alone.csv", tables=["request"], **empty)
    header = ",".join(TABLES["request"].column_names) + "\n"
    assert (tmp_path / "alone.csv").read_text() == header
    nothing = MemorySource()
    export(nothing, "perfetto", tmp_path / "t.json", **ALWAYS)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] == []
    nothing.close()


def test_what_is_there_is_replaced_only_by_force(source: Source, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, "csv", target, tables=["event", "request"], **ALWAYS)
    before = {p.name: p.read_bytes() for p in target.iterdir()}
    with pytest.raises(StoreError, match="is there already"):
        export(source, "parquet", target, **ALWAYS)
    assert {p.name: p.read_bytes() for p in target.iterdir()} == before
    export(source, "parquet", target, force=True, **ALWAYS)
    assert {p.suffix for p in target.iterdir()} == {".parquet"}
    export(source, "csv", target, tables=["event"], force=True, **ALWAYS)
    assert target.is_file()
    export(source, "csv", target, tables=["event", "request"], force=True, **ALWAYS)
    assert target.is_dir()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]  # nothing is left beside it


@pytest.mark.parametrize("name", ["runs.duckdb", "2027-01-15.duckdb.wal", "2027-01-15/event.csv"])
def test_a_file_of_a_store_is_never_replaced(source: Source, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    target.write_text("a store's")
    with pytest.raises(StoreError, match="is in a store's folder"):
        export(source, "csv", target, tables=["event"], force=True, **ALWAYS)
    assert target.read_text() == "a store's"


def test_a_device_or_a_pipe_is_never_replaced(source: Source, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match="a device, a pipe or a socket"):
        export(source, "csv", pipe, tables=["event"], force=True, **ALWAYS)
    assert pipe.is_fifo()


def test_a_folder_with_other_things_in_it_is_never_replaced(
    source: Source, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"holds 'thesis\.tex', which no export has written"):
        export(source, "csv", tmp_path / "mine", force=True, **ALWAYS)
    with pytest.raises(StoreError, match="called like a day of a store"):
        export(source, "csv", folder / "2027-01-15", force=True, **ALWAYS)
    with pytest.raises(StoreError, match="which no export has written"):
        export(source, "csv", folder, force=True, **ALWAYS)


@pytest.mark.parametrize("form", ["parquet", "csv", "perfetto"])
def test_an_export_that_fails_leaves_what_was_there(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "out").write_text("old")

    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "_sync_one", fail)
    with pytest.raises(StoreError, match=r"cannot write .*out: No space left on device"):
        export(source, form, tmp_path / "out", force=True, **ALWAYS)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "old")]


# --- the trace -----------------------------------------------------------------------------------


def trace(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def test_phases_lie_end_to_end_and_end_at_the_first_token() -> None:
    row = request(
        1, T0, wait_front_s=0.1, wait_slot_s=1.0, wait_budget_s=0.5, wait_kv_s=0.0,
        wait_adapter_s=0.25, prefill_s=0.15, ttft_s=2.0, first_token=T0 + 2, last_token=T0 + 5,
    )  # fmt: skip
    at = micros(T0)
    assert list(perfetto.phases(row)) == [
        ("front", at, at + 100_000),
        ("slot", at + 100_000, at + 1_100_000),
        ("budget", at + 1_100_000, at + 1_600_000),
        ("adapter", at + 1_600_000, at + 1_850_000),
        ("prefill", at + 1_850_000, at + 2_000_000),
        ("decode", at + 2_000_000, at + 5_000_000),
    ]


def test_requests_of_a_tenant_that_overlap_lie_in_different_lanes(
    flood: Path, tmp_path: Path
) -> None:
    source = open_source(flood)
    done = export(source, "perfetto", tmp_path / "t.json", **ALWAYS)
    events = trace(tmp_path / "t.json")
    ends: dict[tuple[int, int], int] = {}
    requests = [e for e in events if e.get("cat") == "request"]
    assert done.rows["request"] > 60
    for e in sorted(requests, key=lambda e: e["ts"]):
        lane = (e["pid"], e["tid"])
        assert ends.get(lane, 0) <= e["ts"]
        ends[lane] = e["ts"] + e["dur"]
    for phase in (e for e in events if e.get("cat") == "phase"):
        assert any(
            (r["pid"], r["tid"]) == (phase["pid"], phase["tid"])
            and r["ts"] <= phase["ts"]
            and phase["ts"] + phase["dur"] <= r["ts"] + r["dur"]
            for r in requests
        )


def test_a_trace_has_slices_counters_and_instants_of_a_real_run(
    flood: Path, tmp_path: Path
) -> None:
    source = open_source(flood)
    export(source, "perfetto", tmp_path / "t.json", **ALWAYS)
    events = trace(tmp_path / "t.json")
    kinds = Counter(e["ph"] for e in events)
    assert set(kinds) == {"M", "X", "C", "i"}
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {n.split(" (")[0] for n in names if n.startswith("tenant")} == {
        "tenant heavy",
        "tenant light",
    }
    stored = source.read("request", *ALWAYS.values())
    served = [r for r in stored if r.ended is not None and r.ended > r.arrived]
    drawn = [e for e in events if e.get("cat") == "request"]
    assert {e["name"] for e in drawn} == {r.request_id for r in served}
    prefill_us = sum(e["dur"] for e in events if e["name"] == "prefill" and e.get("cat") == "phase")
    assert prefill_us / 1e6 == pytest.approx(sum(r.prefill_s or 0 for r in served), abs=1e-3)
    refused = [e for e in events if e["name"] == "rejected rpm"]
    assert len(refused) == sum(r.reject_reason == "rpm" for r in stored) > 0


def test_counters_come_down_where_no_row_follows() -> None:
    made = perfetto.Trace()
    events = [
        e
        for row in (minute("a", waiting_avg=3.0), minute("a", T0 + 180, waiting_avg=1.0))
        for e in made.of(row)
    ] + list(made.end())
    counted = [(e["ts"] / 1e6 - T0, e["args"]["waiting"]) for e in events if e["ph"] == "C"]
    assert counted == [(0, 3.0), (60, 0.0), (180, 1.0), (240, 0.0)]


def test_odd_names_are_escaped_in_a_trace() -> None:
    made = perfetto.Trace()
    row = request(1, tenant="\x1b[31mred", ended=T0 + 1)
    assert "\x1b" not in json.dumps(list(made.of(row)), ensure_ascii=False)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_says_rows_and_bytes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    base = ["export", "--store", str(folder), "--format", "parquet"]
    assert invoke([*base, "-o", str(target), "--json"]) == OK
    said = json.loads(capsys.readouterr().out)
    assert said["rows"]["request"] == 30
    assert said["bytes"] > 0
    assert invoke([*base, "-o", str(target)]) == FAILED
    assert "give --force" in capsys.readouterr().err
    window = ["--from", "2027-01-16T00:00:00", "--to", "2027-01-16T00:02:00"]
    assert invoke([*base, *window, "-o", str(target), "--force", "--table", "request"]) == OK
    assert "request                        15 rows" in capsys.readouterr().out


def test_the_command_refuses_what_makes_no_sense(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["export", "--store", str(folder), "-o", str(tmp_path / "x"), "--format"]
    for args, says in (
        ([*base, "csv", "--table", "nothing"], "there are tenant_minute"),
        ([*base, "perfetto", "--table", "request"], "leave out --table"),
        ([*base, "csv", "--from", "20", "--to", "10"], "the window --from 20 --to 10 is empty"),
        ([*base, "csv", "--from", "nan"], "the window --from nan is empty"),
        ([*base, "csv", "--from", "yesterday"], "yesterday"),
        ([*base, "arrow"], "arrow"),
    ):
        assert invoke(args) == USAGE
        assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    empty = ["export", "--store", str(folder), "--format", "csv", "--table", "request"]
    assert invoke([*empty, "--from", "10", "--to", "20", "-o", str(tmp_path / "x")]) == OK
    assert "no rows in that window" in capsys.readouterr().err
