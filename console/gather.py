"""The console's rows: asked of any source, kept, and asked again only where something is new.

Owns what was read and what the source said of itself (`notes`); builds no picture. Without
requests: percentiles come from the minutes' histograms, so a pool's size and not its traffic
decides what a look costs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any, Protocol

from console.rows import Rows
from telemetry.ask.in_columns import InColumns
from telemetry.ask.reading import READ, Result, to_rows
from telemetry.ask.rows_console import ConsoleMatrixRow, ConsoleMinutesRow
from telemetry.at_once import rows_at_once
from telemetry.conventions import Kind
from telemetry.errors import QueryError
from telemetry.records import Counts, EngineMinute, InterferenceMinute, TenantMinute

LONGEST_HISTORY_S = 3900.0  # an hour of baseline and the five minutes that are looked at
MOST_ROWS = 16_000  # of tenants: more of them are looked at over a shorter time
PIECE_ROWS = 40_000  # asked for at once: a store that is busy answers that in seconds
SHORTEST_HISTORY_S = 360.0  # what is looked at, and a minute to compare it with
FEWEST_BUCKETS, MOST_BUCKETS = 12, 65
PERCENTILES_S = 300.0  # told of the last minutes alone
NEAR_S = 150.0  # what is younger may still change
LATE_S = 45.0  # after a bucket's end, what its senders still had of it has come
WHOLE_EVERY_S = 120.0  # what is older hardly does: its engines' rows are looked at so often
AHEAD_S = 2.0  # clocks of the engine and of this machine may differ by a little
USUAL_BUCKET_S = 60.0
HISTOGRAMS = {f.name for f in fields(TenantMinute) if f.metadata["kind"] is Kind.HIST}
_KNOWN = {k: frozenset(f.name for f in fields(k)) for k in (TenantMinute, InterferenceMinute)}
_NEEDED: Mapping[type[Any], Sequence[str]] = {
    TenantMinute: [f.name for f in fields(ConsoleMinutesRow)],
    InterferenceMinute: [f.name for f in fields(ConsoleMatrixRow)],
}
_BUCKET_START, _POOL, _TENANT = map(attrgetter, ("bucket_start", "pool", "tenant"))
COMMITS = "live.store"  # of a store process, answered from memory
COUNT_AGAIN_S = 15.0
STORE_DOWN = "the store is not answering"  # how a fallback's note begins


class Asked(Protocol):
    """Whatever answers named questions and says what an answer lacks."""

    def query(self, name: str, **parameters: Any) -> Result: ...

    def span(self) -> tuple[float, float] | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of the last while before an instant, and what the source says they lack. `revision`
    counts up when they change. `whole`: all that a picture wants to look back on is there.
    `every_column`: the last minute's rows have all their columns."""

    rows: Rows
    notes: tuple[str, ...]
    bucket_s: float
    revision: int
    whole: bool = True
    every_column: bool = False

    @property
    def store_down(self) -> bool:
        return any(n.startswith(STORE_DOWN) for n in self.notes)


class _Question:
    """One round of questions to one source; remembers what the answers lack."""

    def __init__(self, source: Asked) -> None:
        self._source = source
        self.notes: dict[str, None] = {}

    def read(self, table: str, start: float, end: float) -> tuple[Any, ...]:
        return tuple(to_rows(table, self._noted(self._source.query(READ + table, start=start,
                                                                    end=end))))  # fmt: skip

    def tenants(
        self, start: float, end: float, near: float, all_columns: bool = False
    ) -> list[TenantMinute]:
        """Tenants' rows; histograms of those whose bucket starts at `near` or later. Without
        `all_columns` those of a picture alone: the others are None."""
        name = "console_minutes_all" if all_columns else "console_minutes"
        answer = self._source.query(name, start=start, end=end, near=near)
        return _taken(TenantMinute, self._noted(answer), histograms=True)

    def commits(self) -> object:
        """What a live store counts: as long as it is the same, nothing has come in. None where
        nobody counts."""
        try:
            answer = self._source.query(COMMITS)
            at = [answer.columns.index(c) for c in ("pid", "started_unix_s", "batches")]
        except (QueryError, ValueError):
            return None
        return tuple(answer.rows[0][i] for i in at) if answer.rows and not answer.partial else None

    def matrix(self, start: float, end: float) -> list[InterferenceMinute]:
        answer = self._source.query("console_matrix", start=start, end=end)
        return _taken(InterferenceMinute, self._noted(answer))

    def _noted(self, answer: Result) -> Result:
        self.notes.update(dict.fromkeys(answer.partial))
        return answer

    def rows(
        self,
        start: float,
        end: float,
        near: float,
        engines: tuple[EngineMinute, ...],
        all_columns: bool = False,
    ) -> Rows:
        return Rows(
            tenants=tuple(self.tenants(start, end, near, all_columns)),
            engines=tuple(e for e in engines if start <= e.bucket_start < end),
            interference=tuple(self.matrix(start, end)),
            events=self.read("event", start, end),
        )


class Gatherer:
    """Keeps the rows of one source. For one thread. `monotonic` counts seconds.

    A bucket's rows are asked for again when its engine's row has moved on, and once more when what
    the front and the last stragglers send of it must have come. Raises whatever the source raises;
    what was kept stays.
    """

    def __init__(self, source: Asked, monotonic: Callable[[], float]) -> None:
        self._source = source
        self._monotonic = monotonic
        self._kept: Gathered | None = None
        self._looked_at = 0.0  # when the engines' rows were last looked through, the old ones too
        self._at = 0.0
        self._seen: frozenset[Any] = frozenset()
        self._history_s = LONGEST_HISTORY_S  # how far a picture looks back: a crowd's not so far
        self._from = 0.0  # buckets that begin here or later have been read
        self._marks: dict[float, frozenset[Any]] = {}  # engines' rows that a bucket was read by
        self._due: dict[float, float] = {}  # when a bucket is read once more
        self._wide = False  # whether the last minute was read with all its columns
        self._commits: object = None  # what the store had counted before the rows were read
        self._count_again_at = 0.0
        self.all_columns = False  # of the last minute; set by who shows them

    def now(self, at: float, *, still: bool = False) -> Gathered:
        """The rows up to `at`, which moves forward; where nothing is new, the same as before.
        `still`: of a record that has ended nothing is new until `at` moves."""
        kept, end = self._kept, at + AHEAD_S
        narrow = self.all_columns and not self._wide
        if still and kept is not None and kept.whole and at == self._at and not narrow:
            return kept
        asked = _Question(self._source)
        leapt = not 0.0 <= at - self._at < NEAR_S
        self._at = at
        all_of_them = not 0.0 <= self._monotonic() - self._looked_at < WHOLE_EVERY_S
        commits = None if still else self._counted(asked)
        if kept is None or leapt:
            rows, bucket_s, self._from = _glimpse(asked, at, end, self.all_columns)
            self._marks, self._due = {}, {}
            changed = self._changed(rows.engines, at)
            self._history_s = _history_s(rows.tenants, bucket_s)
            all_of_them, wanted = True, at - self._history_s
        else:
            bucket_s, wanted = kept.bucket_s, at - self._history_s
            whole = self._from <= wanted and not all_of_them and not narrow
            if whole and commits is not None and commits == self._commits:
                return kept
            first = at - LONGEST_HISTORY_S if all_of_them else at - NEAR_S - bucket_s
            last_minute = _last_minute(kept.rows.engines, bucket_s)
            if narrow:
                first = min(first, last_minute)
            cut = max(self._from, bucket_edge(first, kept.rows.engines))
            engines = asked.read("engine_minute", cut, end)
            events = asked.read("event", cut, end)
            if whole and self._seen.issuperset(_marks(engines, events)):
                self._commits = commits
                self._kept = replace(kept, notes=tuple(asked.notes))
                return self._kept
            changed = self._changed(engines, at)
            if narrow:
                again = tuple(e for e in engines if e.bucket_start >= last_minute)
                changed |= {e.bucket_start: self._marks.get(e.bucket_start, frozenset())
                            for e in again if e.bucket_start not in changed}  # fmt: skip
            rows = self._with(kept.rows, asked, cut, end, engines, events, changed, last_minute)
            self._history_s = _history_s(rows.tenants, bucket_s)
            wanted = at - self._history_s
            before_cut, rows = rows, rows.since(wanted)
            if len(rows.engines) < len(before_cut.engines):  # else taken for those of idle time
                begun = min((e.bucket_start for e in rows.engines), default=wanted)
                self._from = max(self._from, begun)
        if self._from > wanted:
            before, self._from = _piece(asked, wanted, self._from, at, rows.tenants)
            changed |= self._changed(before.engines, at)
            rows = replace(before.then(rows), policies=rows.policies, runs=rows.runs)
        if all_of_them:
            self._looked_at = self._monotonic()
        self._note(changed, at, bucket_s)
        self._commits, self._wide = commits, self.all_columns
        self._seen = _marks(rows.engines, rows.events)
        revision = 0 if kept is None else kept.revision + 1
        notes = tuple(asked.notes)
        if self._from > wanted:
            notes += (f"the {(self._from - wanted) / 60.0:.0f} min before are still being read",)
        self._kept = Gathered(rows, notes, bucket_s, revision, self._from <= wanted, self._wide)
        return self._kept

    def _counted(self, asked: _Question) -> object:
        """As `commits`; who does not count is asked again only after a while."""
        if self._monotonic() < self._count_again_at:
            return None
        found = asked.commits()
        if found is None:
            self._count_again_at = self._monotonic() + COUNT_AGAIN_S
        return found

    def _changed(self, engines: tuple[EngineMinute, ...], at: float) -> dict[float, frozenset[Any]]:
        """Buckets whose rows are to be read (again), by their start."""
        of: dict[float, list[EngineMinute]] = {}
        for e in engines:
            of.setdefault(e.bucket_start, []).append(e)
        marks = {start: _marks(tuple(es), ()) for start, es in of.items()}
        return {
            start: m
            for start, m in marks.items()
            if self._marks.get(start) != m or self._due.get(start, inf) <= at
        }

    def _note(self, read: Mapping[float, frozenset[Any]], at: float, bucket_s: float) -> None:
        """Which buckets were read, by which marks, and when those that moved on are due again."""
        for start, marks in read.items():
            self._due.pop(start, None)
            if self._marks.get(start) != marks:
                self._due[start] = max(start + bucket_s, at) + LATE_S
            self._marks[start] = marks
        oldest = at - LONGEST_HISTORY_S - bucket_s
        for start in [s for s in self._marks if s < oldest]:
            del self._marks[start]
            self._due.pop(start, None)

    def _with(
        self,
        kept: Rows,
        asked: _Question,
        cut: float,
        end: float,
        engines: tuple[EngineMinute, ...],
        events: tuple[Any, ...],
        changed: Mapping[float, object],
        last_minute: float,
    ) -> Rows:
        """What was kept, with the changed buckets' rows as they are now."""
        stretches = _stretches(engines, changed, end)
        last = stretches[-1][0]

        def stays(row: TenantMinute | InterferenceMinute) -> bool:
            return row.bucket_start < last and row.bucket_start not in changed

        tenants, matrix = list(filter(stays, kept.tenants)), list(filter(stays, kept.interference))
        for start, until in stretches:
            every = self.all_columns and until > last_minute
            tenants += asked.tenants(start, until, start, every)
            matrix += asked.matrix(start, until)
        # Sorted as the source gives them: mostly in order already, so this is one pass.
        tenants.sort(key=_BUCKET_START)
        matrix.sort(key=_BUCKET_START)
        return Rows(
            tenants=tuple(tenants),
            interference=tuple(matrix),
            engines=(*(e for e in kept.engines if e.bucket_start < cut), *engines),
            events=(*(e for e in kept.events if e.at < cut), *events),
            policies=asked.read("policy", 0.0, end),
            runs=asked.read("engine_run", 0.0, end),
        )

    def past(self, at: float) -> Gathered:
        """What had been recorded for good by `at`; asked for anew, kept by nobody."""
        asked = _Question(self._source)
        rows, bucket_s, begun = _glimpse(asked, at, at + 1e-3, self.all_columns)
        wanted = at - _history_s(rows.tenants, bucket_s)
        while begun > wanted:
            before, begun = _piece(asked, wanted, begun, at, rows.tenants)
            rows = replace(before.then(rows), policies=rows.policies, runs=rows.runs)
        return Gathered(rows.as_of(at), tuple(asked.notes), bucket_s, -1,
                        every_column=self.all_columns)  # fmt: skip


def _stretches(
    engines: tuple[EngineMinute, ...], changed: Mapping[float, object], end: float
) -> list[tuple[float, float]]:
    """The changed buckets, those side by side together, from one's start to the next one's. The
    last goes on to the end: the front goes on where no engine is heard."""
    starts = sorted({e.bucket_start for e in engines})
    found: list[tuple[float, float]] = []
    begun: float | None = None
    for start in starts:
        if start in changed:
            begun = start if begun is None else begun
        elif begun is not None:
            found.append((begun, start))
            begun = None
    if begun is None:
        longest = max((e.bucket_s for e in engines), default=0.0)
        begun = min(end, starts[-1] + longest) if starts else end
    return [*found, (begun, end)]


def _last_minute(engines: Iterable[EngineMinute], bucket_s: float) -> float:
    """Where the buckets begin that a picture's last minute is made of, and one more."""
    newest = max((e.bucket_start for e in engines), default=-inf)
    return newest - USUAL_BUCKET_S - bucket_s


def _glimpse(
    asked: _Question, at: float, end: float, all_columns: bool
) -> tuple[Rows, float, float]:
    """The newest buckets, which are soon there whatever the crowd; how long a bucket is, and from
    where on they were read."""
    engines = asked.read("engine_minute", at - LONGEST_HISTORY_S, end)
    bucket_s = max((e.bucket_s for e in engines), default=USUAL_BUCKET_S)
    cut = max((e.bucket_start for e in engines if e.bucket_start <= at - bucket_s), default=at)
    cut = min(cut, at - bucket_s)
    rows = replace(
        asked.rows(cut, end, cut, engines, all_columns),
        policies=asked.read("policy", 0.0, end),
        runs=asked.read("engine_run", 0.0, end),
    )
    return rows, bucket_s, cut


def _piece(
    asked: _Question, wanted: float, until: float, at: float, known: tuple[TenantMinute, ...]
) -> tuple[Rows, float]:
    """The buckets before `until`: back to where the picture wants to begin, or as many as a piece
    has rows for; and from where on they were read."""
    engines = asked.read("engine_minute", wanted, until)
    starts = sorted({e.bucket_start for e in engines})
    crowd = _crowd(known)
    most = max(1, PIECE_ROWS // max(1, crowd))
    first = starts[-most] if len(starts) > most else wanted
    return asked.rows(first, until, at - PERCENTILES_S - USUAL_BUCKET_S, engines), first


def _taken(kind: type[Any], answer: Result, histograms: bool = False) -> list[Any]:
    """The rows of `console_minutes` or `console_matrix`, whose instants are unix seconds."""
    names = answer.columns
    if not set(names).issuperset(_NEEDED[kind]) or not _KNOWN[kind].issuperset(names):
        raise QueryError(
            f"{kind.__name__} came with columns {answer.columns}: the two sides are of different "
            "versions"
        )
    rows = answer.rows
    if not rows:
        return []
    by_column = rows.columns if isinstance(rows, InColumns) else zip(*rows, strict=True)
    columns: list[Any] = list(by_column)
    told: dict[str | None, Counts | None] = {None: None}  # most are alike
    for i, name in enumerate(names):
        if histograms and name in HISTOGRAMS:
            for text in set(columns[i]).difference(told):
                told[text] = tuple(json.loads(text))
            columns[i] = list(map(told.__getitem__, columns[i]))
    others = dict.fromkeys(_KNOWN[kind].difference(names))
    return rows_at_once(kind, len(rows), others, dict(zip(names, columns, strict=True)))


def _history_s(tenants: Iterable[TenantMinute], bucket_s: float) -> float:
    crowd = _crowd(tenants)
    if bucket_s < 30.0:
        least = max(FEWEST_BUCKETS, SHORTEST_HISTORY_S / bucket_s)
        return min(900.0, bucket_s * max(least, MOST_ROWS // max(1, crowd)))
    buckets = min(MOST_BUCKETS, max(FEWEST_BUCKETS, MOST_ROWS // max(1, crowd)))
    return min(LONGEST_HISTORY_S, buckets * bucket_s)


def _crowd(tenants: Iterable[TenantMinute]) -> int:
    """How many tenants there are, of all pools; of a hundred thousand rows without a pair each."""
    names: dict[str, set[str]] = {}
    for pool, some in groupby(tenants, key=_POOL):
        names.setdefault(pool, set()).update(map(_TENANT, some))
    return sum(map(len, names.values()))


def bucket_edge(cut: float, engines: Iterable[EngineMinute]) -> float:
    """Where rows can be parted without cutting a bucket in two: at `cut`, or a little before."""
    return max((e.bucket_start for e in engines if e.bucket_start <= cut), default=cut)


def _marks(engines: tuple[EngineMinute, ...], events: tuple[Any, ...]) -> frozenset[Any]:
    """A delivery brings one that was not there: each moves on what its engine has observed."""
    heard = {(e.bucket_start, e.engine, e.run_id, e.pool, e.observed_seconds, e.steps)
             for e in engines}  # fmt: skip
    return frozenset({*heard, *((e.run_id, e.event_id) for e in events)})
