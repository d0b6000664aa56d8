"""What would have prevented it: the window replayed as it was, then under each remedy.

Where the replay of what happened does not look like what was recorded it says so, with the
numbers, and concludes nothing. Owns the order of the replays and what is made of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from postmortem.summed import replayable, uncollected
from postmortem.whatif import judge, toml
from postmortem.whatif.fidelity import compare, may_be_chance, unclaimed
from postmortem.whatif.model import (
    CONCLUDED,
    NO_CONCLUSION,
    NONE_RESTORES,
    Baseline,
    Calm,
    Fidelity,
    NoConclusion,
    Outcome,
    Remedy,
    Tried,
    WhatIf,
)
from postmortem.whatif.options import BOTH, Budget, Options
from postmortem.whatif.policies import LIMITS, apply, candidates
from postmortem.whatif.prepare import Prepared, prepare, rows_of
from postmortem.whatif.replay import DROPPED, KEPT, MOMENT_S, Job
from postmortem.whatif.run import SMALL, Answer, Hear, Refused, Replays
from telemetry.case import Case
from telemetry.window import Reads, Window, read_window


def what_if(
    source: Reads,
    start: float,
    end: float,
    *,
    pool: str | None = None,
    victims: Sequence[str] | None = None,
    culprits: Sequence[str] | None = None,
    options: Options = Options(),
    window: Window | None = None,
    case: Case | None = None,
    hear: Hear | None = None,
    clock: Callable[[], float] = time.monotonic,
    budget: Budget | None = None,
) -> WhatIf:
    """What would have kept the victims' SLOs between two unix instants.

    `victims` and `culprits` are the verdict's where they are not given; `window` and its `case`
    spare reading and opening them again. `hear` is told how far the replays are. `budget`: where
    the time began to run before this was called. Raises PoolChoice and StoreError, as reading
    does; everything else that is in the way is a conclusion: "no conclusion", and why.
    """
    if budget is None:
        budget = Budget(options.budget_s, clock)
    try:
        with uncollected():
            if window is None:
                window = read_window(replayable(source, budget.hurry), start, end, pool=pool)
            most = options.most_requests(rows_of(window))
            made = prepare(source, window, victims, culprits, most, case, budget.hurry)
    except NoConclusion as e:
        span = (start, end) if window is None else (window.start, window.end)
        return _nothing((window.pool if window else pool) or "", span, str(e), budget.spent_s)
    return _Asked(window, made, options, hear, budget).answer()


def _nothing(pool: str, span: tuple[float, float], why: str, wall_s: float) -> WhatIf:
    return WhatIf(
        pool=pool,
        asked_start=span[0],
        asked_end=span[1],
        start=span[0],
        end=span[1],
        victims=(),
        culprits=(),
        conclusion=NO_CONCLUSION,
        sentence=f"no conclusion: {why}",
        remedy=None,
        recorded=None,
        baselines=(),
        fit=None,
        fidelity=None,
        tried=(),
        not_run=(),
        notes=(),
        wall_s=wall_s,
    )


@dataclass(frozen=True, slots=True)
class _First:
    """What the replay of what happened is good for. `problem`: why nothing can be concluded."""

    problem: str | None
    fidelity: Fidelity | None = None
    base: tuple[Baseline, ...] = ()

    @property
    def holds(self) -> bool:
        return self.problem is None


class _Asked:
    """One what-if, from what was prepared to its answer."""

    def __init__(
        self,
        window: Window,
        made: Prepared,
        options: Options,
        hear: Hear | None,
        budget: Budget,
    ) -> None:
        self._window, self._made, self._options = window, made, options
        self._hear, self._budget = hear, budget
        self._notes = list(made.notes)
        self._setup = made.facts.setup
        self._hurt = frozenset(made.facts.victims)
        some = any(o.retry and o.judged for o in made.window.offered)
        if not some and options.retries != KEPT:
            self._notes.append("no retry was recorded: dropping them would change nothing")
        # What is concluded from, and what is shown beside it.
        self._retries = DROPPED if some and options.retries == DROPPED else KEPT
        self._beside = DROPPED if some and options.retries == BOTH else None
        targeted = {
            t.name for t in self._setup.tenants if t.slo.ttft_s or t.slo.tpot_s or t.slo.max_gap_s
        }
        self._bars = judge.bars(
            made.facts.victims,
            targeted,
            made.case.baseline.miss_share,
            made.usual_p99_s,
        )

    def answer(self) -> WhatIf:
        out = self._answer()
        return replace(out, wall_s=self._budget.spent_s)

    def _answer(self) -> WhatIf:
        made, options = self._made, self._options
        remedies = self._remedies()
        stretches = {"window": made.window}
        if made.calm is not None:
            stretches["calm"] = made.calm
        jobs = {("", KEPT, 0): self._job("what happened", None), **self._jobs(remedies)}
        requests = sum(len(stretches[j.stretch].offered) for j in jobs.values())
        processes = options.processes if requests > SMALL else 1
        with Replays(
            stretches,
            self._budget.deadline_s,
            processes=min(processes, len(jobs)),
            hear=self._hear,
            clock=self._budget.clock,
        ) as replays:
            # Nothing comes of the remedies' replays where that of what happened is not true: then
            # they end with it. Until that is known another process is best at one of them.
            answers = replays.run(list(jobs.values()), self._then)
        found = dict(zip(jobs, answers, strict=False))
        judged = self._judged(found["", KEPT, 0], *answers[len(jobs) :])
        if judged.problem is not None:
            why = f"no conclusion: {judged.problem}"
            return self._conclude(NO_CONCLUSION, why, judged.base, judged.fidelity)
        not_run = tuple(job.name for key, job in jobs.items() if found[key] is None)
        assert judged.fidelity is not None
        return self._weigh(remedies, found, judged.fidelity, not_run)

    def _then(self, first: Answer) -> Sequence[Job] | None:
        """What is to be run next: all the rest, the same a moment apart before it, or nothing."""
        judged = self._judged(first)
        if judged.problem is None:
            return ()
        fidelity = judged.fidelity
        if fidelity is None or fidelity.holds or not may_be_chance(fidelity):
            return None
        return (replace(self._job("what happened, a moment apart", None), jolt_s=MOMENT_S),)

    def _judged(self, first: Answer | None, again: Answer | None = None) -> _First:
        """Whether anything can be concluded from the replay of what happened."""
        made = self._made
        if not isinstance(first, Outcome):
            return _First(self._short_of_time() if first is None else first.why)
        apart = again if isinstance(again, Outcome) else None
        fidelity = compare(made.recorded, first, made.facts.victims, apart)
        base = (Baseline(KEPT, first, judge.spread_of([first], made.facts.victims)),)
        problem = fidelity.problem
        if problem is None and judge.restores(first, self._bars, first, made.facts.culprits):
            problem = "in the replay of what happened those hurt keep their SLOs"
        return _First(problem, fidelity, base)

    def _short_of_time(self) -> str:
        return (
            f"the replay of what happened did not end within {self._budget.budget_s:g} s: give it "
            "more time (--budget-s) or a shorter window"
        )

    # -- what is to be run

    def _remedies(self) -> tuple[Remedy, ...]:
        all_of_them = candidates(self._made.facts)
        wanted = self._options.policies
        if wanted is None:
            return all_of_them
        missing = [w for w in wanted if w not in {r.name for r in all_of_them}]
        if missing:
            self._notes.append(f"{', '.join(missing)}: does not apply here")
        return tuple(r for r in all_of_them if r.name in wanted)

    def _job(
        self,
        name: str,
        remedy: Remedy | None,
        *,
        seed: int = 0,
        retries: str = KEPT,
        stretch: str = "window",
    ) -> Job:
        setup = self._setup if remedy is None else apply(remedy, self._setup)
        return Job(name, stretch, setup, self._made.of, self._hurt, seed, retries)

    def _jobs(self, remedies: Sequence[Remedy]) -> dict[tuple[str, str, int], Job]:
        """By (remedy, retries or calm, seed), what matters most first. "" = what happened."""
        names: list[tuple[str, Remedy | None]] = [("", None), *((r.name, r) for r in remedies)]
        kind = self._retries
        jobs = {
            (n, kind, 0): self._job(n or "what happened without retries", r, retries=kind)
            for n, r in names
            if r is not None or kind != KEPT  # as it was it has been run
        }
        limits = [(n, r) for n, r in names if n in LIMITS]
        if self._made.calm is not None and limits:
            for n, r in [("", None), *limits]:
                label = f"{n or 'what happened'} in normal hours"
                calm = self._job(label, r, stretch="calm")
                setup = replace(calm.setup, faults=())  # they were the incident's, on its clock
                jobs[n, "calm", 0] = replace(calm, setup=setup)
        for seed in range(1, self._options.seeds):
            for n, r in names:
                label = f"{n or 'what happened'}, seed {seed}"
                jobs[n, kind, seed] = self._job(label, r, seed=seed, retries=kind)
        if self._beside is not None:
            for n, r in names:
                label = f"{n or 'what happened'} without retries"
                jobs[n, self._beside, 0] = self._job(label, r, retries=self._beside)
        return jobs

    # -- what came of it

    def _weigh(
        self,
        remedies: Sequence[Remedy],
        found: dict[tuple[str, str, int], Answer | None],
        fidelity: Fidelity,
        not_run: tuple[str, ...],
    ) -> WhatIf:
        victims, culprits = self._made.facts.victims, self._made.facts.culprits
        baselines: dict[str, Baseline] = {}
        tried: list[Tried] = []
        for retries in (KEPT, DROPPED):
            base = self._outcomes(found, "", retries)
            if not base:
                continue
            baselines[retries] = Baseline(retries, base[0], judge.spread_of(base, victims))
            for remedy in remedies:
                outcomes = self._outcomes(found, remedy.name, retries)
                if outcomes:
                    tried.append(self._tried(remedy, retries, outcomes, base[0], found))
        left_out = unclaimed(fidelity)
        if left_out is not None:
            self._notes.insert(0, left_out)
        best = judge.cheapest(tried, self._retries)
        done = {t.remedy.name for t in tried}
        missing = sum(r.name not in done for r in remedies)
        if best is None:
            text = f"none of the {len(done)} remedies replayed restores those hurt"
        else:
            was = baselines[self._retries].outcome
            claimed = [t for t in victims if t not in fidelity.off]
            text = judge.words(best, was, claimed, culprits)
        if missing:
            text += f"; {missing} of {len(remedies)} remedies were not replayed"
        end = NONE_RESTORES if best is None else CONCLUDED
        return replace(
            self._conclude(end, text, tuple(baselines.values()), fidelity),
            remedy=None if best is None else best.remedy.name,
            tried=tuple(tried),
            not_run=not_run,
        )

    def _outcomes(
        self, found: dict[tuple[str, str, int], Answer | None], what: str, retries: str
    ) -> list[Outcome]:
        """Seed 0's first; none where that is missing."""
        seeds = [found.get((what, retries, s)) for s in range(self._options.seeds)]
        if isinstance(seeds[0], Refused):
            self._notes.append(f"{what or 'what happened'} was not replayed: {seeds[0].why}")
        if not isinstance(seeds[0], Outcome):
            return []
        return [s for s in seeds if isinstance(s, Outcome)]

    def _tried(
        self,
        remedy: Remedy,
        retries: str,
        outcomes: list[Outcome],
        baseline: Outcome,
        found: dict[tuple[str, str, int], Answer | None],
    ) -> Tried:
        victims, culprits = self._made.facts.victims, self._made.facts.culprits
        return Tried(
            remedy,
            retries,
            outcomes[0],
            judge.spread_of(outcomes, victims),
            all(judge.restores(o, self._bars, baseline, culprits) for o in outcomes),
            self._calm(found.get((remedy.name, "calm", 0)), found.get(("", "calm", 0)), remedy),
            judge.problem_of(outcomes[0]),
            toml.settings(remedy),
            toml.command(remedy),
        )

    def _calm(self, with_it: Answer | None, before: Answer | None, remedy: Remedy) -> Calm | None:
        calm = self._made.calm
        if calm is None or remedy.name not in LIMITS:
            return None
        if not isinstance(with_it, Outcome) or not isinstance(before, Outcome):
            return None
        offered = refused = 0
        for tenant in remedy.applies_to:
            now, was = with_it.of(tenant), before.of(tenant)
            if now is not None and was is not None:
                offered += now.offered
                refused += max(0, now.refused - was.refused)
        return Calm(calm.window_s, offered, refused)

    def _conclude(
        self,
        conclusion: str,
        sentence: str,
        baselines: tuple[Baseline, ...] = (),
        fidelity: Fidelity | None = None,
    ) -> WhatIf:
        made, window = self._made, self._window
        return WhatIf(
            pool=window.pool,
            asked_start=window.start,
            asked_end=window.end,
            start=made.start.start,
            end=made.start.end,
            victims=made.facts.victims,
            culprits=made.facts.culprits,
            conclusion=conclusion,
            sentence=sentence,
            remedy=None,
            recorded=made.recorded,
            baselines=baselines,
            fit=made.fitted.error,
            fidelity=fidelity,
            tried=(),
            not_run=(),
            notes=tuple(self._notes),
            wall_s=0.0,
        )
