"""A store's and a worker's faces on a unix socket of this process, for tests of who asks them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

from telemetry.pipeline.exporter import Exporter
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.watch.service import StoreFaces

PIECE_BYTES = 4096  # small, so that the hour comes in many pieces


def _server(handler: grpc.GenericRpcHandler, address: str) -> grpc.Server:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(address)
    server.start()
    return server


@contextmanager
def store_faces(faces: StoreFaces, address: str) -> Iterator[str]:
    """Watch, Tail and ExportWindow at `address`."""
    server = _server(faces.handlers()[0], address)
    try:
        yield address
    finally:
        faces.close()
        server.stop(0.2).wait()


class RecentFace:
    """A worker's `Recent`, over a real exporter's memory; counts what goes out."""

    def __init__(self, exporter: Exporter, run_id: str = "r1") -> None:
        self.exporter = exporter
        self.run_id = run_id
        self.requests = 0
        self.sent_bytes = 0

    def recent(self, request: pb.RecentRequest, context: Any) -> pb.RecentReply:
        metrics, logs, cursor, more = self.exporter.newer(request.after, PIECE_BYTES)
        self.requests += 1
        self.sent_bytes += sum(map(len, (*metrics, *logs)))
        return pb.RecentReply(
            metrics=metrics, logs=logs, cursor=cursor, more=more, run_id=self.run_id
        )


@contextmanager
def recent_face(face: RecentFace, address: str) -> Iterator[str]:
    handler = grpc.unary_unary_rpc_method_handler(
        face.recent,
        request_deserializer=pb.RecentRequest.FromString,
        response_serializer=pb.RecentReply.SerializeToString,
    )
    made = grpc.method_handlers_generic_handler("tenantscope.v1.Worker", {"Recent": handler})
    server = _server(made, address)
    try:
        yield address
    finally:
        server.stop(0.2).wait()
