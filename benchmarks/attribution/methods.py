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

import numpy as np

from benchmarks.attribution.scenarios import CAPACITY
from benchmarks.attribution.truth import LATENCY, OTHERS, SELF, WAIT
from telemetry.attribution import CAPACITY_HELD, SELF_HELD, Line
from telemetry.case import Case, open_case
from telemetry.findings import examine
from telemetry.grid import Floats
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
    names = tenants_of(case.buckets)
    pairs = {
        v: {t: max(0.0, s) for t, s in zip(names, row, strict=True) if t != v}
        for v, row in zip(victims, scores(case, victims, name).tolist(), strict=True)
    }
    # A correlation is compared with its threshold as it is; the others' scores are shares.
    return _answer(name, case, pairs, max if name in (PEARSON, CPI2) else None)


def scores(case: Case, victims: Sequence[str], rival: str) -> Floats:
    """A rival's score by victim and tenant of the judged buckets; a tenant's with itself says
    nothing."""
    return _SCORES[rival](case, victims, tenants_of(case.buckets))


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


def _token_share(case: Case, victims: Sequence[str], names: Sequence[str]) -> Floats:
    served = _values(case.buckets, names, "service").sum(axis=0)
    return np.tile(served, (len(victims), 1))


def _pearson(case: Case, victims: Sequence[str], names: Sequence[str]) -> Floats:
    minutes = _minutes(case)
    waits = _wait_rates(minutes, victims)
    held = _values(minutes, names, "kv_bytes_avg")
    spread = np.outer(waits.std(axis=0), held.std(axis=0))
    both = (waits - waits.mean(axis=0)).T @ (held - held.mean(axis=0)) / len(minutes)
    return np.where(spread > 0, both / np.where(spread > 0, spread, 1.0), 0.0)


def _cpi2(case: Case, victims: Sequence[str], names: Sequence[str]) -> Floats:
    """The threshold is the calm minutes' mean and two deviations; usage adds up to 1."""
    calm = len(case.baseline.buckets)
    if not calm:
        return np.zeros((len(victims), len(names)))
    minutes = _minutes(case)
    hurt = _waits_a_request(minutes, victims)
    bound = hurt[:calm].mean(axis=0) + 2 * hurt[:calm].std(axis=0) + 1e-3
    over = np.where(hurt > bound, 1 - bound / np.where(hurt > 0, hurt, 1.0), hurt / bound - 1)
    used = _values(minutes, names, "service")
    whole = used.sum(axis=0)
    return np.asarray(over.T @ (used / np.where(whole > 0, whole, 1.0)))


def _kv_over(case: Case, victims: Sequence[str], names: Sequence[str]) -> Floats:
    calm = _values(case.baseline.buckets, names, "kv_bytes_avg")
    usual = calm.mean(axis=0) if len(calm) else np.zeros(len(names))
    over = np.maximum(0.0, _values(case.buckets, names, "kv_bytes_avg") - usual)
    seen = np.array([b.observed_s for b in case.buckets])[:, None]
    rates = np.array([case.baseline.waits.get(v, 0.0) for v in victims])
    waited = np.maximum(0.0, _waits(case.buckets, victims) - rates * seen)
    own = [names.index(v) if v in names else None for v in victims]
    mine = np.array([np.zeros(len(over)) if i is None else over[:, i] for i in own])
    others = over.sum(axis=1)[:, None] - mine.reshape(len(victims), len(over)).T
    part = np.where(others > 0, waited / np.where(others > 0, others, 1.0), 0.0)
    return np.asarray(part.T @ over)


def _minutes(case: Case) -> list[Bucket]:
    return [*case.baseline.buckets, *case.buckets]


def _values(buckets: Sequence[Bucket], names: Sequence[str], column: str) -> Floats:
    """A column by bucket and tenant; what is not known counts as none."""
    rows = [[value_in(b, t, column) or 0.0 for t in names] for b in buckets]
    return np.array(rows, dtype=np.float64).reshape(len(buckets), len(names))


def _waits(buckets: Sequence[Bucket], victims: Sequence[str]) -> Floats:
    rows = [[wait_s(b, v) or 0.0 for v in victims] for b in buckets]
    return np.array(rows, dtype=np.float64).reshape(len(buckets), len(victims))


def _wait_rates(buckets: Sequence[Bucket], victims: Sequence[str]) -> Floats:
    seen = np.array([b.observed_s for b in buckets])[:, None]
    return _waits(buckets, victims) / np.where(seen > 0, seen, np.inf)


def _waits_a_request(buckets: Sequence[Bucket], victims: Sequence[str]) -> Floats:
    asked = np.maximum(1.0, _values(buckets, victims, "admitted_requests"))
    return _waits(buckets, victims) / asked


_SCORES: Mapping[str, Callable[[Case, Sequence[str], Sequence[str]], Floats]] = {
    TOKEN_SHARE: _token_share, PEARSON: _pearson, CPI2: _cpi2, KV_OVER: _kv_over,
}  # fmt: skip
