"""The verdict for a screen: asks `telemetry.verdict` about the rows at hand and trims its words.

Judges nothing itself: who is named, how strongly and since when is the verdict's answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo
from typing import Protocol

from console.lines import side_by_side
from console.panels import Level, VerdictLines
from console.rows import Rows
from telemetry import verdict as verdicts
from telemetry.attribution import Reckoning
from telemetry.plain import clock
from telemetry.verdict import Verdict
from telemetry.window import Window, window_of

Windows = Callable[..., Window]  # `window_of`, or what keeps buckets from one window to the next
JUDGED_S = 300.0
OVER_AFTER_BUCKETS = 2.5  # an episode that ended so long ago is over


class Judge(Protocol):
    """Says what rows mean at an instant, in the words every face uses. `reckoned`: what was added
    up of them already, of use where the same is asked."""

    def __call__(
        self, rows: Rows, now: float, reckoned: Reckoning | None = None
    ) -> VerdictLines: ...


class LiveJudge:
    """Judges the last minutes, again and again.

    An episode still under way is told with its onset; once it is over, the last minute is judged
    by itself and what was is told in one line. So is what was before a change of policy: how the
    pool does under the new one is judged by what came since. `pool` None judges the pool heard
    last. `windows` makes windows of rows.
    """

    def __init__(
        self,
        *,
        judged_s: float = JUDGED_S,
        recent_s: float = 60.0,
        pool: str | None = None,
        tz: tzinfo | None = None,
        windows: Windows = window_of,
    ) -> None:
        self._judged_s = judged_s
        self._windows = windows
        self._recent_s = recent_s
        self._pool = pool
        self._tz = tz

    def __call__(self, rows: Rows, now: float, reckoned: Reckoning | None = None) -> VerdictLines:
        start = now - self._judged_s
        since = _change_settled(rows, start, now)
        if since is not None:
            earlier = self._ask(rows, start, since)
            if earlier.onset is not None:
                # An incident reaches back to its beginning; this one ends at the change.
                rows = _without(rows, earlier.onset, since)
            return self._with_earlier(self._ask(rows, since, now), earlier)
        whole = self._ask(rows, start, now, reckoned)
        if whole.onset is None or whole.end is None or _under_way(whole, now):
            return in_lines(whole)
        # What came after the episode is judged by itself, not together with it.
        recent = self._ask(rows, max(now - self._recent_s, whole.end), now)
        if _under_way(recent, now):
            return in_lines(recent)
        return self._with_earlier(recent, whole)

    def _with_earlier(self, recent: Verdict, whole: Verdict) -> VerdictLines:
        """The verdict of now, and what was before it in one line."""
        lines = in_lines(recent)
        if whole.onset is None or whole.end is None:
            return lines
        span = f"{clock(whole.onset, self._tz)}-{clock(whole.end, self._tz)}"
        hurt = len(whole.victims) or len(whole.hurt)
        earlier = f"EARLIER {span}: {hurt} hurt; {''.join(whole.sentences[1:2])}"
        return replace(lines, lines=(*lines.lines[:1], earlier, *lines.lines[1:]))

    def _ask(
        self, rows: Rows, start: float, end: float, reckoned: Reckoning | None = None
    ) -> Verdict:
        pool = self._pool if self._pool is not None else _heard_last(rows)
        heard = [r for r in rows.engines if r.pool == pool]
        # Before the first bucket nothing was missed, and how old the newest is the header says.
        start = max(start, min((r.bucket_start for r in heard), default=start))
        end = min(end, max((r.bucket_start + r.bucket_s for r in heard), default=end))
        window = self._windows(
            pool,
            start,
            end,
            engine_rows=rows.engines,
            tenant_rows=rows.tenants,
            matrix_rows=rows.interference,
            requests=rows.requests,
            events=rows.events,
            policies=rows.policies,
            runs=rows.runs,
        )
        return verdicts.judge(window, zone=self._tz, reckoned=reckoned)


def _change_settled(rows: Rows, start: float, now: float) -> float | None:
    """The first whole bucket after the last change of policy inside the span, once two buckets
    have passed since; None where there was none."""
    changes = [p.at for p in rows.policies if p.previous is not None and start < p.at <= now]
    if not changes or not rows.engines:
        return None
    bucket_s = rows.engines[-1].bucket_s
    since = -(-max(changes) // bucket_s) * bucket_s
    return since if now - since >= OVER_AFTER_BUCKETS * bucket_s else None


def _without(rows: Rows, start: float, end: float) -> Rows:
    """The rows but for the buckets and the arrivals from `start` to `end`."""

    def outside(at: float) -> bool:
        return not start <= at < end

    return replace(
        rows,
        tenants=tuple(r for r in rows.tenants if outside(r.bucket_start)),
        interference=tuple(r for r in rows.interference if outside(r.bucket_start)),
        engines=tuple(r for r in rows.engines if outside(r.bucket_start)),
        requests=tuple(r for r in rows.requests if outside(r.arrived)),
    )


def _under_way(verdict: Verdict, now: float) -> bool:
    return verdict.end is not None and verdict.end > now - OVER_AFTER_BUCKETS * verdict.bucket_s


def in_lines(verdict: Verdict) -> VerdictLines:
    """A verdict as the screen takes it: sentences, then exclusions side by side where they fit."""
    levels = {"ok": Level.QUIET, "hurt": Level.HURT, "note": Level.WARN}
    unknown = verdict.kind == verdicts.UNKNOWN
    excluded = side_by_side(verdict.exclusions)
    return VerdictLines(
        level=Level.UNKNOWN if unknown else levels[verdict.level],
        lines=(*verdict.sentences, *excluded),
        excluded=len(excluded),
        victims=frozenset(v.tenant for v in verdict.victims),
        named=verdict.tenant if verdict.kind == verdicts.TENANT else None,
        since=verdict.onset,
    )


def _heard_last(rows: Rows) -> str:
    newest = max(rows.engines, key=lambda r: r.bucket_start, default=None)
    return newest.pool if newest is not None else ""
