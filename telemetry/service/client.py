"""Talks to a store process. Owns one channel; keeps and retries nothing.

Imports neither DuckDB nor the ledger, so that front and worker can hold one cheaply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc

from telemetry.ask.reading import IN_COLUMNS, Result
from telemetry.errors import (
    MalformedBatch,
    NotAllowed,
    QueryError,
    StoreBusy,
    StoreError,
    StoreUnreachable,
)
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service import listen, wire
from telemetry.service.access import Access

T = TypeVar("T")

METRICS_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
STORE_QUERY = "/tenantscope.v1.Store/Query"
STORE_INFO = "/tenantscope.v1.Store/Info"
STORE_MAINTAIN = "/tenantscope.v1.Store/Maintain"
MAX_MESSAGE_BYTES = 64 << 20
BUSY = "store busy: "  # begins the details of an UNAVAILABLE that the store itself said
_HOW_TO_SHOW = (
    "A token is taken from --token-file FILE, TENANTSCOPE_TOKEN_FILE or TENANTSCOPE_TOKEN"
)

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # gRPC's own back-off grows to two minutes; a restarted store is to be found within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # A peer that went away without a word is found out.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the store made of an export: points or records it refused, and why."""

    refused: int = 0
    reason: str = ""


class StoreClient:
    """One store process, by address (`unix:/path.sock`, `host:port`, `https://host:port`).

    Thread-safe. Every call may raise StoreUnreachable, StoreBusy (closing, or its queue is full),
    NotAllowed (the token) or StoreError.
    """

    def __init__(
        self, address: str, timeout_s: float = 10.0, *, access: Access | None = None
    ) -> None:
        """`access` is what to show at the door; without it, what the environment says
        (`telemetry.service.access`). Raises StoreError for what is no address, and for a CA or
        certificate that cannot be used."""
        self.address = address
        self.timeout_s = timeout_s
        self._target = listen.target(address)
        self._access = Access.of_environment() if access is None else access
        if self._target.tls:
            self._channel = grpc.secure_channel(
                self._target.address, self._access.credentials(), options=CHANNEL_OPTIONS
            )
        else:
            self._channel = grpc.insecure_channel(self._target.address, options=CHANNEL_OPTIONS)
        # Bytes in, bytes out: an encoded batch is not parsed again only to be sent.
        self._metrics = self._channel.unary_unary(METRICS_EXPORT)
        self._logs = self._channel.unary_unary(LOGS_EXPORT)
        self._query = self._channel.unary_stream(
            STORE_QUERY,
            request_serializer=pb.QueryRequest.SerializeToString,
            response_deserializer=pb.QueryRows.FromString,
        )
        self._maintain = self._channel.unary_stream(
            STORE_MAINTAIN,
            request_serializer=pb.QueryRequest.SerializeToString,
            response_deserializer=pb.QueryRows.FromString,
        )
        self._info = self._channel.unary_unary(
            STORE_INFO,
            request_serializer=pb.InfoRequest.SerializeToString,
            response_deserializer=pb.InfoReply.FromString,
        )

    def export(
        self, metrics: bytes | None, logs: bytes | None, timeout_s: float | None = None
    ) -> Accepted:
        """Deliver encoded requests; returns when the store has committed them.

        Raises MalformedBatch when the store cannot take them at all, now or later.
        """
        # Only here: who asks and sends nothing starts without them.
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceResponse,
        )

        refused, reasons = 0, []
        if metrics is not None:
            partial = ExportMetricsServiceResponse.FromString(
                self._call(self._metrics, metrics, timeout_s)
            ).partial_success
            refused += partial.rejected_data_points
            reasons.append(partial.error_message)
        if logs is not None:
            said = ExportLogsServiceResponse.FromString(
                self._call(self._logs, logs, timeout_s)
            ).partial_success
            refused += said.rejected_log_records
            reasons.append(said.error_message)
        return Accepted(refused, "; ".join(filter(None, reasons)))

    def query(self, name: str, **parameters: Any) -> Result:
        """Ask a named query, or `read.<table>`. Raises QueryError when it is not one."""

        def ask(request: pb.QueryRequest, timeout: float, metadata: Any) -> Result:
            pieces = self._query(request, timeout=timeout, metadata=metadata)
            return wire.result(pieces, name in IN_COLUMNS)

        # A question that brings its own limit is waited for a little longer than that.
        own = parameters.get("timeout_s")
        patience = max(self.timeout_s, own + 5.0) if isinstance(own, int | float) else None
        return self._call(ask, wire.request(name, parameters), patience)

    def maintain(self, name: str, timeout_s: float | None = None, **parameters: Any) -> Result:
        """Have the store do an act of upkeep (`telemetry.store.upkeep`); returns what was done."""

        def ask(request: pb.QueryRequest, timeout: float, metadata: Any) -> Result:
            return wire.result(self._maintain(request, timeout=timeout, metadata=metadata))

        return self._call(ask, wire.request(name, parameters), timeout_s)

    def info(self, timeout_s: float | None = None) -> pb.InfoReply:
        reply: pb.InfoReply = self._call(self._info, pb.InfoRequest(), timeout_s)
        return reply

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: Callable[..., T], request: Any, timeout_s: float | None) -> T:
        patience_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            return method(request, timeout=patience_s, metadata=self.metadata())
        except grpc.RpcError as e:
            self._fail(e)

    @property
    def host(self) -> str | None:
        """The host that is called; None for a unix socket."""
        address = self._target.address
        return None if address.startswith(listen.UNIX) else listen.host_and_port(address)[0]

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call. Raises NotAllowed before a token goes out in the clear, and
        for a token file that cannot be read."""
        if self._target.address.startswith(listen.UNIX):
            return ()  # its callers are trusted; a slip in a token file must not stop rows there
        token = self._access.read_token()
        if token is None:
            return ()
        if not self._target.tls and not self._target.is_local:
            raise NotAllowed(
                f"the way to {self.address} is not encrypted, so no token is sent: "
                f"write https://{self._target.address}"
            )
        return (("authorization", f"Bearer {token}"),)

    def _fail(self, error: grpc.RpcError) -> NoReturn:
        code, details = error.code(), str(error.details())
        status = grpc.StatusCode
        if code is status.INVALID_ARGUMENT:
            raise MalformedBatch(details) from None
        if code is status.FAILED_PRECONDITION:
            raise StoreError(details) from None
        if code is status.RESOURCE_EXHAUSTED and "larger than max" in details:
            raise MalformedBatch(f"larger than the store takes: {details}") from None
        if code in (status.NOT_FOUND, status.OUT_OF_RANGE):
            raise QueryError(details) from None
        if code in (status.UNAUTHENTICATED, status.PERMISSION_DENIED):
            raise NotAllowed(f"the store at {self.address}: {details}. {_HOW_TO_SHOW}") from None
        if code is status.RESOURCE_EXHAUSTED or (code is status.UNAVAILABLE and BUSY in details):
            raise StoreBusy(f"the store at {self.address}: {details}") from None
        if code is status.UNAVAILABLE:
            raise StoreUnreachable(self._unreachable(details)) from None
        if code is status.DEADLINE_EXCEEDED:
            raise StoreUnreachable(
                f"the store at {self.address} did not answer in {self.timeout_s:g} s"
            ) from None
        raise StoreError(f"the store at {self.address}: {code.name}: {details}") from None

    def _unreachable(self, details: str) -> str:
        if self._target.tls and any(word in details.lower() for word in ("certificate", "ssl")):
            return (
                f"no TLS with {self.address} ({details}): it must show a certificate for this "
                "name, of a CA in the file that TENANTSCOPE_CA names or of the system's roots"
            )
        plain = not self._target.tls and not self._target.address.startswith(listen.UNIX)
        hint = "; with TLS it is https://" if plain else ""
        return f"no store answers at {self.address} ({details}): is it running{hint}?"
