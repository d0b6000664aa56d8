"""A row's spans: they nest, their lengths are the row's columns, and they come out the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.conventions import SPAN_ATTRIBUTES, WAIT_REASONS
from telemetry.otlp.decode import decode_logs
from telemetry.otlp.encode import encode as encode_rows
from telemetry.outbound.spans import Span, spans_of, trace_id_of
from telemetry.outbound.tail import Rates
from telemetry.outbound.traces import Traces, encode
from telemetry.records import RequestRecord
from telemetry.tables import TABLES
from tests.telemetry.delivered import T0, any_row, batch, request

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def finished(**columns: Any) -> RequestRecord:
    """Two seconds to the first token, three more to the end, half a second of them waiting."""
    whole: dict[str, Any] = {
        "adapter": "fr-legal",
        "admitted": T0 + 0.25,
        "first_scheduled": T0 + 1.5,
        "first_token": T0 + 2.0,
        "last_token": T0 + 5.0,
        "ended": T0 + 5.0,
        "prompt_tokens": 100,
        "output_tokens": 30,
        "wait_front_s": 0.25,
        "wait_slot_s": 0.5,
        "wait_budget_s": 0.0,
        "wait_kv_s": 0.5,
        "wait_adapter_s": 0.25,
        "prefill_s": 0.5,
        "ttft_s": 2.0,
        "rewait_kv_s": 0.5,
        "slo_met": True,
    }
    return request(1, **{**whole, **columns})


def lengths(spans: tuple[Span, ...]) -> dict[str, float]:
    return {s.name: (s.end_ns - s.start_ns) / 1e9 for s in spans}


def test_a_requests_time_is_laid_out_part_by_part():
    made = spans_of(finished())
    assert lengths(made) == {
        "request": 5.0,
        "front": 0.25,
        "wait.slot": 0.5,
        "wait.kv": 0.5,
        "wait.adapter": 0.25,
        "prefill": 0.5,
        "rewait.kv": 0.5,
        "decode": 2.5,
    }
    root, *parts = made
    assert parts[0].start_ns == root.start_ns
    assert parts[-1].end_ns == root.end_ns
    assert "tenantscope.layout" not in parts[0].attributes
    assert {p.attributes["tenantscope.layout"] for p in parts[1:]} == {"total"}
    assert root.attributes["gen_ai.latency.time_in_queue"] == 1.25
    assert root.attributes["gen_ai.latency.time_to_first_token"] == 2.0
    assert root.attributes["gen_ai.latency.e2e"] == 5.0
    assert root.attributes["gen_ai.latency.time_in_model_prefill"] == 0.5
    assert root.attributes["gen_ai.latency.time_in_model_decode"] == 2.5
    assert root.attributes["gen_ai.request.model"] == "fr-legal"
    assert root.attributes["gen_ai.usage.input_tokens"] == 100
    assert root.attributes["gen_ai.usage.output_tokens"] == 30


def test_a_request_that_never_ran_has_only_its_waits_and_an_error():
    row = request(
        2, outcome="timed_out", ended=T0 + 3.0, wait_front_s=1.0, wait_kv_s=2.0, wait_slot_s=0.0
    )
    root, *parts = spans_of(row, base_model="tiny")
    assert lengths((root, *parts)) == {"request": 3.0, "front": 1.0, "wait.kv": 2.0}
    assert root.error == "timed_out"
    assert root.attributes["error.type"] == "timed_out"
    assert root.attributes["gen_ai.request.model"] == "tiny"
    assert "gen_ai.latency.time_in_model_decode" not in root.attributes


def test_a_rejection_is_no_error_of_the_server():
    row = request(3, outcome="rejected", reject_reason="rpm", ended=T0 + 0.5, wait_front_s=0.5)
    root, front = spans_of(row)
    assert root.error is None
    assert root.attributes["tenantscope.reject_reason"] == "rpm"
    assert front.name == "front"


def test_the_clients_trace_is_joined_and_without_one_the_request_is_its_own_trace():
    joined = spans_of(finished(trace_id=TRACE, parent_span_id=PARENT, trace_sampled=True))
    assert {s.trace_id for s in joined} == {TRACE}
    assert joined[0].parent_id == PARENT
    assert {s.parent_id for s in joined[1:]} == {joined[0].span_id}
    own = spans_of(finished())
    assert own[0].parent_id is None
    assert len(own[0].trace_id) == 32
    assert own[0].trace_id != spans_of(replace(finished(), request_id="q2"))[0].trace_id


@pytest.mark.parametrize("bad", ["", "0" * 32, "nonsense", TRACE.upper(), TRACE + "0"])
def test_a_trace_id_that_is_none_is_not_taken_from_a_row(bad: str):
    row = finished(trace_id=bad, parent_span_id=PARENT)
    assert trace_id_of(row) == trace_id_of(finished())
    assert spans_of(row)[0].parent_id is None


def test_a_row_that_was_sent_and_read_makes_the_same_spans_again():
    row = finished(wait_kv_s=0.123456789, arrived=T0 + 0.000123)
    _, logs = encode_rows(batch(row))
    assert logs is not None
    [again] = decode_logs(logs).rows("request")
    assert spans_of(again) == spans_of(row)
    assert encode(again, spans_of(again)) == encode(row, spans_of(row))


def test_ids_do_not_meet_where_words_are_cut_differently():
    one = replace(finished(), engine="a", run_id="bc")
    other = replace(finished(), engine="ab", run_id="c")
    assert trace_id_of(one) != trace_id_of(other)
    assert not {s.span_id for s in spans_of(one)} & {s.span_id for s in spans_of(other)}


@given(any_row(TABLES["request"]))
def test_whatever_a_row_says_its_spans_nest_and_can_be_encoded(row: RequestRecord):
    root, *parts = spans_of(row, base_model="tiny", kept="ratio")
    at = root.start_ns
    for part in parts:
        assert at <= part.start_ns < part.end_ns <= root.end_ns
        at = part.end_ns
        assert part.parent_id == root.span_id
    assert len({s.span_id for s in (root, *parts)}) == len(parts) + 1
    assert encode(row, (root, *parts)).items == len(parts) + 1


parts_s = st.integers(0, 100_000_000).map(lambda us: us / 1e6)


@given(st.integers(0, 10**12), st.lists(parts_s, min_size=10, max_size=10), parts_s)
def test_of_a_row_whose_columns_add_up_no_part_is_cut(
    offset_us: int, seconds: list[float], decode_s: float
):
    """Instants are kept to the microsecond and durations are not; still every length is true."""
    arrived = T0 + offset_us / 1e6
    front, prefill = seconds[0], seconds[1]
    waits, again = seconds[2:6], seconds[6:10]
    ttft_s = front + prefill + sum(waits)
    first = arrived + ttft_s
    ended = first + sum(again) + decode_s
    row = request(
        1,
        arrived=arrived,
        first_token=first,
        ended=ended,
        wait_front_s=front,
        prefill_s=prefill,
        ttft_s=ttft_s,
        **{f"wait_{r}_s": s for r, s in zip(WAIT_REASONS, waits, strict=True)},
        **{f"rewait_{r}_s": s for r, s in zip(WAIT_REASONS, again, strict=True)},
    )
    made = spans_of(row)
    assert all(s.attributes.get("tenantscope.layout") != "cut" for s in made)
    found = lengths(made)
    said = {"front": front, "prefill": prefill}
    said |= {f"wait.{r}": s for r, s in zip(WAIT_REASONS, waits, strict=True)}
    said |= {f"rewait.{r}": s for r, s in zip(WAIT_REASONS, again, strict=True)}
    for name, length_s in said.items():
        assert found.get(name, 0.0) == pytest.approx(length_s, abs=1e-9)
    assert sum(found.values()) - found["request"] == pytest.approx(ended - arrived, abs=1e-5)


@given(any_row(TABLES["request"]))
def test_every_attribute_is_declared(row: RequestRecord):
    declared = [a.name for a in SPAN_ATTRIBUTES]
    assert len(set(declared)) == len(declared)
    for span in spans_of(row, base_model="tiny", kept="ratio"):
        assert set(span.attributes) <= set(declared)


def test_a_row_that_comes_twice_leaves_once():
    traces = Traces(Rates(ratio=1.0))
    assert traces.take(finished(), T0) is not None
    assert traces.take(finished(), T0) is None
    assert traces.trace_of("e1", "q1") is not None
    assert traces.trace_of("e1", "q9") is None
