"""What the replays say: who is restored, which remedy is cheapest, in which words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from postmortem.whatif.model import (
    MOST_IMPUTED,
    RANKS,
    RESTORED_MISSES,
    Outcome,
    Spread,
    TenantNumbers,
    Tried,
)
from telemetry.plain import name, percent, span_s

OTHERS_MISSES = 2  # of tenants neither hurt nor named: so many more are chance
USUAL_TIMES = 2.0  # a victim without targets is restored within so many times its usual p99


@dataclass(frozen=True, slots=True)
class Bar:
    """When a tenant counts as restored. `misses`: of its eligible requests, where it has targets;
    `p99_s`: TTFT, where it has none; None for both: nothing can be said of it."""

    tenant: str
    misses: float | None
    p99_s: float | None


def bars(
    victims: Iterable[str],
    targeted: Iterable[str],
    usual_misses: Mapping[str, float],
    usual_p99_s: Mapping[str, float | None],
) -> tuple[Bar, ...]:
    with_targets = set(targeted)
    out = []
    for t in victims:
        if t in with_targets:
            out.append(Bar(t, max(RESTORED_MISSES, usual_misses.get(t, 0.0)), None))
        else:
            p99 = usual_p99_s.get(t)
            out.append(Bar(t, None, None if p99 is None else USUAL_TIMES * p99))
    return tuple(out)


def restores(
    outcome: Outcome, bars: Sequence[Bar], baseline: Outcome, culprits: Sequence[str]
) -> bool:
    """Every victim that can be judged keeps its SLO, none of them by being refused, and no other
    tenant pays for it."""
    judged = [b for b in bars if b.misses is not None or b.p99_s is not None]
    if not judged or not all(_kept(outcome, b, baseline, culprits) for b in judged):
        return False
    named = {b.tenant for b in bars} | set(culprits)
    before, after = _beside(baseline, named), _beside(outcome, named)
    return after[0] <= before[0] + max(OTHERS_MISSES, RESTORED_MISSES * after[1])


def _kept(outcome: Outcome, bar: Bar, baseline: Outcome, culprits: Sequence[str]) -> bool:
    now, was = outcome.of(bar.tenant), baseline.of(bar.tenant)
    if now is None:
        return False
    if bar.tenant not in culprits and was is not None and now.refused > was.refused:
        return False
    if bar.misses is not None:
        return now.missed <= bar.misses * now.eligible
    return bar.p99_s is not None and (worst_s(now) or 0.0) <= bar.p99_s


def _beside(outcome: Outcome, named: set[str]) -> tuple[int, int]:
    """(missed, eligible) of everybody else."""
    own = [t for t in outcome.tenants if t.tenant in named]
    e = outcome.everyone
    return e.missed - sum(t.missed for t in own), e.eligible - sum(t.eligible for t in own)


def worst_s(numbers: TenantNumbers) -> float | None:
    """TTFT p99; the maximum where requests are few."""
    return numbers.ttft_max_s if numbers.ttft_p99_s is None else numbers.ttft_p99_s


def spread_of(outcomes: Sequence[Outcome], victims: Sequence[str]) -> Spread:
    worst: list[float] = []
    missed: list[int] = []
    for outcome in outcomes:
        hurt = [n for t in victims if (n := outcome.of(t)) is not None]
        times = [s for n in hurt if (s := worst_s(n)) is not None]
        if times:
            worst.append(max(times))
        missed.append(sum(n.missed for n in hurt))
    return Spread(
        len(outcomes),
        min(worst, default=None),
        max(worst, default=None),
        min(missed, default=0),
        max(missed, default=0),
    )


def problem_of(outcome: Outcome) -> str | None:
    if outcome.imputed_share > MOST_IMPUTED:
        return (
            f"{percent(outcome.imputed_share)} of the requests it serves have a made-up length; "
            f"at most {percent(MOST_IMPUTED)} would prove something"
        )
    return None


def cheapest(tried: Sequence[Tried], retries: str = "kept") -> Tried | None:
    """Of the remedies that restore and prove something, with retries and without where both were
    run: least rank, then fewest refused, now and in normal hours, then the order they were tried
    in. `retries`: which runs it is chosen from."""
    bad = {t.remedy.name for t in tried if not t.restored or t.problem is not None}
    good = [t for t in tried if t.retries == retries and t.remedy.name not in bad]
    return min(
        good,
        key=lambda t: (
            t.remedy.rank,
            t.outcome.everyone.refused + (t.calm.refused if t.calm is not None else 0),
        ),
        default=None,
    )


def words(best: Tried, baseline: Outcome, victims: Sequence[str], culprits: Sequence[str]) -> str:
    """The conclusion in a sentence."""
    worst = max(victims, key=lambda t: _worst(baseline, t))
    now_s = max(_worst(best.outcome, t) for t in victims)
    hurt = name(worst) + (f" and {len(victims) - 1} more" if len(victims) > 1 else "")
    aimed = f" for {', '.join(map(name, best.remedy.applies_to))}" if best.remedy.applies_to else ""
    text = (
        f"{best.remedy.name}{aimed} ({best.remedy.what}; {RANKS[best.remedy.rank]}) would have "
        f"kept the SLOs of {hurt}: worst TTFT p99 {span_s(now_s)} instead of "
        f"{span_s(_worst(baseline, worst))} in the replay of what happened"
    )
    paid = [t for t in culprits if t not in victims]
    if paid:
        refused, was = (
            sum(n.refused for t in paid if (n := o.of(t)) is not None)
            for o in (best.outcome, baseline)
        )
        slowest = max(paid, key=lambda t: _worst(best.outcome, t))
        text += (
            f"; {name(slowest)} would have had {refused:,} requests refused instead of {was:,} "
            f"and a p99 of {span_s(_worst(best.outcome, slowest))} instead of "
            f"{span_s(_worst(baseline, slowest))}"
        )
    return text


def _worst(outcome: Outcome, tenant: str) -> float:
    numbers = outcome.of(tenant)
    return 0.0 if numbers is None else worst_s(numbers) or 0.0
