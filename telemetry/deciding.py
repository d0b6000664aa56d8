"""Deciding: what the findings come to, who is named and how surely. Words of the call, no more.

Names a tenant only where its own use rose and most of the victims' excess wait is charged to it, or
handed on to it from those that only waited longer behind it. Whether everyone grew is asked before
anybody is named. It never guesses: without a baseline, or with next to no harm, it abstains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from telemetry.attribution import ASKED, CAPACITY_HELD, SELF_HELD, Line
from telemetry.case import Case, Victim
from telemetry.findings.causes import ENGINE, SOME, shares
from telemetry.findings.everyone import OUTGREW
from telemetry.findings.finding import Finding, Holds, Strength
from telemetry.findings.holder import CLOSES, NAMED, charged_to, culprits
from telemetry.findings.hurt import one
from telemetry.growth import own_growth
from telemetry.plain import name, percent, span_s
from telemetry.window import tenants_of, total

QUIET, TENANT, CAPACITY, SELF = "quiet", "tenant", "capacity", "self"
EVERYONE, NO_SINGLE, OUTSIDE, UNKNOWN = "everyone", "no_single", "outside", "unknown"
KINDS = (QUIET, TENANT, CAPACITY, SELF, EVERYONE, NO_SINGLE, OUTSIDE, UNKNOWN)
HIGH, MEDIUM, LOW = "high", "medium", "low"

HIGH_SHARE = 0.6  # of the victims' excess, for high confidence
MATTERS = 0.2  # of the pool's use: a smaller tenant's rise does not speak against a lost engine
MOST_BY_ITSELF = 20.0  # times as much as it makes others wait
HIGH_CAPACITY = SOME  # at most this part lost to capacity, for high confidence
HIGH_CHARGED = 0.2  # at least this part charged to it in the matrix itself, for high confidence
# Less than both, of all victims together: too little to be sure of.
FEW_MISSES = 3.0  # more than usual
FEW_EXCESS_S = 30.0


@dataclass(frozen=True, slots=True)
class Named:
    """A tenant that is named, with the part of the excess that is charged to it."""

    tenant: str
    share: float


@dataclass(frozen=True, slots=True)
class Call:
    """The decision, before it is put into words."""

    kind: str
    tenant: str | None = None
    strength: Strength | None = None
    confidence: str | None = None
    words: str = ""
    culprits: tuple[Named, ...] = ()


def decide(case: Case, findings: dict[str, Finding]) -> Call:
    hurt, holder, engine = findings["hurt"], findings["holder"], findings["engine"]
    frozen = findings["frozen"].holds is Holds.YES
    if hurt.holds is Holds.UNKNOWN:
        return Call(UNKNOWN, words=f"NO VERDICT: {hurt.sentence.partition(': ')[2]}")
    if frozen and not case.hurt:
        return Call(CAPACITY, None, Strength.CHARGED, HIGH, findings["frozen"].sentence)
    if not case.hurt:
        return Call(QUIET, words=_quiet(case))
    lines = case.lines
    capacity = capacity_of(lines)
    own = sum(x.share for x in lines if x.holder == SELF_HELD)
    everyone = findings["everyone"].holds is Holds.YES
    if holder.holds is Holds.YES and holder.tenant is not None:
        if everyone and not _outgrew(case, findings["everyone"], holder.tenant):
            return _everyone(findings)
        return _mostly_self(case) or _too_little(case, holder) or _name(case, holder, capacity)
    if findings["lost_engine"].holds is Holds.YES:
        why = findings["lost_engine"]
        sure = HIGH if _nobody_asks_more(case) else MEDIUM
        return Call(CAPACITY, None, Strength.CHARGED, sure, f"LOST CAPACITY: {why.sentence}")
    part = shares(case).get(ENGINE)
    slow = engine.holds is Holds.YES and (part is None or part > SOME)
    if (frozen and capacity > SOME) or slow:
        sure = HIGH if frozen or _nobody_rose(case) or capacity >= HIGH_SHARE else MEDIUM
        why = findings["frozen"] if frozen and capacity > SOME else engine
        return Call(CAPACITY, None, Strength.CHARGED, sure, f"LOST CAPACITY: {why.sentence}")
    if not case.victims:
        return _self(case.hurt, own)
    several = tuple(Named(t, s) for t, s in culprits(case))
    grew = findings["everyone"]
    if everyone and not (len(several) > 1 and all(_outgrew(case, grew, n.tenant) for n in several)):
        return _everyone(findings)
    if findings["outside"].holds is Holds.YES:
        f = findings["outside"]
        return Call(OUTSIDE, None, f.strength, MEDIUM, f.sentence)
    if holder.holds is Holds.UNKNOWN:
        return Call(UNKNOWN, words=f"NO VERDICT: {holder.sentence.partition(': ')[2]}")
    if len(several) > 1:
        said = ", ".join(f"{name(n.tenant)} {percent(n.share)}" for n in several)
        words = f"NO SINGLE TENANT holds the excess, {len(several)} do: {said}"
        return Call(NO_SINGLE, None, Strength.CHARGED, MEDIUM, words, several)
    return Call(NO_SINGLE, None, Strength.CHARGED, LOW, _no_single(lines))


def _self(hurt: Sequence[Victim], own: float) -> Call:
    worst = hurt[0]
    sole = worst.tenant if len(hurt) == 1 else None
    words = f"SELF-INFLICTED: {one(worst)}, {percent(own)} of it behind itself"
    return Call(SELF, sole, Strength.CHARGED, HIGH if own >= HIGH_SHARE else MEDIUM, words)


def _harm(case: Case) -> tuple[float, float]:
    """Misses beyond usual and excess wait of all victims."""
    missed = sum(max(0.0, v.missed - v.usual_miss_share * v.eligible) for v in case.victims)
    return missed, sum(v.excess_s for v in case.victims)


def _enough(case: Case) -> bool:
    """A miss or two and some seconds are no evidence to be sure of: an incident that has only
    begun, or next to none."""
    missed, excess_s = _harm(case)
    return missed >= FEW_MISSES or excess_s >= FEW_EXCESS_S


def _mostly_self(case: Case) -> Call | None:
    """Where others are hardly hurt, and whoever is hurt by itself many times as much, that is the
    verdict: in its first minute such a flood is not to be told from one that hurts others."""
    own = [v for v in case.hurt if v.self_inflicted]
    own_s = sum(v.excess_s for v in own)
    if _enough(case) or not own_s or own_s < MOST_BY_ITSELF * _harm(case)[1]:
        return None
    held = sum(case.basis.held.share(v.tenant, SELF_HELD) * v.excess_s for v in own)
    return replace(_self(own, held / own_s), confidence=MEDIUM)


def _too_little(case: Case, holder: Finding) -> Call | None:
    """Next to no harm, and most of it charged to others: a request or two that waited are no line,
    and there is nothing to hand on."""
    part = charged_to(case, holder.tenant or "")
    if _enough(case) or part >= NAMED:
        return None
    missed, excess_s = _harm(case)
    words = (
        f"TOO LITTLE to name anybody: {missed:.0f} targets missed beyond usual and "
        f"{span_s(excess_s)} waited, {percent(part)} of it behind {name(holder.tenant or '')}"
    )
    return Call(NO_SINGLE, None, Strength.CHARGED, LOW, words)


def _everyone(findings: dict[str, Finding]) -> Call:
    return Call(EVERYONE, None, Strength.ASSOCIATED, MEDIUM, findings["everyone"].sentence)


def _outgrew(case: Case, everyone: Finding, tenant: str) -> bool:
    """Whether it asks for far more than the growth that all share explains, or is charged most of
    the excess all the same: what many do together no one holds alone."""
    if charged_to(case, tenant) >= HIGH_SHARE:
        return True
    part = case.window.part(case.to_worst)
    own = own_growth(tenant, case.to_worst, case.baseline, part)
    middle = everyone.value("median growth of demand")
    return own is None or middle is None or own >= OUTGREW * middle


def _nobody_asks_more(case: Case) -> bool:
    return not any(r.rose for r in case.rises if r.resource in ASKED and r.pool_share >= MATTERS)


def _nobody_rose(case: Case) -> bool:
    return not any(r.rose for r in case.rises if r.pool_share >= MATTERS)


def _name(case: Case, holder: Finding, capacity: float) -> Call:
    share = holder.value("share") or 0.0
    closes = holder.value("accounted for")
    complete = closes is not None and closes >= CLOSES and not case.basis.charges_missing
    who = holder.tenant or ""
    direct = charged_to(case, who) >= HIGH_CHARGED
    sure = share >= HIGH_SHARE and capacity <= HIGH_CAPACITY and complete and direct
    sure = sure and _enough(case)
    what = "stall" if case.stalled else "wait"
    word = "CULPRIT" if sure else "LIKELY"
    words = f"{word} {name(who)}: {percent(share)} of the excess {what} charged to it"
    named = (Named(who, share),)
    return Call(TENANT, who, Strength.CHARGED, HIGH if sure else MEDIUM, words, named)


# ---------------------------------------------------------------- the words


def _no_single(lines: tuple[Line, ...]) -> str:
    parts = [x for x in sorted(lines, key=lambda x: -x.excess_s) if x.excess_s][:3]
    listed = ", ".join(f"{_holder_name(x)} {percent(x.share)}" for x in parts)
    return f"NO SINGLE TENANT holds the excess: {listed}"


def _holder_name(line: Line) -> str:
    return name(line.holder.name) if line.holder.is_tenant else f"({line.holder.kind})"


def _quiet(case: Case) -> str:
    asked = case.window.asked
    service = {t: total(asked, t, "service") or 0.0 for t in tenants_of(asked)}
    whole = sum(service.values())
    if not whole:
        return "QUIET: nobody is hurt, and nothing ran"
    busiest = max(sorted(service), key=lambda t: service[t])
    return (
        f"QUIET: nobody is hurt; busiest: {name(busiest)} {percent(service[busiest] / whole)} "
        f"of the service (fair {percent(_fair(case, busiest))})"
    )


def _fair(case: Case, tenant: str) -> float:
    """Weight over the weights of those active; 1 each where no weight was recorded."""
    weights: dict[str, float] = {}
    for b in case.window.asked:
        for t, row in b.tenants.items():
            weights[t] = row.weight if row.weight is not None else weights.get(t, 1.0)
    whole = sum(weights.values())
    return weights.get(tenant, 0.0) / whole if whole else 0.0


def capacity_of(lines: tuple[Line, ...]) -> float:
    return sum(x.share for x in lines if x.holder == CAPACITY_HELD)
