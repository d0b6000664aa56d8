"""Who may be asked for rows: a live store process, its files, or memory. Owns the choosing.

Every source answers the same questions the same way; the caller does not know which it has.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask import loose, reading
from telemetry.ask.reading import Result
from telemetry.errors import StoreError, StoreUnreachable
from telemetry.file_source import FileSource
from telemetry.reader import Reader, Source
from telemetry.service import listen
from telemetry.store import owner, parts, sql

if TYPE_CHECKING:
    from telemetry.service.client import StoreClient
    from telemetry.store.store import Store

__all__ = [
    "FileSource",
    "FolderSource",
    "LiveSource",
    "LooseSource",
    "MemorySource",
    "Reader",
    "STORE_SOCKET",
    "Source",
    "StoreSource",
    "WORKER_SOCKET",
    "live_addresses",
    "open_source",
]

WORKER_SOCKET, STORE_SOCKET = "worker.sock", "store.sock"  # in a serve's runtime folder
_ONE_OF_SEVERAL = re.compile(r"w[0-9]+\.sock")  # a worker's, where there are several

_MEMORY_PART = "1970-01-01"


class StoreSource(Reader):
    """A store of this very process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        return self._store.run(name, parameters)


class LiveSource(Reader):
    """A store process, by address."""

    def __init__(self, address: str, timeout_s: float = 30.0) -> None:
        from telemetry.service.client import StoreClient

        self._client: StoreClient = StoreClient(address, timeout_s)

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        return self._client.query(name, **parameters)

    def close(self) -> None:
        self._client.close()


class LooseSource(Reader):
    """Rows outside a store: a day's file, a Parquet file, or a folder of an export. Read only."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        parts.check_path(self.path)

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        return loose.answer(self.path, name, parameters)


class MemorySource(Reader):
    """Rows in memory, fed with the OTLP bytes a worker or a sender keeps. For one question at a
    time; merges exactly as the store does."""

    def __init__(self, metrics: Iterable[bytes] = (), logs: Iterable[bytes] = ()) -> None:
        import duckdb

        from telemetry.store import ingest

        self._turn = threading.Lock()
        self._con = duckdb.connect(":memory:")
        self._con.execute("SET TimeZone = 'UTC'")
        for part in (_MEMORY_PART, sql.RUNS_PART):
            self._con.execute(sql.attach_memory(part))
            ingest.create_tables(self._con, part)
        parts.define_views(
            self._con, [parts.Part(p, file=Path(":memory:")) for p in (_MEMORY_PART, sql.RUNS_PART)]
        )
        self.feed(metrics, logs)

    def feed(self, metrics: Iterable[bytes] = (), logs: Iterable[bytes] = ()) -> int:
        """Merge encoded requests; returns how many points and records were refused.

        Raises MalformedBatch when bytes are no such request.
        """
        from telemetry.otlp.decode import decode_logs, decode_metrics
        from telemetry.store import ingest

        decoded = [*map(decode_metrics, metrics), *map(decode_logs, logs)]
        batches = [b for d in decoded for b in d.packed]
        with self._turn:
            for name, deliveries in ingest.by_part(batches).items():
                # One part for all days: nothing is ever closed here.
                part = name if name == sql.RUNS_PART else _MEMORY_PART
                for batch, rows in deliveries:
                    ingest.merge(self._con, part, batch, rows)
        return sum(d.refused for d in decoded)

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        with self._turn:
            return reading.run(self._con, name, parameters)

    def close(self) -> None:
        with self._turn:
            self._con.close()


class FolderSource(Reader):
    """A store folder, whoever has it: asks the live store process, reads the files without one."""

    def __init__(self, folder: Path | str) -> None:
        """Raises StoreError when there is no such folder."""
        self._files = FileSource(folder)
        self._live: tuple[owner.Live, LiveSource] | None = None

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        live = self._find()
        if live is None:
            return self._files.run(name, parameters)
        try:
            return live.run(name, parameters)
        except StoreUnreachable:
            if owner.owned(self._files.folder):
                raise
            return self._files.run(name, parameters)  # it ended between the look and the question

    def span(self) -> tuple[float, float] | None:
        live = self._find()
        if live is None:
            return self._files.span()
        try:
            return live.span()
        except StoreUnreachable:
            if owner.owned(self._files.folder):
                raise
            return self._files.span()  # as in `run`

    def close(self) -> None:
        if self._live is not None:
            self._live[1].close()
            self._live = None

    def _find(self) -> LiveSource | None:
        found = owner.find_live(self._files.folder)
        if self._live is not None and self._live[0] != found:
            self.close()
        if found is not None and self._live is None:
            self._live = (found, LiveSource(found.address))
        return self._live[1] if self._live is not None else None


def live_addresses(where: Path | str) -> tuple[str, ...]:
    """The addresses of the live processes behind what `open_source` takes, in the order in which
    to ask them: a store, a store and its worker, or nobody. Of several workers none is named: one
    alone would tell a part as if it were the whole."""
    path = Path(where)
    if path.is_dir():
        sockets = [path / name for name in (STORE_SOCKET, WORKER_SOCKET)]
        if _workers(path):
            return tuple(f"{listen.UNIX}{s}" for s in sockets if s.exists())
        live = owner.find_live(path)
        return () if live is None else (live.address,)
    return (str(where),) if listen.is_address(str(where)) else ()


def _of_serve(where: str) -> Source:
    """Of a worker's socket its memory; of a serve's runtime folder the store, then the memory of
    its workers."""
    from telemetry.worker_source import FallbackSource, WorkerSource

    path = Path(where.removeprefix(listen.UNIX))
    if _is_worker(path):
        return WorkerSource(f"{listen.UNIX}{path}")
    workers = [f"{listen.UNIX}{s}" for s in _workers(path)]
    return FallbackSource.of(f"{listen.UNIX}{path / STORE_SOCKET}", workers)


def _is_worker(path: Path) -> bool:
    return path.name == WORKER_SOCKET or _ONE_OF_SEVERAL.fullmatch(path.name) is not None


def _workers(folder: Path) -> list[Path]:
    """The sockets of the workers whose runtime folder it is; none: it is no serve's."""
    sole = folder / WORKER_SOCKET
    if sole.exists():
        return [sole]
    return sorted(s for s in folder.glob("w*.sock") if _is_worker(s)) if folder.is_dir() else []


def open_source(where: Path | str) -> Source:
    """The store in a folder, or at an address (`unix:/path.sock`, `127.0.0.1:port`); or rows that
    lie outside a store (`telemetry.ask.loose`). Of a serve's runtime folder: its store, and while
    that does not answer its workers' memory; of a worker's socket (`worker.sock`, or `w0.sock` of
    several): that worker's.

    Raises StoreError when it is none of them.
    """
    text = str(where)
    if _is_worker(Path(text)) or _workers(Path(text)):
        return _of_serve(text)
    if loose.is_loose(Path(text)):
        return LooseSource(text)
    if Path(text).is_dir():
        return FolderSource(text)
    if listen.is_address(text):
        return LiveSource(text)
    raise StoreError(
        f"{text} is neither a store folder nor an address "
        "(unix:/path.sock, host:port, https://host:port)"
    )
