"""The matrix as a point a victim and reason: what it says, what is refused, and older engines."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from telemetry.conventions import HOLDER_KINDS
from telemetry.otlp import decode_metrics, encode
from telemetry.otlp.rows import ROWS_A_REQUEST
from telemetry.records import InterferenceMinute
from telemetry.store.store import Store
from telemetry.tables import TABLES
from tests.telemetry import objects_encode
from tests.telemetry.delivered import (
    DAY_S,
    RUN,
    T0,
    any_rows,
    batch,
    charge,
    engine_minute,
    minute,
    names,
)

SECONDS = st.floats(0, 1e6, allow_nan=False)
CELL = st.one_of(
    st.tuples(st.just("tenant"), names),
    st.sampled_from([k for k in HOLDER_KINDS if k != "tenant"]).map(lambda kind: (kind, "")),
)


def cell(victim: str, reason: str, kind: str, holder: str, seconds: float) -> InterferenceMinute:
    return InterferenceMinute(
        bucket_start=T0, bucket_s=60.0, victim=victim, reason=reason, holder_kind=kind,
        holder=holder, charged_s=seconds, **RUN,
    )  # fmt: skip


def parsed(*rows: Any) -> tuple[ExportMetricsServiceRequest, Any]:
    """The request, and its points of the matrix."""
    data, _ = encode(batch(*rows))
    assert data is not None
    request = ExportMetricsServiceRequest.FromString(data)
    [metric] = [
        m
        for r in request.resource_metrics
        for s in r.scope_metrics
        for m in s.metrics
        if m.name == "tenantscope.interference_minute.charged_s"
    ]
    return request, metric.sum.data_points


ROWS = (
    cell("v", "kv", "tenant", "self", 1.5),
    cell("v", "kv", "self", "", 0.25),
    cell("v", "kv", "capacity", "", 2.0),
    cell("v", "slot", "tenant", "x", 1.0),
)


def test_a_point_a_victim_and_reason_whose_value_is_the_sum() -> None:
    _, points = parsed(*ROWS)
    assert [p.as_double for p in points] == [3.75, 1.0]
    said = {a.key: a.value for a in points[0].attributes}
    assert said["tenantscope.victim"].string_value == "v"
    assert said["tenantscope.reason"].string_value == "kv"
    holders = said["tenantscope.holders"].array_value.values
    assert [v.string_value for v in holders] == ["tenant:self", "self", "capacity"]
    seconds = said["tenantscope.holders_s"].array_value.values
    assert [v.double_value for v in seconds] == [1.5, 0.25, 2.0]


def test_a_tenant_that_is_called_like_a_kind_does_not_meet_it() -> None:
    rows = [cell("v", "kv", "tenant", kind, 1.0) for kind in HOLDER_KINDS]
    rows += [cell("v", "kv", kind, "", 2.0) for kind in HOLDER_KINDS if kind != "tenant"]
    rows.append(cell("v", "kv", "tenant", "tenant:x", 3.0))
    data, _ = encode(batch(*rows))
    assert data is not None
    assert set(decode_metrics(data).rows("interference_minute")) == set(rows)


@given(
    cells=st.dictionaries(
        st.tuples(names, st.sampled_from(["kv", "slot"]), CELL), SECONDS, min_size=1, max_size=12
    )
)
def test_any_matrix_comes_back_cell_for_cell_and_its_points_add_up(cells: Any) -> None:
    rows = [cell(v, r, *whose, seconds) for (v, r, whose), seconds in cells.items()]
    _, points = parsed(*rows)
    assert len(points) == len({(r.victim, r.reason) for r in rows})
    total = sum(r.charged_s or 0.0 for r in rows)
    assert math.isclose(sum(p.as_double for p in points), total, rel_tol=1e-9, abs_tol=1e-12)
    data, _ = encode(batch(*rows))
    assert data is not None
    decoded = decode_metrics(data)
    assert set(decoded.rows("interference_minute")) == set(rows)
    assert (decoded.accepted, decoded.refused) == (len(points), 0)


@settings(max_examples=40, deadline=None)
@given(rows=any_rows(TABLES["interference_minute"], most=8))
def test_what_an_older_engine_sends_makes_the_same_rows(rows: Any) -> None:
    old, (new, _) = objects_encode.encode(batch(*rows)), encode(batch(*rows))
    assert (old is None) == (new is None)
    if old is not None and new is not None:
        assert set(decode_metrics(old).rows("interference_minute")) == set(
            decode_metrics(new).rows("interference_minute")
        )


@pytest.mark.parametrize("name", [n for n in TABLES if not TABLES[n].log and n[0] != "i"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_bytes_are_what_the_official_classes_write(name: str, data: st.DataObject) -> None:
    rows = data.draw(any_rows(TABLES[name], most=6))
    written, expected = encode(batch(*rows))[0], objects_encode.encode(batch(*rows))
    assert (written is None) == (expected is None)
    if written is not None and expected is not None:
        read = ExportMetricsServiceRequest.FromString(written)
        assert read == ExportMetricsServiceRequest.FromString(expected)


def test_a_number_that_no_point_can_carry_is_said() -> None:
    with pytest.raises(ValueError, match="9223372036854775808 is no 64-bit number"):
        encode(batch(minute("a", prompt_tokens=1 << 63)))
    with pytest.raises(ValueError, match="before 1970"):
        encode(batch(minute("a", -60.0, prompt_tokens=1)))


# --- refused -------------------------------------------------------------------------------------


def values(point: Any, name: str) -> Any:
    [found] = [a.value for a in point.attributes if a.key == f"tenantscope.{name}"]
    return found.array_value.values


def fewer_seconds(p: Any) -> None:
    del values(p, "holders_s")[-1]


def no_seconds(p: Any) -> None:
    del p.attributes[3]


def no_holders(p: Any) -> None:
    del p.attributes[2]


def nobody(p: Any) -> None:
    del values(p, "holders")[:], values(p, "holders_s")[:]
    p.as_double = 0.0


def nan_seconds(p: Any) -> None:
    values(p, "holders_s")[0].double_value = math.nan


def infinite_seconds(p: Any) -> None:
    values(p, "holders_s")[0].double_value = math.inf


def negative_seconds(p: Any) -> None:
    values(p, "holders_s")[0].double_value = -1.0


def whole_seconds(p: Any) -> None:
    values(p, "holders_s")[0].int_value = 1


def other_sum(p: Any) -> None:
    p.as_double += 0.001


def unknown_kind(p: Any) -> None:
    values(p, "holders")[1].string_value = "nobody"


def numeric_holder(p: Any) -> None:
    values(p, "holders")[1].int_value = 3


def holder_twice(p: Any) -> None:
    values(p, "holders")[1].string_value = values(p, "holders")[0].string_value


def long_holder(p: Any) -> None:
    values(p, "holders")[0].string_value = "tenant:" + "x" * 1_025


def victim_twice(p: Any) -> None:
    p.attributes.append(p.attributes[0])


def no_victim(p: Any) -> None:
    del p.attributes[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (fewer_seconds, "3 holders and 2 seconds: expected as many"),
        (no_seconds, "a point without tenantscope.holders_s, a list"),
        (no_holders, "a point without tenantscope.holders, a list"),
        (nobody, "0 holders and 0 seconds"),
        (nan_seconds, "seconds that add up to nan: expected finite numbers"),
        (infinite_seconds, "seconds that add up to inf"),
        (negative_seconds, "-1.0: seconds cannot be negative"),
        (whole_seconds, "tenantscope.holders_s holds something else than doubles"),
        (other_sum, "seconds add up to 3.75, the value says 3.751"),
        (unknown_kind, "holder 'nobody': expected tenant:NAME"),
        (numeric_holder, "tenantscope.holders holds something else than strings"),
        (holder_twice, "a holder that stands there twice"),
        (long_holder, "a name of 1025 characters"),
        (victim_twice, "an attribute that stands there twice"),
        (no_victim, "a point without tenantscope.victim"),
    ],
)
def test_a_malformed_point_is_refused_and_sinks_no_other(change: Any, reason: str) -> None:
    request, points = parsed(*ROWS, minute("a", prompt_tokens=4))
    change(points[0])
    decoded = decode_metrics(request.SerializeToString())
    assert decoded.refused == 1
    assert reason in decoded.reasons[0]
    assert decoded.rows("interference_minute") == [ROWS[3]]
    assert decoded.rows("tenant_minute") == [minute("a", prompt_tokens=4)]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 1e308])
def test_an_odd_cell_costs_no_other(odd: float) -> None:
    """Cells that make no sound sum travel alone, as all once did."""
    rows = [charge("v", "x", odd), charge("v", "y", 1e308), charge("v", "z", 2.0)]
    data, _ = encode(batch(*rows))
    assert data is not None
    decoded = decode_metrics(data)
    sound = [r for r in rows if r.charged_s is not None and 0 <= r.charged_s < math.inf]
    assert decoded.rows("interference_minute") == sound
    assert decoded.refused == len(rows) - len(sound)


def test_more_cells_than_a_request_may_hold_are_refused_by_the_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ROWS_A_REQUEST, "interference_minute", 3)
    data, _ = encode(batch(*ROWS))
    assert data is not None
    decoded = decode_metrics(data)
    assert len(decoded.rows("interference_minute")) == 3
    assert (decoded.accepted, decoded.refused) == (1, 1)


def test_cells_of_a_refused_date_count_as_the_point_they_came_in(tmp_path: Any) -> None:
    with Store.open(tmp_path / "store", clock=lambda: T0 - 3 * DAY_S) as store:
        for data, points in ((encode(batch(*ROWS, engine_minute(steps=1)))[0], 3),
                             (objects_encode.encode(batch(*ROWS)), 4)):  # fmt: skip
            assert data is not None
            receipt = store.ingest_metrics(data)
            assert (receipt.accepted, receipt.refused, receipt.rows) == (0, points, 0)
