"""A case: a window with its baseline, the incident in it and the accounts over that incident.

What every finding reads. Built once a judgement by `open_case`; decides nothing by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from telemetry.attribution import (
    SELF_HELD,
    STALL_REASONS,
    Account,
    Attribution,
    Line,
    Reckoning,
    Rise,
    attribute,
    capacity_missing,
    rises,
)
from telemetry.baseline import MAX_BUCKETS, SLOW, Baseline, Pace, choose_baseline, pace_of
from telemetry.grid import Part
from telemetry.incidents import Episode, episodes
from telemetry.makers import makers_of
from telemetry.window import Bucket, Window, observed_s

MOST_EPISODES = 5  # looked at, worst first, for one that hurt somebody
SELF_SHARE = 0.5  # of a tenant's own excess: from here on it waits behind itself
MIN_MISSES = 2.0  # misses beyond usual that hurt
MIN_KEPT = 3  # requests judged, none missed: the promise was kept
WAIT_FLOOR_S = 2.0  # excess wait that hurts, at least
WAIT_FLOOR_SHARE = 0.05  # ... and of the judged time
WAIT_FLOOR_REQUEST_S = 0.25  # ... and a request


@dataclass(frozen=True, slots=True)
class Victim:
    """A tenant that was hurt, with its numbers over the judged buckets.

    `requests` were admitted, `usual_miss_share` is the baseline's. `self_inflicted`: most of its
    excess is behind itself.
    """

    tenant: str
    missed: int
    eligible: int
    requests: int
    usual_miss_share: float
    waited_s: float
    excess_s: float
    self_inflicted: bool
    behind: Line | None

    @property
    def miss_share(self) -> float:
        return self.missed / self.eligible if self.eligible else 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """`buckets` are the judged ones: the incident's, or the whole window where there is none.

    `pace` is over the judged buckets, `onset_pace` over `to_worst`, those up to the worst of them:
    what follows is drain, in which nobody asks for more any longer.
    `accounts` are over waits, as charged; `basis` over waits, or over stalls where those who missed
    did not wait, handed on to whoever rose and to lost capacity. `lines` is the victims' excess by
    whose doing it was, `charged` by holder as it stands in the matrix; of everyone hurt where all
    hurt themselves.
    `rises` are those of what rose, `risen` the same by tenant; `makers` are those of them that
    are charged enough to have made the line. `others` are episodes of the window that were not
    judged.
    """

    window: Window
    baseline: Baseline
    incident: Episode | None
    others: tuple[Episode, ...]
    buckets: tuple[Bucket, ...]
    to_worst: tuple[Bucket, ...]
    pace: Pace
    onset_pace: Pace
    accounts: Attribution
    basis: Attribution
    rises: tuple[Rise, ...]
    hurt: tuple[Victim, ...]
    part: Part
    lines: tuple[Line, ...]
    charged: tuple[Line, ...]
    risen: Mapping[str, tuple[Rise, ...]]
    makers: frozenset[str]

    @property
    def victims(self) -> tuple[Victim, ...]:
        """Hurt by something other than themselves."""
        return tuple(v for v in self.hurt if not v.self_inflicted)

    @property
    def start(self) -> float:
        return self.buckets[0].start if self.buckets else self.window.start

    @property
    def end(self) -> float:
        return self.buckets[-1].end if self.buckets else self.window.end

    @property
    def slow(self) -> bool:
        """Steps took a fifth longer than usual at equal batch, up to the worst of the incident:
        the drain after it runs at the old pace again."""
        return any(
            p.slowdown is not None and p.slowdown >= SLOW for p in (self.pace, self.onset_pace)
        )

    @property
    def stalled(self) -> bool:
        """Whether the accounts are over stalls: those who missed did not wait."""
        return self.basis.reasons == STALL_REASONS

    def rose(self, tenant: str) -> tuple[Rise, ...]:
        return self.risen.get(tenant, ())

    def total(self, tenant: str, column: str) -> float | None:
        """A tenant's sum over the judged buckets; None where it is not known."""
        return self.part.total(tenant, column)

    def beyond(self, tenant: str, column: str) -> float:
        """The same beyond what is usual in that time, not below 0."""
        usual = (self.baseline.rate(tenant, column) or 0.0) * self.part.observed_s
        return max(0.0, (self.total(tenant, column) or 0.0) - usual)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Those that have a row in the judged buckets."""
        return self.part.active()


Known = list[tuple[tuple[Bucket, ...], Attribution]]


def open_case(
    window: Window, baseline: Baseline | None = None, reckoned: Reckoning | None = None
) -> Case:
    """Find the incident and add up the accounts. A tenant that waits behind itself does not
    decide when the incident begins, unless nobody else is hurt. The worst episode in which
    somebody is hurt beyond the floors is judged; where there is none, the whole window.
    `reckoned`: what somebody has added up of this window already; of no use, and not used, where it
    is of another one or of another baseline."""
    if reckoned is not None and not reckoned.is_of(window):
        reckoned = None
    base = baseline
    if base is None:
        base = choose_baseline(window) if reckoned is None else reckoned.baseline
    known: Known = []
    if reckoned is not None and reckoned.baseline is base:
        known.append((reckoned.buckets, reckoned.made))
    usual = {b.start for b in base.buckets}
    asked = tuple(b for b in window.asked if b.known)
    unusual = tuple(b for b in asked if b.start not in usual) or asked
    found: tuple[Episode, ...] = ()
    if base.usable:
        made = _attributed(unusual, base, window.part(unusual), known)
        found = episodes(window, base, _self_inflicted(made)) or episodes(window, base)
    for incident in sorted(found, key=lambda e: -e.severity)[:MOST_EPISODES]:
        case = _judged(window, base, incident, found, incident.buckets, known)
        if case.hurt:
            return case
    return _judged(window, base, None, (), asked, known)


def _attributed(
    buckets: tuple[Bucket, ...], base: Baseline, part: Part, known: Known
) -> Attribution:
    """The attribution of these buckets' waits: one of those known where it is of the very same
    ones, else made, and known from here on."""
    for its, made in known:
        if len(its) == len(buckets) and all(a is b for a, b in zip(its, buckets, strict=True)):
            return made
    made = attribute(buckets, base, part=part)
    known.append((buckets, made))
    return made


def _judged(
    window: Window,
    base: Baseline,
    incident: Episode | None,
    found: tuple[Episode, ...],
    buckets: tuple[Bucket, ...],
    known: Known,
) -> Case:
    pace = Pace(pace_of(buckets), pace_of(base.buckets))
    part = window.part(buckets)
    accounts = _attributed(buckets, base, part, known)
    before = _before(window, buckets)
    found_rises = rises(buckets, base, accounts.growth, part, before, risen_alone=True)
    rose = sorted(found_rises, key=lambda r: r.tenant)
    risen = {t: tuple(rs) for t, rs in groupby(rose, key=lambda r: r.tenant)}
    hurt = _hurt(part, base, accounts, pace, risen) if incident else ()
    basis = accounts
    victims = [v.tenant for v in hurt if not v.self_inflicted]
    if victims and not any(_waits_matter(accounts.accounts[v], buckets) for v in victims):
        stalls = attribute(buckets, base, reasons=STALL_REASONS, part=part)
        if sum(stalls.accounts[v].excess_s for v in victims) >= WAIT_FLOOR_S:
            basis = stalls
    missing = capacity_missing(buckets, base) if base.usable else 0.0
    judged_by = victims or [v.tenant for v in hurt]
    makers = makers_of(basis, judged_by, risen, base, part)
    basis = basis.handed_on(risen, makers, missing)
    hurt = tuple(replace(v, behind=basis.accounts[v.tenant].top) for v in hurt)
    to_worst = _to_the_worst(buckets, part)
    return Case(
        window=window,
        baseline=base,
        incident=incident,
        others=tuple(e for e in found if e is not incident),
        buckets=buckets,
        to_worst=to_worst,
        pace=pace,
        onset_pace=Pace(pace_of(to_worst), pace.usual),
        accounts=accounts,
        basis=basis,
        rises=found_rises,
        hurt=hurt,
        part=part,
        lines=basis.pool(judged_by),
        charged=basis.charged(judged_by),
        risen=risen,
        makers=makers,
    )


def _before(window: Window, buckets: Sequence[Bucket]) -> Part:
    """The last buckets before these, calm or not, as many as a baseline has at most."""
    start = buckets[0].start if buckets else window.start
    line = [b for b in window.buckets if b.start < start and b.observed_s >= 0.5 * b.length_s]
    return window.part(line[-MAX_BUCKETS:])


def _to_the_worst(buckets: tuple[Bucket, ...], part: Part) -> tuple[Bucket, ...]:
    """Up to the bucket with the most waiting."""
    if not buckets:
        return buckets
    waits = np.nansum(part.grid.waits()[part.at], axis=1)
    return buckets[: 1 + int(np.argmax(waits))]


def _self_inflicted(made: Attribution) -> Collection[str]:
    return {t for t, part in made.held.shares(SELF_HELD).items() if part >= SELF_SHARE}


def _waits_matter(account: Account, buckets: Sequence[Bucket]) -> bool:
    return account.net_s >= _floor_s(buckets)


def _floor_s(buckets: Sequence[Bucket]) -> float:
    """Excess wait that hurts, in so long a time."""
    return max(WAIT_FLOOR_S, WAIT_FLOOR_SHARE * observed_s(buckets))


def _most_by_itself(account: Account) -> bool:
    """Behind itself longer than behind all other tenants together: free pages and pins that it
    waited for beside are no one else's doing."""
    others = sum(x.excess_s for x in account.lines if x.holder.is_tenant)
    return account.share(SELF_HELD) * account.excess_s > max(others, 0.0)


def _hurt(
    part: Part,
    baseline: Baseline,
    made: Attribution,
    pace: Pace,
    risen: Collection[str],
) -> tuple[Victim, ...]:
    slow = pace.slowdown is not None and pace.slowdown >= SLOW
    out: list[Victim] = []
    buckets = [part.grid.buckets[i] for i in part.at.tolist()]
    floor_s = _floor_s(buckets)
    tenants = part.active()

    def of(column: str) -> list[float]:
        return [v or 0.0 for v in part.totals_of(tenants, column)]

    for tenant, missed, judged, admitted, ended in zip(
        tenants, of("slo_missed"), of("slo_eligible"), of("admitted_requests"), of("finished"),
        strict=True,
    ):  # fmt: skip
        account = made.accounts[tenant]
        eligible = max(missed, judged)
        share = baseline.miss_share.get(tenant, 0.0)
        over = missed - share * eligible
        misses = over >= MIN_MISSES and missed > 2 * share * eligible
        requests = max(admitted, ended)
        waits = (
            account.net_s >= floor_s
            and account.waited_s >= 2 * account.usual_s
            and account.net_s >= WAIT_FLOOR_REQUEST_S * max(1.0, requests)
        )
        # Whoever kept every target it was judged by waits longer, but is not hurt.
        kept = eligible >= MIN_KEPT and not missed
        if not misses and (kept or not waits):
            continue
        # A slow engine makes a lone tenant queue behind itself: not its doing unless it asks more.
        own = account.share(SELF_HELD) >= SELF_SHARE and (tenant in risen or not slow)
        own = own or (tenant in risen and not slow and _most_by_itself(account))
        out.append(
            Victim(
                tenant,
                int(missed),
                int(eligible),
                int(requests),
                share,
                account.waited_s,
                account.excess_s,
                own and account.excess_s > 0,
                None,  # said once it is known whose doing it was
            )
        )
    return tuple(sorted(out, key=lambda v: (v.self_inflicted, -v.excess_s, -v.missed, v.tenant)))
