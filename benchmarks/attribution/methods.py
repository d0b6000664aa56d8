"""Who is to blame, by several methods on one window: ours, rung by rung, and four rivals.

Pure functions of a case. The rivals are told what they cannot find: who is hurt, and in which
minutes (ours finds both). A rival's shares are pairwise: of each victim's excess wait over the
other tenants, by the method's own score; none of them knows of *self* or *capacity*.

as charged          the matrix's excess before it is handed on: who held, not whose doing it was
token share         the part of the tokens served in those minutes
Pearson             correlation over the minutes of a tenant's KV bytes with the victim's wait
CPI2                antagonist score of Zhang et al., EuroSys 2013, section 4.2: the victim's wait a
                    request (their cycles an instruction) with a tenant's service (their CPU)
KV over baseline    a tenant's KV bytes beyond its own usual, minute by minute, times the wait
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from benchmarks.attribution.scenarios import CAPACITY
from benchmarks.attribution.truth import LATENCY, OTHERS, SELF, WAIT
from telemetry.attribution import CAPACITY_HELD, SELF_HELD, Line
from telemetry.case import Case, open_case
from telemetry.findings import examine
from telemetry.verdict import TENANT, UNKNOWN, Verdict, judge_case
from telemetry.window import Bucket, Window, tenants_of, value_in, wait_s

RUNG_1, RUNG_2, CHARGED = "rung 1", "rung 2", "as charged"
TOKEN_SHARE, PEARSON, CPI2, KV_OVER = "token share", "Pearson", "CPI2", "KV over baseline"
RIVALS = (TOKEN_SHARE, PEARSON, CPI2, KV_OVER)
METHODS = (RUNG_2, CHARGED, RUNG_1, *RIVALS)
# From this score on a method accuses its first. CPI2's is the paper's; the others' are half of the
# blame, and the correlation that is commonly called strong.
ACCUSES = {CHARGED: 0.5, RUNG_1: 0.5, TOKEN_SHARE: 0.5, PEARSON: 0.7, CPI2: 0.35, KV_OVER: 0.5}


@dataclass(frozen=True, slots=True)
class Answer:
    """`shares` of the victims' excess close to 1, or are empty; `score` is the first one's, in the
    method's own unit; `named` is whom it accuses, None = nobody."""

    method: str
    first: str | None
    shares: Mapping[str, float]
    score: float
    named: str | None


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything said of one window. `victims` and `measure` say of what the shares are."""

    verdict: Verdict
    victims: tuple[str, ...]
    measure: str
    answers: tuple[Answer, ...]

    def of(self, method: str) -> Answer:
        return next(a for a in self.answers if a.method == method)

    @property
    def abstained(self) -> bool:
        return self.verdict.kind == UNKNOWN


def judge(window: Window) -> Judged:
    case = open_case(window)
    verdict = judge_case(case, examine(case))
    victims = tuple(v.tenant for v in case.victims or case.hurt)
    measure = LATENCY if case.stalled else WAIT
    answers = [_rung_2(case, verdict), _charged(case), _rung_1(case, victims)]
    answers += [_rival(case, victims, name) for name in RIVALS]
    return Judged(verdict, victims, measure, tuple(answers))


def _rung_2(case: Case, verdict: Verdict) -> Answer:
    """Whom the verdict names: the share alone accuses nobody. First is whom it lists first; of no
    culprits, the tenant with the largest share."""
    named = verdict.tenant if verdict.kind == TENANT else None
    found = _of_lines(RUNG_2, case.lines)
    first = verdict.culprits[0].tenant if verdict.culprits else found.first
    return replace(found, first=first, named=named)


def _charged(case: Case) -> Answer:
    found = _of_lines(CHARGED, case.charged)
    return replace(found, named=found.first if found.score >= ACCUSES[CHARGED] else None)


def _of_lines(method: str, lines: Sequence[Line]) -> Answer:
    shares: dict[str, float] = {}
    for line in lines:
        if line.share:
            who = line.holder.name if line.holder.is_tenant else OTHERS
            who = {SELF_HELD: SELF, CAPACITY_HELD: CAPACITY}.get(line.holder, who)
            shares[who] = shares.get(who, 0.0) + line.share
    top = next((x for x in lines if x.holder.is_tenant and x.excess_s), None)
    return Answer(method, top.holder.name if top else None, shares, top.share if top else 0.0, None)


def _rung_1(case: Case, victims: Sequence[str]) -> Answer:
    """What rose beyond usual and common growth, of service and KV bytes in equal parts."""
    sums: dict[str, float] = {}
    for resource in ("service", "KV bytes"):
        over: dict[str, float] = {}
        for r in case.rises:
            if r.resource == resource and r.rose:
                over[r.tenant] = r.now if r.ratio is None else r.now * (1 - 1 / r.ratio)
        whole = sum(over.values())
        for tenant, amount in over.items():
            sums[tenant] = sums.get(tenant, 0.0) + amount / whole
    pairs = {v: {t: s for t, s in sums.items() if t != v} for v in victims}
    return _answer(RUNG_1, case, pairs, None)


# ---------------------------------------------------------------- the rivals


def _rival(case: Case, victims: Sequence[str], name: str) -> Answer:
    score: Callable[[Case, str, str], float] = _SCORES[name]
    names = tenants_of(case.buckets)
    pairs = {v: {t: max(0.0, score(case, v, t)) for t in names if t != v} for v in victims}
    # A correlation is compared with its threshold as it is; the others' scores are shares.
    return _answer(name, case, pairs, max if name in (PEARSON, CPI2) else None)


def _answer(
    method: str,
    case: Case,
    pairs: Mapping[str, Mapping[str, float]],
    raw: Callable[[list[float]], float] | None,
) -> Answer:
    weights = {v: case.basis.accounts[v].excess_s for v in pairs}
    if not any(weights.values()):
        weights = dict.fromkeys(pairs, 1.0)
    sums: dict[str, float] = {}
    for victim, scores in pairs.items():
        whole = sum(scores.values())
        for tenant, s in scores.items():
            if s:
                sums[tenant] = sums.get(tenant, 0.0) + weights[victim] * s / whole
    total = sum(sums.values())
    shares = {t: s / total for t, s in sums.items()} if total else {}
    first = max(sorted(shares), key=lambda t: shares[t], default=None)
    if first is None:
        return Answer(method, None, {}, 0.0, None)
    score = raw([p.get(first, 0.0) for p in pairs.values()]) if raw else shares[first]
    return Answer(method, first, shares, score, first if score >= ACCUSES[method] else None)


def _token_share(case: Case, victim: str, tenant: str) -> float:
    return sum(value_in(b, tenant, "service") or 0.0 for b in case.buckets)


def _minutes(case: Case) -> list[Bucket]:
    return [*case.baseline.buckets, *case.buckets]


def _pearson(case: Case, victim: str, tenant: str) -> float:
    minutes = _minutes(case)
    waits = [_rate(wait_s(b, victim), b) for b in minutes]
    held = [value_in(b, tenant, "kv_bytes_avg") or 0.0 for b in minutes]
    mean_w, mean_h = fmean(waits), fmean(held)
    spread = pstdev(waits) * pstdev(held)
    both = fmean((w - mean_w) * (h - mean_h) for w, h in zip(waits, held, strict=True))
    return both / spread if spread else 0.0


def _cpi2(case: Case, victim: str, tenant: str) -> float:
    """The threshold is the calm minutes' mean and two deviations; usage adds up to 1."""
    minutes = _minutes(case)
    calm = [_wait_a_request(b, victim) for b in case.baseline.buckets]
    bound = fmean(calm) + 2 * pstdev(calm) + 1e-3 if calm else 0.0
    used = [value_in(b, tenant, "service") or 0.0 for b in minutes]
    whole = sum(used)
    if not whole or not bound:
        return 0.0
    score = 0.0
    for b, u in zip(minutes, used, strict=True):
        hurt = _wait_a_request(b, victim)
        score += u / whole * ((1 - bound / hurt) if hurt > bound else (hurt / bound - 1))
    return score


def _kv_over(case: Case, victim: str, tenant: str) -> float:
    usual = {t: _usual_kv(case, t) for t in tenants_of(case.buckets)}
    calm_wait = case.baseline.waits.get(victim, 0.0)
    score = 0.0
    for b in case.buckets:
        over = {
            t: max(0.0, (value_in(b, t, "kv_bytes_avg") or 0.0) - u)
            for t, u in usual.items()
            if t != victim
        }
        whole = sum(over.values())
        if whole:
            waited = max(0.0, (wait_s(b, victim) or 0.0) - calm_wait * b.observed_s)
            score += waited * over[tenant] / whole
    return score


def _usual_kv(case: Case, tenant: str) -> float:
    calm = [value_in(b, tenant, "kv_bytes_avg") or 0.0 for b in case.baseline.buckets]
    return fmean(calm) if calm else 0.0


def _rate(seconds: float | None, bucket: Bucket) -> float:
    return (seconds or 0.0) / bucket.observed_s if bucket.observed_s else 0.0


def _wait_a_request(bucket: Bucket, tenant: str) -> float:
    asked = value_in(bucket, tenant, "admitted_requests") or 0.0
    return (wait_s(bucket, tenant) or 0.0) / max(1.0, asked)


_SCORES: Mapping[str, Callable[[Case, str, str], float]] = {
    TOKEN_SHARE: _token_share, PEARSON: _pearson, CPI2: _cpi2, KV_OVER: _kv_over,
}  # fmt: skip
