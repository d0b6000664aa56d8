"""Causes: the victims' excess by what they waited for, in shares that close. Decides nothing.

Of the matrix as charged: what was waited for is a fact, whoever made the line. The part lost to a
slow engine is taken out first, so that no reason is told twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from telemetry.attribution import CAPACITY_HELD
from telemetry.case import Case
from telemetry.conventions import WAIT_REASONS

ENGINE = "engine"
PART = 0.05  # of the excess: less is no cause, and is excluded with its number
SOME = 0.15  # of the excess: more than a side effect
# Free and unreferenced pages are nobody's either: under these reasons capacity is no slow engine.
_PAGES = ("kv", "adapter")


def shares(case: Case) -> Mapping[str, float]:
    """Part of the victims' excess by reason, and `engine` for time lost to slow steps. They sum to
    1; empty where there is no excess."""
    whole = sum(x.excess_s for x in case.charged)
    if not whole:
        return {}
    slow = case.slow
    out = dict.fromkeys((ENGINE, *case.basis.reasons), 0.0)
    for line in case.charged:
        for reason, seconds in line.reasons:
            lost = line.holder == CAPACITY_HELD and (slow or reason not in _PAGES)
            out[ENGINE if lost else reason] += seconds / whole
    return out


def unheld(case: Case) -> float:
    """Part of the excess charged to pages that are free or that nobody references: it is no
    tenant's, and says nothing of which tenant it was."""
    whole = sum(x.excess_s for x in case.charged)
    if not whole or case.slow:
        return 0.0
    lost = (x for x in case.charged if x.holder == CAPACITY_HELD)
    return sum(s for x in lost for r, s in x.reasons if r in _PAGES) / whole


def share(case: Case, reason: str) -> float | None:
    """One reason's part; None where there is no excess, or another kind of it is judged."""
    found = shares(case)
    if not found or reason not in found:
        return 0.0 if found and reason in WAIT_REASONS else None
    return found[reason]


def holder_of(case: Case, reason: str) -> tuple[str, float] | None:
    """The tenant behind which most of one reason's excess was waited, with its part of that."""
    by = {
        x.holder.name: s
        for x in case.charged
        if x.holder.is_tenant
        for r, s in x.reasons
        if r == reason and s > 0
    }
    whole = sum(s for x in case.charged for r, s in x.reasons if r == reason)
    if not by or not whole:
        return None
    first = max(sorted(by), key=lambda t: by[t])
    return first, by[first] / whole
