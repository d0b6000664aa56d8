"""A store folder that nobody writes into, read from its files. Writes nothing, not even a lock."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask import ask_sql, reading, windowed
from telemetry.ask.reading import SQL, Result
from telemetry.errors import StoreBusy, StoreError
from telemetry.reader import Reader
from telemetry.store import migrations, owner, parts, quarantine, sql, unreadable

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)


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
        return self._run(name, parameters, self._wanted(name, parameters))

    def span(self) -> tuple[float, float] | None:
        """By the first and the last day that have any: those between say nothing about it."""
        self._check_owner()
        days = [p for p in parts.list_parts(self.folder) if p.name != sql.RUNS_PART]
        first = next((s for p in days if (s := self._span_of(p)) is not None), None)
        if first is None:
            return None
        if len(days) == 1:
            return first
        last = next((s for p in reversed(days) if (s := self._span_of(p)) is not None), first)
        return first[0], last[1]

    def _span_of(self, part: parts.Part) -> tuple[float, float] | None:
        [(first, last)] = self._run("span", {}, [part]).rows
        return None if first is None else (first, last)

    def _run(self, name: str, parameters: dict[str, Any], wanted: list[parts.Part]) -> Result:
        import duckdb

        named = reading.tables_named(name)
        with self._attached(wanted, named) as (con, readable):
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

    def attached(
        self,
    ) -> AbstractContextManager[tuple[duckdb.DuckDBPyConnection, list[parts.Part]]]:
        """A connection with all parts, for as long as it takes.

        Raises StoreBusy when a process owns the folder, StoreError when it cannot be read.
        """
        return self._attached(parts.list_parts(self.folder), None)

    @contextmanager
    def _attached(
        self, wanted: list[parts.Part], named: frozenset[str] | None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[parts.Part]]]:
        """The same with some parts: those that have one of the tables named; None: all."""
        import duckdb

        self._check_owner()
        con = duckdb.connect(":memory:")
        try:
            con.execute("SET TimeZone = 'UTC'")
            yield con, self._readable(con, wanted, named)
        except duckdb.Error as e:
            raise StoreError(
                f"the store {self.folder} cannot be read: {unreadable.in_short(e)}"
            ) from e
        finally:
            con.close()

    def _check_owner(self) -> None:
        if owner.owned(self.folder):
            raise StoreBusy(owner.busy_message(self.folder, owner.owner_pid(self.folder)))

    def _wanted(self, name: str, parameters: dict[str, Any]) -> list[parts.Part]:
        """The parts that a question can have rows of."""
        return windowed.touched(parts.list_parts(self.folder), name, parameters)

    def _readable(
        self,
        con: duckdb.DuckDBPyConnection,
        wanted: Iterable[parts.Part],
        named: frozenset[str] | None,
    ) -> list[parts.Part]:
        """Attach the open parts. What cannot be read of a part is left out, loudly. Parts without
        any of the tables named are let be."""
        return [
            self._open(con, p) if p.file is not None else self._closed(con, p)
            for p in wanted
            if named is None or any(t.name in named for t in sql.tables_of(p.name))
        ]

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
