"""What happened: the trend over the buckets, the ticker of changes, and counts in words. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from console.cells import clip
from console.panels import Level, TenantRow, Tick, Trend, VerdictLines
from console.rows import Rows
from console.span import Span
from telemetry.plain import safe as plain
from telemetry.records import EventRecord

_START, _SERVICE = attrgetter("bucket_start"), attrgetter("service")
TREND_BUCKETS = 60
TICKS = 20
NAME_CELLS = 24
# preempt, evict and load are counted instead; the states of an incident are told in a sentence too
NEWS = (
    "start", "stop", "policy", "admin", "fault", "lost", "quarantine", "clock", "incident", "mark",
    "incident_act",
)  # fmt: skip


def trend(rows: Rows, span: Span, named: str | None, tenants: Sequence[TenantRow]) -> Trend | None:
    """Share of the tenant spoken of (or the busiest), bucket by bucket."""
    if not span.engines:
        return None
    busiest = max(tenants, key=lambda t: t.service_share or 0.0, default=None)
    tenant = named if named is not None else (busiest.name if busiest else None)
    newest = max(k[2] for k in span.engines)
    bucket_s = next(r.bucket_s for k, r in span.engines.items() if k[2] == newest)
    heard = {k[2] for k in span.engines}
    whole: dict[float, float] = defaultdict(float)
    own: dict[float, float] = defaultdict(float)
    for b, some in groupby(rows.tenants, key=_START):  # in order of time: a crowd's a few at once
        minutes = list(some)
        whole[b] += sum(filter(None, map(_SERVICE, minutes)))
        own[b] += sum(r.service or 0.0 for r in minutes if r.tenant == tenant)
    oldest = min(heard)
    n = min(TREND_BUCKETS, round((newest - oldest) / bucket_s) + 1)
    grid = [newest - bucket_s * i for i in reversed(range(n))]
    known = [min(heard, key=lambda h, b=b: abs(h - b)) for b in grid]  # type: ignore[misc]
    there = [abs(k - b) < bucket_s / 2 for k, b in zip(known, grid, strict=True)]
    return Trend(
        bucket_s=bucket_s,
        tenant=tenant,
        share=tuple(
            (own[k] / whole[k] if whole[k] else 0.0) if ok else None
            for k, ok in zip(known, there, strict=True)
        ),
    )


def ticker(rows: Rows, now: float) -> tuple[Tick, ...]:
    told = [e for e in rows.events if e.kind in NEWS and e.at <= now]
    ticks = [_act(e) if e.kind == "incident_act" else _tick(e) for e in told]
    changes = [e.at for e in told if e.kind == "policy"]
    for p in rows.policies:
        # The first version is the start's; a change that also came as an event is told once.
        if p.at <= now and p.version > 1 and all(abs(p.at - at) > 1.0 for at in changes):
            was = f"{p.previous} -> " if p.previous else ""
            who = f"{p.who}: " if p.who else ""
            ticks.append(Tick(p.at, "policy", f"{who}{was}{p.policy} (v{p.version})"))
    return tuple(sorted(ticks, key=lambda t: t.at)[-TICKS:])


def _tick(e: EventRecord) -> Tick:
    said = e.detail or " ".join(x for x in (e.tenant, e.adapter) if x) or e.kind
    return Tick(e.at, e.kind, said)


def _act(e: EventRecord) -> Tick:
    """What a person did about an incident, or noted of none."""
    try:
        said = json.loads(e.detail or "{}")
        who, text, act = (str(said.get(k) or "") for k in ("who", "text", "act"))
    except (ValueError, AttributeError):  # another version's: shown as it is
        return Tick(e.at, "note", e.detail or "")
    did = "" if act == "note" else f"{act}{': ' if text else ''}"
    return Tick(e.at, "note", f"{who}: {did}{text}")


def counts_only(tenants: Sequence[TenantRow], span: Span) -> VerdictLines:
    """What stands in the counts, said without judging whom it comes from."""
    if not span.engines:
        return VerdictLines(
            level=Level.UNKNOWN, lines=("no figures yet: no engine has been heard",)
        )
    missing = [t for t in tenants if t.slo_missed]
    if missing:
        worst = max(missing, key=lambda t: (t.missed_share or 0.0, t.slo_missed or 0))
        more = f"; {len(missing)} tenants miss targets" if len(missing) > 1 else ""
        line = (
            f"{_short(worst.name)} misses {worst.slo_missed} of {worst.slo_eligible} targets{more}"
        )
        return VerdictLines(level=Level.WARN, lines=(line,))
    busiest = max(tenants, key=lambda t: t.service_share or 0.0, default=None)
    if busiest is None or not busiest.service_share:
        return VerdictLines(level=Level.QUIET, lines=("the pool is idle; nobody is waiting",))
    fair = "" if busiest.fair_share is None else f" (fair {busiest.fair_share:.0%})"
    return VerdictLines(
        level=Level.QUIET,
        lines=(
            f"nobody is missing a target; busiest: {_short(busiest.name)} "
            f"{busiest.service_share:.0%}{fair}",
        ),
    )


def _short(name: str) -> str:
    return clip(plain(name), NAME_CELLS)
