"""Every method a store process serves, its handler and the role it needs. Owns no server.

A method without a role cannot be served: `gather` refuses it, and the guard lets nobody through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service.client import BUSY
from telemetry.service.roles import Role

STORE_SERVICE = "tenantscope.v1.Store"
METRICS_SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"
LOGS_SERVICE = "opentelemetry.proto.collector.logs.v1.LogsService"
HEALTH_SERVICE = "grpc.health.v1.Health"
REFLECTION_SERVICE = "grpc.reflection.v1alpha.ServerReflection"

# A handler and the roles of its methods, by full name or by a name of the Store service.
Served = tuple[grpc.GenericRpcHandler, Mapping[str, Role | str]]


@dataclass(frozen=True, slots=True)
class _Call:
    """What a generic handler is asked with."""

    method: str
    invocation_metadata: Sequence[tuple[str, Any]] = ()


def known_services() -> tuple[ServiceDescriptor, ...]:
    """Every service whose methods this process may come to serve."""
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    files = (
        pb.DESCRIPTOR,
        metrics_service_pb2.DESCRIPTOR,
        logs_service_pb2.DESCRIPTOR,
        health_pb2.DESCRIPTOR,
        reflection_pb2.DESCRIPTOR,
    )
    return tuple(s for file in files for s in file.services_by_name.values())


def served_methods(handlers: Iterable[grpc.GenericRpcHandler]) -> set[str]:
    """The known methods that any of the handlers answers, by full name."""
    handlers = tuple(handlers)
    names = {f"/{s.full_name}/{m.name}" for s in known_services() for m in s.methods}
    return {n for n in names if any(h.service(_Call(n)) is not None for h in handlers)}


def gather(served: Iterable[Served]) -> tuple[tuple[grpc.GenericRpcHandler, ...], dict[str, Role]]:
    """The handlers, and the role of each of their methods by full name.

    Raises ValueError for a method without a role, a role without a method, and a method that two
    rooms serve.
    """
    handlers: list[grpc.GenericRpcHandler] = []
    roles: dict[str, Role] = {}
    for handler, needs in served:
        named = {_full(name): Role(role) for name, role in needs.items()}
        lost = sorted(name for name in named if handler.service(_Call(name)) is None)
        if lost:
            raise ValueError(f"a role is given to {', '.join(lost)}, which no handler answers")
        twice = sorted(set(named) & set(roles))
        if twice:
            raise ValueError(f"{', '.join(twice)} would be served twice")
        roles |= named
        handlers.append(handler)
    bare = sorted(served_methods(handlers) - set(roles))
    if bare:
        raise ValueError(f"{', '.join(bare)} would be served without a role: say who may call it")
    return tuple(handlers), roles


def _full(name: str) -> str:
    return name if name.startswith("/") else f"/{STORE_SERVICE}/{name}"


class Collected:
    """Takes what generated code would register at a server."""

    def __init__(self) -> None:
        self.handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self.handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, methods: Mapping[str, Any]) -> None:
        """The same methods once more, by another way in."""


class Places:
    """How many streams of a sort may be under way at once, whichever door they came in by."""

    def __init__(self, most: int, what: str) -> None:
        self.most = most
        self.what = what
        self._free = threading.BoundedSemaphore(most)

    def take(self) -> bool:
        return self._free.acquire(blocking=False)

    def leave(self) -> None:
        self._free.release()


class Bounded(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A handler whose streams are bounded: each holds a thread as long as it lasts, and senders
    need threads too. One too many is told to come again."""

    def __init__(self, inner: grpc.GenericRpcHandler, places: Places) -> None:
        self._inner = inner
        self._places = places

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        handler = self._inner.service(handler_call_details)
        if handler is None or not handler.response_streaming:
            return handler
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
        if getattr(behaviour, "experimental_thread_pool", None) is not None:
            return handler  # it brings its own threads, and its own bound
        return make(
            self._in_turn(behaviour),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _in_turn(self, behaviour: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        places = self._places

        def run(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            if not places.take():
                context.abort(
                    grpc.StatusCode.UNAVAILABLE, f"{BUSY}{places.most} {places.what} are under way"
                )
            try:
                yield from behaviour(request, context)
            finally:
                places.leave()

        return run
