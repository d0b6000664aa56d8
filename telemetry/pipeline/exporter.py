"""The way out of front and worker: encode, keep, send, send again. Owns two threads and a bound.

`submit` takes a batch and returns; whatever the store does, nothing blocks or raises there. What
must arrive (sealed minutes, log rows) is kept and retried until the store has committed it or the
bound is reached; an open bucket is worth only as much as its newest state.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from telemetry.errors import (
    MalformedBatch,
    NotAllowed,
    StoreBusy,
    StoreUnreachable,
    TelemetryError,
)
from telemetry.otlp.encode import encode
from telemetry.pipeline.lost import told
from telemetry.pipeline.outlet import ExporterStats, Outlet
from telemetry.pipeline.packed import Packed, pack
from telemetry.pipeline.portions import portions
from telemetry.pipeline.recent import Place, Recent, place_of
from telemetry.plain import safe
from telemetry.records import Batch

if TYPE_CHECKING:
    from telemetry.service.access import Access

__all__ = ["Exporter", "ExporterStats", "Inline", "Outlet"]

log = logging.getLogger(__name__)

Sink = Callable[[bytes | None, bytes | None], object]

SPOOL_LIMIT_BYTES = 64 << 20
RECENT_LIMIT_BYTES = 64 << 20
RECENT_S = 3600.0
RAW_BATCHES = 1024  # handed over and not encoded yet: hours of what one process makes
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_CALL_TIMEOUT_S = 10.0
_OTHER_FAILURES = 5  # tries at a failure that does not say "later"


class Inline:
    """Encodes and delivers in the calling thread: for one process with a virtual clock, where the
    producer must wait for the store, and a failure must be heard."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def submit(self, batch: Batch) -> None:
        """Returns when the sink has taken the batch; raises what it raises."""
        for part in portions(batch):
            metrics, logs = encode(part)
            if metrics is not None or logs is not None:
                self._sink(metrics, logs)


@dataclass(slots=True, eq=False)
class _Item:
    """One encoded request, waiting. `place` is set for an open bucket: a newer one replaces it;
    `tells` is how many lost batches it tells the store of."""

    data: Packed
    is_logs: bool
    place: Place | None
    failures: int = 0
    tells: int = 0


class Exporter:
    """Sends batches to a store process, or to a sink of this process. Call `close` at the end."""

    def __init__(
        self,
        address: str | None = None,
        *,
        sink: Sink | None = None,
        access: Access | None = None,
        spool_limit_bytes: int = SPOOL_LIMIT_BYTES,
        recent_s: float = RECENT_S,
        recent_limit_bytes: int = RECENT_LIMIT_BYTES,
        first_retry_s: float = _FIRST_RETRY_S,
        call_timeout_s: float = _CALL_TIMEOUT_S,
    ) -> None:
        """Exactly one of `address` and `sink`. Connects in the background: a store that is not
        there yet is no error. `access` is what to show there; without it what the environment
        says (`telemetry.service.access`)."""
        if (address is None) == (sink is None):
            raise ValueError(
                f"an exporter needs an address or a sink, one of them: {address!r}, {sink!r}"
            )
        self._spool_limit_bytes = spool_limit_bytes
        self._first_retry_s = first_retry_s
        self._call_timeout_s = call_timeout_s
        self._recent = Recent(recent_s, recent_limit_bytes)
        self._client = None
        if address is not None:
            from telemetry.service.client import StoreClient

            self._client = StoreClient(address, access=access)
        self._sink = sink
        self._raw: deque[Batch] = deque()
        self._spool: OrderedDict[int, _Item] = OrderedDict()
        self._spool_bytes = 0
        self._open: dict[Place, list[int]] = {}  # the parts of open buckets in the spool
        self._heard: Callable[[Batch], object] | None = None
        self._next = 0
        self._change = threading.Condition()
        self._encoding = False
        self._closing_at: float | None = None
        self._counts: dict[str, int] = dict.fromkeys(
            ("sent", "sent_bytes", "lost", "superseded", "refused_points", "retries"), 0
        )
        self._last_ack_unix_s: float | None = None
        self._last_error = ""
        self._told_lost = 0  # of `lost`: what the store knows
        self._telling = False  # one such row at a time
        self._name = secrets.token_hex(4)
        self._from: Batch | None = None  # the newest batch, without its rows
        self._threads = [
            threading.Thread(target=self._encode_loop, name="telemetry-encode", daemon=True),
            threading.Thread(target=self._send_loop, name="telemetry-send", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # --- the callers' side ---

    def submit(self, batch: Batch) -> None:
        """Hand a batch over. Never blocks on the store, never raises; lost batches are counted."""
        with self._change:
            if self._closing_at is not None or len(self._raw) >= RAW_BATCHES:
                self._lose(1, "closed" if self._closing_at is not None else "cannot encode in time")
                return
            self._raw.append(batch)
            self._change.notify_all()

    def recent(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]:
        """(metrics requests, logs requests) of the last 60 minutes that touch [start, end), unix
        seconds: the newest state of every bucket. Within a memory bound, the oldest go first."""
        with self._change:
            return self._recent.between(start, end)

    def newer(self, after: int, most_bytes: int) -> tuple[list[bytes], list[bytes], int, bool]:
        """`Recent.newer`: what has come since a cursor, in pieces."""
        with self._change:
            return self._recent.newer(after, most_bytes)

    def listen(self, heard: Callable[[Batch], object] | None) -> None:
        """Have every batch of minutes told to `heard` as it is encoded; None ends that. It must be
        quick, and may fail without harm to what is sent."""
        with self._change:
            self._heard = heard

    def stats(self) -> ExporterStats:
        with self._change:
            return ExporterStats(
                **self._counts,
                queued=len(self._spool) + len(self._raw),
                queued_bytes=self._spool_bytes,
                last_ack_unix_s=self._last_ack_unix_s,
                last_error=self._last_error,
            )

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was submitted is committed or lost; False when time ran out."""
        with self._change:
            return self._change.wait_for(self._is_empty, timeout_s)

    def close(self, timeout_s: float = 4.0) -> ExporterStats:
        """Send what is left for at most `timeout_s`, count the rest as lost. Safe to call twice."""
        with self._change:
            if self._closing_at is None:
                self._closing_at = time.monotonic() + timeout_s
                self._change.notify_all()
            deadline = self._closing_at
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()) + 0.5)
        if self._client is not None:
            self._client.close()
        with self._change:
            left = len(self._spool) + len(self._raw)
            self._raw.clear()
            self._spool.clear()
            self._open.clear()
            self._spool_bytes = 0
            if left:
                self._lose(left, self._last_error or "closed before the store took it")
        return self.stats()

    # --- the encoder's thread ---

    def _encode_loop(self) -> None:
        while True:
            with self._change:
                self._encoding = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._raw or self._closing_at is not None)
                if not self._raw:
                    return
                batch = self._raw.popleft()
                self._encoding = True
            place = place_of(batch) if batch.minutes else None
            is_first = True
            for part in portions(batch):
                try:
                    metrics, logs = (None if d is None else pack(d) for d in encode(part))
                    with self._change:
                        self._keep(place, part, metrics, logs, is_first=is_first)
                        if is_first and metrics is not None:
                            self._tell(batch)
                            is_first = False
                except Exception as e:
                    # Whatever is wrong with one part, the others and the next batches go out.
                    with self._change:
                        self._lose(1, f"cannot be encoded: {type(e).__name__}: {e}")

    def _keep(
        self,
        place: Place | None,
        part: Batch,
        metrics: Packed | None,
        logs: Packed | None,
        *,
        is_first: bool,
    ) -> None:
        self._from = replace(part, minutes=(), logs=())
        if metrics is not None and place is not None:
            self._recent.add_metrics(place, part, metrics, is_first=is_first)
            if is_first:
                for replaced in list(self._open.get(place, ())):
                    self._take(replaced)
                    self._counts["superseded"] += 1
            self._queue(_Item(metrics, False, None if part.sealed else place))
        if logs is not None:
            # Log rows are delivered once and never superseded, whatever bucket they came with.
            self._recent.add_logs(part, logs)
            self._queue(_Item(logs, True, None))
        self._bound()
        self._change.notify_all()

    def _tell(self, batch: Batch) -> None:
        if self._heard is None:
            return
        try:
            self._heard(batch)
        except Exception:
            # Who watches has missed a state; what goes to the store has not.
            log.exception("a watcher did not take a batch")

    def _queue(self, item: _Item) -> None:
        self._spool[self._next] = item
        self._spool_bytes += item.data.size_bytes
        if item.place is not None:
            self._open.setdefault(item.place, []).append(self._next)
        self._next += 1

    def _bound(self) -> None:
        """Give up open buckets first, then the oldest."""
        while self._spool_bytes > self._spool_limit_bytes and self._spool:
            given_up = next(iter(self._open.values()), None) or [next(iter(self._spool))]
            for number in list(given_up):
                self._take(number)
                self._lose(1, f"more than {self._spool_limit_bytes} bytes wait for the store")

    def _take(self, number: int) -> _Item:
        item = self._spool.pop(number)
        self._spool_bytes -= item.data.size_bytes
        if item.place is not None:
            self._open[item.place].remove(number)
            if not self._open[item.place]:
                del self._open[item.place]
        if item.tells:
            self._telling = False
        return item

    def _tell_lost(self) -> None:
        """Once the store answers again it is to know what it will never have: a row of kind
        "lost" whose value is the number of batches."""
        lost = self._counts["lost"] - self._told_lost
        if not lost or self._telling or self._from is None:
            return
        try:
            data = told(
                self._from, self._name, self._told_lost, lost, self._last_error, time.time()
            )
        except Exception as e:
            # Its identity is the newest batch's: what cannot be encoded there is counted there.
            log.warning("%d lost batches cannot be told to the store: %s", lost, e)
            return
        if data is not None:
            self._telling = True
            self._queue(_Item(pack(data), True, None, tells=lost))

    # --- the sender's thread ---

    def _send_loop(self) -> None:
        pause_s = self._first_retry_s
        while True:
            with self._change:
                self._change.wait_for(lambda: self._spool or self._is_over())
                if not self._spool or self._out_of_time():
                    return
                number, item = next(iter(self._spool.items()))
            error, final = self._deliver(item)
            with self._change:
                if error is None:
                    pause_s = self._first_retry_s
                    self._counts["sent"] += 1
                    self._counts["sent_bytes"] += item.data.sent_bytes
                    self._last_ack_unix_s = time.time()
                elif final:
                    self._lose(1, error)
                if error is None or final:
                    if number in self._spool:
                        self._take(number)
                    if error is None:
                        self._told_lost += item.tells
                        self._tell_lost()
                    self._change.notify_all()
                    continue
                self._counts["retries"] += 1
                self._last_error = error
                # A newer batch does not cut the pause short, it would meet the same store; the
                # beginning of the end does, once: what is left of the time is for trying.
                cut_short = _never if self._is_closing() else self._is_closing
                if self._change.wait_for(cut_short, self._within(pause_s)):
                    pause_s = self._first_retry_s
                else:
                    pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    def _deliver(self, item: _Item) -> tuple[str | None, bool]:
        """(None, _) when committed, else (why not, whether trying again is useless)."""
        data = item.data.plain()
        metrics, logs = (None, data) if item.is_logs else (data, None)
        try:
            if self._client is not None:
                accepted = self._client.export(metrics, logs, self._within(self._call_timeout_s))
                if accepted.refused:
                    with self._change:
                        self._counts["refused_points"] += accepted.refused
                        self._last_error = safe(accepted.reason)
                    log.warning(
                        "the store refused %d points: %s", accepted.refused, self._last_error
                    )
            elif self._sink is not None:
                self._sink(metrics, logs)
        except MalformedBatch as e:
            return safe(str(e)), True
        except (StoreBusy, StoreUnreachable, NotAllowed) as e:
            # A token is mended by a person, and nothing is lost meanwhile but by the bound.
            return safe(str(e)), False
        except Exception as e:
            # Serving must not end because telemetry does, nor may one request that can never be
            # taken stand before all others for ever; what it was is counted and said.
            item.failures += 1
            what = str(e) if isinstance(e, TelemetryError) else f"{type(e).__name__}: {e}"
            return safe(what), item.failures >= _OTHER_FAILURES
        return None, False

    # --- shared, under the lock ---

    def _is_empty(self) -> bool:
        return not self._raw and not self._encoding and not self._spool

    def _is_closing(self) -> bool:
        return self._closing_at is not None

    def _is_over(self) -> bool:
        return self._is_closing() and not self._raw and not self._encoding

    def _out_of_time(self) -> bool:
        return self._closing_at is not None and time.monotonic() >= self._closing_at

    def _within(self, seconds: float) -> float:
        """`seconds`, or what is left of the closing time."""
        if self._closing_at is None:
            return seconds
        return max(0.05, min(seconds, self._closing_at - time.monotonic()))

    def _lose(self, count: int, why: str) -> None:
        self._counts["lost"] += count
        self._last_error = why
        log.warning("lost %d batches: %s", count, why)


def _never() -> bool:
    return False
