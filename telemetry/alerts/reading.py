"""Reads what a look needs from the store: sums by named queries, and the verdict's words.

The six-hour sums move slowly and are kept for a minute. The verdict needs whole rows: it is asked
only while something fires, and over fewer buckets where a pool has many tenants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from telemetry.alerts.ears import Ear
from telemetry.alerts.incident import LONGEST_TENANT, HeldBy, Words
from telemetry.baseline import MIN_BUCKETS
from telemetry.findings.finding import Holds
from telemetry.findings.lately import (
    FAST_LONG_S,
    FAST_S,
    SLOW_LONG_S,
    SLOW_S,
    Adapters,
    Beat,
    Lately,
    Span,
    Sums,
)
from telemetry.findings.limits import Limits
from telemetry.window import LOOKBACK_BUCKETS, Window, window_of

if TYPE_CHECKING:
    from telemetry.source import Source
    from telemetry.verdict import Verdict

SLOW_EVERY_S = 60.0
MOST_ROWS = 12_000  # of tenants, read for one verdict
_COLUMNS = ("missed", "eligible", "service", "waited_s", "adapter_s", "backlogged_s", "weight")
_NEAR = tuple(f"near_{c}" for c in _COLUMNS)


@dataclass(slots=True)
class Kept:
    """The slow spans of a pool, and when they were read by the clock that nobody sets."""

    read_mono: float
    spans: tuple[Span, Span]


class Reader:
    """Asks one source for one pool after the other."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._slow: dict[str, Kept] = {}

    def lately(self, pool: str, ears: Mapping[str, Ear], mono: float) -> Lately:
        """Raises StoreError where the store cannot answer."""
        limits = self._limits
        heard = {e: mono - ear.heard_mono for e, ear in ears.items()}
        current = any(s < limits.silent_s for s in heard.values())
        at = instant(ears, limits)
        fast, fast_long, words = self._spans(pool, at, FAST_S, FAST_LONG_S)
        kept = self._slow.get(pool)
        if kept is None or mono - kept.read_mono >= SLOW_EVERY_S:
            slow, slow_long, _ = self._spans(pool, at, SLOW_S, SLOW_LONG_S)
            kept = self._slow[pool] = Kept(mono, (slow, slow_long))
        return Lately(
            pool,
            at,
            fast,
            fast_long,
            *kept.spans,
            tuple(_beat(e, ear, words.get(e), heard[e], mono, limits) for e, ear in ears.items()),
            self._adapters(pool, at),
            current,
        )

    def _spans(
        self, pool: str, at: float, near_s: float, far_s: float
    ) -> tuple[Span, Span, dict[str, dict[str, Any]]]:
        asked = {"pool": pool, "start": at - far_s, "near": at - near_s, "end": at}
        engines = {r["engine"]: r for r in self._source.query("alert_engines", **asked).dicts()}
        tenants = self._source.query("alert_tenants", **asked).dicts()
        near = {
            r["tenant"]: Sums(*(float(r[c]) for c in _NEAR)) for r in tenants if r["near_there"]
        }
        far = {r["tenant"]: Sums(*(float(r[c]) for c in _COLUMNS)) for r in tenants}
        seen_near = max((e["near_observed_s"] for e in engines.values()), default=0.0)
        seen_far = max((e["observed_s"] for e in engines.values()), default=0.0)
        return (
            Span(near_s, min(near_s, seen_near), near),
            Span(far_s, min(far_s, seen_far), far),
            engines,
        )

    def _adapters(self, pool: str, at: float) -> Adapters:
        [row] = self._source.query(
            "alert_adapters",
            pool=pool,
            start=at - FAST_S,
            end=at,
            reload_s=self._limits.thrash_reload_s,
        ).dicts()
        return Adapters(FAST_S, row["loads"], row["reloads"], row["working_bytes"],
                        row["room_bytes"])  # fmt: skip

    def window(self, pool: str, start: float, end: float, tenants: int) -> Window:
        """As `telemetry.window.read_window`, without requests, as long as the pool bears."""
        engines = self._source.read("engine_minute", start - 3600.0, end)
        bucket_s = max((r.bucket_s for r in engines if r.pool == pool), default=60.0)
        most = max(MIN_BUCKETS + 2, MOST_ROWS // max(1, tenants) - int((end - start) / bucket_s))
        first = start - min(LOOKBACK_BUCKETS, most) * bucket_s
        read = self._source.read
        return window_of(
            pool,
            start,
            end,
            engine_rows=read("engine_minute", first, end),
            tenant_rows=read("tenant_minute", first, end),
            matrix_rows=read("interference_minute", first, end),
            events=[e for e in read("event", start - 600.0, end) if e.kind != "incident_state"],
            policies=read("policy", first, end),
            runs=read("engine_run", first, end),
        )


def instant(ears: Mapping[str, Ear], limits: Limits) -> float:
    """The end of the newest interval heard; clocks that are far off count only where all are."""
    straight = [e.until for e in ears.values() if abs(e.skew_s or 0.0) < limits.skew_s]
    return max(straight or [e.until for e in ears.values()])


def _beat(
    engine: str, ear: Ear, word: dict[str, Any] | None, silent_s: float, mono: float, limits: Limits
) -> Beat:
    missing = None
    if word is not None:
        missing = max(0.0, word["last_s"] - word["first_s"] - word["observed_s"])
    recent = ear.refused_mono is not None and mono - ear.refused_mono < limits.refused_s
    return Beat(
        engine,
        silent_s,
        word["token_age_s"] if word is not None else None,
        ear.skew_s,
        missing,
        ear.refused if recent else 0,
        ear.lost if ear.lost_mono is not None and mono - ear.lost_mono < limits.refused_s else 0,
        ear.stopped_at is not None,
    )


def words_of(verdict: Verdict) -> Words:
    """The verdict's lines as an alert says them: the same names and strengths, and no *culprit*: an
    alert says who holds what, a person says what that means. Where several hold it together, all of
    them are holders, greatest first."""
    holder = next(f for f in verdict.findings if f.name == "holder")
    lines = list(verdict.sentences)
    held: tuple[HeldBy, ...] = ()
    if verdict.strength is not None:
        held = tuple(
            HeldBy(n.tenant[:LONGEST_TENANT], verdict.strength.value, verdict.confidence, n.share)
            for n in verdict.culprits
        )
    if held and holder.holds is Holds.YES and verdict.tenant is not None:
        claim = f"{holder.sentence} ({held[0].strength}, {held[0].confidence})"
        lines = [claim if s.startswith(("CULPRIT ", "LIKELY ")) else s for s in lines]
    hurt = tuple(v.tenant[:LONGEST_TENANT] for v in verdict.victims)
    return Words((*lines, *verdict.exclusions), hurt, held)


def judge_words(window: Window) -> Words | None:
    """None where the verdict is that nobody is hurt, or that it cannot be known: then the alert's
    own sentence says more."""
    from telemetry.verdict import QUIET, UNKNOWN, judge

    verdict = judge(window, zone=UTC)
    return None if verdict.kind in (QUIET, UNKNOWN) else words_of(verdict)
