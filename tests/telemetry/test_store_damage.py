"""Corrupt files go to quarantine, loudly; what is left answers and says what it lacks."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.errors import StoreError
from telemetry.source import FileSource, LooseSource, StoreSource
from telemetry.store import parts, quarantine, sql, unreadable
from telemetry.store.store import Store
from telemetry.tables import TABLES
from tests.telemetry.delivered import DAY_S, T0, batch, deliver, engine_minute, minute, request

FIRST, SECOND = "2027-01-15", "2027-01-16"
BOTH = (T0, T0 + 2 * DAY_S)


def rows() -> list[Any]:
    return [
        row
        for at in (T0, T0 + DAY_S)
        for row in (
            *(minute(f"t{n}", at, output_tokens=n) for n in range(50)),
            engine_minute(at, steps=3),
            request(int(at), at),
        )
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "store") as store:
        deliver(store, batch(*rows()))
    return tmp_path / "store"


@pytest.fixture
def closed(folder: Path) -> Path:
    with Store.open(folder) as store:
        store.close_day(FIRST)
    return folder


def told(store: Store) -> list[tuple[str, str | None]]:
    events = StoreSource(store).read("event", float("-inf"), float("inf"))
    return [(e.kind, e.detail) for e in events if e.engine == "store"]


@pytest.mark.parametrize(
    "spoil", [lambda f: f.write_bytes(b"garbage" * 999), lambda f: os.truncate(f, 100_000)]
)
def test_a_corrupt_open_day_is_moved_aside_and_the_rest_goes_on(
    folder: Path, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(folder / f"{FIRST}.duckdb")
    files = FileSource(folder)
    assert len(files.read("request", *BOTH)) == 1
    answer = files.query("token_totals", start=BOTH[0], end=BOTH[1])
    assert f"{FIRST}: " in answer.partial[0]
    assert "tenant_minute" in answer.partial[0]
    assert f"CORRUPT: {folder / FIRST}.duckdb cannot be read and is left out" in caplog.text
    caplog.clear()
    with Store.open(folder) as store:
        assert SECOND in store.days()
        assert FIRST not in store.days()
        assert "CORRUPT" in caplog.text
        assert f"quarantine/{FIRST}.duckdb.1" in caplog.text
        assert [kind for kind, _ in told(store)] == ["quarantine"]
        answer = store.run("token_totals", {"start": BOTH[0], "end": BOTH[1]})
        assert len(answer.rows) == 50
        [lacks] = answer.partial
        assert lacks.startswith(f"{FIRST}: all tables")
        later = {"start": T0 + DAY_S, "end": T0 + 2 * DAY_S}
        assert store.run("token_totals", later).partial == ()
        deliver(store, batch(*rows()))
        assert len(StoreSource(store).read("request", *BOTH)) == 2
    aside = folder / "quarantine" / f"{FIRST}.duckdb.1"
    assert aside.exists()
    assert aside.with_name(f"{aside.name}.why.txt").read_text()


@pytest.mark.parametrize(
    "spoil", [lambda f: f.write_bytes(b"PAR1 not really PAR1"), lambda f: os.truncate(f, 200)]
)
def test_a_corrupt_parquet_costs_its_table_only(closed: Path, spoil: Any) -> None:
    spoil(closed / FIRST / "request.parquet")
    files = FileSource(closed)
    assert len(files.read("request", *BOTH)) == 1
    assert len(files.read("tenant_minute", *BOTH)) == 100
    [lacks] = files.query("token_totals", start=BOTH[0], end=BOTH[1]).partial
    assert lacks == f"{FIRST}: request cannot be read"
    with Store.open(closed) as store:
        assert store.days()[FIRST] is True
        assert len(StoreSource(store).read("request", *BOTH)) == 1
        assert len(StoreSource(store).read("tenant_minute", *BOTH)) == 100
        [(kind, detail)] = told(store)
        assert kind == "quarantine"
        assert detail is not None
        assert detail.startswith(f"{FIRST}: request cannot be read")
        answer = store.run("token_totals", {"start": BOTH[0], "end": BOTH[1]})
        assert answer.partial == (
            f"{FIRST}: request before the damage (moved to quarantine/{FIRST}.request.parquet.1)",
        )
    [aside] = quarantine.listed(closed)
    assert (aside.part, aside.table) == (FIRST, "request")


def spoil_inside(file: Path) -> None:
    """Damage that a footer does not show: the pages' bytes are another."""
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 3] = bytes(len(data) // 3 - 4)
    file.write_bytes(data)


def test_damage_inside_a_parquet_is_found_when_a_question_meets_it(closed: Path) -> None:
    spoil_inside(closed / FIRST / "tenant_minute.parquet")
    assert len(FileSource(closed).read("tenant_minute", *BOTH)) == 50
    with Store.open(closed) as store:
        source = StoreSource(store)
        assert len(source.read("request", *BOTH)) == 2
        assert len(source.read("tenant_minute", *BOTH)) == 50
        assert [a.table for a in quarantine.listed(closed)] == ["tenant_minute"]
        assert len(source.read("request", *BOTH)) == 2
        assert len(told(store)) == 1


def damaged_block(folder: Path) -> Path:
    """An open day in which one block, of the requests alone, is another than was written."""
    with Store.open(folder) as store:
        many = [request(n, T0 + n, tenant="x" * 50 + str(n)) for n in range(3_000)]
        for seq in range(2, 5):
            asked = [replace(r, request_id=f"{r.request_id}-{seq}") for r in many]
            deliver(store, batch(*asked, seq=seq))
        with store.alone("the blocks cannot be told") as shelf:
            shelf.con.execute(f'CHECKPOINT "{FIRST}"').fetchall()
            own, other = (
                {b for b, _ in shelf.con.execute(sql.blocks(FIRST, TABLES[t])).fetchall()}
                for t in ("request", "tenant_minute")
            )
    file = folder / f"{FIRST}.duckdb"
    data = bytearray(file.read_bytes())
    inside = 3 * 4096 + min(own - other) * (1 << 18) + 5_000
    data[inside : inside + 4096] = bytes(4096)
    file.write_bytes(data)
    return file


def test_of_an_open_day_that_is_damaged_in_one_table_the_others_stay(folder: Path) -> None:
    damaged_block(folder)
    assert len(FileSource(folder).read("tenant_minute", *BOTH)) == 100
    assert len(FileSource(folder).read("request", *BOTH)) == 1
    with Store.open(folder) as store:
        source = StoreSource(store)
        assert len(source.read("tenant_minute", *BOTH)) == 100
        assert len(source.read("request", *BOTH)) == 1
        assert len(source.read("tenant_minute", *BOTH)) == 100
        assert store.days()[FIRST] is True
        [lacks] = store.run("span", {}).partial
        assert lacks.startswith(f"{FIRST}: request before the damage")
        deliver(store, batch(minute("t1", T0, prompt_tokens=7), request(1), seq=9))
        [row] = [r for r in source.read("tenant_minute", T0, T0 + 1) if r.tenant == "t1"]
        assert (row.output_tokens, row.prompt_tokens) == (1, 7)
        assert len(source.read("request", *BOTH)) == 2


def test_a_batch_that_meets_the_damage_is_committed_all_the_same(folder: Path) -> None:
    damaged_block(folder)
    with Store.open(folder) as store:
        deliver(store, batch(request(1, T0 + 5), minute("t1", T0, prompt_tokens=7), seq=9))
        source = StoreSource(store)
        assert [r.request_id for r in source.read("request", T0, T0 + 60)] == ["q1"]
        assert len(source.read("tenant_minute", *BOTH)) == 100
        assert [kind for kind, _ in told(store)] == ["quarantine"]


def test_removing_the_quarantined_file_accepts_the_loss(closed: Path) -> None:
    (closed / FIRST / "request.parquet").write_bytes(b"")
    with Store.open(closed) as store:
        [aside] = quarantine.listed(closed)
        aside.path.unlink()
        assert store.run("span", {}).partial == ()


def test_the_partial_days_are_said_over_the_wire(closed: Path, tmp_path: Path) -> None:
    from telemetry.service.client import StoreClient
    from telemetry.service.process import StoreServer

    (closed / FIRST / "request.parquet").write_bytes(b"short")
    server = StoreServer(Store.open(closed), f"unix:{tmp_path}/s")
    server.start()
    client = StoreClient(server.address)
    [lacks] = client.query("token_totals", start=BOTH[0], end=BOTH[1]).partial
    assert lacks.startswith(f"{FIRST}: request")
    client.close()
    server.stop(0.2)


def test_a_second_file_of_a_day_gets_a_number_of_its_own(closed: Path) -> None:
    for _ in range(2):
        (closed / FIRST / "request.parquet").write_bytes(b"short")
        Store.open(closed).close()
    assert [a.path.name[-2:] for a in quarantine.listed(closed)] == [".1", ".2"]


def test_words_in_a_path_are_no_sign_of_corruption(tmp_path: Path) -> None:
    error = OSError(f'Cannot open "{tmp_path}/corrupt/x": Too many open files')
    assert not parts.is_corrupt(error, tmp_path)


def zeroed(raw: bytes, at: float) -> bytes:
    """With a stretch of nothing, so far into it."""
    begin = int(len(raw) * at)
    return raw[:begin] + bytes(300) + raw[begin + 300 :]


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda raw: b"",
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"garbage" * 99,
        *(lambda raw, at=at: zeroed(raw, at) for at in (0.1, 0.3, 0.6, 0.9)),
    ],
)
def test_a_spoilt_parquet_file_is_named_with_what_to_do_in_words_of_our_own(
    closed: Path, spoilt: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = closed / FIRST / "tenant_minute.parquet"
    file.write_bytes(spoilt(file.read_bytes()))
    with pytest.raises(StoreError) as alone:
        LooseSource(file).query("read.tenant_minute", start=BOTH[0], end=BOTH[1])
    assert str(file) in str(alone.value)
    assert "bring it back from a backup" in str(alone.value)
    asked = {"start": BOTH[0], "end": BOTH[1]}
    answers = [FileSource(closed).query("read.tenant_minute", **asked)]
    with Store.open(closed) as store:
        answers.append(StoreSource(store).query("read.tenant_minute", **asked))
    for answer in answers:
        assert any("tenant_minute" in lacks for lacks in answer.partial)
    said = f"{alone.value}\n{caplog.text}"
    assert not re.search(r"\w+ Error:|LINE 1|TProtocol|ZSTD|know what type", said)


def test_a_file_that_may_not_be_read_is_not_called_damaged() -> None:
    error = duckdb.IOException('IO Error: Cannot open file "/s/x.parquet": Permission denied')
    assert not parts.is_corrupt(error, Path("/s"))
    said = unreadable.sentence(Path("/s/x.parquet"), error)
    assert said.startswith("/s/x.parquet cannot be opened (Permission denied): ")
