"""A window as files from another machine: whole or not there, bounded, and nothing left behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.ask.export import export
from telemetry.errors import QueryError, StoreError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.source import Source, StoreSource, open_source
from telemetry.store.store import Store
from telemetry.watch.client import NotThere, WatchClient
from telemetry.watch.service import StoreFaces
from telemetry.watch.window_export import CHUNK_BYTES, chunks, take
from tests.telemetry.delivered import T0, deliver, everything, until
from tests.telemetry.served import RecentFace, recent_face, store_faces
from tests.telemetry.test_source import in_memory, incident

ALL = {"start": float("-inf"), "end": float("inf")}


@pytest.fixture
def source() -> Iterator[Source]:
    found = in_memory()
    yield found
    found.close()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server writes."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def request(**asked: Any) -> pb.ExportWindowRequest:
    return pb.ExportWindowRequest(
        **({"from_unix_s": float("-inf"), "to_unix_s": float("inf")} | asked)
    )


def sent(source: Source, asked: pb.ExportWindowRequest, **how: Any) -> Iterator[Any]:
    given = {"going": lambda: True, "clock": lambda: 0.0, "limit_s": 60.0}
    return chunks(source, asked, **(given | how))


@pytest.mark.parametrize("form", ["parquet", "csv", "perfetto"])
def test_the_files_are_those_that_an_export_here_makes(
    form: str, source: Source, tmp_path: Path, scratch: Path
) -> None:
    here = export(source, form, tmp_path / "here", **ALL)
    there = take(sent(source, request(format=form)), form, tmp_path / "there")
    assert (there.rows, there.bytes) == (here.rows, here.bytes)
    if form == "perfetto":
        assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
        return
    names = sorted(p.name for p in (tmp_path / "here").iterdir())
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == names
    if form == "parquet":
        assert everything(open_source(tmp_path / "there")) == everything(source)
    assert list(scratch.iterdir()) == []


def test_one_table_is_one_file(source: Source, tmp_path: Path, scratch: Path) -> None:
    asked = request(tables=["request"], format="csv")
    done = take(sent(source, asked), "csv", tmp_path / "r.csv", tables=["request"])
    assert done.rows == {"request": 42}
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 43


def test_a_client_that_goes_away_leaves_no_files(source: Source, scratch: Path) -> None:
    stream = sent(source, request())
    next(stream)
    assert list(scratch.iterdir()) != []
    stream.close()
    assert list(scratch.iterdir()) == []


def test_an_export_that_nobody_waits_for_ends(source: Source, scratch: Path) -> None:
    with pytest.raises(StoreError, match="nobody waits"):
        list(sent(source, request(), going=lambda: False))
    assert list(scratch.iterdir()) == []


def test_an_export_has_only_so_much_time(source: Source, scratch: Path) -> None:
    ticks = iter(range(1000))
    with pytest.raises(StoreError, match="longer than 5 s: ask for a shorter window"):
        list(sent(source, request(), clock=lambda: float(next(ticks)), limit_s=5.0))
    assert list(scratch.iterdir()) == []


def test_chunks_are_small(source: Source, scratch: Path) -> None:
    assert all(len(c.data) <= CHUNK_BYTES for c in sent(source, request()))


@pytest.mark.parametrize(
    ("asked", "said"), [({"format": "xls"}, "no format"), ({"tables": ["who"]}, "no table 'who'")]
)
def test_wrong_wishes_are_refused(
    asked: dict[str, Any], said: str, source: Source, scratch: Path
) -> None:
    with pytest.raises(QueryError, match=said):
        list(sent(source, request(**asked)))


def test_a_stream_that_breaks_leaves_nothing_at_the_target(
    source: Source, tmp_path: Path, scratch: Path
) -> None:
    half = list(sent(source, request()))[:-1]
    with pytest.raises(StoreError, match="before all of it had come"):
        take(half, "parquet", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["scratch"]


@pytest.mark.parametrize("name", ["../evil.parquet", "/etc/x", "evil.parquet", "a/request.parquet"])
def test_a_server_cannot_choose_where_files_go(name: str, tmp_path: Path) -> None:
    said = [pb.ExportWindowChunk(file=name, data=b"x"), pb.ExportWindowChunk(last=True)]
    with pytest.raises(StoreError, match="which no export has"):
        take(said, "parquet", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_over_grpc_it_is_the_same_and_the_server_keeps_nothing(
    tmp_path: Path, scratch: Path
) -> None:
    with Store.open(tmp_path / "store") as store:
        deliver(store, *incident())
        faces = StoreFaces(StoreSource(store))
        with store_faces(faces, f"unix:{tmp_path}/s") as address:
            client = WatchClient(address)
            done = client.export_window("parquet", tmp_path / "out", start=T0, end=T0 + 60)
            assert done.rows["tenant_minute"] == 2
            assert len(open_source(tmp_path / "out").read("tenant_minute", 0.0, 1e10)) == 2
            with pytest.raises(StoreError, match="is there already"):
                client.export_window("parquet", tmp_path / "out", **ALL)
            with pytest.raises(QueryError, match="no table"):
                client.export_window("csv", tmp_path / "x", tables=["who"], **ALL)
            until(lambda: list(scratch.iterdir()) == [])
            client.close()


def test_a_worker_says_that_it_exports_nothing(tmp_path: Path) -> None:
    from telemetry.pipeline.exporter import Exporter

    exporter = Exporter(sink=lambda metrics, logs: None)
    with recent_face(RecentFace(exporter), f"unix:{tmp_path}/s") as address:
        client = WatchClient(address)
        with pytest.raises(NotThere, match="it is a worker"):
            client.export_window("csv", tmp_path / "x", **ALL)
        client.close()
    exporter.close()
