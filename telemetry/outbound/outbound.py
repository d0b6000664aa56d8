"""Third parties, fed with what the store has committed. Owns the lanes and the thread before them.

`hear` hands a delivery over and returns: choosing, folding and encoding are done by one thread
here, sending by one a third party and signal. Every queue has a bound, every loss is counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from telemetry.outbound.delta import Deltas
from telemetry.outbound.lane import Lane, LaneStats, Pace
from telemetry.outbound.metrics import cumulative
from telemetry.outbound.queue import Queue, Snapshots
from telemetry.outbound.settings import DELTA, METRICS, TRACES, Export, Outgoing, resolved
from telemetry.outbound.traces import Traces
from telemetry.outbound.wire import open_transport
from telemetry.prometheus.counting import Counting
from telemetry.records import Batch, EngineRun, RequestRecord
from telemetry.settings import SettingsError

log = logging.getLogger(__name__)

MOST_ROWS = 200_000  # handed over and not looked at yet; the thread takes ten thousand in a second
FLUSH_S = 1.0  # what waits at the end has so long
_JOIN_S, _CUT_OFF_S = 0.5, 0.5


@dataclass(frozen=True, slots=True)
class OutboundStats:
    """All that leaves, as of now. `left_out` are requests without a trace, by why; `overrun` rows
    that came faster than they could be looked at."""

    lanes: tuple[LaneStats, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    overrun: int = 0
    late: int = 0  # sealed rows of a time too far away to be passed on


class Outbound:
    """A listener of the hub, from the constructor to `stop`."""

    def __init__(
        self,
        outgoing: Outgoing,
        counting: Counting,
        *,
        environment: Mapping[str, str] | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`counting` hears the same deliveries, before this does. Raises SettingsError when a
        header's variable or a certificate is missing; nothing is left running then."""
        self._counting = counting
        self._clock = clock
        self._traces = Traces(outgoing.rates)
        self._deltas = Deltas(counting, self._traces.trace_of)
        self._inbox: deque[tuple[Sequence[Batch], float]] = deque()
        self._rows = 0
        self._overrun = 0
        self._ending = False
        self._wake = threading.Condition()
        self._trace_lanes: list[Lane] = []
        self._delta_lanes: list[Lane] = []
        self._lanes: list[Lane] = []
        environment = os.environ if environment is None else environment
        try:
            for export in outgoing.exports:
                self._open(export, resolved(export, environment), pace)
        except BaseException:
            self._stop_lanes(0.0)
            raise
        self._thread = threading.Thread(target=self._run, name="export-make", daemon=True)
        self._thread.start()

    def learn(self, runs: Sequence[EngineRun]) -> None:
        """Runs that began before this process. Before the first `hear`."""
        for run in runs:
            self._traces.learn(run)

    def hear(self, batches: Sequence[Batch], now: float, refused: int = 0) -> None:
        """Hand a delivery over. Never blocks on a third party."""
        if not self._trace_lanes and not self._delta_lanes:
            return  # running totals are read where they are counted
        rows = sum(len(b.minutes) + len(b.logs) for b in batches)
        with self._wake:
            if self._rows + rows > MOST_ROWS and self._inbox:
                self._overrun += rows
                return
            self._rows += rows
            self._inbox.append((batches, now))
            self._wake.notify()

    def stats(self) -> OutboundStats:
        return OutboundStats(
            tuple(lane.stats() for lane in self._lanes),
            self._traces.left_out() if self._trace_lanes else {},
            self._overrun,
            self._deltas.late,
        )

    def stop(self, flush_s: float = FLUSH_S) -> None:
        """Send what waits, for `flush_s` at most, then cut off. Within two seconds by default,
        whatever the third parties do."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join(_JOIN_S)
        self._stop_lanes(flush_s)

    def _open(self, export: Export, headers: Mapping[str, str], pace: Pace | None) -> None:
        url = export.endpoint.url
        for signal in export.signals:
            try:
                transport = open_transport(export.endpoint, signal, headers, export.ca)
            except OSError as e:
                raise SettingsError(f"{url}: ca {export.ca}: {e.strerror or e}") from None
            except ValueError as e:
                raise SettingsError(f"{url}: ca {e}") from None
            feed: Queue | Snapshots = Queue(export.queue)
            if signal == METRICS and export.temporality != DELTA:
                feed = Snapshots(
                    export.every_s,
                    lambda: cumulative(self._counting, self._clock(), self._traces.trace_of),
                )
            lane = Lane(url, signal, feed, transport, export.timeout_s, pace)
            self._lanes.append(lane)
            if signal == TRACES:
                self._trace_lanes.append(lane)
            elif export.temporality == DELTA:
                self._delta_lanes.append(lane)

    def _stop_lanes(self, flush_s: float) -> None:
        for lane in self._lanes:
            lane.begin_stop(flush_s)
        until = time.monotonic() + flush_s
        for lane in self._lanes:
            lane.join(max(0.0, until - time.monotonic()))
        for lane in self._lanes:
            lane.cut_off()
        until = time.monotonic() + _CUT_OFF_S
        for lane in self._lanes:
            lane.join(max(0.0, until - time.monotonic()))
            lane.end()

    # --- the thread ---

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._inbox or self._ending)
                if not self._inbox:
                    return
                batches, now = self._inbox.popleft()
                self._rows -= sum(len(b.minutes) + len(b.logs) for b in batches)
            for batch in batches:
                try:
                    self._look_at(batch, now)
                except Exception:
                    # A fault of one delivery must not end what is sent of the others.
                    log.exception("a delivery of %s/%s was not exported", batch.engine, batch.pool)

    def _look_at(self, batch: Batch, now: float) -> None:
        for row in batch.logs:
            if type(row) is EngineRun:
                self._traces.learn(row)
        if self._trace_lanes:
            for row in batch.logs:
                if type(row) is RequestRecord:
                    payload = self._traces.take(row, now)
                    if payload is not None:
                        for lane in self._trace_lanes:
                            lane.put(payload)
        if self._delta_lanes:
            for payload in self._deltas.take(batch, now):
                for lane in self._delta_lanes:
                    lane.put(payload)
