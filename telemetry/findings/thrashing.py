"""Thrashing, as it happens: adapters come back within a minute of their eviction, over and over,
because those in use do not fit. `adapter_thrash` says of a case how much of the waiting it was."""

from __future__ import annotations

from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.findings.lately import Lately
from telemetry.findings.limits import DEFAULT, Limits
from telemetry.plain import percent


def thrashing(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where reloads come above the limit, the adapters asked for are larger than the room
    beside the KV, and a third of the waiting is for adapters. Where bytes are not known the
    reloads and the waits decide. Unknown where less than half of the last 5 min was observed."""
    moves, span = lately.adapters, lately.fast
    if moves is None or not lately.current or not span.known:
        return missing("thrashing", "the moves of adapters are missing")
    rate = moves.reloads / moves.over_s
    waited = span.waited_s
    share = sum(t.adapter_s for t in span.tenants.values()) / waited if waited else 0.0
    fits: bool | None = None
    if moves.working_bytes is not None and moves.room_bytes is not None:
        fits = moves.working_bytes <= moves.room_bytes
    evidence = (
        Evidence("reloads", rate, "1/s"),
        Evidence("loads", moves.loads / moves.over_s, "1/s"),
        Evidence("adapters asked for", moves.working_bytes, "By"),
        Evidence("room beside the KV", moves.room_bytes, "By"),
        Evidence("share of the waiting that is for adapters", share, "1"),
    )
    said = f"{rate:.2f} reloads/s, {percent(share)} of the waiting is for adapters"
    if rate < limits.thrash_reloads or share < limits.thrash_wait_share or fits:
        return Finding("thrashing", Holds.NO, f"NOT thrashing: {said}", None, None, evidence)
    why = ": those asked for do not fit" if fits is False else ""
    return Finding(
        "thrashing", Holds.YES, f"ADAPTERS thrash{why}; {said}", Strength.ASSOCIATED, None, evidence
    )
