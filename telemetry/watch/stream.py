"""The gRPC face Watch, and the seats of streams. Waits and translates; ranks and keeps nothing.

A stream holds a thread for as long as it lasts, so these have threads of their own: watchers never
stand in the way of what comes in. There are only so many; one too many is told to come later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc

from telemetry.errors import QueryError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service.client import BUSY
from telemetry.watch import wire as watch_wire
from telemetry.watch.frame import Asked, Frame, Totals, frame
from telemetry.watch.name_filter import NameFilter

MOST_WATCHERS = 64
_SPARE = 4  # threads that tell those beyond the bound

Look = Callable[[float, float], Totals]  # (now as unix seconds, window in seconds)


def frames(
    look: Look,
    asked: Asked,
    *,
    wall: Callable[[], float],
    clock: Callable[[], float],
    wait: Callable[[float], bool],
) -> Iterator[Frame]:
    """A frame at once, then one every `every_s`, for as long as `wait(seconds)` is False.

    Nothing is queued: a consumer that is late gets the newest state, and in `dropped` how many
    frames it was too late for. Raises QueryError for the filter.
    """
    names = NameFilter(asked.filter, clock) if asked.filter else None
    due = clock()
    values: object = None
    one: Frame | None = None
    while True:
        dropped = max(0, int((clock() - due) / asked.every_s))
        now = wall()
        totals = look(now, asked.window_s)
        if one is None or values is not totals.values:
            kept = None if names is None else names.keeps(totals.names)
            one, values = frame(totals, asked, kept, now, dropped), totals.values
        else:  # nothing was heard since: the ranks are what they were, only older
            one = replace(one, at=now, pools=totals.pools, dropped=dropped)
        yield one
        due += (dropped + 1) * asked.every_s
        if wait(max(0.0, due - clock())):
            return


class Seats:
    """How many streams of a kind there may be, on threads of their own."""

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self._taken: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._threads = futures.ThreadPoolExecutor(most + _SPARE, thread_name_prefix=what)

    def behaviour(self, method: Callable[[Any, Any], Iterator[Any]]) -> Callable[[Any, Any], Any]:
        """`method` as gRPC calls it: on these threads."""

        def run(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            return method(request, context)

        run.experimental_thread_pool = self._threads  # type: ignore[attr-defined]
        return run

    @contextmanager
    def seat(self, context: grpc.ServicerContext) -> Iterator[threading.Event]:
        """An event that is set when the client goes away, or `close` is called."""
        gone = threading.Event()
        with self._lock:
            full = len(self._taken) >= self._most or self._closed
            if not full:
                self._taken.add(gone)
        if full:
            why = "it is closing" if self._closed else f"{self._most} follow already ({self._what})"
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{BUSY}{why}")
        try:
            if not context.add_callback(gone.set):
                gone.set()
            yield gone
        finally:
            with self._lock:
                self._taken.discard(gone)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for gone in self._taken:
                gone.set()
        # The threads stay: who calls now is still to be told. They end with this object.


class WatchService:
    """The face Watch, over whatever knows the totals."""

    def __init__(
        self,
        look: Look,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST_WATCHERS,
    ) -> None:
        self._look = look
        self._wall = wall
        self._clock = clock
        self._seats = Seats("watch", most)
        self.behaviour = self._seats.behaviour(self.watch)

    def watch(
        self, request: pb.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchFrame]:
        with self._seats.seat(context) as gone:
            try:
                first = True
                for one in frames(
                    self._look,
                    watch_wire.asked(request),
                    wall=self._wall,
                    clock=self._clock,
                    wait=gone.wait,
                ):
                    yield watch_wire.message(one, columns=first)
                    first = False
            except QueryError as e:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))

    def close(self) -> None:
        """Every stream ends at its next frame's time at the latest: now."""
        self._seats.close()
