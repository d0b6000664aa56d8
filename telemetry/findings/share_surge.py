"""Share surge: has a tenant far more than its fair share, more than it usually has, while others
wait more than they usually do?

The share alone hurts nobody: without the others' waiting it is a note. A tenant that always had so
much is no surge.
"""

from __future__ import annotations

from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.findings.lately import Lately, Span
from telemetry.findings.limits import DEFAULT, Limits
from telemetry.plain import name, percent, times

_MIN_USUAL_S = 180.0  # of observed time before the last half hour, to call anything usual


def share_surge(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where a tenant has more than 3 times its fair share of the last 5 min, 1.5 times its
    own usual one, and the others together wait twice as much as usual. What is usual is taken from
    the six hours before the last half hour. Open buckets count: rates are of what was observed."""
    return _surge("share_surge", lately, limits, hurting=True)


def share_high(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """The same without the waiting: a note, never more."""
    return _surge("share_high", lately, limits, hurting=False)


def _surge(called: str, lately: Lately, limits: Limits, *, hurting: bool) -> Finding:
    now, far, near = lately.fast, lately.slow_long, lately.slow
    if not lately.current or not now.known:
        return missing(called, "less than half of the last 5 min was observed")
    usual_s = far.observed_s - near.observed_s
    if usual_s < _MIN_USUAL_S:
        return missing(called, "too little was observed before to say what is usual")
    whole = now.service
    active = [t for t, s in now.tenants.items() if s.backlogged_s > 0 or s.service > 0]
    weights = sum(now.of(t).weight for t in active)
    best: Finding | None = None
    for tenant in sorted(active, key=lambda t: -now.of(t).service):
        share = now.of(tenant).service / whole if whole else 0.0
        fair = now.of(tenant).weight / weights if weights else 1.0
        if share <= limits.surge_fair * fair:
            continue
        usual = _usual_share(tenant, far, near)
        if usual is not None and share < limits.surge_rise * usual:
            continue
        waiting = (now.waited_s - now.of(tenant).waited_s) / now.observed_s
        before = max(0.0, _others(tenant, far) - _others(tenant, near)) / usual_s
        waits = waiting >= limits.surge_waiting and waiting > limits.surge_waits * before
        if hurting and not waits:
            continue
        best = _found(called, tenant, share, fair, usual, waiting, before, hurting)
        break
    return best or Finding(called, Holds.NO, "NOT a surge: no tenant's share has left its usual")


def _others(tenant: str, span: Span) -> float:
    return span.waited_s - span.of(tenant).waited_s


def _usual_share(tenant: str, far: Span, near: Span) -> float | None:
    whole = far.service - near.service
    return (far.of(tenant).service - near.of(tenant).service) / whole if whole > 0 else None


def _found(
    called: str,
    tenant: str,
    share: float,
    fair: float,
    usual: float | None,
    waiting: float,
    before: float,
    hurting: bool,
) -> Finding:
    said = f"{name(tenant)} has {percent(share)} of the service, {times(share / fair)} its fair one"
    if hurting:
        said += f", while {waiting:.1f} requests of others wait (usual {before:.1f})"
    return Finding(
        called,
        Holds.YES,
        said,
        Strength.ASSOCIATED,
        tenant,
        (
            Evidence("share", share, "1"),
            Evidence("fair share", fair, "1"),
            Evidence("usual share", usual, "1"),
            Evidence("others waiting", waiting, "1"),
            Evidence("others waiting, usual", before, "1"),
        ),
    )
