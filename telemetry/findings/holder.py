"""Holder: does one tenant hold what the victims waited for, and did it take more than usual?

The share alone accuses nobody: a heavy tenant that asks for what it always asked for holds much of
every wait. A holder is named only where its own use rose. Shares are of the excess handed on to
whoever made the line; a tenant that is charged little itself is not named for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from telemetry.attribution import CAPACITY_HELD, RESOURCES, SELF_HELD, Line, Rise
from telemetry.case import WAIT_FLOOR_S, Case
from telemetry.conventions import WAIT_REASONS
from telemetry.findings.causes import SOME, unheld
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent, span_s, times
from telemetry.window import told

NAMED = 0.5  # of the victims' excess, but for pages that nobody holds
RUNNER_UP = 0.5  # the next tenant that rose holds at most this part of the first one's share
CLOSES = 0.9  # of the victims' waits that the matrix must account for


def holder(case: Case) -> Finding:
    """Holds where a tenant whose use rose holds half of the victims' excess that anybody holds,
    twice as much as the next such tenant and more than capacity."""
    victims = case.victims
    if not told(case.buckets, (f"wait_{r}_s" for r in WAIT_REASONS)):
        return missing("holder", "the rows carry no waits, so nobody can be seen to wait behind")
    if not victims:
        none = (Evidence("tenants hurt by others", 0.0, "1"),)
        return Finding(
            "holder", Holds.NO, "no holder: 0 tenants wait behind another", None, None, none
        )
    lines = case.lines
    whole = sum(x.excess_s for x in lines)
    if not whole:
        waited = sum(case.basis.accounts[v.tenant].net_s for v in victims)
        if waited >= WAIT_FLOOR_S:
            return missing("holder", f"{span_s(waited)} of excess, and no charge says behind whom")
        return missing("holder", "targets were missed without waiting in this pool")
    first, second = _rivals(case, lines)
    capacity = sum(x.share for x in lines if x.holder == CAPACITY_HELD)
    evidence = [
        Evidence("excess", whole, "s"),
        Evidence("capacity's share", capacity, "1"),
        Evidence("accounted for", closure(case), "1"),
    ]
    if first is None:
        heaviest = next((x for x in case.charged if x.holder.is_tenant and x.excess_s), None)
        if heaviest is None:
            return Finding("holder", Holds.NO, "NOT a tenant: none holds any of the excess", None,
                           None, tuple(evidence))  # fmt: skip
        if heaviest.share < SOME:
            return _nobody(heaviest.share, evidence)
        who = heaviest.holder.name
        but = "uses no more than usual"
        if who not in case.baseline.waits:
            but = "is new and uses no more than others do"
        return Finding(
            "holder",
            Holds.NO,
            f"NOT {name(who)}: it holds {percent(heaviest.share)} of the excess, but {but}",
            None,
            who,
            (*evidence, Evidence("share", heaviest.share, "1")),
        )
    who = first.holder.name
    direct = charged_to(case, who)
    evidence.append(Evidence("share", first.share, "1"))
    evidence.append(Evidence("share charged to it", direct, "1"))
    evidence.append(Evidence("share of the next", second, "1"))
    why = case.rose(who)
    evidence += [Evidence(f"{r.resource} over usual", r.ratio, "1") for r in why]
    alone = second <= RUNNER_UP * first.share
    rose = describe(why)
    most = first.share >= NAMED * (1 - unheld(case)) and alone and first.share > capacity
    if most:
        return Finding(
            "holder",
            Holds.YES,
            f"{name(who)} holds {percent(first.share)} of the victims' excess; {rose}",
            Strength.CHARGED,
            who,
            tuple(evidence),
        )
    if first.share < SOME:
        largest = max(x.share for x in lines if x.holder.is_tenant)
        return _nobody(largest, evidence)
    rival = f", the next {percent(second)}" if second else ""
    return Finding(
        "holder",
        Holds.NO,
        f"NOT one tenant: {name(who)} {percent(first.share)} of the excess{rival}",
        Strength.ASSOCIATED,
        who,
        tuple(evidence),
    )


def charged_to(case: Case, tenant: str) -> float:
    """Part of the victims' excess that the matrix itself charges to a tenant."""
    return sum(x.share for x in case.charged if x.holder.is_tenant and x.holder.name == tenant)


def _nobody(largest: float, evidence: Sequence[Evidence]) -> Finding:
    """No tenant holds enough to be spoken of: none is named, not even to be excluded."""
    most = max(1, math.ceil(100 * largest))
    said = f"NOT a tenant: none holds more than {most}% of the excess"
    return Finding("holder", Holds.NO, said, None, None,
                   (*evidence, Evidence("largest share", largest, "1")))  # fmt: skip


def _rivals(case: Case, lines: tuple[Line, ...]) -> tuple[Line | None, float]:
    """The tenant that rose and holds most, and the share of the next one that rose; whoever is
    charged too little to have made a line is neither. A rival that is a victim too held its own
    waiting as well: two floods wait behind each other and themselves, and neither is the single
    one."""
    whole = sum(x.excess_s for x in lines)
    risen = [x for x in lines if x.holder.is_tenant and x.holder.name in case.makers and x.excess_s]
    if not risen:
        return None, 0.0
    first = max(risen, key=lambda x: x.excess_s)
    victims = {v.tenant for v in case.victims}
    held: dict[str, float] = {x.holder.name: x.excess_s for x in risen if x is not first}
    for tenant in victims - {first.holder.name}:
        if case.rose(tenant):
            account = case.basis.accounts[tenant]
            own = account.excess_s * account.share(SELF_HELD)
            held[tenant] = held.get(tenant, 0.0) + own
    return first, max(held.values(), default=0.0) / whole


def culprits(case: Case) -> tuple[tuple[str, float], ...]:
    """Tenants whose use rose and that hold more than a side effect, greatest first, where together
    they hold what one alone would be named for. Shares are of the excess of those hurt that did not
    rise themselves, where there are any: culprits wait behind each other too."""
    bystanders = [v.tenant for v in case.victims if not case.rose(v.tenant)]
    lines = case.basis.pool(bystanders) if bystanders else ()
    if not sum(x.excess_s for x in lines):
        lines = case.lines
    held = [
        (x.holder.name, x.share)
        for x in lines
        if x.holder.is_tenant and x.share >= SOME and case.rose(x.holder.name)
    ]
    return tuple(held) if sum(s for _, s in held) >= NAMED else ()


def closure(case: Case) -> float | None:
    """Part of the victims' waits (from their own columns) that the matrix accounts for."""
    accounts = [case.basis.accounts[v.tenant] for v in case.victims]
    waited = sum(a.waited_s for a in accounts)
    return sum(a.charged_s for a in accounts) / waited if waited else None


def describe(risen: Sequence[Rise]) -> str:
    """What rose, in a few words; of several, what was asked for rather than what was held."""
    rise = min(risen, key=lambda r: RESOURCES.index(r.resource))
    if rise.ratio is None:
        return f"its {rise.resource} rose from nothing"
    return f"its {rise.resource} rose {times(rise.ratio)}"
