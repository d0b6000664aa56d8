"""A person's SELECT, asked of a connection that has the views. Owns its limits; opens nothing.

The question is called `sql` and travels like a named query, so that a live store process, its
files and memory answer it alike. The text is one SELECT (`telemetry.ask.one_select`), in a
transaction that is read only, cut off by a watch when its time or its memory is used up.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask import one_select
from telemetry.ask.reading import SQL, Result
from telemetry.errors import QueryError, QueryLimit, StoreBusy
from telemetry.store.sql import literal

if TYPE_CHECKING:
    import duckdb

PARAMETERS = frozenset({"text", "most_rows", "timeout_s"})
MOST_ROWS = 1_000_000
LONGEST_S = 600.0
MEMORY_BYTES = 512 << 20
_WATCH_EVERY_S = 0.05
_ROWS_A_FETCH = 2_000
# In a process at once: the threads that answer are those that ingest and the console wait for.
AT_ONCE = 2
_TURN_S = 1.0
_turns = threading.BoundedSemaphore(AT_ONCE)

_SEALS = (
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def seal(con: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Shut a connection that is for one question alone: it reads the store's own folder and what
    is attached, nothing else of the machine, and cannot be set otherwise any more."""
    con.execute(f"SET memory_limit = '{MEMORY_BYTES >> 20}MiB'")
    con.execute(f"SET allowed_directories = [{literal(folder)}]")
    for statement in _SEALS:
        con.execute(statement)


def ask(con: duckdb.DuckDBPyConnection, parameters: dict[str, Any]) -> Result:
    """Answer `text` with at most `most_rows` rows, within `timeout_s`.

    Instants come as ISO 8601 text, UTC; whole lists of integers as tuples, other nested values as
    JSON text; of columns that are called alike, the later ones get a number.
    Raises QueryError for what is refused or wrong, QueryLimit when time or memory ran out,
    StoreBusy when too many ask at once or the store cannot wait for the answer.
    """
    text, most, timeout_s = _checked(parameters)
    if not _turns.acquire(timeout=_TURN_S):
        raise StoreBusy(
            f"{AT_ONCE} questions in SQL are being answered: ask again when one is done"
        )
    try:
        return _ask(con, text, most, timeout_s)
    finally:
        _turns.release()


def _ask(con: duckdb.DuckDBPyConnection, text: str, most: int, timeout_s: float) -> Result:
    import duckdb

    one_select.check(con, text)
    con.execute("BEGIN TRANSACTION READ ONLY")
    try:
        with _Watch(con, timeout_s) as watch:
            try:
                answer = con.execute(text)
                columns = _distinct([d[0] for d in answer.description or ()])
                rows = list(_fetch(answer, most))
            except duckdb.Error as e:
                raise _worded(e, watch, timeout_s) from None
    finally:
        with contextlib.suppress(duckdb.Error):  # a failed statement has ended it already
            con.execute("ROLLBACK")
    return Result(columns, tuple(rows))


def _checked(parameters: dict[str, Any]) -> tuple[str, int, float]:
    if set(parameters) != PARAMETERS:
        raise QueryError(
            f"{SQL} takes the parameters {', '.join(sorted(PARAMETERS))}; given: "
            f"{', '.join(sorted(parameters)) or 'none'}"
        )
    text, most, timeout_s = (parameters[p] for p in ("text", "most_rows", "timeout_s"))
    if not isinstance(text, str):
        raise QueryError(f"text = {text!r}: expected one SELECT")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_ROWS:
        raise QueryError(f"most_rows = {most!r}: expected 1 to {MOST_ROWS}")
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s <= LONGEST_S:
        raise QueryError(f"timeout_s = {timeout_s!r}: expected above 0, at most {LONGEST_S:g}")
    return text, most, float(timeout_s)


def _fetch(answer: duckdb.DuckDBPyConnection, most: int) -> Iterator[tuple[Any, ...]]:
    left = most
    while left and (some := answer.fetchmany(min(left, _ROWS_A_FETCH))):
        left -= len(some)
        for row in some:
            yield tuple(plain(v) for v in row)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Column names that a JSON object can have side by side."""
    out: list[str] = []
    for name in names:
        new, n = name, 1
        while new in out:
            n += 1
            new = f"{name}_{n}"
        out.append(new)
    return tuple(out)


def plain(value: Any) -> Any:
    """A value of a result as None, bool, int, float, str or a tuple of ints."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return float(value)  # what sums of integers may reach, and the wire does not
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, date | time_of_day):
        return value.isoformat()
    if isinstance(value, list | tuple) and all(
        isinstance(v, int) and not isinstance(v, bool) and -(1 << 63) <= v < 1 << 63 for v in value
    ):
        return tuple(value)
    if isinstance(value, list | tuple | dict):
        return json.dumps(_nested(value), ensure_ascii=False)
    return str(value)


def _nested(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _nested(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return plain(value)


def _iso(at: datetime) -> str:
    at = at.astimezone(UTC) if at.tzinfo else at
    return at.replace(tzinfo=None).isoformat() + "Z"


class _Watch:
    """Interrupts a connection when its time is over, or its database has come to hold too much.

    The limit of DuckDB itself is the whole database's: in a store process it is what ingest lives
    on, and a question must not use it up.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, timeout_s: float) -> None:
        self._con = con
        self._own = con.cursor()
        self._end = time.monotonic() + timeout_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="sql-watch", daemon=True)
        self.reason: str | None = None  # "time" or "memory" once it has cut the question off

    def __enter__(self) -> _Watch:
        self._most = self._held() + MEMORY_BYTES
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._own.close()

    def _look(self) -> None:
        import duckdb

        while not self._over.wait(max(0.001, min(_WATCH_EVERY_S, self._end - time.monotonic()))):
            if time.monotonic() >= self._end:
                self.reason = "time"
            else:
                try:
                    if self._held() > self._most:
                        self.reason = "memory"
                except duckdb.Error:
                    self.reason = "memory"  # there is not even room to look
            if self.reason is not None:
                self._con.interrupt()  # again, until it is heard

    def _held(self) -> int:
        query = "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory()"
        [(held,)] = self._own.execute(query).fetchall()
        return int(held)


def _worded(error: duckdb.Error, watch: _Watch, timeout_s: float) -> Exception:
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException) or watch.reason == "memory":
        return QueryLimit(
            f"the question needs more than {MEMORY_BYTES >> 20} MiB of memory and was cut off: "
            "narrow it with WHERE bucket_start (or arrived) BETWEEN ..., or add it up by fewer keys"
        )
    if isinstance(error, duckdb.InterruptException):
        if watch.reason == "time":
            return QueryLimit(
                f"the question was cut off after {timeout_s:g} s: narrow it with WHERE "
                "bucket_start (or arrived) BETWEEN ..., or give it a longer --timeout-s"
            )
        return StoreBusy("the question was cut off, the store closes or turns its day: ask again")
    if isinstance(error, duckdb.DataError | duckdb.ProgrammingError):
        return QueryError(one_select.first_lines(error))
    if isinstance(error, duckdb.NotSupportedError | duckdb.PermissionException):
        return QueryError(one_select.first_lines(error))
    return error  # the store's own trouble: it is worded, and mended, by who has the files
