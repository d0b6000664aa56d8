"""A third party's OTLP collector, in this process, over a real port: it answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

Answer = Callable[[Any, grpc.ServicerContext], Any]


def field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field of less than 128 bytes."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def retry_info(seconds: float) -> bytes:
    """A google.rpc.Status that asks to wait."""
    delay = Duration(nanos=int(seconds * 1e9) % 10**9, seconds=int(seconds))
    detail = AnyMessage(
        type_url="type.googleapis.com/google.rpc.RetryInfo",
        value=field(1, delay.SerializeToString()),
    )
    return field(3, detail.SerializeToString())


def takes(request: Any, context: grpc.ServicerContext) -> Any:
    """All of it."""
    if isinstance(request, metrics_pb.ExportMetricsServiceRequest):
        return metrics_pb.ExportMetricsServiceResponse()
    return trace_pb.ExportTraceServiceResponse()


def refuses(code: grpc.StatusCode, details: str = "no", wait_s: float | None = None) -> Answer:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        if wait_s is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", retry_info(wait_s)),))
        context.abort(code, details)

    return answer


def rejects(count: int) -> Answer:
    """All but some."""

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        response = takes(request, context)
        if isinstance(response, trace_pb.ExportTraceServiceResponse):
            response.partial_success.rejected_spans = count
        else:
            response.partial_success.rejected_data_points = count
        response.partial_success.error_message = "too many"
        return response

    return answer


class Collector:
    """`answers` are given in turn, the last one for ever."""

    def __init__(self, *answers: Answer, credentials: grpc.ServerCredentials | None = None) -> None:
        self._answers = list(answers or (takes,))
        self._heard = threading.Condition()
        self.calls = 0
        self.metrics: list[metrics_pb.ExportMetricsServiceRequest] = []
        self.traces: list[trace_pb.ExportTraceServiceRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.gone = threading.Event()  # lets whoever hangs go
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(self), self._server)
        trace_grpc.add_TraceServiceServicer_to_server(_Traces(self), self._server)
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
            self.url = f"http://127.0.0.1:{port}"
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
            self.url = f"https://127.0.0.1:{port}"

    def hangs(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.gone.wait(60)
        return takes(request, context)

    def answers(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def spans(self) -> list[Any]:
        return [
            s for t in self.traces for r in t.resource_spans for k in r.scope_spans for s in k.spans
        ]

    def wait(self, happened: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Until it is so; asked after every call."""
        with self._heard:
            assert self._heard.wait_for(happened, timeout_s), "it did not happen"

    def export(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._heard:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            self.calls += 1
            self.metadata.append(dict(context.invocation_metadata()))
            self._heard.notify_all()
        response = answer(request, context)
        with self._heard:
            is_metrics = isinstance(request, metrics_pb.ExportMetricsServiceRequest)
            (self.metrics if is_metrics else self.traces).append(request)
            self._heard.notify_all()
        return response

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self.gone.set()
        self._server.stop(0).wait()


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._collector.export(request, context)


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._collector.export(request, context)


@contextmanager
def collecting(
    *answers: Answer, credentials: grpc.ServerCredentials | None = None
) -> Iterator[Collector]:
    collector = Collector(*answers, credentials=credentials)
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()
