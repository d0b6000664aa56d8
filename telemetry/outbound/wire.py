"""One OTLP request to a third party and what it answered, over gRPC or HTTP. Keeps and retries
nothing.

Source of what may be tried again: the OTLP specification, "Failures" and "Throttling". Whatever a
third party says is cut short and cleared of the headers it was sent.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.cut_off import CutOff
from telemetry.outbound.settings import METRICS, TRACES, Endpoint
from telemetry.plain import safe
from telemetry.service.retry_info import retry_after_s

_METHODS = {
    METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}
_LONGEST_ANSWER_BYTES = 1 << 20
_LONGEST_WHY = 200
_TOO_MANY = grpc.StatusCode.RESOURCE_EXHAUSTED
_LATER = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_LATER_HTTP = (429, 502, 503, 504)


class Fate(enum.Enum):
    """What became of a request."""

    TAKEN = "taken"
    LATER = "later"  # may pass when sent again
    NEVER = "never"  # would be refused again


@dataclass(frozen=True, slots=True)
class Reply:
    """`rejected` points or spans of a request that was taken; `after_s` is the wait asked for."""

    fate: Fate
    rejected: int = 0
    after_s: float | None = None
    why: str = ""


class Transport(Protocol):
    """One third party, one signal. `send` never raises; `close` cuts a call under way off."""

    def send(self, data: bytes, timeout_s: float) -> Reply: ...
    def close(self) -> None: ...


def open_transport(
    endpoint: Endpoint, signal: str, headers: Mapping[str, str], ca: Path | None
) -> Transport:
    """Connects when first used. Raises OSError when `ca` cannot be read, ValueError when it is no
    certificate."""
    if endpoint.signal is not None:
        return _Http(endpoint, signal, headers, ca)
    return _Grpc(endpoint, signal, headers, ca)


class _Grpc:
    def __init__(
        self, endpoint: Endpoint, signal: str, headers: Mapping[str, str], ca: Path | None
    ) -> None:
        options = [
            ("grpc.max_receive_message_length", _LONGEST_ANSWER_BYTES),
            ("grpc.max_reconnect_backoff_ms", 10_000),
            ("grpc.enable_http_proxy", 0),
            # A third party that hangs on one signal must not hold the other one's connection.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if endpoint.tls:
            roots = None if ca is None else ca.read_bytes()
            if roots is not None and b"BEGIN CERTIFICATE" not in roots:
                raise ValueError(f"{ca}: no PEM certificate in it")
            credentials = grpc.ssl_channel_credentials(root_certificates=roots)
            self._channel = grpc.secure_channel(endpoint.target, credentials, options)
        else:
            self._channel = grpc.insecure_channel(endpoint.target, options)
        self._call = self._channel.unary_unary(_METHODS[signal])
        self._metadata = tuple(headers.items())
        self._secrets = tuple(headers.values())
        self._signal = signal

    def send(self, data: bytes, timeout_s: float) -> Reply:
        try:
            answer = self._call(data, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as e:
            return self._failed(e)
        except ValueError:  # the channel was closed meanwhile
            return Reply(Fate.LATER, why="closed")
        return taken(self._signal, answer, self._secrets)

    def close(self) -> None:
        self._channel.close()

    def _failed(self, error: Any) -> Reply:
        code = error.code()
        why = _clean(f"{code.name}: {error.details() or ''}", self._secrets)
        trailing = dict(error.trailing_metadata() or ())
        after_s = retry_after_s(trailing.get("grpc-status-details-bin"))
        if code in _LATER or (code is _TOO_MANY and after_s is not None):
            return Reply(Fate.LATER, after_s=after_s, why=why)
        return Reply(Fate.NEVER, why=why)


class _Http:
    def __init__(
        self, endpoint: Endpoint, signal: str, headers: Mapping[str, str], ca: Path | None
    ) -> None:
        import ssl

        import httpx

        self._httpx = httpx
        verify: ssl.SSLContext | bool = True
        if ca is not None:
            try:
                verify = ssl.create_default_context(cafile=str(ca))
            except ssl.SSLError:
                raise ValueError(f"{ca}: no PEM certificate in it") from None
        self._client = httpx.Client(
            headers={**headers, "content-type": "application/x-protobuf"},
            verify=verify,
            trust_env=False,
        )
        self._cut = CutOff()
        self._url = endpoint.url
        self._signal = signal
        self._secrets = tuple(headers.values())

    def send(self, data: bytes, timeout_s: float) -> Reply:
        until = time.monotonic() + timeout_s
        body = bytearray()
        try:
            asked = self._client.stream(
                "POST",
                self._url,
                content=data,
                timeout=timeout_s,
                extensions={"trace": self._cut},
            )
            with self._cut.within(timeout_s), asked as response:
                for part in response.iter_bytes():
                    body += part
                    # The client's own limit is one for each read: an answer could drip for ever.
                    if len(body) > _LONGEST_ANSWER_BYTES or time.monotonic() > until:
                        return Reply(Fate.LATER, why="its answer is too long or too slow")
        except (self._httpx.HTTPError, RuntimeError) as e:
            if self._cut.over:
                return Reply(Fate.LATER, why=f"no answer in {timeout_s:g} s")
            return Reply(Fate.LATER, why=_clean(f"{type(e).__name__}: {e}", self._secrets))
        if response.is_success:
            return taken(self._signal, bytes(body), self._secrets)
        why = f"HTTP {response.status_code}"
        if response.status_code in _LATER_HTTP:
            after = response.headers.get("retry-after", "")
            after_s = float(after) if after.isascii() and after.isdigit() else None
            return Reply(Fate.LATER, after_s=after_s, why=why)
        return Reply(Fate.NEVER, why=why)

    def close(self) -> None:
        self._client.close()
        self._cut.close()


def taken(signal: str, answer: bytes, secrets: tuple[str, ...] = ()) -> Reply:
    """Read an OK answer. One that cannot be understood still says OK; a part that was refused is
    never sent again."""
    try:
        if signal == METRICS:
            metrics = ExportMetricsServiceResponse.FromString(answer).partial_success
            rejected, message = metrics.rejected_data_points, metrics.error_message
        else:
            spans = ExportTraceServiceResponse.FromString(answer).partial_success
            rejected, message = spans.rejected_spans, spans.error_message
    except DecodeError:
        return Reply(Fate.TAKEN)
    return Reply(Fate.TAKEN, rejected=max(0, rejected), why=_clean(message, secrets))


def _clean(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return safe(text)[:_LONGEST_WHY]
