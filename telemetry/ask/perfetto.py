"""Rows as a trace that Perfetto (or chrome://tracing) shows. Pure; owns tracks and lanes, no files.

A process a tenant, with lanes in which its requests lie side by side, counters of what waited and
what it held, and its events; a process a pool for the rest. The trace event format wants whole
microseconds. How a request's waits followed each other is not recorded, only how long each reason
took: they are laid end to end in a fixed order, and end where the first token came.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from telemetry.instants import micros
from telemetry.plain import safe
from telemetry.records import EngineMinute, EventRecord, RequestRecord, TenantMinute

TABLES = ("request", "tenant_minute", "engine_minute", "event")  # what a trace is made of
PHASES = ("front", "slot", "budget", "kv", "adapter", "prefill", "decode")

Event = dict[str, Any]
Owner = tuple[str, str, str | None]  # engine, pool, tenant (None: the pool itself)


@dataclass(slots=True)
class _Track:
    """A process of the trace: its number, its lanes, and when its last counters end."""

    pid: int
    busy: list[tuple[int, int]] = field(default_factory=list)  # (free from, lane)
    free: list[int] = field(default_factory=list)
    lanes: int = 0
    counted_until: int | None = None
    counters: tuple[str, ...] = ()

    def lane(self, start: int, end: int) -> tuple[int, bool]:
        """The lowest lane that is free from `start` on, taken until `end`; whether it is new."""
        while self.busy and self.busy[0][0] <= start:
            heapq.heappush(self.free, heapq.heappop(self.busy)[1])
        new = not self.free
        if new:
            self.lanes += 1
        lane = self.lanes if new else heapq.heappop(self.free)
        heapq.heappush(self.busy, (end, lane))
        return lane, new


class Trace:
    """Turns rows, given in order of time a table, into trace events."""

    def __init__(self) -> None:
        self._tracks: dict[Owner, _Track] = {}

    def of(self, row: Any) -> Iterator[Event]:
        """The events of one row of one of `TABLES`."""
        if isinstance(row, RequestRecord):
            return self._request(row)
        if isinstance(row, TenantMinute):
            return self._tenant(row)
        if isinstance(row, EngineMinute):
            return self._engine(row)
        if isinstance(row, EventRecord):
            return self._event(row)
        raise TypeError(f"{type(row).__name__} is no part of a trace: expected one of {TABLES}")

    def end(self) -> Iterator[Event]:
        """After the last row: counters come down to zero."""
        for track in self._tracks.values():
            yield from _down(track)

    def _track(self, owner: Owner) -> Iterator[Event]:
        """Introduces the process of an owner that is met for the first time."""
        if owner in self._tracks:
            return
        engine, pool, tenant = owner
        track = self._tracks[owner] = _Track(len(self._tracks) + 1)
        what = f"pool {pool}" if tenant is None else f"tenant {tenant} ({pool})"
        yield _named("process_name", track.pid, 0, safe(f"{what} on {engine}"))
        order = 0 if tenant is None else 1
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": track.pid,
            "args": {"sort_index": order},
        }

    def _request(self, row: RequestRecord) -> Iterator[Event]:
        owner = (row.engine, row.pool, row.tenant)
        yield from self._track(owner)
        track = self._tracks[owner]
        slices = list(phases(row))
        start = micros(row.arrived)
        last = [micros(t) for t in (row.ended, row.last_token, row.first_token) if t is not None]
        end = max([start, *last, *(e for _, _, e in slices)])
        lane, new = track.lane(start, end)
        if new:
            yield _named("thread_name", track.pid, lane, f"requests {lane}")
        where = {"pid": track.pid, "tid": lane}
        if end == start:
            name = f"{row.outcome} {row.reject_reason or ''}".strip()
            yield {"ph": "i", "s": "t", "name": name, "ts": start, **where, "args": _facts(row)}
            return
        name = safe(row.request_id)
        whole = {"name": name, "cat": "request", "ts": start, "dur": end - start}
        yield {"ph": "X", **whole, **where, "args": _facts(row)}
        for phase, begin, until in slices:
            yield {
                "ph": "X",
                "name": phase,
                "cat": "phase",
                "ts": begin,
                "dur": until - begin,
                **where,
            }

    def _tenant(self, row: TenantMinute) -> Iterator[Event]:
        values = {"waiting": row.waiting_avg, "kv bytes": row.kv_bytes_avg}
        yield from self._count((row.engine, row.pool, row.tenant), row, values)

    def _engine(self, row: EngineMinute) -> Iterator[Event]:
        values = {
            "waiting": row.waiting_avg,
            "running": row.running_avg,
            "kv bytes": row.kv_bytes_avg,
        }
        yield from self._count((row.engine, row.pool, None), row, values)

    def _count(
        self, owner: Owner, row: TenantMinute | EngineMinute, values: dict[str, float | None]
    ) -> Iterator[Event]:
        yield from self._track(owner)
        track = self._tracks[owner]
        start = micros(row.bucket_start)
        if track.counted_until is not None and track.counted_until < start:
            yield from _down(track)
        present = {n: v for n, v in values.items() if v is not None}
        for name, value in present.items():
            yield _counter(track.pid, name, start, value)
        if present:
            track.counted_until = micros(row.bucket_start + row.bucket_s)
            track.counters = tuple(present)

    def _event(self, row: EventRecord) -> Iterator[Event]:
        owner = (row.engine, row.pool, row.tenant)
        yield from self._track(owner)
        facts = {
            "detail": row.detail,
            "adapter": row.adapter,
            "request": row.request_id,
            "cause": row.cause_tenant,
            "value": row.value,
        }
        yield {
            "ph": "i",
            "s": "p",
            "name": safe(row.kind),
            "ts": micros(row.at),
            "pid": self._tracks[owner].pid,
            "tid": 0,
            "args": _present(facts),
        }


def phases(row: RequestRecord) -> Iterator[tuple[str, int, int]]:
    """(phase, start, end) of a request, in microseconds; none of them empty, none overlapping."""
    at = row.arrived
    waits = (
        row.wait_front_s,
        row.wait_slot_s,
        row.wait_budget_s,
        row.wait_kv_s,
        row.wait_adapter_s,
        row.prefill_s,
    )
    limit = next((t for t in (row.first_token, row.ended) if t is not None), None)
    for phase, length_s in zip(PHASES, waits, strict=False):
        until = at + (length_s or 0.0)
        if limit is not None:
            until = min(until, limit)
        if micros(until) > micros(at):
            yield phase, micros(at), micros(until)
            at = until
    last = row.last_token if row.last_token is not None else row.ended
    if row.first_token is not None and last is not None and micros(last) > micros(row.first_token):
        yield "decode", micros(row.first_token), micros(last)


def _facts(row: RequestRecord) -> dict[str, Any]:
    names = (
        "tenant", "adapter", "outcome", "reject_reason", "prompt_tokens", "cached_tokens",
        "output_tokens", "preemptions", "adapter_state", "ttft_s", "tpot_s", "max_gap_s",
        "stall_s", "rewait_slot_s", "rewait_budget_s", "rewait_kv_s", "rewait_adapter_s", "slo_met",
    )  # fmt: skip
    return _present({n: getattr(row, n) for n in names})


def _present(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        k: safe(v) if isinstance(v, str) else v for k, v in facts.items() if v not in (None, "")
    }


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _counter(pid: int, name: str, at: int, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": at, "args": {name: value}}


def _down(track: _Track) -> Iterator[Event]:
    """Where no row follows, nothing was there: a counter would else keep its last value."""
    if track.counted_until is not None:
        for name in track.counters:
            yield _counter(track.pid, name, track.counted_until, 0.0)
        track.counted_until = None
