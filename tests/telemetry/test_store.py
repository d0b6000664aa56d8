"""A store is a folder: days in files, closed to Parquet, one writer, nothing acknowledged lost."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from telemetry.errors import MalformedBatch, QueryError, StoreBusy, StoreError
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.source import FileSource, StoreSource
from telemetry.store import owner
from telemetry.store import shelf as shelf_module
from telemetry.store.store import Store
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
        "manifest.json",
        *(
            f"{t}.parquet"
            for t in ("tenant_minute", "engine_minute", "interference_minute", "request", "event")
        ),
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
        store._shelf.con.execute('CHECKPOINT "2027-01-15"')
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
    files = {p.name for p in target.rglob("*") if p.is_file()}
    assert {n for n in files if not n.endswith(".parquet")} == {"manifest.json"}
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


def test_a_closed_day_that_cannot_be_reached_now_is_left_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise duckdb.IOException(f'Cannot open file "{folder}/x": Too many open files')

    with Store.open(folder) as store:
        deliver(store, batch(*two_days()))
        store.close_day(FIRST)
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.store.parts.check_parquet", unreachable)
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

    connect = shelf_module.connect
    monkeypatch.setattr(shelf_module, "connect", impatient)
    caplog.set_level("DEBUG", "telemetry.store.store")
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
    assert not (folder / "quarantine").exists()


def test_a_question_after_a_failed_checkpoint_is_answered(folder: Path) -> None:
    with Store.open(folder) as store:
        deliver(store, *map(events, range(1, 30)))
        with no_file_beyond(20_000), pytest.raises(duckdb.Error, match="invalidated"):
            store._shelf.con.execute(f'CHECKPOINT "{FIRST}"')
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
        assert not (folder / "quarantine").exists()


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
    assert not (folder / "quarantine").exists()


@pytest.mark.parametrize("name", ["what?", os.fsdecode(b"raw\xff"), "tenant=evil"])
def test_a_name_that_duckdb_misreads_is_refused_before_rows_get_lost(
    tmp_path: Path, name: str
) -> None:
    for kind in (Store.open, FileSource):
        with pytest.raises(StoreError, match="choose another folder"):
            kind(tmp_path / name / "store")
    assert not (tmp_path / name).exists()


def test_neither_store_nor_queries_load_torch(folder: Path) -> None:
    code = (
        "import sys, json\n"
        "import telemetry.service.process, telemetry.pipeline.exporter\n"
        "import telemetry.cli, telemetry.source\n"
        "from telemetry.store.store import Store\n"
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
    code = (
        "import sys, telemetry.pipeline.exporter, telemetry.service.client; "
        "print('duckdb' in sys.modules)"
    )
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
