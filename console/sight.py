"""One picture after the other, from any source: now, at the end of a record, or played again.

Owns the source it opened and opens it again after a failure. Every source gives the same
`Snapshot`; what differs is only when *now* is (an `Edge`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo
from typing import TYPE_CHECKING, Protocol

from console.detail import Asks, Detail, fetch
from console.formats import day
from console.gather import Asked, Gathered, Gatherer
from console.panels import LIVE, Snapshot, Tick
from console.rows import Rows
from console.snapshot import ACCOUNT_S, WINDOW_S
from telemetry.errors import QueryError

if TYPE_CHECKING:
    from console.building import Builder

OPEN_STALE_S = 30.0  # an open minute is sent every ten seconds
LATE_BUCKETS = 2.5
RECENT_S = 60.0
REMEMBERED = 32  # pictures of the past, for stepping to and fro


class NothingRecorded(Exception):
    """The source answers and holds no engine's minutes; says what to do."""

    exit_code = 3  # not yet: nobody is known to be hurt


class Edge(Protocol):
    """When now is, and what the screen calls it. `settled`: only what is closed is shown."""

    settled: bool

    def now(self, source: Asked) -> float: ...

    def label(self) -> str: ...

    def ended(self, now: float) -> bool:
        """Whether now stands still from here on, because what was played is over."""
        ...


class LiveEdge:
    """Now is now."""

    settled = False

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def now(self, source: Asked) -> float:
        return self._clock()

    def label(self) -> str:
        return LIVE

    def ended(self, now: float) -> bool:
        return False


class RecordEdge:
    """Now is the end of what was recorded, looked up now and then: a store may go on."""

    settled = True

    def __init__(
        self, tz: tzinfo | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._tz = tz
        self._monotonic = monotonic
        self._end: float | None = None
        self._asked_at = 0.0

    def now(self, source: Asked) -> float:
        if self._end is None or self._monotonic() - self._asked_at > 10.0:
            self._end = _reach(source)[1]
            self._asked_at = self._monotonic()
        return self._end

    def label(self) -> str:
        return "STORE" if self._end is None else f"STORE {day(self._end, self._tz)}"

    def ended(self, now: float) -> bool:
        return False  # a store may go on


class ReplayEdge:
    """Now runs through the record from its beginning, `speed` seconds of it in one."""

    settled = True

    def __init__(self, speed: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises ValueError for a speed that is not above 0."""
        if not 0.0 < speed < float("inf"):
            raise ValueError(f"a replay's speed must be above 0, got {speed:g}")
        self._speed = speed
        self._monotonic = monotonic
        self._reach: tuple[float, float] | None = None
        self._began = 0.0

    def now(self, source: Asked) -> float:
        if self._reach is None:
            first, last = _reach(source)
            runs = source.query("read.engine_run", start=0.0, end=last)
            at = runs.columns.index("bucket_s")
            bucket_s = max((row[at] or 0.0 for row in runs.rows), default=0.0)
            # Where the first bucket has just closed, so that the first picture has rows.
            self._reach = (min(last, first + (bucket_s or 60.0)), last)
            self._began = self._monotonic()
        first, last = self._reach
        return min(last, first + self._speed * (self._monotonic() - self._began))

    def label(self) -> str:
        return f"REPLAY x{self._speed:g}"

    def ended(self, now: float) -> bool:
        return self._reach is not None and now >= self._reach[1]


def _reach(source: Asked) -> tuple[float, float]:
    span = source.span()
    if span is None:
        raise NothingRecorded(
            "no engine's minutes are recorded there yet: is it the right store, and does an engine "
            "send to it?"
        )
    return span


class Sight:
    """The console's feed. `opening` opens the source, and again after a failure; called, like all
    of this but `show_pool` and `show_columns`, from one thread. `pool` None shows the pool heard
    last. Shares and rates are of `window_s`, waits of `account_s`. `first_look`: the first picture
    is a quick one of the last minute (`Snapshot.filling`), and the next one whole."""

    def __init__(
        self,
        opening: Callable[[], Asked],
        edge: Edge,
        *,
        pool: str | None = None,
        tz: tzinfo | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        phase: Callable[[], str | None] = lambda: None,
        recent_s: float = RECENT_S,
        window_s: float = WINDOW_S,
        account_s: float = ACCOUNT_S,
        first_look: bool = False,
    ) -> None:
        self._window_s = window_s
        self._account_s = account_s
        self._opening = opening
        self._edge = edge
        self._pool = pool
        self._tz = tz
        self._monotonic = monotonic
        self._phase = phase
        self._recent_s = recent_s
        self._source: Asked | None = None
        self._gatherer: Gatherer | None = None
        self._last: tuple[tuple[object, ...], Snapshot] | None = None
        self._past: OrderedDict[tuple[float, str | None, bool], Snapshot] = OrderedDict()
        self._down_since: float | None = None
        self._all_columns = False
        self._builder: Builder | None = None
        self._quick = first_look
        self._whole = True

    def show_pool(self, pool: str | None) -> None:
        """Look at another pool from the next picture on."""
        self._pool = pool

    def show_columns(self, every: bool) -> None:
        """From the next picture on the last minute's rows carry all their columns, or only those of
        a picture and its verdict: a crowd's are half as much to ask for."""
        self._all_columns = every

    def snapshot(self) -> Snapshot:
        """The picture of now. Raises whatever the source raises, and has let go of it then."""
        try:
            source, gatherer = self._opened()
            now = self._edge.now(source)
            if self._quick:
                self._quick = False
                first = self._first_look(source, now)
                if first is not None:
                    return first
            gathered = gatherer.now(now, still=self._edge.settled)
        except BaseException:
            self.close()
            raise
        self._whole = gathered.whole
        return self._now(gathered, now)

    def whole(self) -> Snapshot:
        """The same, with all that it wants to look back on: of a crowd that takes several pictures,
        and a screen shows the first ones meanwhile."""
        self._quick = False
        made = self.snapshot()
        while not self._whole:
            made = self.snapshot()
        return made

    def at(self, at: float) -> Snapshot:
        """The picture as it was at an instant (unix seconds), by what was recorded for good. A
        later one than now is now's."""
        chosen, every = self._pool, self._all_columns
        known = self._past.get((at, chosen, every))
        if known is not None:
            return known
        try:
            source, gatherer = self._opened()
            edge = self._edge.now(source)
            gathered = gatherer.past(min(at, edge))
        except BaseException:
            self.close()
            raise
        pool = self._settled_pool(gathered.rows, chosen)
        made = self._built(gathered, min(at, edge), pool, settled=True, edge=edge)
        if at <= edge:  # what lies ahead becomes another picture
            self._past[at, pool, every] = made
        while len(self._past) > REMEMBERED:
            self._past.popitem(last=False)
        return made

    def detail(self, asks: Asks) -> Detail:
        """The answers to a page's questions. Raises whatever the source raises, and has let go of
        it then, but where it is only the question that is wrong."""
        try:
            source, _ = self._opened()
            return fetch(source, asks)
        except QueryError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the source; the next picture opens it again."""
        source, self._source, self._gatherer = self._source, None, None
        if source is not None:
            source.close()

    def _opened(self) -> tuple[Asked, Gatherer]:
        if self._source is None or self._gatherer is None:
            self._source = self._opening()
            self._gatherer = Gatherer(self._source, self._monotonic)
            self._last = None
        self._gatherer.all_columns = self._all_columns
        return self._source, self._gatherer

    def _now(self, gathered: Gathered, now: float) -> Snapshot:
        """Where nothing is new only the time goes on: the figures are those of before."""
        self._note_store(gathered)
        settled = self._edge.settled
        rows = gathered.rows.as_of(now) if settled else gathered.rows
        pool = self._settled_pool(rows, self._pool)
        closed = max((r.bucket_start for r in rows.engines), default=0.0) if settled else 0.0
        # Not the notes: a worker that is silent says every second for how long.
        same = (gathered.revision, gathered.store_down, pool, self._phase(), closed,
                len(rows.events), len(rows.policies))  # fmt: skip
        if self._last is not None and self._last[0] == same:
            was = self._last[1]
            late_s = self._stale_after(gathered.bucket_s, was)
            aged = now - was.now
            made = replace(
                was,
                now=now,
                stale=was.data_at is None or now - was.data_at > late_s,
                others=tuple(
                    replace(o, age_s=o.age_s + aged, stale=o.age_s + aged > late_s)
                    for o in was.others
                ),
                lamps=replace(was.lamps, store_down_s=self._down_s(), notes=gathered.notes),
            )
        else:
            made = self._built(replace(gathered, rows=rows), now, pool, settled=False, edge=None)
        self._last = (same, made)
        if not self._edge.ended(now):
            return made
        end = Tick(now, "end", "the recording ends here; its last picture stays")
        return replace(made, ticker=(*made.ticker, end))

    def _built(
        self, gathered: Gathered, at: float, pool: str | None, *, settled: bool, edge: float | None
    ) -> Snapshot:
        if self._builder is None:
            # Only here: it brings NumPy, and the first look does without.
            from console.building import Builder

            self._builder = Builder(tz=self._tz, recent_s=self._recent_s, window_s=self._window_s,
                                    account_s=self._account_s)  # fmt: skip
        made = self._builder.built(
            gathered,
            at,
            pool,
            mode=self._edge.label(),
            phase=self._phase() if not settled else None,
            store_down_s=self._down_s() if gathered.store_down else None,
            edge=edge,
            stale_after=lambda made: self._stale_after(gathered.bucket_s, made),
        )
        return replace(made, every_column=gathered.every_column)

    def _first_look(self, source: Asked, now: float) -> Snapshot | None:
        """The last minute of the pool, of the largest tenants alone; None where nothing is known
        of it, or the source is of a version that cannot say."""
        from console.glance import glance

        try:
            found = glance(source, now, pool=self._pool, mode=self._edge.label(),
                           settled=self._edge.settled, window_s=self._window_s)  # fmt: skip
        except QueryError:
            return None
        if found is None:
            return None
        made, bucket_s = found
        if self._pool is None:
            self._pool = made.pool  # the whole picture is of the same one
        late = made.data_at is None or now - made.data_at > self._stale_after(bucket_s, made)
        return replace(made, stale=late)

    def _settled_pool(self, rows: Rows, chosen: str | None) -> str | None:
        """The pool of a whole picture, whatever the reader chooses while it is made. Where nobody
        has chosen, the one heard last first: the screen does not go to and fro. Raises PoolChoice
        where the one chosen has no rows and others do."""
        pools = sorted({r.pool for r in rows.engines})
        if chosen is None:
            newest = max(rows.engines, key=lambda r: r.bucket_start, default=None)
            if self._pool is None and newest is not None:
                self._pool = newest.pool
            return newest.pool if newest is not None else None
        if pools and chosen not in pools:
            from telemetry.window import PoolChoice

            listed = ", ".join(map(repr, pools))
            raise PoolChoice(f"no pool {chosen!r} was heard lately; there is {listed}")
        return chosen

    def _stale_after(self, bucket_s: float, picture: Snapshot) -> float:
        if picture.edge is not None or self._edge.settled:
            return LATE_BUCKETS * bucket_s
        # Without an open minute the newest one is up to a minute old before the next is closed.
        return OPEN_STALE_S + (0.0 if picture.provisional else bucket_s)

    def _note_store(self, gathered: Gathered) -> None:
        if not gathered.store_down:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = self._monotonic()

    def _down_s(self) -> float | None:
        return None if self._down_since is None else self._monotonic() - self._down_since
