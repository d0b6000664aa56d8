"""Who may be asked for rows: a live store process, its files, or memory. Owns the choosing.

Every source answers the same questions the same way; the caller does not know which it has.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from telemetry.ask import ask_sql, loose, reading, windowed
from telemetry.ask.reading import READ, SQL, Result
from telemetry.errors import StoreBusy, StoreError, StoreUnreachable
from telemetry.service import listen
from telemetry.store import migrations, owner, parts, quarantine, sql, unreadable

if TYPE_CHECKING:
    import duckdb

    from telemetry.service.client import StoreClient
    from telemetry.store.store import Store

WORKER_SOCKET, STORE_SOCKET = "worker.sock", "store.sock"  # in a serve's runtime folder
_ONE_OF_SEVERAL = re.compile(r"w[0-9]+\.sock")  # a worker's, where there are several

log = logging.getLogger(__name__)

_MEMORY_PART = "1970-01-01"


class Source(Protocol):
    """Anything that can be asked for stored rows. Instants are unix seconds."""

    def read(self, table: str, start: float, end: float) -> list[Any]:
        """Rows of a table as its dataclass, in order of time: minute rows whose bucket starts in
        [start, end), requests that arrived in it, events, policies and steps at an instant in it;
        all rows of `engine_run` and `adapter`. Infinite bounds are allowed.

        Raises QueryError for an unknown table; StoreError when there is no answer to be had.
        """
        ...

    def query(self, name: str, **parameters: Any) -> Result:
        """The answer of `telemetry/queries/<name>.sql`. Raises QueryError, StoreError."""
        ...

    def span(self) -> tuple[float, float] | None:
        """Start of the first bucket and end of the last one; None when there is none."""
        ...

    def close(self) -> None: ...


class Reader:
    """The questions, in terms of one: `run`."""

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        raise TypeError("a source says how it runs a question")

    def read(self, table: str, start: float, end: float) -> list[Any]:
        return reading.to_rows(table, self.run(READ + table, {"start": start, "end": end}))

    def query(self, name: str, **parameters: Any) -> Result:
        return self.run(name, parameters)

    def span(self) -> tuple[float, float] | None:
        [(first, last)] = self.run("span", {}).rows
        return None if first is None else (first, last)

    def close(self) -> None:
        """Nothing is held."""


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


class FileSource(Reader):
    """A store folder that nobody writes into: open day files and Parquet, read only.

    Files are opened for the length of one question, so that a store process that starts meanwhile
    is not locked out. Writes nothing, not even a lock file.
    """

    def __init__(self, folder: Path | str) -> None:
        """Raises StoreError when there is no such folder."""
        self.folder = Path(folder)
        parts.check_path(self.folder)
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} is not a folder: expected a store")

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        import duckdb

        named = reading.tables_named(name)
        with self.attached(parameters) as (con, readable):
            parts.define_views(con, readable, named)
            if name == SQL:
                ask_sql.seal(con, self.folder)
            try:
                answer = reading.run(con, name, parameters)
            except duckdb.Error as e:
                sound = self._without_damage(con, readable, e)
                if sound == readable:
                    raise
                parts.define_views(con, sound, named)
                answer = reading.run(con, name, parameters)
                readable = sound
            lacks = quarantine.partial(self.folder, *reading.window(parameters))
            lacks += tuple(
                f"{p.name}: {', '.join(sorted(p.without))} cannot be read"
                for p in readable
                if p.without
            )
            return replace(answer, partial=lacks) if lacks else answer

    @contextmanager
    def attached(
        self, parameters: dict[str, Any]
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[parts.Part]]]:
        """A connection with the parts that a question needs, for as long as it takes.

        Raises StoreBusy when a process owns the folder, StoreError when it cannot be read.
        """
        import duckdb

        if owner.owned(self.folder):
            raise StoreBusy(owner.busy_message(self.folder, owner.owner_pid(self.folder)))
        con = duckdb.connect(":memory:")
        try:
            con.execute("SET TimeZone = 'UTC'")
            yield con, self._readable(con, self._wanted(parameters))
        except duckdb.Error as e:
            raise StoreError(
                f"the store {self.folder} cannot be read: {unreadable.in_short(e)}"
            ) from e
        finally:
            con.close()

    def _wanted(self, parameters: dict[str, Any]) -> list[parts.Part]:
        start, end = parameters.get("start"), parameters.get("end")
        listed = parts.list_parts(self.folder)
        if not isinstance(start, int | float) or not isinstance(end, int | float):
            return listed
        return [p for p in listed if p.touches(start - windowed.BEFORE_S, end)]

    def _readable(
        self, con: duckdb.DuckDBPyConnection, wanted: Iterable[parts.Part]
    ) -> list[parts.Part]:
        """Attach the open parts. What cannot be read of a part is left out, loudly."""
        return [self._open(con, p) if p.file is not None else self._closed(con, p) for p in wanted]

    def _open(self, con: duckdb.DuckDBPyConnection, part: parts.Part) -> parts.Part:
        import duckdb

        assert part.file is not None
        try:
            con.execute(sql.attach(part.name, part.file, read_only=True))
            migrations.version_of(con, part.name, part.file)
        except duckdb.Error as e:
            if parts.is_locked(e):
                raise StoreBusy(owner.busy_message(self.folder, None)) from None
            if not parts.is_corrupt(e, self.folder):
                raise
            return self._left_out(part, [t.name for t in sql.tables_of(part.name)], part.file, e)
        return part

    def _closed(self, con: duckdb.DuckDBPyConnection, part: parts.Part) -> parts.Part:
        import duckdb

        assert part.folder is not None
        migrations.manifest_tables(part.folder)
        for table in sql.tables_of(part.name):
            file = part.parquet(table)
            if file is None:
                continue
            try:
                parts.check_parquet(con, file)
            except duckdb.Error as e:
                if not parts.is_corrupt(e, self.folder):
                    raise StoreError(unreadable.sentence(file, e)) from e
                part = self._left_out(part, [table.name], file, e)
        return part

    def _without_damage(
        self, con: duckdb.DuckDBPyConnection, readable: list[parts.Part], error: Exception
    ) -> list[parts.Part]:
        """The parts without what is damaged inside, where a question stumbled over that."""
        if not parts.is_corrupt(error, self.folder):
            return readable
        sound = []
        for part in readable:
            for table, file, e in parts.damaged(con, part, self.folder):
                part = self._left_out(part, [table.name], file, e)
            sound.append(part)
        return sound

    def _left_out(
        self, part: parts.Part, tables: Iterable[str], file: Path, error: Exception
    ) -> parts.Part:
        log.error(
            "CORRUPT: %s cannot be read and is left out (%s): answers about %s are partial. "
            "Bring it back from a backup; the next process that writes here moves it to %s/.",
            file,
            unreadable.damage(error),
            part.name,
            quarantine.FOLDER,
        )
        return replace(part, without=part.without | frozenset(tables))


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
