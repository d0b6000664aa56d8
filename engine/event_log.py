"""Writes events into the ledger's log, numbered by whoever writes. Decides nothing."""

from __future__ import annotations

from engine.clock import ClockBase
from telemetry.ledger.ledger import Ledger
from telemetry.records import EventRecord


class EventLog:
    """One writer's: `mark` keeps its numbers apart from others'. At the ledger's present instant,
    under its lock."""

    def __init__(self, ledger: Ledger, base: ClockBase, mark: str) -> None:
        self._ledger = ledger
        self._base = base
        self._mark = mark
        self._written = 0

    def event(
        self,
        kind: str,
        tenant: str | None = None,
        *,
        adapter: str | None = None,
        request_id: str | None = None,
        cause: str | None = None,
        detail: str | None = None,
        value: float | None = None,
        at_unix_s: float | None = None,
    ) -> None:
        """`at_unix_s`: when it happened, if not now."""
        who = self._ledger.identity
        self._written += 1
        self._ledger.log(
            EventRecord(
                engine=who.engine,
                run_id=who.run_id,
                pool=who.pool,
                event_id=f"{self._mark}{self._written}",
                at=self._base.unix(self._ledger.now) if at_unix_s is None else at_unix_s,
                kind=kind,
                tenant=tenant,
                adapter=adapter,
                request_id=request_id,
                cause_tenant=cause,
                detail=detail,
                value=value,
            )
        )
