"""Goodput burn: is somebody's budget of missed targets going faster than it may?

Two windows at once (SRE workbook, chapter 5): the long one says that it matters, the short one that
it goes on. A count is needed too: one miss of two requests is half, and nobody's night.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.findings.lately import Lately, Span
from telemetry.findings.limits import DEFAULT, Limits
from telemetry.plain import name, percent, span_s


@dataclass(frozen=True, slots=True)
class Burn:
    """One tenant that misses too much: shares of the judged in both windows, counts of the long."""

    tenant: str
    short: float
    long: float
    missed: float
    eligible: float


def burning(short: Span, long: Span, share: float, misses: float) -> tuple[Burn, ...]:
    """Tenants above `share` in both spans with at least `misses` in the long one, worst first."""
    found: list[Burn] = []
    for tenant, near in short.tenants.items():
        far = long.of(tenant)
        if near.missed <= 0 or far.missed < misses:
            continue
        # Misses of requests that still wait are booked before they are eligible.
        judged, whole = max(near.eligible, near.missed), max(far.eligible, far.missed)
        if near.missed > share * judged and far.missed > share * whole:
            found.append(Burn(tenant, near.missed / judged, far.missed / whole, far.missed, whole))
    return tuple(sorted(found, key=lambda b: (-b.missed * b.short, b.tenant)))


def fast(lately: Lately, limits: Limits = DEFAULT) -> tuple[Burn, ...]:
    share = _share(limits.burn_fast, limits)
    return burning(lately.fast, lately.fast_long, share, limits.burn_fast_misses)


def slow(lately: Lately, limits: Limits = DEFAULT) -> tuple[Burn, ...]:
    share = _share(limits.burn_slow, limits)
    return burning(lately.slow, lately.slow_long, share, limits.burn_slow_misses)


def _share(factor: float, limits: Limits) -> float:
    return min(0.999, factor * (1.0 - limits.objective))


def goodput_burn_fast(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where a tenant burns over 5 min and 1 h. Open buckets count: misses only ever come to
    them. Unknown, never no, where less than half of the last 5 min was observed."""
    return _say("goodput_burn_fast", fast(lately, limits), lately.fast, lately.current)


def goodput_burn_slow(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """The same over 30 min and 6 h."""
    return _say("goodput_burn_slow", slow(lately, limits), lately.slow, lately.current)


def _say(called: str, burns: tuple[Burn, ...], short: Span, current: bool) -> Finding:
    if not current:
        return missing(called, "the pool is not heard")
    if not burns:
        if not short.known:
            seen = f"{span_s(short.observed_s)} of the last {span_s(short.length_s)}"
            return missing(called, f"only {seen} were observed")
        return Finding(called, Holds.NO, "NOT burning: no tenant misses more than its budget bears")
    worst = burns[0]
    more = f", and {len(burns) - 1} more" if len(burns) > 1 else ""
    return Finding(
        called,
        Holds.YES,
        f"{name(worst.tenant)} misses {percent(worst.short)} of its targets in "
        f"{span_s(short.length_s)} ({worst.missed:.0f} of {worst.eligible:.0f} before){more}",
        Strength.ASSOCIATED,
        worst.tenant,
        (
            Evidence("missed, short window", worst.short, "1"),
            Evidence("missed, long window", worst.long, "1"),
            Evidence("misses", worst.missed, "1"),
            Evidence("tenants", float(len(burns)), "1"),
        ),
    )
