"""From gathered rows to a picture with its verdicts: the one in front, and a line of every other
pool. Owns what is kept from one picture to the next; asks nothing and knows no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo

from console.accounting import reckon_account
from console.gather import Gathered
from console.judge import LiveJudge, Windows
from console.panels import WORST_FIRST, Level, PoolVerdict, Snapshot
from console.rows import Rows
from console.snapshot import build_snapshot
from console.span import Span
from telemetry.kept_buckets import KeptBuckets
from telemetry.window import window_of

MOST_OTHERS = 24  # pools that are judged beside the one in front; more of them are only counted

StaleAfter = Callable[[Snapshot], float]


class Builder:
    """Makes one picture after the other. For one thread. Shares and rates are of `window_s`, waits
    of `account_s`, what is judged after an episode of `recent_s`."""

    def __init__(
        self, *, tz: tzinfo | None, recent_s: float, window_s: float, account_s: float
    ) -> None:
        self._tz = tz
        self._recent_s = recent_s
        self._window_s = window_s
        self._account_s = account_s
        self._kept: dict[str, KeptBuckets] = {}

    def built(
        self,
        gathered: Gathered,
        at: float,
        pool: str | None,
        *,
        mode: str,
        phase: str | None,
        store_down_s: float | None,
        edge: float | None,
        stale_after: StaleAfter,
    ) -> Snapshot:
        """The picture at `at`. `edge`: the newest instant there is, of a picture of the past; such
        a one has rows of its own and nothing of it is kept. `stale_after`: how old a picture's
        figures may be."""
        rows = gathered.rows
        mine = rows if pool is None else rows.of_pool(pool)  # what others changed is theirs
        past = edge is not None
        windows = self._windows(pool, past)
        reckoned = reckon_account(mine, Span(mine, at, self._window_s), self._account_s, windows)
        made = build_snapshot(
            rows,
            at,
            window_s=self._window_s,
            account_s=self._account_s,
            pool=pool,
            mode=mode,
            phase=phase,
            verdict=self._judge(pool, windows)(mine, at, reckoned) if rows.engines else None,
            accounted=True,
            notes=gathered.notes,
            store_down_s=store_down_s,
            edge=edge,
            windows=windows,
            reckoned=reckoned,
        )
        stale = made.data_at is None or at - made.data_at > stale_after(made)
        made = replace(made, stale=stale)
        others = self._others(rows, at, made, past, stale_after(made))
        oldest = min((r.bucket_start for r in rows.engines), default=at)
        for kept in self._kept.values():
            kept.forget(oldest)
        return replace(made, others=others)

    def _windows(self, pool: str | None, past: bool) -> Windows:
        if past or pool is None:
            return window_of
        return self._kept.setdefault(pool, KeptBuckets()).window

    def _judge(self, pool: str | None, windows: Windows) -> LiveJudge:
        return LiveJudge(recent_s=self._recent_s, pool=pool, tz=self._tz, windows=windows)

    def _others(
        self, rows: Rows, at: float, made: Snapshot, past: bool, stale_after_s: float
    ) -> tuple[PoolVerdict, ...]:
        """The verdicts of the pools that are not in front, the worst first."""
        named = [p for p in made.pools if p != made.pool][:MOST_OTHERS]
        if not past:
            self._kept = {p: k for p, k in self._kept.items() if p in made.pools}
        found = []
        for pool in named:
            mine = rows.of_pool(pool)
            heard = Span(mine, at, self._window_s).data_at
            verdict = self._judge(pool, self._windows(pool, past))(mine, at)
            age_s = 0.0 if heard is None else max(0.0, at - heard)
            found.append(
                PoolVerdict(
                    pool=pool,
                    level=verdict.level,
                    line=verdict.lines[0] if verdict.lines else "",
                    named=verdict.named,
                    victims=len(verdict.victims),
                    age_s=age_s,
                    stale=age_s > stale_after_s,
                )
            )
        return tuple(sorted(found, key=_worst_first))


def _worst_first(v: PoolVerdict) -> tuple[bool, int, int, str]:
    # "Quiet" of a pool that is silent is not known: it stands before those that are heard quiet.
    quiet = v.level is Level.QUIET and v.stale
    level = WORST_FIRST.index(Level.UNKNOWN if quiet else v.level)
    return (v.level is not Level.HURT, level, -v.victims, v.pool)
