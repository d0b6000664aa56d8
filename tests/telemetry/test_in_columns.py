"""Rows that lie in columns are the same rows to whoever asks for rows, wherever they go."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.ask import arrays
from telemetry.ask.in_columns import InColumns
from telemetry.ask.reading import Result
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service import wire

KINDS = {
    "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1),
    "INTEGER": st.integers(-(1 << 31), (1 << 31) - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "VARCHAR": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
}
columns = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.lists(st.none() | KINDS[kind], min_size=3, max_size=3)
        | KINDS[kind].map(lambda one: [one] * 3),
    )
)


def carried(result: Result, in_columns: bool) -> Result:
    sent = [piece.SerializeToString() for piece in wire.messages(result, columns=True)]
    return wire.result((pb.QueryRows.FromString(data) for data in sent), in_columns)


@pytest.fixture(scope="module")
def con():
    with duckdb.connect(":memory:") as made:
        yield made


@settings(max_examples=30, deadline=None)
@given(st.lists(columns, min_size=1, max_size=4))
def test_an_answer_in_arrays_is_the_answer_in_rows(con: Any, given_columns: list[Any]):
    """From DuckDB, over the wire and back: by rows, by columns, all the same to the last sign."""
    names = [f"c{i}" for i in range(len(given_columns))]
    typed = ", ".join(f"{n} {kind}" for n, (kind, _) in zip(names, given_columns, strict=True))
    con.execute(f"CREATE OR REPLACE TABLE answers ({typed})")
    rows = list(zip(*(values for _, values in given_columns), strict=True))
    con.executemany(f"INSERT INTO answers VALUES ({', '.join('?' * len(names))})", rows)
    by_row = tuple(con.execute("SELECT * FROM answers").fetchall())
    by_column = arrays.fetched(con.execute("SELECT * FROM answers"))
    assert repr(by_column) == repr(by_row)
    told = Result(tuple(names), by_column)
    for in_columns in (False, True):
        arrived = carried(told, in_columns)
        assert repr(arrived.rows) == repr(by_row)
        assert arrived == Result(told.columns, by_row)
    assert isinstance(carried(told, True).rows, InColumns)


def test_rows_in_columns_are_cut_and_counted_like_rows():
    rows = InColumns([[1, 2, 3], ("a", None, "c")], 3)
    assert (len(rows), rows[1], list(rows[1:])) == (3, (2, None), [(2, None), (3, "c")])
    assert rows == ((1, "a"), (2, None), (3, "c"))
    assert rows[:0] == ()
    assert rows != ((1, "a"),)
    with pytest.raises(ValueError, match="1 values in 3 rows"):
        InColumns([[1, 2, 3], ["a"]], 3)


def test_an_answer_of_many_pieces_stays_in_columns():
    n = wire.ROWS_A_MESSAGE * 2 + 1
    rows = InColumns([list(range(n)), ["x"] * n, [None, *[0.5] * (n - 1)]], n)
    sent = Result(("n", "x", "f"), rows, ("2027-01-15: lost",))
    assert len(list(wire.messages(sent, columns=True))) == 3
    assert carried(sent, True) == sent
    assert wire.result(wire.messages(sent)) == Result(sent.columns, tuple(rows), sent.partial)


def test_an_answer_without_rows_has_its_columns():
    assert carried(Result(("n",), InColumns([[]], 0)), True) == Result(("n",), ())
