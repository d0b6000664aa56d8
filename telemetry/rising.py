"""Rung 1: whose use of what rose beyond its own usual, the pool's growth and what chance does.

Pure functions of buckets and a baseline; says nothing of who waited. *Rose* is a matter of counts:
at three requests a minute half as much again is noise, so a rise has to lie three standard
deviations of two Poisson counts apart and be a third more. Tokens and service vary with the lengths
of requests as well. What is usual of a tenant that was never there is not known: one more like the
others is the pool's growth, and only what it asks for beyond that is a rise. What is asked for in
calm buckets is not all that is usual: they are calm because it is little. Levels (pages held) are
no evidence by themselves: whoever waits longer holds them longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.at_once import rows_at_once
from telemetry.baseline import Baseline, fewer_workers, step_growth
from telemetry.grid import Floats, Ints, Part
from telemetry.growth import Growth, demands
from telemetry.window import Bucket, observed_s, part_of

ROSE = 1.5  # tokens, service and levels: now over usual, beyond the common growth
ROSE_REQUESTS = 1.3  # requests alike: their count is what the deviations are of
FROM_NOTHING = 0.05  # of the pool's total, where a tenant had none before
DEVIATIONS = 3.0
LENGTHS_VARY = 1.3  # of a count's deviation, where it is tokens that are counted
LENGTH_KNOWN = 3.0  # requests of its own from which a tenant's usual length counts most
MOST_RATIO = 1e9  # what a rise from nothing is sorted as
FEW_PEERS = 3  # tenants whose median growth is asked where too few speak for the pool

Bools = npt.NDArray[np.bool_]

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


@dataclass(frozen=True, slots=True)
class Rise:
    """A resource that a tenant used, now and usually (a second, or bytes on average).

    `ratio` is now over usual, corrected for what the pool's growth or slower steps explain; None =
    there was nothing before. `rose`: by more than chance; of a level, ROSE where something that is
    counted rose too.
    """

    tenant: str
    resource: str
    unit: str
    usual: float
    now: float
    ratio: float | None
    pool_share: float
    rose: bool


def rises(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    growth: Growth,
    part: Part | None = None,
    before: Part | None = None,
    risen_alone: bool = False,
) -> tuple[Rise, ...]:
    """Every resource of every tenant against its own baseline, greatest first. `before`: all that
    was observed before these buckets, calm or not; who asks for no more than it did on average
    then has not risen. `risen_alone`: only what rose, of a crowd a few of tens of thousands.

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
    names = sorted({*made.active(), *baseline.part.active()})
    now, was = _Named.of(made, names), _Named.of(baseline.part, names)
    present = _present_s(baseline, names)
    earlier = None if before is None or not before.observed_s else _Named.of(before, names)
    beyond = _beyond_chance(buckets, baseline, growth, now, was, present, earlier)
    risen = np.any(np.array([*beyond.values()]), axis=0)
    counted = np.zeros(len(names), dtype=bool)  # of whom a flow rose; flows stand before levels
    found: list[_Resource] = []
    for resource, column, unit, level in _RESOURCES:
        now_of = now.column(column, level)
        usual_of = was.column(column, level) * baseline.observed_s / present
        at = np.flatnonzero(~(np.isnan(now_of) | np.isnan(usual_of)))
        used, usual = now_of[at], usual_of[at]
        whole = float(used.sum())
        share = used / whole if whole else np.zeros(len(at))
        known = usual != 0.0
        ratio = used / np.where(known, usual, 1.0) / (longer if level else common)
        more = np.where(known, ratio >= ROSE, share >= FROM_NOTHING)
        if level:
            rose = more & counted[at]
        else:
            rose = risen[at] & (more | (known & beyond[column][at])) & (used > 0)
        counted[at] |= rose
        kept = rose if risen_alone else np.ones(len(at), dtype=bool)
        found.append(
            _Resource(resource, unit, at[kept], usual[kept], used[kept], ratio[kept], known[kept],
                      share[kept], rose[kept])
        )  # fmt: skip
    return _listed(found, names)


@dataclass(frozen=True, slots=True)
class _Resource:
    """One resource of some tenants, by their places among the names; `ratio` where `known`."""

    name: str
    unit: str
    at: Ints
    usual: Floats
    now: Floats
    ratio: Floats
    known: Bools
    share: Floats
    rose: Bools


def _listed(found: Sequence[_Resource], names: Sequence[str]) -> tuple[Rise, ...]:
    """What rose first, of that the greatest ratio, what there was nothing of before above all; of
    equal ones by name. A crowd's are tens of thousands."""
    at = np.concatenate([f.at for f in found])
    rose = np.concatenate([f.rose for f in found])
    known = np.concatenate([f.known for f in found])
    ratio = np.concatenate([f.ratio for f in found])
    order = np.lexsort((at, -np.where(known, ratio, MOST_RATIO), ~rose))
    ratios: list[float | None] = ratio[order].tolist()
    for i in np.flatnonzero(~known[order]).tolist():
        ratios[i] = None
    of = [f for f in found for _ in range(len(f.at))]
    columns = {
        "tenant": [names[i] for i in at[order].tolist()],
        "resource": [of[i].name for i in order.tolist()],
        "unit": [of[i].unit for i in order.tolist()],
        "usual": np.concatenate([f.usual for f in found])[order].tolist(),
        "now": np.concatenate([f.now for f in found])[order].tolist(),
        "ratio": ratios,
        "pool_share": np.concatenate([f.share for f in found])[order].tolist(),
        "rose": rose[order].tolist(),
    }
    return tuple(rows_at_once(Rise, len(order), {}, columns))


def _beyond_chance(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    growth: Growth,
    now: _Named,
    was: _Named,
    present: Floats,
    earlier: _Named | None,
) -> dict[str, Bools]:
    """By flow column: which of the tenants asked for or got more than chance explains; `present`
    is how long each of them was there."""
    seen = now.part.observed_s
    scale = _growths(buckets, baseline, growth, now.part, now.names)
    longer = baseline.observed_s / present

    def usually(column: str, calm: Floats) -> Floats:
        rates = _or_anybodys(calm * longer)
        if earlier is not None:
            rates = np.maximum(rates, np.nan_to_num(earlier.column(column)))
        return rates * seen * scale

    known = np.nan_to_num(was.column("offered_requests"))
    usual = usually("offered_requests", known)
    came = np.nan_to_num(now.column("offered_requests")) * seen
    # The variance of what came and of what is usual, the one more that a count of none may be.
    spread = DEVIATIONS * np.sqrt((usual + 1.0) * (1.0 + seen / present))
    out = {"offered_requests": (came - usual > spread) & (came > ROSE_REQUESTS * usual)}
    for column in ("offered_tokens", "service"):
        asked = np.nan_to_num(was.column(column))
        before = usually(column, asked)
        is_ = np.nan_to_num(now.column(column)) * seen
        least = FROM_NOTHING * is_.sum()
        if known.sum() > 0:
            least = LENGTHS_VARY * spread * _lengths(known, asked, baseline.observed_s)
        out[column] = (is_ >= ROSE * before) & (is_ - before > least)
    return out


def _or_anybodys(rates: Floats) -> Floats:
    """A tenant's usual rate, and of who had none the mean of those that had one."""
    there = rates > 0
    return np.where(there, rates, rates[there].mean() if there.any() else 0.0)


def _lengths(requests: Floats, tokens: Floats, seen_s: float) -> Floats:
    """What a usual request of each tenant comes to; of one that sent only a few, anybody's
    counts as well, for a single short one says little of the next. Both are rates."""
    anybody = tokens.sum() / requests.sum()
    own = np.where(requests > 0, tokens / np.where(requests > 0, requests, 1.0), anybody)
    sent = requests * seen_s
    both = (sent * own + LENGTH_KNOWN * anybody) / (sent + LENGTH_KNOWN)
    return np.asarray(np.maximum(own, both))


def _growths(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    growth: Growth,
    part: Part,
    names: Sequence[str],
) -> Floats:
    """What a tenant would have grown by with all others: the pool's growth, or the median of the
    others' where three or more are there; never below 1."""
    if growth.basis == "tenants":
        return np.full(len(names), growth.factor)
    of = demands(buckets, baseline, (), part)
    out = np.ones(len(names))
    for i, name in enumerate(names):
        others = [d.growth for d in of if name not in d.tenants]
        if len(others) >= FEW_PEERS:
            out[i] = max(1.0, float(np.median(others)))
    return out


def _present_s(baseline: Baseline, names: Sequence[str]) -> Floats:
    """How long each tenant was there before: all the time where it never was, which is no rate."""
    whole = max(baseline.observed_s, 1e-300)
    return np.array([baseline.present_s.get(t, whole) for t in names], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Named:
    """A part's columns, of these tenants; `at` is where the grid has them, -1 where it has not."""

    part: Part
    names: Sequence[str]
    at: Ints

    @classmethod
    def of(cls, part: Part, names: Sequence[str]) -> _Named:
        place = part.grid.place
        return cls(part, names, np.array([place.get(t, -1) for t in names], dtype=np.intp))

    def column(self, name: str, level: bool = False) -> Floats:
        """A second of observed time, or on average."""
        part = self.part
        values = part.means(name) if level else part.totals(name) / max(part.observed_s, 1e-300)
        idle = 0.0 if part.observed_s else np.nan
        return np.append(values, idle)[self.at]  # the last stands for those that are not there
