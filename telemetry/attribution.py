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

from telemetry.baseline import Baseline, Growth, growth_of, pace_of, step_growth
from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT, WAIT_REASONS
from telemetry.window import (
    Bucket,
    Cell,
    engine_total,
    mean,
    observed_s,
    tenants_of,
    total,
    wait_s,
)

STALL_REASONS: tuple[str, ...] = ("stall",)
CANDIDATE_SHARE = 0.1  # of the raw excess: such a tenant's growth is not the pool's
ROSE = 1.5  # now over usual, beyond the common growth
FROM_NOTHING = 0.05  # of the pool's total, where a tenant had none before


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Who held: a tenant by name, or self, capacity, policy, others (then `name` is empty)."""

    kind: str
    name: str = ""

    @property
    def is_tenant(self) -> bool:
        return self.kind == TENANT


SELF_HELD = Holder(SELF)
CAPACITY_HELD = Holder(CAPACITY)
POLICY_HELD = Holder(POLICY)
OTHERS_HELD = Holder(OTHERS)
NOT_TENANTS = (SELF_HELD, CAPACITY_HELD, POLICY_HELD, OTHERS_HELD)


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of one victim (or of all) behind one holder. `share` is of the excess.

    `reasons` splits `excess_s` by reason and closes to it.
    """

    holder: Holder
    charged_s: float
    excess_s: float
    share: float
    reasons: tuple[tuple[str, float], ...]


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
    lines: tuple[Line, ...]

    def share(self, holder: Holder) -> float:
        return next((x.share for x in self.lines if x.holder == holder), 0.0)

    @property
    def top(self) -> Line | None:
        """The line with the largest excess; None where there is no excess."""
        best = max(self.lines, key=lambda x: x.excess_s, default=None)
        return best if best is not None and best.excess_s > 0 else None


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

    def pool(self, victims: Collection[str]) -> tuple[Line, ...]:
        """The victims' accounts added up: shares of all their excess."""
        return merge([self.accounts[v] for v in victims if v in self.accounts])


# Resource: column, unit, whether it is a level (an average, lengthened by slow steps).
_RESOURCES: tuple[tuple[str, str, str, bool], ...] = (
    ("tokens offered", "offered_tokens", "token/s", False),
    ("requests offered", "offered_requests", "1/s", False),
    ("service", "service", "1/s", False),
    ("KV bytes", "kv_bytes_avg", "By", True),
    ("adapter bytes", "adapter_bytes_avg", "By", True),
)
RESOURCES: tuple[str, ...] = tuple(name for name, *_ in _RESOURCES)


def attribute(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    *,
    reasons: Sequence[str] = WAIT_REASONS,
) -> Attribution:
    """Rung 2 over these buckets. Tenants that hold a tenth of the raw excess are candidates:
    their own growth does not count as the pool's."""
    raw = _accounts(buckets, baseline, 1.0, reasons)
    whole = sum(a.excess_s for a in raw.values())
    held: dict[str, float] = {}
    for account in raw.values():
        for x in account.lines:
            holder = account.tenant if x.holder == SELF_HELD else x.holder.name
            if x.holder.is_tenant or x.holder == SELF_HELD:
                held[holder] = held.get(holder, 0.0) + x.excess_s
    candidates = {t for t, s in held.items() if whole and s >= CANDIDATE_SHARE * whole}
    growth = growth_of(buckets, baseline, candidates)
    accounts = raw if growth.factor == 1.0 else _accounts(buckets, baseline, growth.factor, reasons)
    return Attribution(
        observed_s(buckets),
        growth,
        usual_pace_of(baseline),
        tuple(reasons),
        accounts,
        sum(b.charges_missing for b in buckets),
    )


def _accounts(
    buckets: Sequence[Bucket], baseline: Baseline, growth: float, reasons: Sequence[str]
) -> dict[str, Account]:
    seen = observed_s(buckets)
    cells: dict[str, dict[Holder, dict[str, list[float]]]] = {}
    usual_pace = usual_pace_of(baseline)
    for b in buckets:
        for c, charged in _with_usual_pace(b, usual_pace).items():
            if c.reason in reasons:
                _cell(cells, c.victim, Holder(c.kind, c.holder), c.reason)[0] += charged
    for c, rate in baseline.matrix.items():
        if c.reason in reasons and c.victim in cells:
            usual = rate * seen * growth
            _cell(cells, c.victim, Holder(c.kind, c.holder), c.reason)[1] += usual
    out: dict[str, Account] = {}
    for tenant in sorted({*tenants_of(buckets), *cells}):
        waited, usual = _waited(buckets, baseline, tenant, seen * growth, reasons)
        lines = _lines(cells.get(tenant, {}))
        out[tenant] = Account(
            tenant,
            waited,
            usual,
            max(0.0, waited - usual),
            sum(x.charged_s for x in lines),
            sum(x.excess_s for x in lines),
            lines,
        )
    return out


def usual_pace_of(baseline: Baseline) -> float:
    """How much longer than modelled steps take on calm buckets; 1 where that is not known."""
    pace = pace_of(baseline.buckets) if baseline.usable else None
    return max(1.0, pace or 1.0)


def _with_usual_pace(bucket: Bucket, usual_pace: float) -> Mapping[Cell, float]:
    """The bucket's matrix with the usual slowness given back to the holders.

    A model that reads low by the same factor on calm buckets is a mis-scaled model, no slow
    engine: of what was booked as lost capacity only the part beyond `usual_pace` x predicted
    stays; the rest goes to the holders of the same wait in proportion. Rows still sum to it.
    """
    busy, predicted = engine_total([bucket], "busy_s"), engine_total([bucket], "predicted_s")
    if usual_pace <= 1.0 or busy is None or not predicted or busy <= predicted:
        return bucket.matrix
    beyond = max(0.0, busy - usual_pace * predicted) / (busy - predicted)
    held: dict[tuple[str, str], float] = {}
    for c, charged in bucket.matrix.items():
        if c.kind != CAPACITY:
            held[c.victim, c.reason] = held.get((c.victim, c.reason), 0.0) + charged
    out: dict[Cell, float] = {}
    for c, charged in bucket.matrix.items():
        lost = bucket.matrix.get(Cell(c.victim, c.reason, CAPACITY, ""), 0.0)
        others = held.get((c.victim, c.reason), 0.0)
        # Pages that are free are capacity too, and no matter of pace.
        if c.reason == "kv" or others <= 0:
            out[c] = charged
        elif c.kind == CAPACITY:
            out[c] = charged * beyond
        else:
            out[c] = charged * (1 + lost * (1 - beyond) / others)
    return out


def _cell(
    cells: dict[str, dict[Holder, dict[str, list[float]]]], victim: str, holder: Holder, reason: str
) -> list[float]:
    """The pair (charged, usual) of a cell, made where it is not there yet."""
    return cells.setdefault(victim, {}).setdefault(holder, {}).setdefault(reason, [0.0, 0.0])


def _waited(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    tenant: str,
    scaled_s: float,
    reasons: Sequence[str],
) -> tuple[float, float]:
    if tuple(reasons) == STALL_REASONS:
        now = total(buckets, tenant, "stall_s") or 0.0
        return now, (baseline.rate(tenant, "stall_s") or 0.0) * scaled_s
    now = sum(wait_s(b, tenant) or 0.0 for b in buckets)
    return now, baseline.waits.get(tenant, 0.0) * scaled_s


def _lines(holders: Mapping[Holder, Mapping[str, Sequence[float]]]) -> tuple[Line, ...]:
    drafts: list[tuple[Holder, float, float, tuple[tuple[str, float], ...]]] = []
    for holder in {*holders, *NOT_TENANTS}:
        parts = holders.get(holder, {})
        charged = sum(p[0] for p in parts.values())
        excess = max(0.0, charged - sum(p[1] for p in parts.values()))
        over = {r: max(0.0, p[0] - p[1]) for r, p in parts.items()}
        whole = sum(over.values())
        reasons = tuple(
            (r, excess * over[r] / whole) for r in sorted(over, key=lambda r: -over[r]) if over[r]
        )
        drafts.append((holder, charged, excess, reasons if excess else ()))
    return _ordered(drafts)


def _ordered(
    drafts: Iterable[tuple[Holder, float, float, tuple[tuple[str, float], ...]]],
) -> tuple[Line, ...]:
    rows = list(drafts)
    whole = sum(excess for _, _, excess, _ in rows)

    def place(row: tuple[Holder, float, float, tuple[tuple[str, float], ...]]) -> tuple[float, ...]:
        if row[0].is_tenant:
            return (0.0, -row[2], -row[1])
        return (1.0, float(NOT_TENANTS.index(row[0])))

    return tuple(
        Line(h, charged, excess, excess / whole if whole else 0.0, reasons)
        for h, charged, excess, reasons in sorted(rows, key=lambda r: (*place(r), r[0].name))
    )


def merge(accounts: Iterable[Account]) -> tuple[Line, ...]:
    """Accounts added up by holder; shares are of the whole."""
    sums: dict[Holder, tuple[float, float, dict[str, float]]] = {}
    for account in accounts:
        for x in account.lines:
            charged, excess, reasons = sums.get(x.holder, (0.0, 0.0, {}))
            for r, s in x.reasons:
                reasons[r] = reasons.get(r, 0.0) + s
            sums[x.holder] = (charged + x.charged_s, excess + x.excess_s, reasons)
    return _ordered(
        (h, c, e, tuple(sorted(reasons.items(), key=lambda p: -p[1])))
        for h, (c, e, reasons) in sums.items()
    )


# ---------------------------------------------------------------- rung 1


def rises(buckets: Sequence[Bucket], baseline: Baseline, growth: Growth) -> tuple[Rise, ...]:
    """Every resource of every tenant against its own baseline, greatest first.

    Flows are divided by the pool's growth where tenants speak for it; levels by how much longer a
    step takes now, because slow steps alone make everyone hold its pages longer.
    """
    seen = observed_s(buckets)
    if not seen or not baseline.usable:
        return ()
    common = growth.factor if growth.basis == "tenants" else 1.0
    slower = step_growth(buckets, baseline)
    out: list[Rise] = []
    names = tenants_of([*buckets, *baseline.buckets])
    for resource, column, unit, level in _RESOURCES:
        rows: list[tuple[str, float, float]] = []
        for tenant in names:
            if level:
                now, usual = mean(buckets, tenant, column), mean(baseline.buckets, tenant, column)
            else:
                summed = total(buckets, tenant, column)
                now = None if summed is None else summed / seen
                usual = baseline.rate(tenant, column)
            if now is not None and usual is not None:
                rows.append((tenant, usual, now))
        whole = sum(now for _, _, now in rows)
        for tenant, usual, now in rows:
            share = now / whole if whole else 0.0
            ratio = now / usual / (max(common, slower) if level else common) if usual else None
            rose = share >= FROM_NOTHING if ratio is None else ratio >= ROSE
            out.append(Rise(tenant, resource, unit, usual, now, ratio, share, rose and now > 0))
    return tuple(sorted(out, key=_greatest_first))


def _greatest_first(rise: Rise) -> tuple[bool, float, str]:
    return (not rise.rose, -(rise.ratio if rise.ratio is not None else 1e9), rise.tenant)
