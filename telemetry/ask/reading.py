"""How a question becomes rows. Owns the named queries and the way values come back; opens nothing.

A question is the name of a file in `telemetry/queries` with parameters, `read.<table>` for the rows
of a table, or `sql` for a SELECT of a person's own. Instants are unix seconds on both sides.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask.in_columns import InColumns
from telemetry.errors import QueryError
from telemetry.instants import LAST_US, naive_utc, unix_seconds
from telemetry.store import parts, sql
from telemetry.tables import TABLES

if TYPE_CHECKING:
    import duckdb

READ = "read."
SQL = "sql"
# Answers of a crowd's rows: they stay in columns from the database to whoever fills rows of them.
IN_COLUMNS = frozenset({"console_matrix", "console_minutes", "console_minutes_all"})
_COMMENT = re.compile(r"--[^\n]*")
_AS_THEY_COME = frozenset({"bigint", "double", "varchar", "boolean", "integer", "hugeint"})
_WORD = re.compile(r"[a-z_][a-z_0-9]*")
_PARAMETER = re.compile(r"\$([a-z_][a-z_0-9]*)")
ROWS_AT_ONCE = 512  # of wide rows: so many stay in the processor's caches
_CTRL_C = "Query interrupted"  # a RuntimeError: DuckDB swallows the KeyboardInterrupt itself


@dataclass(frozen=True, slots=True)
class Result:
    """Rows of a query. Values are None, bool, int, float, str, or a tuple of ints. Rows of
    IN_COLUMNS may lie in columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] | InColumns
    partial: tuple[str, ...] = ()  # days and tables that could not be read: the answer lacks them

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class NamedQuery:
    name: str
    text: str
    parameters: frozenset[str]
    about: str  # its first comment line


@cache
def queries() -> dict[str, NamedQuery]:
    """Every named query, by name."""
    found = {}
    for file in resources.files("telemetry.queries").iterdir():
        if file.name.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            name = file.name.removesuffix(".sql")
            parameters = frozenset(_PARAMETER.findall(_COMMENT.sub("", text)))
            about = text.splitlines()[0].removeprefix("--").strip()
            found[name] = NamedQuery(name, text, parameters, about)
    return dict(sorted(found.items()))


def run(
    con: duckdb.DuckDBPyConnection,
    name: str,
    parameters: dict[str, Any],
    over: Callable[[str], str] | None = None,
) -> Result:
    """Answer a question over a connection that has the views. `over` makes of a question's text,
    other than a person's own, the same over fewer rows than the views have.

    Raises QueryError for an unknown name, and for parameters that are missing, unknown or of a
    type the query cannot take.
    """
    import duckdb

    try:
        if name.startswith(READ):
            return _read(con, name.removeprefix(READ), parameters, over)
        if name == SQL:
            from telemetry.ask.ask_sql import ask

            return ask(con, parameters)
        query = queries().get(name)
        if query is None:
            raise QueryError(f"no query {name!r}: there are {', '.join(queries())}")
        _check_names(name, query.parameters, parameters)
        text = query.text if over is None else over(query.text)
        answer = con.execute(text, {k: _clamp(k, v) for k, v in parameters.items()})
        return _result(answer, name in IN_COLUMNS)
    except (duckdb.DataError, duckdb.ProgrammingError) as e:
        if name != SQL and parts.is_corrupt(e, Path()):
            raise  # of a file, not of what was asked
        raise QueryError(f"{name} with {parameters}: {str(e).splitlines()[0]}") from None
    except RuntimeError as e:
        if str(e) != _CTRL_C:
            raise
        raise KeyboardInterrupt from None


def _read(
    con: duckdb.DuckDBPyConnection,
    name: str,
    parameters: dict[str, Any],
    over: Callable[[str], str] | None,
) -> Result:
    table = TABLES.get(name)
    if table is None:
        raise QueryError(f"no table {name!r}: there are {', '.join(TABLES)}")
    _check_names(READ + name, frozenset({"start", "end"}), parameters)
    low, high = (naive_utc(_clamp(p, parameters[p])) for p in ("start", "end"))
    bounds = {"low": low, "high": high} if sql.instant_column(table) else {}
    text = sql.read(table) if over is None else over(sql.read(table))
    return _result(con.execute(text, bounds))


def _check_names(name: str, wanted: frozenset[str], given: dict[str, Any]) -> None:
    if wanted != set(given):
        need = ", ".join(sorted(wanted)) or "none"
        have = ", ".join(sorted(given)) or "none"
        raise QueryError(f"{name} takes the parameters {need}; given: {have}")


@cache
def tables_named(name: str) -> frozenset[str] | None:
    """The tables a question can be about; None where it says so itself, or is not known."""
    if name.startswith(READ):
        return frozenset({name.removeprefix(READ)})
    query = queries().get(name)
    if query is None:
        return None
    return frozenset(_WORD.findall(_COMMENT.sub("", query.text))) & TABLES.keys()


def window(parameters: dict[str, Any]) -> tuple[float, float]:
    """The instants a question is about; all of them when it names none."""
    start, end = parameters.get("start"), parameters.get("end")
    if isinstance(start, int | float) and isinstance(end, int | float):
        return start, end
    return float("-inf"), float("inf")


def _clamp(name: str, value: Any) -> Any:
    """`start` and `end` may be infinite: all there is."""
    if name not in ("start", "end"):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise QueryError(f"{name} = {value!r}: expected unix seconds")
    return min(max(float(value), 0.0), unix_seconds(LAST_US))


def _result(answer: duckdb.DuckDBPyConnection, in_columns: bool = False) -> Result:
    described = answer.description or ()
    columns = tuple(d[0] for d in described)
    if in_columns:
        from telemetry.ask import arrays  # it brings NumPy: a first look does without

        if arrays.KINDS.issuperset(d[1].id for d in described):
            return Result(columns, arrays.fetched(answer))
    # Rows are many and wide, and most columns come as they are to be: look at the others only.
    others = [i for i, d in enumerate(described) if d[1].id not in _AS_THEY_COME]
    rows = answer.fetchall()
    if others:
        rows = [_converted(row, others) for row in rows]
    return Result(columns, tuple(rows))


def _converted(row: tuple[Any, ...], others: list[int]) -> tuple[Any, ...]:
    values = list(row)
    for i in others:
        if (value := values[i]) is not None:
            values[i] = _value(value)
    return tuple(values)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp()
    return value


def to_rows(table: str, result: Result) -> list[Any]:
    """The row dataclasses of a `read.<table>` answer."""
    spec = TABLES[table]
    if result.columns != spec.column_names:
        raise QueryError(
            f"{table} came with columns {result.columns}: the two sides are of different versions"
        )
    rows = filled(spec.row, result.columns, result.rows)
    for c in spec.columns:
        if c.sql == "TIMESTAMP":
            at = getattr(spec.row, c.name)
            for row in rows:
                if (us := at.__get__(row)) is not None:
                    at.__set__(row, unix_seconds(us))
    return rows


def filled(kind: type[Any], names: Sequence[str], values: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Rows of a dataclass, of their values in the order of these names; its other fields are None.

    Filled slot by slot: a frozen row's own __init__ does the same, in several times the time, and
    there are hundreds of thousands of them. Column by column, a few rows at a time.
    """
    setters = [getattr(kind, name).__set__ for name in names]
    others = [getattr(kind, f.name).__set__ for f in fields(kind) if f.name not in names]
    new = object.__new__
    rows: list[Any] = []
    left = iter(values)
    while piece := [*islice(left, ROWS_AT_ONCE)]:
        made = [new(kind) for _ in piece]
        for put, column in zip(setters, zip(*piece, strict=True), strict=True):
            deque(map(put, made, column), maxlen=0)
        for put in others:
            deque(map(put, made, repeat(None)), maxlen=0)
        rows += made
    return rows
