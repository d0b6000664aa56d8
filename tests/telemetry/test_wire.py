"""Questions and answers go over the wire and come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.ask.reading import Result
from telemetry.errors import QueryError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service import wire

whole = st.integers(-(1 << 63), (1 << 63) - 1)
values = (
    st.none()
    | st.booleans()
    | whole
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=9)
    | st.lists(whole, max_size=3).map(tuple)
)


def carried(result: Result, columns: bool = False) -> Result:
    sent = [piece.SerializeToString() for piece in wire.messages(result, columns)]
    return wire.result(pb.QueryRows.FromString(data) for data in sent)


one_kind = st.sampled_from(
    [st.integers(-9, 9), st.floats(allow_nan=False), st.text("ab", max_size=2), st.booleans(),
     st.lists(whole, max_size=3).map(tuple)]
).flatmap(lambda kind: st.lists(st.none() | kind, min_size=4, max_size=4))  # fmt: skip


@given(
    st.lists(st.tuples(values, values), max_size=5)
    | st.lists(one_kind, min_size=2, max_size=2).map(lambda c: list(zip(*c, strict=True))),
    st.lists(st.text("ab"), max_size=2),
    st.booleans(),
)
def test_an_answer_arrives_as_it_was(
    rows: list[tuple[Any, ...]], partial: list[str], columns: bool
) -> None:
    result = Result(("one", "other"), tuple(rows), tuple(partial))
    arrived = carried(result, columns)
    assert arrived == result
    assert repr(arrived.rows) == repr(result.rows)  # 1, 1.0 and True are equal, and so are zeros


def test_an_answer_of_many_pieces_is_one_again() -> None:
    rows = tuple((n, float(n)) for n in range(wire.ROWS_A_MESSAGE * 2 + 1))
    result = Result(("n", "f"), rows, ("2027-01-15: lost",))
    for columns in (False, True):
        assert len(list(wire.messages(result, columns))) == 3
        assert carried(result, columns) == result


def test_a_sum_past_64_bits_travels_in_a_column_too() -> None:
    result = Result(("n",), ((1 << 63,), (5,)))
    assert carried(result, columns=True).rows == ((float(1 << 63),), (5,))


def test_a_sum_past_64_bits_travels_as_a_number() -> None:
    assert wire.plain(wire.value(1 << 63)) == float(1 << 63)


def test_what_no_query_takes_or_gives_is_refused() -> None:
    with pytest.raises(TypeError, match="plain values"):
        wire.value({"a": 1})
    with pytest.raises(QueryError, match="not UTF-8"):
        wire.value("\udcff")
