"""Parts of older versions are read and brought forward; newer ones are refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.errors import StoreError, StoreTooNew
from telemetry.source import FileSource, StoreSource
from telemetry.store import migrations
from telemetry.store.migrations import MIGRATIONS, Migration
from telemetry.store.store import Store
from tests.telemetry.delivered import DAY_S, T0, batch, deliver, engine_minute, minute, request

FIRST, SECOND = "2027-01-15", "2027-01-16"
OPENERS: list[Any] = [Store.open, lambda folder: FileSource(folder).span()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed day and an open one."""
    with Store.open(tmp_path / "store") as store:
        for at in (T0, T0 + DAY_S):
            deliver(
                store,
                batch(minute("a", at, output_tokens=1), engine_minute(at, steps=1), request(1, at)),
            )
        store.close_day(FIRST)
    return tmp_path / "store"


def edit(file: Path, *statements: str) -> None:
    con = duckdb.connect(str(file))
    for statement in statements:
        con.execute(statement).fetchall()
    con.close()


def version(file: Path) -> list[Any]:
    con = duckdb.connect(str(file), read_only=True)
    try:
        return con.execute("SELECT version FROM store_version").fetchall()
    finally:
        con.close()


def test_every_part_says_its_version(folder: Path) -> None:
    assert version(folder / f"{SECOND}.duckdb") == [(migrations.current(),)]
    said = json.loads((folder / FIRST / migrations.MANIFEST).read_text())
    assert said["version"] == migrations.current()
    assert said["tables"] == ["engine_minute", "request", "tenant_minute"]


def test_a_file_from_before_versions_gains_what_it_lacks(folder: Path) -> None:
    file = folder / f"{SECOND}.duckdb"
    edit(
        file,
        "DROP TABLE store_version",
        "ALTER TABLE tenant_minute DROP COLUMN stall_s",
        "DROP TABLE event",
    )
    files = FileSource(folder)
    assert len(files.read("tenant_minute", 0.0, float("inf"))) == 2
    assert files.read("event", 0.0, float("inf")) == []
    with Store.open(folder) as store:
        deliver(store, batch(minute("a", T0 + DAY_S, stall_s=1.5), seq=2))
        [row] = StoreSource(store).read("tenant_minute", T0 + DAY_S, T0 + 2 * DAY_S)
        assert (row.output_tokens, row.stall_s) == (1, 1.5)
    assert version(file) == [(migrations.current(),)]


def test_an_older_closed_day_is_read_by_names_and_brought_forward_when_it_opens(
    folder: Path,
) -> None:
    day = folder / FIRST
    (day / migrations.MANIFEST).unlink()
    old = day / "tenant_minute.parquet"
    duckdb.execute(
        f"COPY (SELECT * EXCLUDE (stall_s), 7 AS dropped_since FROM '{old}') "
        f"TO '{old}.new' (FORMAT parquet)"
    ).fetchall()
    Path(f"{old}.new").replace(old)
    assert len(FileSource(folder).read("tenant_minute", 0.0, float("inf"))) == 2
    with Store.open(folder) as store:
        assert len(StoreSource(store).read("tenant_minute", 0.0, float("inf"))) == 2
        deliver(store, batch(minute("a", stall_s=1.5), seq=2))
        [row] = StoreSource(store).read("tenant_minute", T0, T0 + 60)
        assert (row.output_tokens, row.stall_s) == (1, 1.5)
        store.close_day(FIRST)
    assert json.loads((day / migrations.MANIFEST).read_text())["version"] == migrations.current()


def test_steps_run_in_order_from_the_version_a_file_has_and_only_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = f'UPDATE "{SECOND}".tenant_minute SET output_tokens = output_tokens * 10 + '
    steps = tuple(
        Migration(v, "counts", lambda part, v=v: (f"{count}{v}",) if part == SECOND else ())
        for v in (3, 4)
    )
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, *steps))
    for _ in range(2):
        with Store.open(folder) as store:
            [row] = StoreSource(store).read("tenant_minute", T0 + DAY_S, T0 + 2 * DAY_S)
            assert row.output_tokens == 134
    assert version(folder / f"{SECOND}.duckdb") == [(4,)]


def test_a_step_that_fails_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(part: str) -> tuple[str, ...]:
        return (f'DELETE FROM "{part}".tenant_minute', "SELECT no_such_function()")

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, Migration(3, "fails", broken)))
        with pytest.raises(StoreError, match="no_such_function"):
            Store.open(folder)
    assert len(FileSource(folder).read("tenant_minute", 0.0, float("inf"))) == 2


@pytest.mark.parametrize("opened", OPENERS)
def test_a_newer_open_day_is_refused(folder: Path, opened: Any) -> None:
    edit(folder / f"{SECOND}.duckdb", "UPDATE store_version SET version = 99")
    with pytest.raises(
        StoreTooNew, match=rf"{SECOND}\.duckdb is of store version 99.*newer program"
    ):
        opened(folder)


@pytest.mark.parametrize("opened", OPENERS)
def test_a_newer_closed_day_is_refused(folder: Path, opened: Any) -> None:
    (folder / FIRST / migrations.MANIFEST).write_text('{"version": 99, "tables": []}')
    with pytest.raises(StoreTooNew, match=rf"{FIRST} is of store version 99"):
        opened(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "two", "tables": []}'])
def test_a_manifest_nobody_understands_is_an_error_that_says_what_to_do(
    folder: Path, text: str
) -> None:
    (folder / FIRST / migrations.MANIFEST).write_text(text)
    with pytest.raises(StoreError, match="remove it if the Parquet files beside it are right"):
        FileSource(folder).span()
