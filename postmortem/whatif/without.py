"""How it would have been without one tenant's excess: the counterfactual of a claim.

Replays the window as it was, then without what the tenant asked beyond its usual. Where the first
does not look like what was recorded nothing is claimed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from postmortem.summed import replayable, uncollected
from postmortem.whatif import judge
from postmortem.whatif.arrivals import thinned
from postmortem.whatif.fidelity import compare, may_be_chance
from postmortem.whatif.model import Counterfactual, NoConclusion, Outcome
from postmortem.whatif.options import Budget, Options
from postmortem.whatif.prepare import Prepared, prepare, rows_of
from postmortem.whatif.replay import MOMENT_S, Job
from postmortem.whatif.run import Answer, Refused, Replays
from telemetry.case import Case
from telemetry.plain import name, percent, span_s
from telemetry.window import Reads, Window, read_window


def without_excess(
    source: Reads,
    start: float,
    end: float,
    tenant: str,
    *,
    pool: str | None = None,
    victims: Sequence[str] | None = None,
    options: Options = Options(seeds=1),
    window: Window | None = None,
    case: Case | None = None,
    clock: Callable[[], float] = time.monotonic,
    budget: Budget | None = None,
) -> Counterfactual:
    """The window with the tenant's arrivals thinned to its own rate before the onset.

    Raises as `what_if` does. `holds` False: why is in the sentence.
    """
    if budget is None:
        budget = Budget(options.budget_s, clock)
    try:
        with uncollected():
            if window is None:
                window = read_window(replayable(source, budget.hurry), start, end, pool=pool)
            most = options.most_requests(rows_of(window), 2)
            made = prepare(source, window, victims, (tenant,), most, case, budget.hurry)
    except NoConclusion as e:
        return _no_claim(tenant, str(e))
    usual = made.facts.usual[tenant]
    if usual is None:
        return _no_claim(tenant, f"what is usual is not known: {made.case.baseline.problem}")
    hurt = [t for t in made.facts.victims if t != tenant] or list(made.facts.victims)
    left, out = thinned(
        made.window.offered,
        tenant,
        usual.requests_per_s,
        usual.tokens_per_s,
        usual.largest_tokens,
    )
    stretches = {"window": made.window, "without": replace(made.window, offered=left)}
    judged = frozenset(made.facts.victims)
    jobs = [
        Job("what happened", "window", made.facts.setup, made.of, judged),
        Job("without the excess", "without", made.facts.setup, made.of, judged),
    ]

    def then(first: Answer) -> Sequence[Job] | None:
        """What is off may be chance: then the same a moment apart says so."""
        if not isinstance(first, Outcome):
            return None
        found = compare(made.recorded, first, made.facts.victims)
        if found.holds or not may_be_chance(found):
            return ()
        return (replace(jobs[0], jolt_s=MOMENT_S),)

    with Replays(stretches, budget.deadline_s, clock=budget.clock) as replays:
        first, second, *again = replays.run(jobs, then)
    if not isinstance(first, Outcome) or not isinstance(second, Outcome):
        failed = next((a.why for a in (first, second) if isinstance(a, Refused)), None)
        return _no_claim(tenant, failed or f"{budget.budget_s:g} s were too short for two replays")
    apart = again[0] if again and isinstance(again[0], Outcome) else None
    fidelity = compare(made.recorded, first, made.facts.victims, apart)
    of = sum(o.judged and o.tenant == tenant for o in made.window.offered)
    sentence = (
        f"no conclusion: {fidelity.problem}"
        if fidelity.problem is not None
        else _claim(
            tenant,
            [t for t in hurt if t not in fidelity.off] or hurt,
            made,
            first,
            second,
            out,
            of,
        )
    )
    return Counterfactual(
        tenant,
        fidelity.holds,
        sentence,
        usual.requests_per_s,
        out,
        of,
        made.recorded,
        first,
        second,
        fidelity,
    )


def _claim(
    tenant: str,
    hurt: Sequence[str],
    made: Prepared,
    first: Outcome,
    second: Outcome,
    out: int,
    of: int,
) -> str:
    def worst(outcome: Outcome, t: str) -> float:
        numbers = outcome.of(t)
        return 0.0 if numbers is None else judge.worst_s(numbers) or 0.0

    if not out:
        return f"{name(tenant)} asked for no more than its usual: there is nothing to leave out"
    victim = max(hurt, key=lambda t: worst(first, t))
    part = percent(out / of) if of else "0%"
    return (
        f"without {name(tenant)}'s excess ({out:,} of its {of:,} requests, {part}) "
        f"{name(victim)}'s TTFT p99 would have been {span_s(worst(second, victim))} instead of "
        f"{span_s(worst(made.recorded, victim))}"
    )


def _no_claim(tenant: str, why: str) -> Counterfactual:
    return Counterfactual(
        tenant, False, f"no conclusion: {why}", None, 0, 0, None, None, None, None
    )
