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


def carried(result: Result) -> Result:
    sent = [piece.SerializeToString() for piece in wire.messages(result)]
    return wire.result(pb.QueryRows.FromString(data) for data in sent)


@given(st.lists(st.tuples(values, values), max_size=5), st.lists(st.text("ab"), max_size=2))
def test_an_answer_arrives_as_it_was(rows: list[tuple[Any, ...]], partial: list[str]) -> None:
    result = Result(("one", "other"), tuple(rows), tuple(partial))
    arrived = carried(result)
    assert arrived == result
    kinds = [[type(v) for v in row] for row in result.rows]
    assert [[type(v) for v in row] for row in arrived.rows] == kinds


def test_an_answer_of_many_pieces_is_one_again() -> None:
    rows = tuple((n, float(n)) for n in range(wire.ROWS_A_MESSAGE * 2 + 1))
    result = Result(("n", "f"), rows, ("2027-01-15: lost",))
    assert len(list(wire.messages(result))) == 3
    assert carried(result) == result


def test_a_sum_past_64_bits_travels_as_a_number() -> None:
    assert wire.plain(wire.value(1 << 63)) == float(1 << 63)


def test_what_no_query_takes_or_gives_is_refused() -> None:
    with pytest.raises(TypeError, match="plain values"):
        wire.value({"a": 1})
    with pytest.raises(QueryError, match="not UTF-8"):
        wire.value("\udcff")
