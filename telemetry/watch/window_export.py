"""A window of a store as files, sent in chunks: made at the server, put in its place by the client.

The server writes into a folder of its own that goes with the stream, however that ends; the client
writes beside the target and renames at the end: whole, or not there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telemetry.ask.export import FORMATS, PARQUET, PERFETTO, Exported, export, placed, written_bytes
from telemetry.ask.reading import Result, to_rows
from telemetry.errors import QueryError, StoreError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.source import Source
from telemetry.tables import TABLES

CHUNK_BYTES = 1 << 20


def chunks(
    source: Source,
    request: pb.ExportWindowRequest,
    *,
    going: Callable[[], bool],
    clock: Callable[[], float],
    limit_s: float,
) -> Iterator[pb.ExportWindowChunk]:
    """Write the window and send it, for `limit_s` at most and only while `going()`.

    Raises QueryError for a format or table there is not, StoreError when time or room is used up.
    """
    form = request.format or PARQUET
    if form not in FORMATS:
        raise QueryError(f"{form!r} is no format: use {', '.join(FORMATS)}")
    unknown = [t for t in request.tables if t not in TABLES]
    if unknown:
        raise QueryError(f"no table {unknown[0]!r}: there are {', '.join(TABLES)}")
    paced = _Paced(source, going, clock, clock() + limit_s, limit_s)
    with tempfile.TemporaryDirectory(prefix="tenantscope-export-") as folder:
        target = Path(folder) / "export"
        done = export(
            paced,
            form,
            target,
            start=request.from_unix_s,
            end=request.to_unix_s,
            tables=tuple(request.tables),
        )
        yield pb.ExportWindowChunk(rows=done.rows, partial=done.partial)
        files = sorted(target.iterdir()) if target.is_dir() else [target]
        for file in files:
            name = file.name if target.is_dir() else ""
            with file.open("rb") as data:
                while piece := data.read(CHUNK_BYTES):
                    paced.check()
                    yield pb.ExportWindowChunk(file=name, data=piece)
        yield pb.ExportWindowChunk(last=True)


def take(
    said: Iterable[pb.ExportWindowChunk],
    form: str,
    target: Path,
    *,
    tables: Iterable[str] = (),
    force: bool = False,
) -> Exported:
    """Write what comes to `target`: as `telemetry.ask.export.export` would from here.

    Raises StoreError as that does, and when the other side names files that no export has or ends
    before it has sent everything.
    """
    known = {f"{t}.{form}" for t in TABLES}
    alone = form == PERFETTO or len(tuple(tables)) == 1
    rows: dict[str, int] = {}
    partial: tuple[str, ...] = ()
    complete = False
    with placed(target, force) as draft:
        if not alone:
            draft.mkdir()
        with contextlib.ExitStack() as stack:
            files: dict[str, Any] = {}
            if alone:
                files[""] = stack.enter_context(draft.open("wb"))
            for chunk in said:
                rows.update(chunk.rows)
                partial += tuple(chunk.partial)
                complete |= chunk.last
                if not chunk.data:
                    continue
                if chunk.file not in files:
                    if alone or chunk.file not in known:
                        raise StoreError(
                            f"the other side sends a file {chunk.file!r}, which no export has: "
                            "the two sides are of different versions"
                        )
                    files[chunk.file] = stack.enter_context((draft / chunk.file).open("wb"))
                files[chunk.file].write(chunk.data)
        if not complete:
            raise StoreError("the export ended before all of it had come: try again")
        size = written_bytes(draft)
    return Exported(target, rows, size, partial)


@dataclass(frozen=True, slots=True)
class _Paced:
    """A source that is asked only while there is time, and somebody to answer."""

    source: Source
    going: Callable[[], bool]
    clock: Callable[[], float]
    until: float
    limit_s: float

    def check(self) -> None:
        if not self.going():
            raise StoreError("nobody waits for this export any more")
        if self.clock() > self.until:
            raise StoreError(
                f"the export takes longer than {self.limit_s:g} s: ask for a shorter window, or "
                "for fewer tables"
            )

    def query(self, name: str, **parameters: Any) -> Result:
        self.check()
        return self.source.query(name, **parameters)

    def read(self, table: str, start: float, end: float) -> list[Any]:
        return to_rows(table, self.query(f"read.{table}", start=start, end=end))

    def span(self) -> tuple[float, float] | None:
        return self.source.span()

    def close(self) -> None:
        self.source.close()
