"""Which incidents there were in a span: candidates, each judged like a report judges it.

Goes over the span piece by piece and looks for buckets outside their baseline; what is found is
judged again in a window of its own. Prints nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from math import inf

from postmortem.report.make import BEFORE_S
from postmortem.summed import Sums
from telemetry.case import open_case
from telemetry.findings import examine
from telemetry.incidents import JOIN_BUCKETS
from telemetry.source import Source
from telemetry.verdict import QUIET, UNKNOWN, judge_case
from telemetry.window import PoolChoice, Window, pools_of, read_window

PIECE_BUCKETS = 60  # looked at together
AROUND_BUCKETS = 3  # of calm on both sides of what is judged
MOST_HOLDERS = 3
HELD = 0.05  # of the excess: holders of less are not listed


@dataclass(frozen=True, slots=True)
class Held:
    """A holder of the excess; `strength` as in the verdict. `share` is of the victims' excess."""

    tenant: str
    share: float
    strength: str
    called: str  # culprit, likely, or holder


@dataclass(frozen=True, slots=True)
class Candidate:
    """One incident. Instants are unix seconds, to within `bucket_s`; `severity` compares: seconds
    waited beyond usual + 5 a miss. `ongoing`: it reaches the end of what is stored."""

    pool: str
    onset: float
    end: float
    bucket_s: float
    kind: str
    headline: str
    hurt: tuple[str, ...]
    missed: int
    excess_s: float
    severity: float
    confidence: str | None
    strength: str | None
    holders: tuple[Held, ...]
    ongoing: bool


def find_incidents(
    source: Source,
    start: float,
    end: float,
    *,
    pool: str | None = None,
    zone: tzinfo | None = None,
    hear: Callable[[float], None] = lambda part: None,
) -> tuple[Candidate, ...]:
    """Every incident that touches [start, end), worst first. `hear` is told which part of the span
    is looked through. Raises PoolChoice where `pool` has no rows, StoreError as reading does."""
    reads = Sums(source, start - BEFORE_S)
    rows = source.read("engine_minute", start, end)
    names = pools_of(rows)
    if pool is not None and names and pool not in names:
        raise PoolChoice(f"no pool {pool!r} in this span; there is {', '.join(map(repr, names))}")
    pools = (pool,) if pool is not None else names
    found: list[Candidate] = []
    for i, name in enumerate(pools):
        heard = sorted({r.bucket_start for r in rows if r.pool == name})
        spans = _spans(reads, start, end, name, heard, partial(_part, hear, i, len(pools)))
        judged = [_judged(reads, a, z, end, name, zone) for a, z in spans]
        found += {(c.pool, c.onset): c for c in judged if c is not None}.values()
    return tuple(sorted(found, key=lambda c: (-c.severity, c.onset, c.pool)))


def _part(hear: Callable[[float], None], i: int, of: int, part: float) -> None:
    hear((i + part) / of)


def _spans(
    reads: Sums,
    start: float,
    end: float,
    pool: str,
    heard: Sequence[float],
    hear: Callable[[float], None],
) -> list[tuple[float, float]]:
    """Stretches outside their baseline; those that touch are one. `heard`: where the pool's buckets
    begin, in order."""
    found: list[tuple[float, float]] = []
    at, bucket_s = start, _bucket_s(reads, start, end, pool)
    while (at := _on(heard, at, PIECE_BUCKETS * bucket_s)) < end:
        hear((at - start) / (end - start))
        piece_s = PIECE_BUCKETS * bucket_s
        window = read_window(reads, at, min(end, at + piece_s), pool=pool)
        bucket_s = window.bucket_s or bucket_s
        case = open_case(window)
        episodes = [e for e in (case.incident, *case.others) if e is not None]
        found += [(e.onset, e.end) for e in episodes]
        at += piece_s
    return _joined(found, (JOIN_BUCKETS + 1) * bucket_s)


def _on(heard: Sequence[float], at: float, piece_s: float) -> float:
    """Where to look next: after a whole piece of silence, not before the next bucket comes near. A
    stray row may lie a century ahead."""
    i = bisect_left(heard, at - piece_s)
    return max(at, (heard[i] if i < len(heard) else inf) - piece_s)


def _bucket_s(reads: Sums, start: float, end: float, pool: str) -> float:
    """Of the first rows; a minute where there are none."""
    rows = reads.read("engine_minute", start, min(end, start + 3600.0))
    return max((r.bucket_s for r in rows if r.pool == pool), default=60.0)


def _joined(spans: Iterable[tuple[float, float]], apart_s: float) -> list[tuple[float, float]]:
    out: list[tuple[float, float]] = []
    for a, z in sorted(spans):
        if out and a <= out[-1][1] + apart_s:
            out[-1] = (out[-1][0], max(out[-1][1], z))
        else:
            out.append((a, z))
    return out


def _judged(
    reads: Sums, onset: float, end: float, most: float, pool: str, zone: tzinfo | None
) -> Candidate | None:
    window = _around(reads, onset, end, most, pool)
    case = open_case(window)
    verdict = judge_case(case, examine(case), zone=zone)
    incident = case.incident
    if incident is None or verdict.kind in (QUIET, UNKNOWN) or not case.hurt:
        return None
    hurt = verdict.victims or verdict.hurt
    held = [x for x in case.lines if x.holder.is_tenant and x.share >= HELD]
    strength = verdict.strength.value if verdict.strength is not None else None

    def called(tenant: str) -> str:
        if tenant == verdict.culprit:
            return "culprit"
        return "likely" if tenant == verdict.tenant else "holder"

    last = max((b.end for b in window.buckets if b.known), default=window.end)
    return Candidate(
        pool,
        incident.onset,
        incident.end,
        incident.bucket_s,
        verdict.kind,
        verdict.headline,
        tuple(v.tenant for v in hurt),
        sum(v.missed for v in hurt),
        sum(v.excess_s for v in hurt),
        incident.severity,
        verdict.confidence,
        strength,
        tuple(
            Held(x.holder.name, x.share, "charged", called(x.holder.name))
            for x in held[:MOST_HOLDERS]
        ),
        incident.end >= last,
    )


def _around(reads: Sums, onset: float, end: float, most: float, pool: str) -> Window:
    near = read_window(reads, onset, end, pool=pool)
    side_s = AROUND_BUCKETS * near.bucket_s
    return read_window(reads, onset - side_s, max(end, min(most, end + side_s)), pool=pool)
