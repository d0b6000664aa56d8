"""Rung 2 with the waits handed on: a variant of the project's attribution, tried beside it.

Whoever is made to wait holds its place longer, and others wait behind it in turn. What is charged
to a tenant whose demand did not rise (the victim's own charges too) is therefore not its doing: it
is handed on to those charged whose demand did rise and to lost capacity, in proportion to their own
excess. *Rose* is a matter of counts: three standard deviations of two Poisson counts apart, because
three requests a minute are four as often as not. Where fewer replicas were heard than usual, their
part of what is handed on is capacity's. Pure functions of a case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from telemetry.attribution import CAPACITY_HELD, SELF_HELD
from telemetry.baseline import demand_growths
from telemetry.case import Case
from telemetry.window import Bucket, observed_s, tenants_of, total

SELF, CAPACITY, OTHERS = "self", "capacity", "others"
DEVIATIONS = 3.0
ROSE_REQUESTS, ROSE_TOKENS = 1.3, 1.5  # times its usual, at least
LENGTHS_VARY = 1.3  # of a count's deviation, where it is tokens that are counted
FEW_PEERS = 3
MISSING_LEAST = 0.05  # of the replicas: less is an edge of a bucket


def rose(case: Case, tenant: str) -> bool:
    """More requests, more tokens offered or more service than its usual number and the pool's
    growth explain. Levels (pages held) are no evidence: whoever waits longer holds them longer."""
    base, seen = case.baseline, case.accounts.observed_s
    scale = seen * _growth(case, tenant)
    usual = (base.rate(tenant, "offered_requests") or 0.0) * scale
    now = total(case.buckets, tenant, "offered_requests") or 0.0
    ratio = seen / base.observed_s if base.observed_s else 0.0
    deviation = DEVIATIONS * math.sqrt((usual + 1.0) * (1.0 + ratio))
    if now - usual > deviation and now > ROSE_REQUESTS * usual:
        return True
    for column in ("offered_tokens", "service"):
        was = (base.rate(tenant, column) or 0.0) * scale
        is_ = total(case.buckets, tenant, column) or 0.0
        each = was / usual if usual else _each(case, column)
        if is_ >= ROSE_TOKENS * was and is_ - was > LENGTHS_VARY * each * deviation:
            return True
    return False


def _each(case: Case, column: str) -> float:
    """Of a usual request, whoever's: for a tenant that had none."""
    base = case.baseline
    names = tenants_of(base.buckets)
    requests = sum(base.rate(t, "offered_requests") or 0.0 for t in names)
    return sum(base.rate(t, column) or 0.0 for t in names) / requests if requests else 0.0


def _growth(case: Case, tenant: str) -> float:
    """The pool's; where its peers are too few to say, the median of the tenant's own."""
    growth = case.accounts.growth
    if growth.basis == "tenants":
        return growth.factor
    peers = demand_growths(case.buckets, case.baseline, (tenant,))
    return max(1.0, median(peers.values())) if len(peers) >= FEW_PEERS else 1.0


def replicas_missing(case: Case) -> float:
    """The part of the usual replicas that was not heard in the judged buckets."""
    now, usual = _replicas(case.buckets), _replicas(case.baseline.buckets)
    missing = 1.0 - now / usual if usual else 0.0
    return missing if missing > MISSING_LEAST else 0.0


def _replicas(buckets: Sequence[Bucket]) -> float:
    """Heard at once: a bucket's engine rows add up their observed seconds."""
    heard = [b.engine.observed_seconds or 0.0 for b in buckets if b.engine is not None]
    seen = observed_s(buckets)
    return sum(heard) / seen if seen else 0.0


def shares(case: Case, victims: Sequence[str]) -> Mapping[str, float]:
    """Of the victims' excess, by tenant, self and capacity; `others` where nothing is known."""
    risen = {t for t in case.basis.accounts if rose(case, t)}
    missing = replicas_missing(case)
    sums: dict[str, float] = {}
    for victim in victims:
        lines = [x for x in case.basis.accounts[victim].lines if x.excess_s]
        kept: dict[str, float] = {}
        for x in lines:
            tenant = victim if x.holder == SELF_HELD else x.holder.name
            if x.holder == CAPACITY_HELD:
                kept[CAPACITY] = x.excess_s
            elif tenant in risen:
                kept[SELF if x.holder == SELF_HELD else tenant] = x.excess_s
        whole = sum(x.excess_s for x in lines)
        if missing:
            kept[CAPACITY] = kept.get(CAPACITY, 0.0) + missing * (whole - sum(kept.values()))
        left = sum(kept.values())
        if not left:
            kept, left = {OTHERS: whole}, whole
        for who, seconds in kept.items():
            sums[who] = sums.get(who, 0.0) + (whole * seconds / left if left else 0.0)
    made = sum(sums.values())
    return {who: s / made for who, s in sums.items()} if made else {}
