"""Behind whom: excess waits by holder (rung 2), and whose use of what rose (rung 1).

Pure functions of buckets and a baseline. The matrix holds *charged* seconds: who held the
resource, no accusation. *Excess* is what is charged beyond the baseline and the pool's common
growth: excess(victim, holder) = max(0, charged - usual rate x observed seconds x growth). A
victim's excess is the sum over its holders (itself, capacity, policy and others among them), so
that its shares always close to 1. The slowness that calm buckets have too is no lost capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from telemetry.baseline import (
    Baseline,
    Growth,
    fewer_workers,
    growth_of,
    step_growth,
    usual_pace_of,
)
from telemetry.conventions import WAIT_REASONS
from telemetry.grid import Floats, Part
from telemetry.held import (
    CAPACITY_HELD,
    NOT_TENANTS,
    OTHERS_HELD,
    POLICY_HELD,
    SELF_HELD,
    Held,
    Holder,
    Line,
)
from telemetry.window import Bucket, observed_s, part_of

__all__ = [
    "ASKED", "CAPACITY_HELD", "NOT_TENANTS", "OTHERS_HELD", "POLICY_HELD", "SELF_HELD", "Account",
    "Attribution", "Holder", "Line", "Rise", "attribute", "merge", "rises",
]  # fmt: skip

STALL_REASONS: tuple[str, ...] = ("stall",)
ROSE = 1.5  # now over usual, beyond the common growth
FROM_NOTHING = 0.05  # of the pool's total, where a tenant had none before


@dataclass(frozen=True, slots=True)
class Account:
    """One tenant's waits (or stalls) over the judged buckets.

    `waited_s` comes from the tenant's own columns, `charged_s` from the matrix: they agree where
    no row was lost. `net_s` = waited beyond usual, not below 0. `lines`: tenants by excess, then
    self, capacity, policy and others, present even at 0.
    """

    tenant: str
    waited_s: float
    usual_s: float
    net_s: float
    charged_s: float
    excess_s: float
    held: Held

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.held.lines((self.tenant,))

    def share(self, holder: Holder) -> float:
        return self.held.share(self.tenant, holder)

    @property
    def top(self) -> Line | None:
        """The line with the largest excess; None where there is no excess."""
        return self.held.top(self.tenant)


@dataclass(frozen=True, slots=True)
class Rise:
    """A resource that a tenant used, now and usually (a second, or bytes on average).

    `ratio` is now over usual, corrected for what the pool's growth or slower steps explain; None =
    there was nothing before. `rose`: beyond ROSE, or from nothing to a part that matters.
    """

    tenant: str
    resource: str
    unit: str
    usual: float
    now: float
    ratio: float | None
    pool_share: float
    rose: bool


@dataclass(frozen=True, slots=True)
class Attribution:
    """Accounts by tenant over `observed_s` seconds; `reasons` are those that were added up."""

    observed_s: float
    growth: Growth
    usual_pace: float
    reasons: tuple[str, ...]
    accounts: Mapping[str, Account]
    charges_missing: int
    held: Held

    def pool(self, victims: Collection[str]) -> tuple[Line, ...]:
        """The victims' accounts added up: shares of all their excess."""
        return self.held.lines([v for v in victims if v in self.accounts])


# Resource: column, unit, whether it is a level (an average, lengthened by slow steps).
_RESOURCES: tuple[tuple[str, str, str, bool], ...] = (
    ("tokens offered", "offered_tokens", "token/s", False),
    ("requests offered", "offered_requests", "1/s", False),
    ("service", "service", "1/s", False),
    ("KV bytes", "kv_bytes_avg", "By", True),
    ("adapter bytes", "adapter_bytes_avg", "By", True),
)
RESOURCES: tuple[str, ...] = tuple(name for name, *_ in _RESOURCES)
ASKED = RESOURCES[:2]  # what a tenant asks for; the rest is what it gets, and may hold longer


def attribute(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    *,
    reasons: Sequence[str] = WAIT_REASONS,
    part: Part | None = None,
) -> Attribution:
    """Rung 2 over these buckets. Tenants that hold a tenth of the raw excess are candidates:
    their own growth does not count as the pool's. `part`: the same buckets in a grid, where there
    is one."""
    made = part if part is not None else part_of(buckets)
    usual_pace = usual_pace_of(baseline)
    held = Held.of(buckets, baseline, usual_pace, reasons, 1.0)
    growth = growth_of(buckets, baseline, held.candidates(), made)
    if growth.factor != 1.0:
        held = Held.of(buckets, baseline, usual_pace, reasons, growth.factor)
    return Attribution(
        observed_s(buckets),
        growth,
        usual_pace,
        tuple(reasons),
        _accounts(buckets, baseline, growth.factor, reasons, made, held),
        sum(b.charges_missing for b in buckets),
        held,
    )


def _accounts(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    growth: float,
    reasons: Sequence[str],
    part: Part,
    held: Held,
) -> dict[str, Account]:
    scaled_s = observed_s(buckets) * growth
    stalls = tuple(reasons) == STALL_REASONS
    waits = part.totals("stall_s" if stalls else "waits")
    usual_of = baseline.stalls if stalls else baseline.waits
    charged, excess = held.by_victim()
    out: dict[str, Account] = {}
    for tenant in sorted({*part.active(), *charged}):
        i = part.grid.place.get(tenant)
        waited = float(waits[i]) if i is not None and waits[i] == waits[i] else 0.0
        usual = usual_of.get(tenant, 0.0) * scaled_s
        out[tenant] = Account(
            tenant,
            waited,
            usual,
            max(0.0, waited - usual),
            charged.get(tenant, 0.0),
            excess.get(tenant, 0.0),
            held,
        )
    return out


def merge(accounts: Iterable[Account]) -> tuple[Line, ...]:
    """Accounts added up by holder; shares are of the whole."""
    listed = list(accounts)
    return listed[0].held.lines([a.tenant for a in listed]) if listed else ()


# ---------------------------------------------------------------- rung 1


def rises(
    buckets: Sequence[Bucket], baseline: Baseline, growth: Growth, part: Part | None = None
) -> tuple[Rise, ...]:
    """Every resource of every tenant against its own baseline, greatest first.

    Flows are divided by the pool's growth where tenants speak for it; levels by how much longer a
    step takes now, because slow steps alone make everyone hold its pages longer, and by how many
    fewer workers carry the same.
    """
    seen = observed_s(buckets)
    if not seen or not baseline.usable:
        return ()
    made = part if part is not None else part_of(buckets)
    common = growth.factor if growth.basis == "tenants" else 1.0
    longer = max(common, step_growth(buckets, baseline), fewer_workers(buckets, baseline))
    out: list[Rise] = []
    names = sorted({*made.active(), *baseline.part.active()})
    for resource, column, unit, level in _RESOURCES:
        now_of = _by_name(made, names, column, level)
        usual_of = _by_name(baseline.part, names, column, level)
        there = ~(np.isnan(now_of) | np.isnan(usual_of))
        whole = float(now_of[there].sum())
        for i in np.flatnonzero(there).tolist():
            usual, now = float(usual_of[i]), float(now_of[i])
            share = now / whole if whole else 0.0
            ratio = now / usual / (longer if level else common) if usual else None
            rose = share >= FROM_NOTHING if ratio is None else ratio >= ROSE
            out.append(Rise(names[i], resource, unit, usual, now, ratio, share, rose and now > 0))
    return tuple(sorted(out, key=_greatest_first))


def _by_name(part: Part, names: Sequence[str], column: str, level: bool) -> Floats:
    """A column of these tenants: a second of observed time, or on average."""
    values = part.means(column) if level else part.totals(column) / max(part.observed_s, 1e-300)
    idle = 0.0 if part.observed_s else np.nan
    at = [part.grid.place.get(t) for t in names]
    return np.array([idle if i is None else values[i] for i in at], dtype=np.float64)


def _greatest_first(rise: Rise) -> tuple[bool, float, str]:
    return (not rise.rose, -(rise.ratio if rise.ratio is not None else 1e9), rise.tenant)
