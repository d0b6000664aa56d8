"""The gRPC server of a store process: listeners, methods, the end. The rows are the store's.

One thread writes (`telemetry.service.intake`); questions run beside it. Listeners with the same
tokens share one gRPC server, a guard before it.
"""

from __future__ import annotations

import concurrent.futures as futures
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from telemetry.ask.reading import Result
from telemetry.errors import MalformedBatch, NotAllowed, QueryError, QueryLimit, StoreError
from telemetry.otlp.decode import Decoded, decode_logs, decode_metrics
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service import intake, listen, liveness, tls, wire
from telemetry.service.client import BUSY, MAX_MESSAGE_BYTES
from telemetry.service.listen import Listen
from telemetry.service.methods import (
    HEALTH_SERVICE,
    LOGS_SERVICE,
    METRICS_SERVICE,
    REFLECTION_SERVICE,
    STORE_SERVICE,
    Bounded,
    Collected,
    Places,
    Served,
    gather,
)
from telemetry.service.retry_info import retry_details
from telemetry.service.roles import Guard, Role, TokenFile
from telemetry.store import owner, upkeep
from telemetry.store.store import Receipt, Store

log = logging.getLogger(__name__)

GRACE_S = 2.0
QUESTIONS, STREAMS = 24, 32  # at once; each holds a thread
_THREADS = intake.CALLS + QUESTIONS + STREAMS + 8
_COME_AGAIN_S = 1.0

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # Who connects and says nothing is let go, and so is who went away without a word.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_concurrent_streams", 128),
]


class StoreServer:
    """Serves one store at one or more addresses. `start`, then `stop`; both once."""

    def __init__(
        self,
        store: Store,
        listeners: str | Listen | Sequence[str | Listen],
        heard: Callable[[Decoded], object] | None = None,
        extra: Sequence[Served] = (),
        *,
        live: Mapping[str, Callable[[], Result]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`heard` gets every delivery once it is committed and acknowledged (`Hub.hear`). `extra`
        are handlers of other rooms, each with its methods' roles; `live` are questions, by name,
        that other rooms answer from memory.

        Raises StoreError when an address cannot be served, ValueError for a method without a role.
        """
        self.store = store
        self.liveness = liveness.Liveness(clock)
        self.intake = intake.Intake(store, self.liveness, heard, self._not_serving)
        self._health = _health_servicer()
        self._live: dict[str, Callable[[], Result]] = {
            liveness.ENGINES: self.liveness.engines,
            liveness.STORE: self._live_store,
            liveness.LISTENERS: self._live_listeners,
            **(live or {}),
        }
        several = (listeners,) if isinstance(listeners, str | Listen) else tuple(listeners)
        self.listens = [Listen(one) if isinstance(one, str) else one for one in several]
        if not self.listens:
            raise StoreError("a store that listens nowhere takes no rows: give it an address")
        for one in self.listens:
            listen.check(one)
        self._questions, self._streams = Places(QUESTIONS, "questions"), Places(STREAMS, "streams")
        self._extra = [(Bounded(h, self._streams), roles) for h, roles in extra]
        self._threads = futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="store-rpc")
        self._sockets: list[Path] = []
        self.roles: dict[str, Role] = {}  # of every method served, by full name
        self.addresses: list[str] = []  # as they are served, port 0 resolved
        self._servers = self._bind()

    @property
    def address(self) -> str:
        """Where local callers do best: a unix socket, if there is one."""
        unix = [a for a in self.addresses if a.startswith(listen.UNIX)]
        return (unix or self.addresses)[0]

    def start(self) -> None:
        self.intake.start()
        for server in self._servers:
            server.start()
        try:
            owner.announce(self.store.folder, self.address)
        except OSError as e:
            # Rows come in by the address; only who looks into the folder does not find it.
            log.error("%s cannot say where it answers: %s", self.store.folder, e.strerror)

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Refuse what is new, commit what is queued, then close the store. Bounded."""
        self._not_serving()
        self.intake.close()
        owner.withdraw(self.store.folder)
        stopped = [server.stop(grace_s) for server in self._servers]
        if not self.intake.drain(grace_s + 1.0):
            log.error("not all that was queued is committed: its senders keep it")
        for event in stopped:
            event.wait(timeout=grace_s)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.store.close()
        for path in self._sockets:
            path.unlink(missing_ok=True)

    # --- listeners ---

    def _bind(self) -> list[grpc.Server]:
        """One gRPC server for the listeners of each tokens file. Raises StoreError."""
        servers: dict[Path | None, grpc.Server] = {}
        wanted, self.listens = self.listens, []
        for one in wanted:
            try:
                if one.tokens not in servers:
                    servers[one.tokens] = self._server(one.tokens)
                path = listen.free_socket(one.address) if one.is_unix else None
                self.addresses.append(_add_port(servers[one.tokens], one))
            except StoreError as e:
                if one.must:
                    raise
                log.error("it goes on without a listener: %s", e)
                continue
            self.listens.append(one)
            if path is not None:
                path.chmod(0o600)  # before anything is answered there
                self._sockets.append(path)
        return list(servers.values())

    def _server(self, tokens: Path | None) -> grpc.Server:
        finder = TokenFile(tokens) if tokens is not None else None
        guard = Guard(self.roles, finder, lambda method, why: self.liveness.denied(why))
        handlers, found = gather([*self._own(guard), *self._extra])
        self.roles.update(found)
        server = grpc.server(self._threads, interceptors=(guard,), options=_OPTIONS)
        server.add_generic_rpc_handlers(handlers)
        return server

    # --- methods ---

    def _own(self, guard: Guard) -> list[Served]:
        # The exports take raw bytes: gRPC's own parsing would answer INTERNAL to malformed ones.
        raw, generic = grpc.unary_unary_rpc_method_handler, grpc.method_handlers_generic_handler
        asked = partial(
            grpc.unary_stream_rpc_method_handler,
            request_deserializer=pb.QueryRequest.FromString,
            response_serializer=pb.QueryRows.SerializeToString,
        )
        info = grpc.unary_unary_rpc_method_handler(
            self._info,
            request_deserializer=pb.InfoRequest.FromString,
            response_serializer=pb.InfoReply.SerializeToString,
        )
        store = generic(
            STORE_SERVICE,
            {"Query": asked(self._query), "Maintain": asked(self._maintain), "Info": info},
        )
        metrics = generic(METRICS_SERVICE, {"Export": raw(partial(self._export_metrics, guard))})
        logs = generic(LOGS_SERVICE, {"Export": raw(partial(self._export_logs, guard))})
        health, reflection = self._health_handlers(), self._reflection_handlers()
        return [
            (metrics, {f"/{METRICS_SERVICE}/Export": Role.INGEST}),
            (logs, {f"/{LOGS_SERVICE}/Export": Role.INGEST}),
            (
                Bounded(store, self._questions),
                {"Query": Role.VIEWER, "Info": Role.VIEWER, "Maintain": Role.OPERATOR},
            ),
            (
                health,
                {f"/{HEALTH_SERVICE}/{m}": Role.OPEN for m in ("Check", "List", "Watch")},
            ),
            (reflection, {f"/{REFLECTION_SERVICE}/ServerReflectionInfo": Role.VIEWER}),
        ]

    def _health_handlers(self) -> grpc.GenericRpcHandler:
        from grpc_health.v1 import health_pb2_grpc

        collected = Collected()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, collected)
        return collected.handlers[0]

    def _reflection_handlers(self) -> grpc.GenericRpcHandler:
        from grpc_reflection.v1alpha import reflection

        collected = Collected()
        names = (STORE_SERVICE, METRICS_SERVICE, LOGS_SERVICE, HEALTH_SERVICE, REFLECTION_SERVICE)
        reflection.enable_server_reflection(names, collected)
        return Bounded(collected.handlers[0], self._streams)

    def _not_serving(self) -> None:
        self._health.enter_graceful_shutdown()

    # --- in ---

    def _export_metrics(self, guard: Guard, data: bytes, context: grpc.ServicerContext) -> bytes:
        receipt = self._take(guard, decode_metrics, data, context)
        response = ExportMetricsServiceResponse()
        if receipt.refused:
            response.partial_success.CopyFrom(
                ExportMetricsPartialSuccess(
                    rejected_data_points=receipt.refused, error_message="; ".join(receipt.reasons)
                )
            )
        return bytes(response.SerializeToString())

    def _export_logs(self, guard: Guard, data: bytes, context: grpc.ServicerContext) -> bytes:
        receipt = self._take(guard, decode_logs, data, context)
        response = ExportLogsServiceResponse()
        if receipt.refused:
            response.partial_success.CopyFrom(
                ExportLogsPartialSuccess(
                    rejected_log_records=receipt.refused, error_message="; ".join(receipt.reasons)
                )
            )
        return bytes(response.SerializeToString())

    def _take(
        self,
        guard: Guard,
        decode: Callable[[bytes], Decoded],
        data: bytes,
        context: grpc.ServicerContext,
    ) -> Receipt:
        try:
            engine = guard.engine_of(context.invocation_metadata())
            return self.intake.take(decode, data, engine)
        except MalformedBatch as e:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        except NotAllowed as e:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(e))
        except StoreError as e:
            said = f"{BUSY}{e}"
            context.set_trailing_metadata(
                retry_details(grpc.StatusCode.UNAVAILABLE, said, _COME_AGAIN_S)
            )
            context.abort(grpc.StatusCode.UNAVAILABLE, said)
        except Exception as e:
            # Not "later": a batch that nobody foresaw must not be sent for ever, before all others.
            context.abort(grpc.StatusCode.INTERNAL, f"{type(e).__name__}: {e}")
        raise AssertionError("abort raises")

    # --- out ---

    def _query(
        self, request: pb.QueryRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.QueryRows]:
        try:
            parameters = {k: wire.plain(v) for k, v in request.parameters.items()}
            if request.name in self._live:
                yield from wire.messages(self._live[request.name](), request.packed)
                return
            yield from wire.messages(self.store.run(request.name, parameters), request.packed)
        except QueryError as e:
            context.abort(grpc.StatusCode.NOT_FOUND, str(e))
        except QueryLimit as e:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(e))
        except StoreError as e:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{BUSY}{e}")

    def _maintain(
        self, request: pb.QueryRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.QueryRows]:
        try:
            parameters = {k: wire.plain(v) for k, v in request.parameters.items()}
            yield from wire.messages(upkeep.act(self.store, request.name, parameters))
        except QueryError as e:
            context.abort(grpc.StatusCode.NOT_FOUND, str(e))
        except StoreError as e:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(e))

    def _info(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.InfoReply:
        info = self.store.info()
        return pb.InfoReply(
            path=info.path,
            pid=info.pid,
            batches=info.batches,
            rows=info.rows,
            refused_points=info.refused_points,
            last_ingest_unix_s=info.last_ingest_unix_s,
            unknown_points=info.unknown_points,
            repeated_points=info.repeated_points,
            baseline_points=info.baseline_points,
        )

    def _live_store(self) -> Result:
        info = self.store.info()
        return self.liveness.store(
            store=info.path,
            pid=info.pid,
            batches=info.batches,
            rows=info.rows,
            refused_points=info.refused_points,
            queued=self.intake.queued,
            queue_limit=intake.QUEUE_REQUESTS,
        )

    def _live_listeners(self) -> Result:
        rows = []
        for one, address in zip(self.listens, self.addresses, strict=True):
            ends = None
            if one.tls is not None:
                try:
                    ends = tls.not_after(one.tls.cert.read_bytes())
                except (OSError, ValueError) as e:
                    log.error("%s cannot be read any more: %s", one.tls.cert, e)
            rows.append((address, one.tls is not None, one.tokens is not None, ends))
        return Result(("address", "tls", "tokens", "certificate_ends_unix_s"), tuple(rows))


def _health_servicer() -> Any:
    from grpc_health.v1 import health, health_pb2

    servicer = health.HealthServicer()
    for service in ("", STORE_SERVICE, METRICS_SERVICE, LOGS_SERVICE):
        servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    return servicer


def _add_port(server: grpc.Server, one: Listen) -> str:
    """Returns the address as it is served. Raises StoreError."""
    try:
        if one.tls is not None:
            port = server.add_secure_port(one.address, tls.server_credentials(one.tls))
        else:
            port = server.add_insecure_port(one.address)
    except RuntimeError:
        why = listen.why_not(one.address)
        raise StoreError(
            f"cannot listen at {one.address} ({why}): choose another address, or stop who has it"
        ) from None
    return one.address if one.is_unix else f"{one.address.rpartition(':')[0]}:{port}"
