"""What the overview and the wide table list: every tenant with what it suffers and what it holds.

Values and how they fold, nothing that reads or draws. Seconds of waiting are of the last five
minutes, shares and rates of the last minute; None is not known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from console.panels import Holder, Latency, Mark, TenantRow, fold, total
from telemetry.records import TenantMinute

if TYPE_CHECKING:
    from telemetry.held import Cells

EXCESS, CHARGED = "excess", "charged"
WAITED = "waited"  # of a first look: seconds waited, and nothing yet of behind whom
T = TypeVar("T")


class Remembered:
    """What was last worked out of some values: a screen is drawn at every key, and ten thousand
    tenants are sorted and folded once a picture. A value is known by being the very same object."""

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._known: OrderedDict[tuple[int, Hashable], tuple[object, Any]] = OrderedDict()

    def of(self, about: object, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave for this very object and key, or gives now."""
        place = (id(about), key)
        known = self._known.get(place)
        if known is not None and known[0] is about:
            found: T = known[1]
            return found
        made = make()
        self._known[place] = (about, made)
        while len(self._known) > self._most:
            # Two threads may look at once, the feed's and the screen's.
            with suppress(KeyError):
                self._known.popitem(last=False)
        return made


REMEMBERED = Remembered()


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantNow:
    """One tenant. `row` has its figures of the last minute, `minutes` the rows they come from,
    observed for `covered_s`. `wait_s` is its own waiting, `held_s` that of others charged to it:
    both of the account's basis, so both lists close to one total. `ttft_counts` as stored."""

    row: TenantRow
    minutes: tuple[TenantMinute, ...] = ()
    covered_s: float = 0.0
    wait_s: float | None = None
    held_s: float | None = None
    behind: Holder | None = None
    behind_reason: str | None = None
    missed: int | None = None
    eligible: int | None = None
    ttft_counts: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def missed_share(self) -> float | None:
        return self.missed / self.eligible if self.eligible and self.missed is not None else None

    @property
    def ttft(self) -> Latency:
        """By histogram: right to a bucket's width. Few samples: the upper bound of the largest."""
        if self.ttft_counts is None or not any(self.ttft_counts):
            return Latency(0, None, None, None)
        import numpy as np  # only here, and so below: a first look has no counts to look through

        from telemetry.watch.frame import percentiles

        n, p50, p99 = percentiles(np.array([self.ttft_counts], dtype=np.float64))
        return Latency(int(n[0]), float(p50[0]), float(p99[0]), float(p99[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who waited and who held over `span_s` observed seconds; the two sides close to `total_s`.

    `basis` is EXCESS, or CHARGED where there is no baseline to subtract: `no_baseline` says why;
    WAITED of a first look, whose last tenant may be all others as one (`row.folded`).
    `not_tenants` are (kind, seconds) of self, capacity, policy and others. `gaps` buckets of the
    span were not observed, `short` ones only in part. `cells` are its sums, victim by
    holder and reason.
    """

    tenants: tuple[TenantNow, ...]
    not_tenants: tuple[tuple[str, float], ...]
    total_s: float
    basis: str
    span_s: float
    no_baseline: str | None = None
    gaps: int = 0
    short: int = 0
    cells: Cells | None = field(default=None, compare=False, repr=False)

    @property
    def hurt(self) -> tuple[TenantNow, ...]:
        """Those who wait and miss, the worst first: what the verdict says, then the seconds."""
        return REMEMBERED.of(self.tenants, "hurt", lambda: _sorted(self.tenants, _worst_first))

    @property
    def holds(self) -> tuple[TenantNow, ...]:
        """Those who hold the pool, the largest share first."""
        return REMEMBERED.of(self.tenants, "holds", lambda: _sorted(self.tenants, _largest_first))


def _worst_first(t: TenantNow) -> tuple[bool, bool, float, float, str]:
    return (t.row.folded > 0, t.row.mark is not Mark.HURT, -(t.wait_s or 0.0),
            -(t.missed_share or 0.0), t.name)  # fmt: skip


def _largest_first(t: TenantNow) -> tuple[bool, float, float, str]:
    return (t.row.folded > 0, -(t.row.service_share or 0.0), -(t.row.kv_share or 0.0), t.name)


def _sorted(
    tenants: tuple[TenantNow, ...], order: Callable[[TenantNow], Any]
) -> tuple[TenantNow, ...]:
    return tuple(sorted(tenants, key=order))


def top(tenants: Sequence[TenantNow], lines: int) -> tuple[TenantNow, ...]:
    """At most `lines` of them, the last one "others (k)" where there are more."""
    if lines < 1:
        return ()
    if len(tenants) <= lines:
        return tuple(tenants)
    rest = REMEMBERED.of(tenants, ("top", lines), lambda: others(tenants[lines - 1 :]))
    return (*tenants[: lines - 1], rest)


def others(rest: Sequence[TenantNow]) -> TenantNow:
    """Several tenants as one line: sums add, first tokens are counted together."""
    row = fold([TenantRow(name=""), *(t.row for t in rest)], 1)[0]
    counts = [t.ttft_counts for t in rest if t.ttft_counts is not None]
    missed = [t.missed for t in rest if t.missed is not None]
    eligible = [t.eligible for t in rest if t.eligible is not None]
    many = sum(t.row.folded or 1 for t in rest)
    return TenantNow(
        row=replace(row, name=f"others ({many})", folded=many, mark=Mark.NONE),
        minutes=tuple(m for t in rest for m in t.minutes),
        covered_s=max((t.covered_s for t in rest), default=0.0),
        wait_s=total([t.wait_s for t in rest]),
        held_s=total([t.held_s for t in rest]),
        missed=sum(missed) if missed else None,
        eligible=sum(eligible) if eligible else None,
        ttft_counts=tuple(map(sum, zip(*counts, strict=True))) if counts else None,
    )


def closing(parts: Sequence[float], whole: float, digits: int = 0) -> list[float]:
    """`parts` rounded to `digits` so that what is printed adds up to the rounded `whole`: the
    largest remainders are rounded up. They must add up to it before."""
    unit = 10.0**digits
    scaled = [p * unit for p in parts]
    floors = [int(s) for s in scaled]
    missing = round(whole * unit) - sum(floors)
    by_rest = sorted(range(len(parts)), key=lambda i: (floors[i] - scaled[i], i))
    for i in by_rest[: max(0, missing)]:
        floors[i] += 1
    return [f / unit for f in floors]
