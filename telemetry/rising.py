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

from telemetry.baseline import Baseline, fewer_workers, step_growth
from telemetry.grid import Floats, Part
from telemetry.growth import Growth, demands
from telemetry.window import Bucket, observed_s, part_of

ROSE = 1.5  # tokens, service and levels: now over usual, beyond the common growth
ROSE_REQUESTS = 1.3  # requests alike: their count is what the deviations are of
FROM_NOTHING = 0.05  # of the pool's total, where a tenant had none before
DEVIATIONS = 3.0
LENGTHS_VARY = 1.3  # of a count's deviation, where it is tokens that are counted
LENGTH_KNOWN = 3.0  # requests of its own from which a tenant's usual length counts most
FEW_PEERS = 3  # tenants whose median growth is asked where too few speak for the pool

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
) -> tuple[Rise, ...]:
    """Every resource of every tenant against its own baseline, greatest first. `before`: all that
    was observed before these buckets, calm or not; who asks for no more than it did on average
    then has not risen.

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
    present = _present_s(baseline, names)
    out: list[Rise] = []
    beyond = _beyond_chance(buckets, baseline, growth, made, names, present, before)
    risen = np.any(np.array([*beyond.values()]), axis=0)
    counted: set[str] = set()  # of whom a flow rose; flows stand before levels
    for resource, column, unit, level in _RESOURCES:
        now_of = _by_name(made, names, column, level)
        usual_of = _by_name(baseline.part, names, column, level) * baseline.observed_s / present
        there = ~(np.isnan(now_of) | np.isnan(usual_of))
        whole = float(now_of[there].sum())
        for i in np.flatnonzero(there).tolist():
            usual, now = float(usual_of[i]), float(now_of[i])
            share = now / whole if whole else 0.0
            ratio = now / usual / (longer if level else common) if usual else None
            more = share >= FROM_NOTHING if ratio is None else ratio >= ROSE
            if level:
                rose = more and names[i] in counted
            else:
                sure = more if ratio is None else more or bool(beyond[column][i])
                rose = bool(risen[i]) and sure and now > 0
            if rose:
                counted.add(names[i])
            out.append(Rise(names[i], resource, unit, usual, now, ratio, share, rose))
    return tuple(sorted(out, key=_greatest_first))


def _beyond_chance(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    growth: Growth,
    part: Part,
    names: Sequence[str],
    present: Floats,
    before: Part | None,
) -> dict[str, npt.NDArray[np.bool_]]:
    """By flow column: which of these tenants asked for or got more than chance explains; `present`
    is how long each of them was there."""
    seen = part.observed_s
    scale = _growths(buckets, baseline, growth, part, names)
    longer = baseline.observed_s / present

    def usually(column: str, calm: Floats) -> Floats:
        rates = _or_anybodys(calm * longer)
        if before is not None and before.observed_s:
            rates = np.maximum(rates, np.nan_to_num(_by_name(before, names, column, False)))
        return rates * seen * scale

    known = np.nan_to_num(_by_name(baseline.part, names, "offered_requests", False))
    usual = usually("offered_requests", known)
    now = np.nan_to_num(_by_name(part, names, "offered_requests", False)) * seen
    # The variance of what came and of what is usual, the one more that a count of none may be.
    spread = DEVIATIONS * np.sqrt((usual + 1.0) * (1.0 + seen / present))
    out = {"offered_requests": (now - usual > spread) & (now > ROSE_REQUESTS * usual)}
    for column in ("offered_tokens", "service"):
        asked = np.nan_to_num(_by_name(baseline.part, names, column, False))
        was = usually(column, asked)
        is_ = np.nan_to_num(_by_name(part, names, column, False)) * seen
        least = FROM_NOTHING * is_.sum()
        if known.sum() > 0:
            least = LENGTHS_VARY * spread * _lengths(known, asked, baseline.observed_s)
        out[column] = (is_ >= ROSE * was) & (is_ - was > least)
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


def _by_name(part: Part, names: Sequence[str], column: str, level: bool) -> Floats:
    """A column of these tenants: a second of observed time, or on average."""
    values = part.means(column) if level else part.totals(column) / max(part.observed_s, 1e-300)
    idle = 0.0 if part.observed_s else np.nan
    at = [part.grid.place.get(t) for t in names]
    return np.array([idle if i is None else values[i] for i in at], dtype=np.float64)


def _greatest_first(rise: Rise) -> tuple[bool, float, str]:
    return (not rise.rose, -(rise.ratio if rise.ratio is not None else 1e9), rise.tenant)
