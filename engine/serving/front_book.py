"""What the front writes down: offered, admitted, rejected, and the rows of those it turned away.

Owns the front's share of telemetry and when it leaves. Decides no admission; sees token counts,
never a prompt, header or key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from engine.clock import Clock
from engine.config import Settings
from telemetry.conventions import Emitter
from telemetry.ledger.door import DoorLedger
from telemetry.outbound.trace_context import TraceContext
from telemetry.records import Batch, EventRecord, LogRow, RequestRecord

Levels = Callable[[str, float], tuple[float | None, float | None, int]]
_ROWS_S = 1.0  # a refusal is on its way to the store within this time
_MOST_ROWS = 20_000  # between two flushes: beyond it rows are counted as dropped, never unbounded


class Submit(Protocol):
    def submit(self, batch: Batch) -> None: ...


class FrontBook:
    """The front's ledger of one pool, and its way out. For the event loop's thread only."""

    def __init__(
        self, settings: Settings, clock: Clock, run_id: str, exporter: Submit, levels: Levels
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._exporter = exporter
        self._levels = levels
        self._rows: list[LogRow] = []
        self._dropped = 0
        self._seq = 0
        self._events = 0
        self.run_id = run_id
        self._ledger = self._new_ledger()
        self._collect_due_s = self._next_collect_s(clock.now())
        self._rows_due_s = 0.0

    def offered(self, tenant: str, tokens: int, is_retry: bool, now_s: float) -> None:
        self._ledger.offered(tenant, tokens, is_retry, now_s)

    def admitted(self, tenant: str, tokens: int, wait_front_s: float, now_s: float) -> None:
        self._ledger.admitted(tenant, tokens, wait_front_s, now_s)

    def rejected(
        self,
        *,
        request_id: str,
        tenant: str,
        adapter: str | None,
        reason: str,
        prompt_tokens: int,
        max_tokens: int,
        arrived_s: float,
        is_retry: bool,
        now_s: float,
        trace: TraceContext | None = None,
    ) -> None:
        self._ledger.rejected(tenant, reason, prompt_tokens + max_tokens, now_s)
        unix = self._clock.base.unix
        self._add(
            RequestRecord(
                engine=self._settings.engine,
                run_id=self.run_id,
                pool=self._settings.pool,
                request_id=request_id,
                tenant=tenant,
                adapter=adapter,
                outcome="rejected",
                reject_reason=reason,
                is_retry=is_retry,
                arrived=unix(arrived_s),
                ended=unix(now_s),
                prompt_tokens=prompt_tokens,
                max_tokens=max_tokens,
                wait_front_s=now_s - arrived_s,
                **_traced(trace),
            )
        )

    def lost(
        self,
        *,
        request_id: str,
        tenant: str,
        adapter: str | None,
        prompt_tokens: int,
        max_tokens: int,
        output_tokens: int,
        arrived_s: float,
        admitted_s: float,
        is_retry: bool,
        now_s: float,
        trace: TraceContext | None = None,
    ) -> None:
        """An admitted request whose worker went away: nobody else can write its row."""
        unix = self._clock.base.unix
        self._add(
            RequestRecord(
                engine=self._settings.engine,
                run_id=self.run_id,
                pool=self._settings.pool,
                request_id=request_id,
                tenant=tenant,
                adapter=adapter,
                outcome="failed",
                is_retry=is_retry,
                arrived=unix(arrived_s),
                admitted=unix(admitted_s),
                ended=unix(now_s),
                prompt_tokens=prompt_tokens,
                max_tokens=max_tokens,
                output_tokens=output_tokens,
                wait_front_s=admitted_s - arrived_s,
                **_traced(trace),
            )
        )

    def worker_down(
        self, open_requests: int, now_s: float, *, who: str = "the worker", moved: int = 0
    ) -> None:
        """`who` went away: `open_requests` failed with it, `moved` began again elsewhere."""
        detail = f"{who} went away; {open_requests} open requests failed"
        if moved:
            detail += f", {moved} of which nothing had been said began again on another"
        self._fault(detail, now_s)

    def worker_silent(self, now_s: float, *, who: str = "the worker") -> None:
        """`who` is there and lets a plain question run out of time."""
        self._fault(f"{who} gives no sign of life", now_s)

    def worker_left(
        self, lost: int, now_s: float, *, who: str = "the worker", moved: int = 0
    ) -> None:
        """`who` has been silent for too long: of the requests that waited there for a first word
        `lost` failed and `moved` began again elsewhere."""
        detail = f"{who} is silent for too long: {lost} requests of which nothing had been said"
        self._fault(f"{detail} failed, {moved} began again on another", now_s)

    def worker_back(self, away_s: float, now_s: float, *, who: str = "the worker") -> None:
        """`who` answers again, after it had gone away."""
        self._fault(f"{who} answers again after {away_s:.1f} s", now_s)

    def worker_up(self, run_id: str, now_s: float) -> None:
        """The pool's first worker answers. A new run of it starts a new ledger: rows of one run
        never mix."""
        if run_id == self.run_id:
            return
        self.flush(now_s, closing=True)
        self.run_id = run_id
        self._ledger = self._new_ledger()
        self._collect_due_s = self._next_collect_s(now_s)

    def tick(self, now_s: float) -> None:
        """Send what is due: rows every second, the ledger at bucket ends and in between."""
        if now_s >= self._collect_due_s:
            self.flush(now_s)
        elif self._rows and now_s >= self._rows_due_s:
            self._send_rows(now_s)

    def flush(self, now_s: float, *, closing: bool = False) -> None:
        """Send everything now. `closing` seals the open bucket: nothing more is added to it."""
        until_s = self._bucket_end_s(now_s) if closing else now_s
        for batch in self._ledger.collect(until_s):
            self._exporter.submit(batch)
        self._send_rows(now_s)
        self._collect_due_s = self._next_collect_s(now_s)

    def _new_ledger(self) -> DoorLedger:
        return DoorLedger(
            engine=self._settings.engine,
            run_id=self.run_id,
            pool=self._settings.pool,
            bucket_s=self._settings.bucket_s,
            clock_wall_s=self._clock.base.wall_s,
            levels=self._levels,
            now_s=self._clock.now(),
        )

    def _bucket_end_s(self, now_s: float) -> float:
        """End of the bucket that holds `now_s`, engine time. Buckets are aligned to UTC."""
        bucket_s = self._settings.bucket_s
        unix_s = self._clock.base.unix(now_s)
        return self._clock.base.engine((unix_s // bucket_s + 1) * bucket_s)

    def _next_collect_s(self, now_s: float) -> float:
        return min(now_s + self._settings.provisional_s, self._bucket_end_s(now_s))

    def _add(self, row: LogRow) -> None:
        if len(self._rows) >= _MOST_ROWS:
            self._dropped += 1
        else:
            self._rows.append(row)

    def _fault(self, detail: str, now_s: float) -> None:
        self._events += 1
        self._rows.append(  # past the limit too: there are few, and they say what was dropped
            EventRecord(
                engine=self._settings.engine,
                run_id=self.run_id,
                pool=self._settings.pool,
                event_id=f"front-{self._events}-{now_s:.6f}",
                at=self._clock.base.unix(now_s),
                kind="fault",
                detail=detail,
            )
        )

    def _send_rows(self, now_s: float) -> None:
        if self._dropped:
            self._fault(f"the front dropped {self._dropped} request rows: too many at once", now_s)
            self._dropped = 0
        self._rows_due_s = now_s + _ROWS_S
        if not self._rows:
            return
        self._seq += 1
        rows, self._rows = self._rows, []
        self._exporter.submit(
            Batch(
                engine=self._settings.engine,
                run_id=self.run_id,
                pool=self._settings.pool,
                emitter=Emitter.FRONT,
                sealed=True,
                seq=self._seq,
                logs=tuple(rows),
            )
        )


def _traced(trace: TraceContext | None) -> dict[str, Any]:
    """The columns of a client's trace; none without one."""
    if trace is None:
        return {}
    return {
        "trace_id": trace.trace_id,
        "parent_span_id": trace.parent_span_id,
        "trace_sampled": trace.sampled,
    }
