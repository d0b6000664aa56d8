"""Makers: which of those whose demand rose can have made the line that others stand in.

Pure function of what is charged and of what was served; hands nothing on (`telemetry.handed_on`
does). In every incident chance lifts somebody's demand, and a heavy tenant holds much of any line:
a maker is charged with enough itself, and with more than its usual part of the pool explains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from telemetry.attribution import OTHERS_HELD, Attribution
from telemetry.baseline import Baseline
from telemetry.grid import Part

MAKES = 0.15  # of the excess of those hurt: a riser that is charged less has made no line
# ... in a crowd so many equal parts of it: the line is the crowd's own for the most part, and who
# made it is charged with little of it directly.
MAKES_PARTS, MAKES_LEAST = 2.0, 0.05
# Times its usual part of the pool's service: with less, of the line as of the service, a tenant
# has grown as all have.
MAKES_MORE = 1.2


def makers_of(
    made: Attribution, hurt: Sequence[str], risen: Collection[str], base: Baseline, part: Part
) -> frozenset[str]:
    """Risers that are charged enough by themselves to have made a line: of the excess of those who
    did not rise, where there are any, for who floods waits behind itself as well. Whoever has no
    larger part of the line, nor of the service, than it always had of the service has grown as the
    pool has."""
    bystanders = [t for t in hurt if t not in risen]
    lines = made.charged(bystanders)
    if not sum(x.excess_s for x in lines):
        lines = made.charged(hurt)
    tenants = [x for x in lines if x.holder.is_tenant]
    floor = makes_floor(len(tenants))
    behind = sum(x.excess_s for x in lines if x.holder.is_tenant or x.holder == OTHERS_HELD)
    usual, now = _parts_of_service(base.part), _parts_of_service(part)

    def as_ever(tenant: str, excess_s: float) -> bool:
        held = max(excess_s / behind, now.get(tenant, 0.0))
        return held < MAKES_MORE * usual.get(tenant, 0.0)

    return frozenset(
        x.holder.name
        for x in tenants
        if x.holder.name in risen and x.share >= floor and not as_ever(x.holder.name, x.excess_s)
    )


def _parts_of_service(part: Part) -> Mapping[str, float]:
    """Every tenant's part of the pool's service in some buckets."""
    served = np.nan_to_num(part.totals("service"))
    whole = max(float(served.sum()), 1e-300)
    return dict(zip(part.grid.names, (served / whole).tolist(), strict=True))


def makes_floor(holders: int) -> float:
    """The part of the excess from which on one of so many tenants has made the line."""
    return min(MAKES, max(MAKES_LEAST, MAKES_PARTS / max(1, holders)))
