"""The store process: `python -m telemetry.service --store DIR --listen unix:/path.sock`.

Owns the gRPC server, the ingest thread and the process's birth and death; the rows are the
store's. One thread writes; queries run beside it.
"""

from __future__ import annotations

import argparse
import concurrent.futures as futures
import contextlib
import logging
import os
import queue
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from telemetry import owner, upkeep, wire
from telemetry.client import BUSY, MAX_MESSAGE_BYTES, StoreClient
from telemetry.errors import MalformedBatch, QueryError, QueryLimit, StoreBusy, StoreError
from telemetry.hearing import Hub
from telemetry.otlp_decode import Decoded, decode_logs, decode_metrics
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.store import Receipt, Store

__all__ = ["StoreClient", "StoreServer", "main"]

log = logging.getLogger(__name__)

QUEUE_REQUESTS = 64
_COMMIT_TIMEOUT_S = 30.0
_GRACE_S = 1.5
_LONGEST_SOCKET_PATH = 100
_HOUSEKEEPING_S = 60.0
EXIT_FAILED, EXIT_USAGE, EXIT_RETRY = 1, 2, 3

_Job = tuple[Decoded, "futures.Future[Receipt]"]


class StoreServer:
    """Serves one store at one address. `start`, then `stop`; both once."""

    def __init__(
        self, store: Store, address: str, heard: Callable[[Decoded], object] | None = None
    ) -> None:
        """`heard` gets every delivery once it is committed and acknowledged (`Hub.hear`).

        Raises StoreError when the address cannot be served."""
        self.store = store
        self._heard = heard
        self._jobs: queue.Queue[_Job | None] = queue.Queue(QUEUE_REQUESTS)
        self._gate = threading.Lock()  # nothing is queued behind the end mark
        self._closing = False
        self._ingest = threading.Thread(target=self._ingest_loop, name="store-ingest", daemon=True)
        self._server = grpc.server(
            futures.ThreadPoolExecutor(8, thread_name_prefix="store-rpc"),
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
            ],
        )
        self._server.add_generic_rpc_handlers(self._handlers())
        self._socket = _free_socket(address)
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as e:
            raise StoreError(f"cannot listen at {address}: {e}") from None
        self.address = address if self._socket else f"{address.rpartition(':')[0]}:{port}"

    def start(self) -> None:
        self._ingest.start()
        self._server.start()
        if self._socket:
            self._socket.chmod(0o600)
        try:
            owner.announce(self.store.folder, self.address)
        except OSError as e:
            # Rows come in by the address; only who looks into the folder does not find it.
            log.error("%s cannot say where it answers: %s", self.store.folder, e.strerror)

    def stop(self, grace_s: float = _GRACE_S) -> None:
        """Refuse what is new, commit what is queued, then close the store. Bounded."""
        with self._gate:
            self._closing = True
        owner.withdraw(self.store.folder)
        stopped = self._server.stop(grace_s)
        self._jobs.put(None)
        self._ingest.join(timeout=grace_s + 1.0)
        stopped.wait(timeout=grace_s)
        self.store.close()
        if self._socket:
            self._socket.unlink(missing_ok=True)

    # --- in ---

    def _handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        # The exports take raw bytes: gRPC's own parsing would answer INTERNAL to malformed ones.
        raw = grpc.unary_unary_rpc_method_handler
        collector = "opentelemetry.proto.collector"
        return (
            grpc.method_handlers_generic_handler(
                f"{collector}.metrics.v1.MetricsService", {"Export": raw(self._export_metrics)}
            ),
            grpc.method_handlers_generic_handler(
                f"{collector}.logs.v1.LogsService", {"Export": raw(self._export_logs)}
            ),
            grpc.method_handlers_generic_handler(
                "tenantscope.v1.Store",
                {
                    "Query": grpc.unary_stream_rpc_method_handler(
                        self._query,
                        request_deserializer=pb.QueryRequest.FromString,
                        response_serializer=pb.QueryRows.SerializeToString,
                    ),
                    "Maintain": grpc.unary_stream_rpc_method_handler(
                        self._maintain,
                        request_deserializer=pb.QueryRequest.FromString,
                        response_serializer=pb.QueryRows.SerializeToString,
                    ),
                    "Info": grpc.unary_unary_rpc_method_handler(
                        self._info,
                        request_deserializer=pb.InfoRequest.FromString,
                        response_serializer=pb.InfoReply.SerializeToString,
                    ),
                },
            ),
        )

    def _export_metrics(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        receipt = self._take(decode_metrics, data, context)
        response = ExportMetricsServiceResponse()
        if receipt.refused:
            response.partial_success.CopyFrom(
                ExportMetricsPartialSuccess(
                    rejected_data_points=receipt.refused, error_message="; ".join(receipt.reasons)
                )
            )
        return bytes(response.SerializeToString())

    def _export_logs(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        receipt = self._take(decode_logs, data, context)
        response = ExportLogsServiceResponse()
        if receipt.refused:
            response.partial_success.CopyFrom(
                ExportLogsPartialSuccess(
                    rejected_log_records=receipt.refused, error_message="; ".join(receipt.reasons)
                )
            )
        return bytes(response.SerializeToString())

    def _take(
        self, decode: Callable[[bytes], Decoded], data: bytes, context: grpc.ServicerContext
    ) -> Receipt:
        try:
            decoded = decode(data)
            done: futures.Future[Receipt] = futures.Future()
            with self._gate:
                if self._closing:
                    raise StoreBusy("it is closing")
                self._jobs.put_nowait((decoded, done))
            return done.result(_COMMIT_TIMEOUT_S)
        except MalformedBatch as e:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        except (queue.Full, TimeoutError):
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{BUSY}more comes than it can write")
        except StoreError as e:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{BUSY}{e}")
        except Exception as e:
            # Not "later": a batch that nobody foresaw must not be sent for ever, before all others.
            context.abort(grpc.StatusCode.INTERNAL, f"{type(e).__name__}: {e}")
        raise AssertionError("abort raises")

    def _ingest_loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            decoded, done = job
            try:
                done.set_result(self.store.ingest(decoded))
            except StoreError as e:
                log.error("a batch was not committed: %s", e)
                done.set_exception(e)
            except Exception as e:
                # The sender is told; the thread lives on for everybody else.
                log.exception("a batch was not committed")
                done.set_exception(e)
            else:
                if self._heard is not None:
                    self._heard(decoded)

    # --- out ---

    def _query(
        self, request: pb.QueryRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.QueryRows]:
        try:
            parameters = {k: wire.plain(v) for k, v in request.parameters.items()}
            yield from wire.messages(self.store.run(request.name, parameters))
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
        )


def _free_socket(address: str) -> Path | None:
    """Check the address; for a unix socket, clear a stale file away and return its path."""
    if not address.startswith("unix:"):
        host = address.rpartition(":")[0].strip("[]")
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise StoreError(
                f"{address} is not a loopback address: the store has no TLS; "
                "listen on unix:/path.sock or 127.0.0.1:port"
            )
        return None
    path = Path(address.removeprefix("unix:"))
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise StoreError(
            f"{path} is longer than the {_LONGEST_SOCKET_PATH} bytes a unix socket may have: "
            "choose a shorter folder"
        )
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise StoreError(f"{path} is there and is no socket: choose another path")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # its process is gone
            return path
    raise StoreError(f"another process listens at {path}: choose another path, or stop it")


def _housekeeping(store: Store, stop: threading.Event) -> None:
    """Close days that have ended and drop what is older than it is kept, until told to stop."""
    day: str | None = None
    while not stop.wait(_HOUSEKEEPING_S):
        day = upkeep.turn_of_day(store, time.time(), day)


def _metrics(
    store: Store, arguments: argparse.Namespace, hub: Hub, stack: contextlib.ExitStack
) -> None:
    """Serve Prometheus if asked to. Raises StoreError."""
    if arguments.metrics is None and arguments.metrics_fd is None:
        return
    from telemetry import metrics_port
    from telemetry.counting import Counting
    from telemetry.source import StoreSource

    if arguments.metrics_fd is not None:
        listening = socket.socket(fileno=arguments.metrics_fd)
    else:
        listening = metrics_port.listen(arguments.metrics)
    counting = Counting(time.time())
    try:
        metrics_port.recall(counting, StoreSource(store), time.time())
    except StoreError as e:
        log.error("what is delivered again will be counted again: %s", e)
    port = metrics_port.MetricsPort(counting, listening)
    stack.callback(port.stop)
    log.info("metrics at %s", port.url)
    hub.add("metrics", counting)


def main(argv: list[str] | None = None) -> int:
    """Run the store process. Exit codes: 0 ended by a signal, 1 failed, 2 usage, 3 busy."""
    parser = argparse.ArgumentParser(prog="telemetry.service", description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, required=True, help="the store's folder")
    parser.add_argument("--listen", required=True, help="unix:/path.sock or 127.0.0.1:port")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus there (loopback)")
    parser.add_argument("--metrics-fd", type=int, help="the same, on a listening socket inherited")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="store: %(message)s")
    os.umask(0o077)

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as stack:
        try:
            store = Store.open(arguments.store)
            stack.callback(store.close)
            hub = Hub(time.time)
            _metrics(store, arguments, hub, stack)
            server = StoreServer(store, arguments.listen, hub.hear)
        except StoreBusy as e:
            print(f"store: {e}", file=sys.stderr)
            return EXIT_RETRY
        except StoreError as e:
            print(f"store: {e}", file=sys.stderr)
            return EXIT_FAILED
        server.start()
        stack.callback(server.stop)
        threading.Thread(
            target=_housekeeping, args=(store, stop), name="store-housekeeping", daemon=True
        ).start()
        print(f"ready {server.address}", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
