"""Behind whom: excess waits by holder (rung 2), as charged and handed on to whoever made the line.

Pure functions of buckets and a baseline. The matrix holds *charged* seconds: who held the
resource, no accusation. *Excess* is what is charged beyond the baseline and the pool's common
growth: excess(victim, holder) = max(0, charged - usual rate x observed seconds x growth). A
victim's excess is the sum over its holders (itself, capacity, policy and others among them), so
that its shares always close to 1. The slowness that calm buckets have too is no lost capacity.
Whose use rose (rung 1) is `telemetry.rising`'s; what is handed on, `telemetry.handed_on`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from telemetry.at_once import rows_at_once
from telemetry.baseline import (
    MISSING_LEAST,
    Baseline,
    choose_baseline,
    fewer_workers,
    usual_pace_of,
)
from telemetry.conventions import WAIT_REASONS
from telemetry.grid import Part
from telemetry.growth import Growth, growth_of
from telemetry.handed_on import HandedOn
from telemetry.held import (
    CAPACITY_HELD,
    NOT_TENANTS,
    OTHERS_HELD,
    POLICY_HELD,
    SELF_HELD,
    Held,
    Holder,
    Line,
    Lines,
)
from telemetry.rising import ASKED, RESOURCES, ROSE, Rise, rises
from telemetry.window import Bucket, Window, observed_s, part_of

__all__ = [
    "ASKED", "CAPACITY_HELD", "NOT_TENANTS", "OTHERS_HELD", "POLICY_HELD", "RESOURCES", "ROSE",
    "SELF_HELD", "Account", "Attribution", "Holder", "Line", "Reckoning", "Rise", "attribute",
    "merge", "reckon", "rises",
]  # fmt: skip

STALL_REASONS: tuple[str, ...] = ("stall",)


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
    held: Lines

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.held.lines((self.tenant,))

    def share(self, holder: Holder) -> float:
        return self.held.share(self.tenant, holder)

    @property
    def top(self) -> Line | None:
        """The line with the largest excess; None where there is no excess."""
        return self.held.top(self.tenant)


_FIGURES = ("tenant", "waited_s", "usual_s", "net_s", "charged_s", "excess_s")


@dataclass(frozen=True, slots=True)
class Attribution:
    """Accounts by tenant over `observed_s` seconds; `reasons` are those that were added up.

    `held` is as charged; `made` says whose doing it was once `handed_on` was asked, and is the same
    before. Lines and shares are of `made`.
    """

    observed_s: float
    growth: Growth
    usual_pace: float
    reasons: tuple[str, ...]
    accounts: Mapping[str, Account]
    charges_missing: int
    held: Held
    made: Lines

    def pool(self, victims: Collection[str]) -> tuple[Line, ...]:
        """The victims' accounts added up: shares of all their excess."""
        return self.made.lines([v for v in victims if v in self.accounts])

    def charged(self, victims: Collection[str]) -> tuple[Line, ...]:
        """The same as it stands in the matrix, nothing handed on."""
        return self.held.lines([v for v in victims if v in self.accounts])

    def handed_on(
        self, risen: Collection[str], makers: Collection[str], missing: float
    ) -> Attribution:
        """What is charged to tenants that did not rise goes to the makers, those of the risen that
        can have made the line, and to capacity; `missing` is `capacity_missing`. Every account's
        excess stays what it was."""
        made = HandedOn(self.held, risen, makers, missing)
        before = self.accounts.values()
        columns = {c: [*map(attrgetter(c), before)] for c in _FIGURES}
        accounts = rows_at_once(Account, len(before), {"held": made}, columns)
        return replace(self, accounts=dict(zip(self.accounts, accounts, strict=True)), made=made)


@dataclass(frozen=True, slots=True)
class Reckoning:
    """Rung 2 over all that was heard in a window: what several faces of one picture ask for. Made
    once, by `reckon`, and handed on by whoever has it."""

    window: Window
    baseline: Baseline
    buckets: tuple[Bucket, ...]
    made: Attribution

    def is_of(self, window: Window) -> bool:
        """Whether it would come out the same of another window: the very same buckets, and the same
        of them asked about. The bounds may differ inside a bucket."""
        mine = self.window
        return window is mine or all(
            len(ours) == len(theirs) and all(a is b for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in (
                (mine.past, window.past),
                (mine.before, window.before),
                (mine.buckets, window.buckets),
                (mine.asked, window.asked),
            )
        )


def reckon(window: Window) -> Reckoning:
    """A window's baseline, and the attribution of its buckets that were heard."""
    heard = tuple(b for b in window.asked if b.known)
    baseline = choose_baseline(window)
    return Reckoning(window, baseline, heard, attribute(heard, baseline, part=window.part(heard)))


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
        held,
    )


def capacity_missing(buckets: Sequence[Bucket], baseline: Baseline) -> float:
    """The part of the usual workers that was not heard in these buckets, 0 to 1."""
    missing = 1.0 - 1.0 / fewer_workers(buckets, baseline)
    return missing if missing > MISSING_LEAST else 0.0


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
    names = sorted({*part.active(), *charged})
    known = [0.0 if v != v else v for v in waits.tolist()]
    at = map(part.grid.place.get, names)
    waited = [0.0 if i is None else known[i] for i in at]
    usual = [usual_of.get(t, 0.0) * scaled_s for t in names]
    columns: dict[str, Sequence[Any]] = {
        "tenant": names,
        "waited_s": waited,
        "usual_s": usual,
        "net_s": [max(0.0, w - u) for w, u in zip(waited, usual, strict=True)],
        "charged_s": [charged.get(t, 0.0) for t in names],
        "excess_s": [excess.get(t, 0.0) for t in names],
    }
    accounts = rows_at_once(Account, len(names), {"held": held}, columns)
    return dict(zip(names, accounts, strict=True))


def merge(accounts: Iterable[Account]) -> tuple[Line, ...]:
    """Accounts added up by holder; shares are of the whole."""
    listed = list(accounts)
    return listed[0].held.lines([a.tenant for a in listed]) if listed else ()
