"""What a request becomes before it is merged: dates held to bounds, foreign rows admitted, senders'
totals made deltas. Owns the decisions, in points, so that none is lost count of; writes nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from telemetry.conventions import Emitter, Kind
from telemetry.instants import DAY_S, day_of, day_start, naive_utc
from telemetry.otlp.charges import Charges
from telemetry.otlp.cumulative import Arrival, Known, Sender, convert
from telemetry.otlp.decode import SEQ_LIMIT, Decoded
from telemetry.otlp.foreign import Gate, Series, weight
from telemetry.otlp.read import Refused, Tally
from telemetry.records import Batch, ForeignMetric, InterferenceMinute, SeriesState
from telemetry.settings import SettingsError
from telemetry.store import ingest, retention, sql
from telemetry.tables import TABLE_OF

FUTURE_S = DAY_S  # a clock may be that far ahead of the store's
_SETTINGS_FOR_S = 60.0
_RECENT_DAYS = 2

Ask = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]
Deliveries = list[tuple[Batch, list[Any]]]


@dataclass(slots=True)
class Work:
    """What one part is to take in one transaction. Rows of `adds` are increases."""

    merges: Deliveries = field(default_factory=list)
    adds: Deliveries = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """The work by part, oldest first, and what becomes of the points: each is accepted, kept apart,
    repeated, a baseline or refused."""

    parts: dict[str, Work]
    batches: tuple[Batch, ...]
    accepted: int = 0
    kept: int = 0
    repeated: int = 0
    baselines: int = 0
    tally: Tally = field(default_factory=Tally)


class Arriving:
    """One store's decisions. Its methods are called by who writes, one at a time."""

    def __init__(self, folder: Path, ask: Ask, clock: Callable[[], float] | None = None) -> None:
        """`ask` runs a SELECT over the views. Without a `clock` rows of any date are taken: for
        imports, replays and virtual time."""
        self._folder = folder
        self._ask = ask
        self._clock = clock
        self._now = clock or time.time
        self._listening_ns = int(self._now() * 1e9)
        self._gate = Gate(self._series_of_day)
        self._retention = retention.DEFAULT
        self._read_at_s = float("-inf")

    def plan(self, decoded: Decoded) -> Plan:
        """Raises what `ask` raises, StoreError and duckdb.Error; then nothing is decided."""
        now_s = self._now()
        self._read_settings(now_s)
        tally = Tally(decoded.refused, dict.fromkeys(decoded.reasons))
        dates = _Dates(self._retention, now_s if self._clock is not None else None)
        batches, late = self._in_time(decoded, dates, tally)
        plan = Plan({}, tuple(batches), accepted=decoded.accepted - late, tally=tally)
        parts: dict[str, Work] = defaultdict(Work)
        for name, deliveries in ingest.by_part(batches).items():
            parts[name].merges += deliveries
        self._keep_apart(decoded.foreign, dates, now_s, plan, parts)
        self._count(decoded.arrivals, dates, now_s, plan, parts)
        plan.parts = {name: parts[name] for name in sorted(parts)}
        return plan

    def _in_time(self, decoded: Decoded, dates: _Dates, tally: Tally) -> tuple[list[Batch], int]:
        """The batches without the rows whose date is refused, and how many points those held."""
        if dates.now_s is None:
            return list(decoded.packed), 0
        kept, late = [], 0
        counted: set[tuple[Any, ...]] = set()
        for batch in decoded.packed:
            minutes: list[Any] = []
            logs: list[Any] = []
            for rows, into in ((batch.minutes, minutes), (batch.logs, logs)):
                answers: dict[tuple[type[Any], float], str | None] = {}
                for row in rows:
                    kind = type(row)
                    instant = ingest.INSTANT_OF[kind]
                    if instant is None:
                        into.append(row)
                        continue
                    at_s = getattr(row, instant)
                    try:
                        why = answers[kind, at_s]
                    except KeyError:
                        why = answers[kind, at_s] = dates.refusal(ingest.table_of(kind), at_s)
                    if why is None:
                        into.append(row)
                    else:
                        points = _points_of(row, decoded, counted)
                        tally.add(why, points)
                        late += points
            if len(minutes) + len(logs) == len(batch.minutes) + len(batch.logs):
                kept.append(batch)
            elif minutes or logs:
                kept.append(replace(batch, minutes=tuple(minutes), logs=tuple(logs)))
        return kept, late

    def _keep_apart(
        self,
        rows: Iterable[ForeignMetric],
        dates: _Dates,
        now_s: float,
        plan: Plan,
        parts: dict[str, Work],
    ) -> None:
        admitted: dict[str, list[ForeignMetric]] = defaultdict(list)
        for row in rows:
            why = dates.refusal("foreign_metric", row.at)
            if why is None:
                try:
                    self._gate.admit(row, now_s)
                except Refused as full:
                    why = str(full)
            if why is not None:
                plan.tally.add(why, weight(row))
                continue
            plan.kept += weight(row)
            admitted[row.engine].append(row)
        for engine, some in admitted.items():
            batch = Batch(engine, "", "", Emitter.WORKER, True, 0, logs=tuple(some))
            for name, deliveries in ingest.by_part([batch]).items():
                parts[name].merges += deliveries

    def _count(
        self,
        arrivals: Iterable[Arrival],
        dates: _Dates,
        now_s: float,
        plan: Plan,
        parts: dict[str, Work],
    ) -> None:
        senders: dict[Sender, list[Arrival]] = defaultdict(list)
        for point in arrivals:
            # Where no state is kept, a point could be counted again.
            at_s = point.time_ns / 1e9
            why = dates.refusal(point.table, at_s) or dates.refusal("series_state", at_s)
            if why is not None:
                plan.tally.add(why)
                continue
            senders[point.sender].append(point)
        seq = int(now_s * 10) % SEQ_LIMIT
        for sender, points in senders.items():
            made = convert(sender, points, self._known(sender, points))
            plan.accepted += made.counted - made.baselines
            plan.baselines += made.baselines
            plan.repeated += made.repeated
            plan.tally.merge(made.tally)
            for emitter, rows in made.rows.items():
                batch = Batch(
                    sender.engine, sender.run_id, sender.pool, emitter, True, seq, tuple(rows)
                )
                for name, deliveries in ingest.by_part([batch]).items():
                    parts[name].adds += deliveries
            states = Batch(
                sender.engine,
                sender.run_id,
                sender.pool,
                Emitter.WORKER,
                True,
                seq,
                logs=tuple(made.states),
            )
            for name, deliveries in ingest.by_part([states]).items():
                parts[name].merges += deliveries

    def _known(self, sender: Sender, points: list[Arrival]) -> Known:
        """The sender's states: the last days', and all there are when a series is not in those."""
        first_s = day_start(day_of(min(p.bucket_start for p in points)))
        states = self._states(sender, max(0.0, first_s - _RECENT_DAYS * DAY_S))
        have = {(s.metric, s.attributes, s.start_ns) for s in states}
        if any(p.key not in have for p in points):
            states = self._states(sender, 0.0)
        days = self._retention.days["series_state"]
        kept_ns = None if days is None else int(days * DAY_S * 1e9)
        return Known(states, self._listening_ns, kept_ns)

    def _states(self, sender: Sender, low_s: float) -> list[SeriesState]:
        found = self._ask(
            sql.STATES_OF_SENDER,
            {
                "engine": sender.engine,
                "run_id": sender.run_id,
                "pool": sender.pool,
                "low": naive_utc(low_s),
            },
        )
        return [
            SeriesState(
                engine=sender.engine,
                run_id=sender.run_id,
                pool=sender.pool,
                at=0.0,  # a state's day is its next bucket's
                metric=metric,
                attributes=attributes,
                start_ns=start_ns,
                time_ns=time_ns,
                heard_ns=heard_ns,
                value=value,
            )
            for metric, attributes, start_ns, time_ns, heard_ns, value in found
        ]

    def _series_of_day(self, day: str) -> Iterable[Series]:
        low = day_start(day)
        bounds = {"low": naive_utc(low), "high": naive_utc(low + DAY_S)}
        return [(e, m, a) for e, m, a in self._ask(sql.FOREIGN_SERIES, bounds)]

    def _read_settings(self, now_s: float) -> None:
        """Rows older than they are kept would be dropped at the next turn of the day."""
        if abs(now_s - self._read_at_s) < _SETTINGS_FOR_S:
            return
        self._read_at_s = now_s
        try:
            self._retention = retention.read_settings(self._folder)
        except SettingsError:
            # Said, and acted on, by retention itself; nothing is dropped, so nothing is refused.
            self._retention = retention.Retention(dict.fromkeys(retention.DEFAULT_DAYS))


class _Dates:
    """Which dates are taken now. A day's answer is worked out once."""

    def __init__(self, kept: retention.Retention, now_s: float | None) -> None:
        self.now_s = now_s
        self._kept = kept
        self._known: dict[tuple[str, int], str | None] = {}

    def refusal(self, table: str, at_s: float) -> str | None:
        """Why a row of that instant is not taken; None when it is."""
        if self.now_s is None:
            return None
        if at_s > self.now_s + FUTURE_S:
            return (
                f"{table}: {day_of(at_s)} is more than a day ahead of the store's clock "
                f"({day_of(self.now_s)}): set the sender's clock"
            )
        key = (table, int(at_s // DAY_S))
        if key not in self._known:
            self._known[key] = self._too_old(table, day_of(at_s))
        return self._known[key]

    def _too_old(self, table: str, day: str) -> str | None:
        kept = self._kept.days.get(table)
        assert self.now_s is not None
        age = (date.fromisoformat(day_of(self.now_s)) - date.fromisoformat(day)).days
        if kept is None or age <= kept:
            return None
        return f"{table}: {day} is over, its rows are kept for {kept} days"


def _points_of(row: Any, decoded: Decoded, counted: set[tuple[Any, ...]]) -> int:
    """How many points or records of a request a row was. Cells that came as one point are one, the
    first time; `counted` remembers those."""
    if type(row) is Charges:
        return sum(_points_of(cell, decoded, counted) for cell in row.rows())
    table = TABLE_OF[type(row)]
    if table.log:
        return 1
    if type(row) is InterferenceMinute:
        group = (row.engine, row.run_id, row.pool, row.bucket_start, row.victim, row.reason)
        if group in decoded.gathered:
            first = group not in counted
            counted.add(group)
            return int(first)
    return sum(getattr(row, c.name) is not None for c in table.columns if c.kind is not Kind.KEY)
