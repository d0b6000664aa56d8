"""Every named query answers with the columns and types that are declared for its rows."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from telemetry.ask.reading import Result, queries
from telemetry.ask.rows import ROWS, columns_of, typed
from telemetry.errors import QueryError
from telemetry.source import MemorySource
from tests.telemetry.test_source import ASKED, in_memory

# What a parameter may be asked with where no test of the queries says.
OTHERS: dict[str, Any] = {"n": 10}
PLAIN = {
    "BIGINT": int,
    "INTEGER": int,
    "HUGEINT": int,
    "DOUBLE": float,
    "VARCHAR": str,
    "BOOLEAN": bool,
    "TIMESTAMP": float,
    "BIGINT[]": tuple,
}


@pytest.fixture(scope="module")
def memory() -> Iterator[MemorySource]:
    source = in_memory()
    yield source
    source.close()


def asked(name: str) -> dict[str, Any]:
    return {p: ASKED.get(p, OTHERS.get(p, 60.0)) for p in queries()[name].parameters}


def kinds(declared: Any) -> tuple[type, ...]:
    """The classes that a declared type allows."""
    is_union = isinstance(declared, types.UnionType)
    each = typing.get_args(declared) if is_union else (declared,)
    return tuple(typing.get_origin(kind) or kind for kind in each)


def test_every_query_has_a_row_type_and_every_row_type_a_query() -> None:
    assert set(ROWS) == set(queries())


@pytest.mark.parametrize("name", sorted(set(ROWS) & set(queries())))
def test_columns_and_types_are_as_declared(name: str, memory: MemorySource) -> None:
    described = memory._con.execute(queries()[name].text, asked(name)).description
    assert described is not None
    declared = typing.get_type_hints(ROWS[name])
    assert [d[0] for d in described] == list(declared)
    for column, kind in ((d[0], str(d[1])) for d in described):
        assert PLAIN[kind] in kinds(declared[column]), (column, kind)


@pytest.mark.parametrize("name", sorted(set(ROWS) & set(queries())))
def test_values_are_of_the_declared_types_and_absent_only_where_that_is_said(
    name: str, memory: MemorySource
) -> None:
    declared = typing.get_type_hints(ROWS[name])
    for row in typed(name, memory.query(name, **asked(name))):
        for column in columns_of(type(row)):
            kind, value = declared[column], getattr(row, column)
            assert isinstance(value, kinds(kind)), (column, value)


def test_an_answer_of_another_version_is_refused(memory: MemorySource) -> None:
    with pytest.raises(QueryError, match="different versions"):
        typed("span", Result(("first",), ()))
    with pytest.raises(QueryError, match="no rows are declared"):
        typed("who", Result((), ()))
