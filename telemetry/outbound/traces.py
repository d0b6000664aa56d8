"""Request rows as OTLP traces: chosen, laid out, encoded; and which requests have a trace to look
at. Sends nothing. Not thread-safe, but for `trace_of`.
"""

from __future__ import annotations

from collections import OrderedDict

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from telemetry.conventions import NAMESPACE
from telemetry.outbound import spans
from telemetry.outbound.metrics import Trace, resource
from telemetry.outbound.queue import Payload
from telemetry.outbound.tail import Rates, Tail
from telemetry.records import EngineRun, RequestRecord

REMEMBERED = 4096  # requests, and runs: enough for the exemplars that are shown
_SCOPE = InstrumentationScope(name=f"{NAMESPACE}.requests")
# Bits of a span's flags (trace.proto): whether its parent is of another process is known.
_REMOTE_KNOWN, _REMOTE, _SAMPLED = 0x100, 0x200, 0x01


class Traces:
    """The traces of one store process."""

    def __init__(self, rates: Rates) -> None:
        self._tail = Tail(rates)
        self._models: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._kept: OrderedDict[tuple[str, str], Trace] = OrderedDict()

    def learn(self, run: EngineRun) -> None:
        """What the base model of a run is called."""
        self._models[run.engine, run.run_id] = run.model
        while len(self._models) > REMEMBERED:
            self._models.popitem(last=False)

    def take(self, row: RequestRecord, now: float) -> Payload | None:
        """The request's trace, when it is kept. `now` is unix seconds.

        A row that comes again makes no second trace, as long as it is remembered."""
        who = (row.engine, row.request_id)
        if who in self._kept:
            return None
        trace_id = spans.trace_id_of(row)
        why = self._tail.keep(row, trace_id, now)
        if why is None:
            return None
        self._kept[who] = (trace_id, spans.root_id_of(row))
        while len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)
        model = self._models.get((row.engine, row.run_id))
        return encode(row, spans.spans_of(row, model, why))

    def trace_of(self, engine: str, request_id: str) -> Trace | None:
        """A request's trace and span, where it was kept of late. Any thread."""
        return self._kept.get((engine, request_id))

    def left_out(self) -> dict[str, int]:
        """Requests without a trace, by why."""
        return self._tail.left_out()


def encode(row: RequestRecord, made: tuple[spans.Span, ...]) -> Payload:
    """One request's spans as an export request of their own."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add(resource=resource(row.engine, row.pool)).scope_spans.add(
        scope=_SCOPE
    )
    for span in made:
        message = scope.spans.add(
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            name=span.name,
            kind=SpanMessage.SPAN_KIND_SERVER if span.is_root else SpanMessage.SPAN_KIND_INTERNAL,
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            attributes=[
                KeyValue(key=name, value=_value(value)) for name, value in span.attributes.items()
            ],
            flags=_flags(row, span),
        )
        if span.parent_id is not None:
            message.parent_span_id = bytes.fromhex(span.parent_id)
        if span.error is not None:
            message.status.code = Status.STATUS_CODE_ERROR
            message.status.message = span.error
    return Payload(request.SerializeToString(), len(made))


def _flags(row: RequestRecord, span: spans.Span) -> int:
    flags = _REMOTE_KNOWN
    if span.is_root and span.parent_id is not None:
        flags |= _REMOTE
    return flags | _SAMPLED if row.trace_sampled else flags


def _value(value: spans.Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value)
