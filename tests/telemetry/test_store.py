"""A store is a folder: days in files, closed to Parquet, one writer, nothing acknowledged lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from telemetry import owner
from telemetry import store as store_module
from telemetry.errors import MalformedBatch, QueryError, StoreBusy, StoreError
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.source import FileSource, StoreSource
from telemetry.store import Store
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    DAY_S,
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

FIRST, SECOND = "2027-01-15", "2027-01-16"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with Store.open(folder) as opened:
        yield opened


def two_days() -> list[Any]:
    return [
        minute("a", output_tokens=1, ttft=(3,) + (0,) * 20),
        minute("a", T0 + DAY_S, output_tokens=2),
        engine_minute(steps=5),
        engine_minute(T0 + DAY_S, steps=6),
        charge("a", "b", 0.5),
        request(1, T0 + 1.000001, ttft_s=0.25),
        request(2, T0 + DAY_S),
        event(1, T0 + 2, detail="it's"),
        RUN_ROW,
        ADAPTER_ROW,
    ]


def test_rows_go_to_the_day_of_their_bucket_or_instant(store: Store, folder: Path) -> None:
    deliver(store, batch(*two_days()))
    assert store.days() == {FIRST: False, SECOND: False}
    assert {p.name for p in folder.glob("*.duckdb")} == {
        f"{FIRST}.duckdb",
        f"{SECOND}.duckdb",
        "runs.duckdb",
    }
    source = StoreSource(store)
    assert source.read("tenant_minute", T0, T0 + 60) == [two_days()[0]]
    assert source.read("tenant_minute", T0, T0 + DAY_S) == [two_days()[0]]
    assert len(source.read("tenant_minute", T0, T0 + DAY_S + 1)) == 2
    assert source.read("request", T0 + 1.000001, T0 + 1.000002) == [
        request(1, T0 + 1.000001, ttft_s=0.25)
    ]
    assert source.read("request", T0 + 1.000002, T0 + 2) == []
    assert source.read("adapter", 0.0, 1.0) == [ADAPTER_ROW]
    assert source.span() == (T0, T0 + DAY_S + 60)


def test_an_empty_store_answers(store: Store) -> None:
    source = StoreSource(store)
    assert source.span() is None
    assert not any(everything(source).values())
    assert source.query("tenants_now", start=0.0, end=T0).rows == ()


def test_what_was_committed_is_there_after_reopening(folder: Path) -> None:
    with Store.open(folder) as first:
        deliver(first, batch(*two_days()))
        before = everything(StoreSource(first))
    assert not list(folder.glob("*.wal"))
    with Store.open(folder) as second:
        assert everything(StoreSource(second)) == before


def test_a_closed_day_is_parquet_and_reads_the_same(store: Store, folder: Path) -> None:
    deliver(store, batch(*two_days()))
    before = everything(StoreSource(store))
    store.close_day(FIRST)
    assert store.days() == {FIRST: True, SECOND: False}
    assert not (folder / f"{FIRST}.duckdb").exists()
    assert {p.name for p in (folder / FIRST).iterdir()} == {
        f"{t}.parquet"
        for t in ("tenant_minute", "engine_minute", "interference_minute", "request", "event")
    }
    assert everything(StoreSource(store)) == before
    store.close_day(FIRST)
    assert everything(StoreSource(store)) == before


def test_late_rows_open_a_closed_day_again_and_merge(store: Store, folder: Path) -> None:
    deliver(store, batch(*two_days(), seq=2))
    store.close_day(FIRST)
    deliver(store, batch(minute("a", output_tokens=7, prompt_tokens=1), seq=1))
    deliver(store, batch(minute("late", output_tokens=9), seq=1))
    assert store.days()[FIRST] is False
    assert not (folder / FIRST).exists()
    rows = StoreSource(store).read("tenant_minute", T0, T0 + 60)
    assert rows == [
        minute("a", output_tokens=1, prompt_tokens=1, ttft=(3,) + (0,) * 20),
        minute("late", output_tokens=9),
    ]
    store.close_day(FIRST)
    assert StoreSource(store).read("tenant_minute", T0, T0 + 60) == rows


def test_days_close_when_they_have_been_over_for_the_grace(store: Store) -> None:
    deliver(store, batch(*two_days()))
    midnight = T0 - 8 * 3600 + DAY_S  # T0 is 08:00
    assert store.close_old_days(midnight + 3600) == []
    assert store.close_old_days(midnight + 3601) == [FIRST]
    assert store.days() == {FIRST: True, SECOND: False}


def test_a_close_cut_short_between_its_two_steps_loses_nothing(folder: Path) -> None:
    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
        before = everything(StoreSource(store))
        file = folder / f"{FIRST}.duckdb"
        store._con.execute('CHECKPOINT "2027-01-15"')
        copy = file.read_bytes()
        store.close_day(FIRST)
    file.write_bytes(copy)  # the folder stands, the file does still
    assert everything(FileSource(folder)) == before
    with Store.open(folder) as store:
        assert everything(StoreSource(store)) == before
        deliver(store, batch(minute("new", output_tokens=1)))
        store.close_day(FIRST)
        assert minute("new", output_tokens=1) in everything(StoreSource(store))["tenant_minute"]


def test_an_export_is_parquet_that_anyone_can_read(store: Store, tmp_path: Path) -> None:
    deliver(store, batch(*two_days()))
    store.close_day(FIRST)
    target = store.export(tmp_path / "sample")
    assert {p.suffix for p in target.rglob("*") if p.is_file()} == {".parquet"}
    assert everything(FileSource(target)) == everything(StoreSource(store))
    [(tokens,)] = duckdb.sql(
        f"SELECT sum(output_tokens) FROM '{target}/*/tenant_minute.parquet'"
    ).fetchall()
    assert tokens == 3
    with pytest.raises(StoreError, match="not empty"):
        store.export(target)


def test_a_second_writer_is_told_who_has_the_store(store: Store, folder: Path) -> None:
    with pytest.raises(StoreBusy, match=f"in use by process {os.getpid()}: stop that process"):
        Store.open(folder)
    store.close()
    with Store.open(folder):
        assert owner.owner_pid(folder) == os.getpid()
    assert not owner.owned(folder)


def test_a_reader_of_a_store_that_only_its_owner_may_open_is_told_who_has_it(
    store: Store, folder: Path
) -> None:
    with pytest.raises(StoreBusy, match=f"in use by process {os.getpid()}"):
        FileSource(folder).span()


def test_malformed_bytes_change_nothing(store: Store) -> None:
    with pytest.raises(MalformedBatch):
        store.ingest_metrics(b"\xff\xff\xff\xff")
    assert store.info().batches == 0
    assert store.days() == {}


def test_questions_nobody_can_answer_say_what_there_is(store: Store) -> None:
    source = StoreSource(store)
    with pytest.raises(QueryError, match=r"no query 'who': there are .*tenants_now"):
        source.query("who")
    with pytest.raises(QueryError, match="no table 'minute': there are tenant_minute"):
        source.read("minute", 0.0, 1.0)
    with pytest.raises(QueryError, match="takes the parameters end, start; given: start"):
        source.query("tenants_now", start=0.0)
    with pytest.raises(QueryError, match="expected unix seconds"):
        source.query("tenants_now", start="'; drop table request; --", end=1.0)


@pytest.mark.parametrize(
    "spoil", [lambda f: f.write_bytes(b"garbage" * 999), lambda f: os.truncate(f, 100_000)]
)
def test_a_corrupt_day_is_moved_aside_and_the_rest_goes_on(
    folder: Path, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
    spoil(folder / f"{FIRST}.duckdb")
    assert len(FileSource(folder).read("request", T0, T0 + 2 * DAY_S)) == 1
    assert f"{FIRST}.duckdb cannot be read and is left out" in caplog.text
    with Store.open(folder) as store:
        assert store.days() == {SECOND: False}
        assert f"moved to {FIRST}.duckdb.quarantined-1" in caplog.text
        deliver(store, batch(*two_days()))
        assert len(StoreSource(store).read("request", T0, T0 + 2 * DAY_S)) == 2
    assert (folder / f"{FIRST}.duckdb.quarantined-1").exists()


def test_a_corrupt_closed_day_is_moved_aside_too(folder: Path) -> None:
    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
        store.close_day(FIRST)
    (folder / FIRST / "request.parquet").write_bytes(b"PAR1 not really PAR1")
    with Store.open(folder) as store:
        assert store.days() == {SECOND: False}
    assert (folder / f"{FIRST}.quarantined-1").is_dir()


def test_a_closed_day_that_cannot_be_reached_now_is_left_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise duckdb.IOException(f'Cannot open file "{folder}/x": Too many open files')

    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
        store.close_day(FIRST)
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.parts.check_parquet", unreachable)
        with pytest.raises(StoreError, match="Too many open files"):
            Store.open(folder)
    with Store.open(folder) as store:
        assert store.days() == {FIRST: True, SECOND: False}


# --- a full disk ---------------------------------------------------------------------------------


@contextmanager
def no_file_beyond(size_bytes: int) -> Iterator[None]:
    """As on a full disk, files cannot grow: for this process, beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def events(seq: int, at: float = T0) -> Batch:
    noise = Random(seq).randbytes(8_000).hex()
    return batch(event(seq, at + seq, detail=noise), seq=seq)


def count(store: Store) -> int:
    return len(StoreSource(store).read("event", 0.0, float("inf")))


def test_a_full_disk_costs_nothing_acknowledged_and_is_over_when_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def impatient(where: Path) -> duckdb.DuckDBPyConnection:
        con = connect(where)
        con.execute("SET checkpoint_threshold = '100KB'")
        return con

    connect = store_module._connect
    monkeypatch.setattr(store_module, "_connect", impatient)
    caplog.set_level("DEBUG", "telemetry.store")
    acknowledged, refused = 0, 0
    with Store.open(folder) as store:
        deliver(store, batch(minute("a", output_tokens=1)))
        with no_file_beyond(250_000):
            for seq in range(2, 60):
                try:
                    deliver(store, events(seq))
                    acknowledged += 1
                except StoreError:
                    refused += 1
                assert acknowledged <= count(store) <= acknowledged + refused
            assert len(StoreSource(store).read("tenant_minute", 0.0, float("inf"))) == 1
        assert acknowledged > 0
        assert refused > 0
        assert "has been invalidated" in caplog.text  # the checkpoint failed, not only the write
        for seq in range(2, 60):
            deliver(store, events(seq))
        assert count(store) == 58
    with Store.open(folder) as store:
        assert count(store) == 58
    assert not list(folder.glob("*quarantined*"))


def test_a_question_after_a_failed_checkpoint_is_answered(folder: Path) -> None:
    with Store.open(folder) as store:
        deliver(store, *map(events, range(1, 30)))
        with no_file_beyond(20_000), pytest.raises(duckdb.Error, match="invalidated"):
            store._con.execute(f'CHECKPOINT "{FIRST}"')
        assert count(store) == 29


@pytest.mark.parametrize("name", ["store", "corrupt, not a valid DuckDB 'file'", "Footer length"])
def test_a_day_that_begins_on_a_full_disk_begins_when_there_is_room(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name  # what it is called tells nothing about what is in it
    with Store.open(folder) as store:
        deliver(store, events(1))
        with no_file_beyond(4096):
            for at in (T0 + DAY_S, T0):
                with pytest.raises(StoreError, match="File too large"):
                    deliver(store, events(2, at))
            assert count(store) == 1
        assert not list(folder.glob(".*opening*"))
        deliver(store, events(2, T0 + DAY_S))
        assert count(store) == 2
        assert not list(folder.glob("*quarantined*"))


def test_a_close_or_a_reopening_without_room_leaves_the_day_as_it_was(folder: Path) -> None:
    with Store.open(folder) as store:
        deliver(store, *map(events, range(1, 5)))
        with no_file_beyond(4096), pytest.raises(StoreError, match="cannot be closed"):
            store.close_day(FIRST)
        assert (count(store), store.days()) == (4, {FIRST: False})
        store.close_day(FIRST)
        with no_file_beyond(4096), pytest.raises(StoreError, match="File too large"):
            deliver(store, events(5))
        assert (count(store), store.days()) == (4, {FIRST: True})
        deliver(store, events(5))
        assert count(store) == 5


def test_what_a_close_cut_short_has_left_takes_no_room_for_ever(folder: Path) -> None:
    folder.mkdir()
    (folder / f".{FIRST}.closing").mkdir()
    (folder / f".{FIRST}.closing" / "event.parquet").write_bytes(b"half")
    (folder / f".{FIRST}.duckdb.opening").write_bytes(b"half")
    (folder / f".{FIRST}.duckdb.opening.wal").write_bytes(b"half")
    with Store.open(folder) as store:
        assert store.days() == {}
    assert {p.name for p in folder.iterdir()} == {"LOCK"}


def test_a_closed_store_writes_no_more_even_when_asked(folder: Path) -> None:
    store = Store.open(folder)
    deliver(store, events(1))
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        deliver(store, events(2))
    with Store.open(folder) as next_one:
        assert count(next_one) == 1


# --- names of folders ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "ünï🙂", "it's", 'dq"q', "a*b", "[x]y", "{a,b}", "a%41"])
def test_any_other_name_of_a_folder_does(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
        store.close_day(FIRST)
        before = everything(StoreSource(store))
        assert len(before["tenant_minute"]) == 2
    assert everything(FileSource(folder)) == before
    with Store.open(folder) as store:
        deliver(store, batch(minute("b", output_tokens=1), seq=2))
        assert store.days() == {FIRST: False, SECOND: False}
    assert not list(folder.glob("*quarantined*"))


@pytest.mark.parametrize("name", ["what?", os.fsdecode(b"raw\xff"), "tenant=evil"])
def test_a_name_that_duckdb_misreads_is_refused_before_rows_get_lost(
    tmp_path: Path, name: str
) -> None:
    for kind in (Store.open, FileSource):
        with pytest.raises(StoreError, match="choose another folder"):
            kind(tmp_path / name / "store")
    assert not (tmp_path / name).exists()


def test_a_file_of_an_older_version_gains_the_columns_it_lacks(folder: Path) -> None:
    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
    con = duckdb.connect(str(folder / f"{FIRST}.duckdb"))
    con.execute("ALTER TABLE tenant_minute DROP COLUMN stall_s")
    con.close()
    with Store.open(folder) as store:
        deliver(store, batch(minute("a", stall_s=1.5), seq=2))
        rows = StoreSource(store).read("tenant_minute", T0, T0 + 60)
        assert [(r.output_tokens, r.stall_s) for r in rows] == [(1, 1.5)]


# --- killed --------------------------------------------------------------------------------------

_WRITER = """
import sys
from telemetry.otlp import encode
from telemetry.store import Store
from tests.telemetry.delivered import batch, minute, request, T0
with Store.open(sys.argv[1]) as store:
    for n in range(int(sys.argv[2]), 100_000):
        metrics, logs = encode(batch(minute("a", T0 + 60 * n, output_tokens=n), request(n, T0 + n)))
        store.ingest_metrics(metrics)
        store.ingest_logs(logs)
        print(n, flush=True)
"""


def killed_writer(folder: Path, first: int, acknowledgements: int) -> int:
    """Let a process ingest, kill it without warning; returns the last acknowledged number."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), str(first)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        last = [int(process.stdout.readline()) for _ in range(acknowledgements)][-1]
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.wait()
        process.stdout.close()
    complete = [line for line in rest.split("\n")[:-1] if line]
    return int(complete[-1]) if complete else last


def check_kills(folder: Path, kills: int, acknowledgements: int) -> None:
    acknowledged = -1
    for _ in range(kills):
        acknowledged = killed_writer(folder, acknowledged + 1, acknowledgements)
        with Store.open(folder) as store:
            source = StoreSource(store)
            numbers = [r.output_tokens for r in source.read("tenant_minute", 0.0, float("inf"))]
            # At most one batch was committed and not acknowledged when the kill came.
            assert numbers in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))
            for n in range(max(0, acknowledged - 2), acknowledged + 1):
                deliver(store, batch(minute("a", T0 + 60 * n, output_tokens=n), request(n, T0 + n)))
            again = [r.output_tokens for r in source.read("tenant_minute", 0.0, float("inf"))]
            assert again == numbers
            asked = {r.request_id for r in source.read("request", 0.0, float("inf"))}
            assert {f"q{n}" for n in range(acknowledged + 1)} <= asked
            assert len(asked) == len(source.read("request", 0.0, float("inf")))


def test_a_killed_writer_loses_nothing_it_acknowledged(folder: Path) -> None:
    check_kills(folder, kills=2, acknowledgements=5)


@pytest.mark.full
def test_thirty_kills_lose_nothing_acknowledged(folder: Path) -> None:
    check_kills(folder, kills=30, acknowledgements=7)


def test_the_files_of_a_killed_writer_can_be_read_before_anyone_reopens_them(folder: Path) -> None:
    acknowledged = killed_writer(folder, 0, 3)
    rows = FileSource(folder).read("tenant_minute", 0.0, float("inf"))
    assert [r.output_tokens for r in rows][: acknowledged + 1] == list(range(acknowledged + 1))


def test_neither_store_nor_queries_load_torch(folder: Path) -> None:
    code = (
        "import sys, json\n"
        "import telemetry.service, telemetry.pipeline, telemetry.cli, telemetry.source\n"
        "from telemetry.store import Store\n"
        "s = Store.open(sys.argv[1]); s.run('span', {}); s.close()\n"
        "print(json.dumps([m for m in ('torch', 'triton', 'engine') if m in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stdout) == []


def test_a_sender_does_not_load_duckdb() -> None:
    code = "import sys, telemetry.pipeline, telemetry.client; print('duckdb' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "False"


def test_the_receipt_says_what_was_refused(store: Store) -> None:
    metrics, _ = encode(batch(minute("a", service=float("nan"), output_tokens=4)))
    assert metrics is not None
    receipt = store.ingest_metrics(metrics)
    assert (receipt.rows, receipt.refused) == (1, 1)
    assert "service" in receipt.reasons[0]
    assert store.info().refused_points == 1
