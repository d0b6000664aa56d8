"""A store process's faces Watch, Tail and ExportWindow. Translates; ranks and keeps nothing.

`attach` is all that the process calls; the streams' threads are `telemetry.watch.stream`'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import grpc

from telemetry.errors import QueryError, StoreError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service.client import BUSY
from telemetry.source import Source, StoreSource
from telemetry.watch import tail_events, window_export
from telemetry.watch import wire as watch_wire
from telemetry.watch.once import recall
from telemetry.watch.state import WatchState
from telemetry.watch.stream import Seats, WatchService

if TYPE_CHECKING:
    from telemetry.service.hearing import Hub
    from telemetry.store.store import Store

log = logging.getLogger(__name__)

STORE = "tenantscope.v1.Store"
VIEWER = "viewer"
MOST_EXPORTS = 2
_EXPORT_LIMIT_S = 600.0

Handlers = tuple[grpc.GenericRpcHandler, dict[str, str]]


class StoreFaces:
    """Watch, Tail and ExportWindow of one store process.

    Add `listeners` to the hub before the server starts, `handlers` to the server; call `close`
    before the server stops, so that its streams end at once.
    """

    def __init__(self, source: Source, *, export_limit_s: float = _EXPORT_LIMIT_S) -> None:
        self._source = source
        self._export_limit_s = export_limit_s
        self.state = WatchState()
        self.tail = tail_events.Tail()
        self._watch = WatchService(self.state.look)
        self._tails = Seats("tail", tail_events.MOST_FOLLOWERS)
        self._exports = Seats("export", MOST_EXPORTS)

    @property
    def listeners(self) -> tuple[tuple[str, WatchState | tail_events.Tail], ...]:
        return (("watch", self.state), ("tail", self.tail))

    def handlers(self) -> Handlers:
        """(the handler, role needed by full method name)."""
        return handlers(
            STORE,
            {
                "Watch": (self._watch.behaviour, pb.WatchRequest, pb.WatchFrame),
                "Tail": (self._tails.behaviour(self._tail), pb.TailRequest, pb.TailRow),
                "ExportWindow": (
                    self._exports.behaviour(self._export),
                    pb.ExportWindowRequest,
                    pb.ExportWindowChunk,
                ),
            },
        )

    def close(self) -> None:
        self._watch.close()
        self._tails.close()
        self.tail.close()
        self._exports.close()

    def _tail(self, request: pb.TailRequest, context: grpc.ServicerContext) -> Iterator[pb.TailRow]:
        with self._tails.seat(context) as gone:
            since = request.from_unix_s if request.HasField("from_unix_s") else None
            follower = None
            try:
                wanted = tail_events.wanted(request.kinds, request.tenants)
                follower = self.tail.follow(wanted)
                if follower is None:
                    raise StoreError("too many follow already")
                if gone.is_set() or not context.add_callback(follower.close):
                    return
                # The client learns that it follows: what is committed from now on reaches it.
                context.send_initial_metadata(())
                for row in tail_events.stream(
                    follower, self._source, since, lambda: not gone.is_set()
                ):
                    yield watch_wire.tail_message(row)
            except QueryError as e:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
            except StoreError as e:
                context.abort(grpc.StatusCode.UNAVAILABLE, f"{BUSY}{e}")
            finally:
                if follower is not None:
                    self.tail.leave(follower)

    def _export(
        self, request: pb.ExportWindowRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ExportWindowChunk]:
        with self._exports.seat(context) as gone:
            try:
                # Writing may take long; that it has begun is to be known at once.
                context.send_initial_metadata(())
                yield from window_export.chunks(
                    self._source,
                    request,
                    going=lambda: not gone.is_set(),
                    clock=time.monotonic,
                    limit_s=self._export_limit_s,
                )
            except QueryError as e:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
            except StoreError as e:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(e))


def handlers(
    service: str, methods: dict[str, tuple[Callable[[Any, Any], Any], Any, Any]]
) -> Handlers:
    """Streaming methods by name: (behaviour, type of the request, type of the answers)."""
    made = {
        name: grpc.unary_stream_rpc_method_handler(
            behaviour,
            request_deserializer=takes.FromString,
            response_serializer=gives.SerializeToString,
        )
        for name, (behaviour, takes, gives) in methods.items()
    }
    roles = {f"/{service}/{name}": VIEWER for name in methods}
    return grpc.method_handlers_generic_handler(service, made), roles


def attach(store: Store, hub: Hub, stack: ExitStack) -> Handlers:
    """Have a store process watched and followed: listens at `hub`, is let go by `stack`; returns
    what its server is to serve. What the store holds of the last minutes is known at once."""
    faces = StoreFaces(StoreSource(store))
    stack.callback(faces.close)
    try:
        recall(faces.state, StoreSource(store))
    except StoreError as e:
        log.error("watchers see only what comes from now on: %s", e)
    for name, listener in faces.listeners:
        hub.add(name, listener, cells=False)
    return faces.handlers()
