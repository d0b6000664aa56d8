"""A client's `traceparent`, from its HTTP header to the spans that a third party is sent."""

from __future__ import annotations

from typing import Any

import pytest
from front_bench import ALICE, bench, settings, text_reply
from serving_fakes import FakeCore

from engine.clock import TurnedClock
from engine.scheduling import life
from engine.scheduling.request import Ask, Outcome, Request
from telemetry.ledger.views import Identity, Verdict
from telemetry.otlp.decode import decode_logs
from telemetry.otlp.encode import encode
from telemetry.outbound.tail import Rates
from telemetry.outbound.traces import Traces
from telemetry.records import Batch, RequestRecord

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"
CANARY = "canary-4711"


def row_of(ask: Ask) -> RequestRecord:
    """The row that the worker writes when the request is over."""
    request = Request(ask, 1, ask.admitted_s, tenant=ask.tenant, prompt_tokens=len(ask.prompt))
    identity = Identity("e", "run-1", "main")
    verdict = Verdict(None, None, None, None)
    base = TurnedClock().base
    return life.record(request, Outcome.FINISHED, ask.admitted_s + 1, identity, base, verdict)


def exported(batch: Batch) -> bytes:
    """As the store process sends it on, after the way through OTLP."""
    _, logs = encode(batch)
    assert logs is not None
    traces = Traces(Rates(ratio=0.0))
    payloads = [traces.take(row, 0.0) for row in decode_logs(logs).rows("request")]
    return b"".join(p.data for p in payloads if p is not None)


def batch_of(row: RequestRecord, like: Batch) -> Batch:
    return Batch("e", "run-1", "main", like.emitter, True, 1, logs=(row,))


def answered(headers: Any) -> tuple[Ask, Any]:
    """What the worker is asked by a request with these headers."""
    core = FakeCore(text_reply("ok"))
    taken: list[Ask] = []
    submit = core.submit
    core.submit = lambda ask: (taken.append(ask), submit(ask))[1]  # type: ignore[method-assign]
    with bench(core) as (b, client):
        response = client.post(
            "/v1/completions",
            json={"model": "tiny", "prompt": f"say {CANARY}", "max_tokens": 10},
            headers=[("authorization", f"Bearer {ALICE}"), *headers],
        )
        assert response.status_code == 200
    [ask] = taken
    return ask, b.exporter.batches[-1]


def test_a_clients_trace_reaches_the_exported_span_and_its_prompt_does_not():
    ask, like = answered([("traceparent", HEADER), ("x-note", CANARY)])
    row = row_of(ask)
    assert (row.trace_id, row.parent_span_id, row.trace_sampled) == (TRACE, SPAN, True)
    sent = exported(batch_of(row, like))
    assert bytes.fromhex(TRACE) in sent
    assert bytes.fromhex(SPAN) in sent
    assert CANARY.encode() not in sent
    assert ALICE.encode() not in sent


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", CANARY)],
        [("traceparent", HEADER.upper())],
        [("traceparent", HEADER), ("traceparent", HEADER)],
        [("traceparent", "x" * 4000)],
    ],
)
def test_a_header_that_says_nothing_is_served_and_leaves_nothing(headers: Any):
    ask, like = answered(headers)
    assert ask.trace is None
    row = row_of(ask)
    assert (row.trace_id, row.parent_span_id, row.trace_sampled) == (None, None, None)
    assert exported(batch_of(row, like)) == b""  # at a ratio of zero nobody else is kept


def test_a_rejection_carries_the_clients_trace_too():
    with bench(chosen=settings(rpm=0)) as (b, client):
        assert b.post(client, headers={"traceparent": HEADER}).status_code == 429
        client.portal.call(b.book.flush, b.clock.now())  # type: ignore[union-attr]
        [row] = b.exporter.rows(RequestRecord)
    assert (row.trace_id, row.parent_span_id, row.trace_sampled) == (TRACE, SPAN, True)
