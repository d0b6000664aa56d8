"""What an act is expected to do, in a sentence, from what the screen and the engine say now. Pure.

An estimate, worded as one: who runs, how fast they end, what is offered. The engine's own answer
to a trial stands beside it. What is not known is left out, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from console.account import TenantNow
from console.act.form import Form
from console.act.values import NO_LIMIT, EngineState, TenantState
from console.formats import percent, quantity
from console.panels import Snapshot, count, over, total
from telemetry.plain import name as short

LONG_S = 90.0  # from here on an estimate is told in minutes


def expected(form: Form, states: Sequence[EngineState], picture: Snapshot | None) -> str:
    """What is likely to happen, and when; empty where nothing can be said."""
    if form.method == "Undo":
        return form.expected
    own = [t for s in states if (t := s.tenant(form.tenant)) is not None]
    if not own:
        return ""
    now = _seen(picture, form.tenant)
    if form.method == "SetTenant" and form.title == "cap":
        return _cap(form, own, now)
    if form.method == "SetTenant" and form.title == "weight":
        return _weight(form, own[0], now)
    if form.title == "move":
        pool = short(form.read("pool"), 30)
        return f"new requests go to pool {pool}; {_under_way(own)} under way end where they are"
    if form.method == "DrainTenant":
        return f"nothing new is let in (429); {_ending(_under_way(own), _under_way(own), now)}"
    if form.method == "ResumeTenant":
        return "new requests are let in again, at once"
    if form.method == "PreemptTenant":
        return _preempt(form, states, picture)
    if form.method == "UnloadAdapter":
        return _unload(form, states)
    return ""


def _seen(picture: Snapshot | None, tenant: str) -> TenantNow | None:
    if picture is None or picture.account is None:
        return None
    return next((t for t in picture.account.tenants if t.name == tenant), None)


def _under_way(own: Sequence[TenantState]) -> int:
    return sum(max(t.under_way, t.running + t.waiting) for t in own)


def _cap(form: Form, own: Sequence[TenantState], now: TenantNow | None) -> str:
    parts = []
    limit = form.read("concurrency")
    if limit == NO_LIMIT:
        parts.append("any number may be under way")
    elif limit:
        have = _under_way(own)
        ends = max(0, have - int(limit) * len(own))
        first = f"{have} under way now" if have else "it has nothing under way now"
        parts.append(
            f"takes effect as {_ending(ends, have, now)}"
            if ends
            else f"{first}: nothing has to end first"
        )
    for key, offered in (("rpm", _a_minute(now, "offered_requests")),
                         ("tpm", _a_minute(now, "offered_tokens"))):  # fmt: skip
        allowed = form.read(key)
        if allowed == NO_LIMIT:
            parts.append(f"no limit on {key}")
        elif allowed:
            parts.append(_rate(key, int(allowed) * len(own), offered))
    return "; ".join(parts)


def _rate(key: str, allowed: int, offered: float | None) -> str:
    what = "requests" if key == "rpm" else "tokens"
    if offered is None:
        return f"from the next request on {allowed} {what} a minute"
    if offered <= allowed:
        return f"{quantity(offered)} {what} a minute are offered now: all of them still pass"
    refused = quantity(offered - allowed)
    return f"of {quantity(offered)} {what} a minute offered now about {refused} are refused (429)"


def _a_minute(now: TenantNow | None, column: str) -> float | None:
    if now is None or not now.minutes:
        return None
    known = count([getattr(m, column) for m in now.minutes])
    return over(None if known is None else known * 60.0, now.covered_s)


def _ending(ends: int, of: int, now: TenantNow | None) -> str:
    """So many of them end by themselves, and by when, at the rate at which they have ended."""
    which = f"{ends}" if ends == of else f"{ends} of {of}"
    words = f"{which} requests under way end"
    done = None if now is None else count([m.finished for m in now.minutes])
    rate = over(done, now.covered_s if now is not None else None)
    return f"{words}, ~{about(ends / rate)}" if rate and ends else words


def about(seconds: float) -> str:
    """An estimate: `40 s`, `4 min`, `2 h`."""
    if seconds < LONG_S:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"


def _weight(form: Form, own: TenantState, now: TenantNow | None) -> str:
    parts = []
    weight = form.read("weight")
    if weight:
        fair = None if now is None else now.row.fair_share
        if fair and 0.0 < fair < 1.0 and own.weight > 0.0:
            others = own.weight / fair - own.weight
            after = float(weight) / (others + float(weight))
            parts.append(
                f"its fair share goes from {percent(fair)} to {percent(after)} while the same "
                "tenants wait, from the next step on"
            )
        else:
            parts.append("takes effect with the next step, where others wait beside it")
    tier = form.read("tier")
    if tier:
        parts.append(f"in tier {tier} it goes after every lower tier, from the next step on")
    return "; ".join(parts)


def _preempt(form: Form, states: Sequence[EngineState], picture: Snapshot | None) -> str:
    """Above ceil(weight / weights of the tenants present x slots), as the engine counts."""
    running = over_fair = 0
    known = True
    for s in states:
        own = s.tenant(form.tenant)
        if own is None:
            continue
        running += own.running
        there = [t for t in s.tenants if t.pool == own.pool and (t.running or t.waiting)]
        present = sum(t.weight for t in there)
        slots = picture.strip.slots if picture is not None and picture.pool == own.pool else None
        known = known and bool(slots)
        if slots and present:
            # The picture's slots are those of all engines of the pool, `running` is one's own.
            engines = sum(own.pool in (x.pool, *x.pools) for x in states)
            fair = math.ceil(own.weight / present * slots / max(1, engines))
            over_fair += max(0, own.running - fair)
    if not running:
        return "it runs nothing now: nothing would wait again"
    if not known:
        return f"of {running} running what is above its fair share waits again"
    if not over_fair:
        return f"its {running} running requests are within its fair share: nothing would wait again"
    return f"about {over_fair} of {running} running requests wait again and are computed once more"


def _unload(form: Form, states: Sequence[EngineState]) -> str:
    name = form.read("adapter")
    there = [a for s in states if (a := s.adapter(name)) is not None]
    using = total([float(a.requests) for a in there])
    whose = sorted({t.tenant for s in states for t in s.tenants if name in t.adapters})
    shared = [t for t in whose if t != form.tenant]
    words = "whoever names it is told 404"
    if using:
        words += f"; {using:.0f} requests under way end with it, then its pages are free"
    if shared:
        words += f"; it is also used by {', '.join(short(t, 20) for t in shared[:3])}"
        words += f" and {len(shared) - 3} more" if len(shared) > 3 else ""
    return words
