"""Asks for streams: frames, the tail, exports. Owns one channel; keeps and retries nothing.

The address may be a store process's, or a worker's: that one knows its own tenants, from memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import grpc

from telemetry.ask.export import Exported
from telemetry.errors import QueryError, StoreError, StoreUnreachable
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service import wire
from telemetry.service.client import StoreClient
from telemetry.watch import window_export
from telemetry.watch import wire as watch_wire
from telemetry.watch.frame import Asked, Frame
from telemetry.watch.wire import Tailed

STORE_WATCH = "/tenantscope.v1.Store/Watch"
WORKER_WATCH = "/tenantscope.v1.Worker/Watch"
WORKER_RECENT = "/tenantscope.v1.Worker/Recent"
STORE_TAIL = "/tenantscope.v1.Store/Tail"
STORE_EXPORT = "/tenantscope.v1.Store/ExportWindow"


class NotThere(StoreError):
    """The other side does not serve that: it is a worker, or of an older version."""


class WatchClient(StoreClient):
    """The streams of one address. Raises what `StoreClient` does, and QueryError for a question
    that the other side refuses. Closing a stream's iterator, or the client, ends the stream."""

    def watch(self, asked: Asked) -> Iterator[Frame]:
        """Frames, the first one at once; a store is asked first, then a worker."""
        try:
            yield from self._watch(STORE_WATCH, asked)
        except NotThere:
            yield from self._watch(WORKER_WATCH, asked)

    def watch_once(self, asked: Asked) -> Frame:
        """The first frame."""
        stream = self.watch(asked)
        try:
            return next(stream)
        except StopIteration:
            raise StoreError(f"{self.address} ended the stream before its first frame") from None
        finally:
            stream.close()  # type: ignore[attr-defined]

    def _watch(self, method: str, asked: Asked) -> Iterator[Frame]:
        call = self._stream(method, pb.WatchRequest, pb.WatchFrame)
        for said in self._read(call, watch_wire.request(asked), at_once=True):
            yield watch_wire.frame(said)

    def tail(
        self,
        kinds: Sequence[str] = (),
        tenants: Sequence[str] = (),
        since: float | None = None,
        following: Callable[[], object] | None = None,
    ) -> Iterator[Tailed]:
        """Events and policies: the stored ones from `since` on (unix seconds), then as they are
        committed. `following` is called once the other side follows."""
        request = pb.TailRequest(
            kinds=map(wire.text, kinds), tenants=map(wire.text, tenants), from_unix_s=since
        )
        call = self._stream(STORE_TAIL, pb.TailRequest, pb.TailRow)
        for said in self._read(call, request, following):
            yield watch_wire.tailed(said)

    def export_window(
        self,
        form: str,
        target: Path,
        *,
        start: float,
        end: float,
        tables: Sequence[str] = (),
        force: bool = False,
    ) -> Exported:
        """`telemetry.ask.export.export`, with the files made at the other side. Raises NotThere."""
        request = pb.ExportWindowRequest(
            from_unix_s=start, to_unix_s=end, tables=tables, format=form
        )
        call = self._stream(STORE_EXPORT, pb.ExportWindowRequest, pb.ExportWindowChunk)
        said = self._read(call, request)
        return window_export.take(said, form, target, tables=tables, force=force)

    def recent(self, after: int, timeout_s: float) -> pb.RecentReply:
        """A piece of what a worker keeps in memory, newer than the cursor `after`."""
        call = self._channel.unary_unary(
            WORKER_RECENT,
            request_serializer=pb.RecentRequest.SerializeToString,
            response_deserializer=pb.RecentReply.FromString,
        )
        reply: pb.RecentReply = self._call(call, pb.RecentRequest(after=after), timeout_s)
        return reply

    def _stream(self, method: str, takes: Any, gives: Any) -> Callable[..., Any]:
        call: Callable[..., Any] = self._channel.unary_stream(
            method,
            request_serializer=takes.SerializeToString,
            response_deserializer=gives.FromString,
        )
        return call

    def _read(
        self,
        call: Callable[..., Any],
        request: Any,
        begun: Callable[[], object] | None = None,
        *,
        at_once: bool = False,
    ) -> Iterator[Any]:
        """The answers, for as long as they come; the first one, or where one may be long in coming
        the other side's word that it has begun, within `timeout_s`."""
        answers = call(request, metadata=self.metadata())
        late = threading.Event()

        def give_up() -> None:
            late.set()
            answers.cancel()

        patience = threading.Timer(self.timeout_s, give_up)
        patience.daemon = True
        patience.start()
        try:
            if not at_once:
                answers.initial_metadata()
                patience.cancel()
            if begun is not None:
                begun()
            for answer in answers:
                patience.cancel()
                yield answer
        except grpc.RpcError as e:
            if late.is_set():
                raise StoreUnreachable(
                    f"the store at {self.address} did not answer in {self.timeout_s:g} s"
                ) from None
            self._fail(e)
        finally:
            patience.cancel()
            answers.cancel()

    def _fail(self, error: grpc.RpcError) -> NoReturn:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            raise QueryError(str(error.details())) from None
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise NotThere(
                f"{self.address} does not serve that: it is a worker, or of an older version; "
                "ask the store process"
            ) from None
        super()._fail(error)
