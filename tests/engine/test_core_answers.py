"""What the core hands out beside tokens: waits with a first token, logprobs; and whole answers."""

from __future__ import annotations

import pytest

from engine.core_values import StepResult
from engine.scheduling.plan import StepOutcome, StepPlan, TokenLogprobs
from engine.scheduling.request import Ask, Outcome
from tests.engine.worlds import Pool, make_pool


class Telling:
    """A runner in turned time that tells each row's place as its token."""

    clock = None

    def execute(self, plan: StepPlan) -> StepOutcome:
        assert self.clock is not None
        self.clock.turn(0.5)
        sampling = [s for s in plan.segments if s.samples]
        told = {
            s.request_id: TokenLogprobs(-1.0, ((5, -1.0),) * s.logprobs)
            for s in sampling
            if s.logprobs is not None
        }
        return StepOutcome({s.request_id: 100 + s.sampled for s in sampling}, {}, told or None)


@pytest.fixture
def pool() -> Pool:
    runner = Telling()
    made = make_pool(runner=runner)
    runner.clock = made.clock
    return made


def ask(name: str, out: int = 3, **more: object) -> Ask:
    return Ask(name, "a", (1, 2, 3), out, 0.0, 0.0, None, None, **more)  # type: ignore[arg-type]


def steps(pool: Pool, most: int = 50) -> list[StepResult]:
    out = []
    for _ in range(most):
        if not pool.core.wait_for_work(0.0):
            break
        out.append(pool.core.step())
    return out


def test_waits_come_with_the_first_token_to_who_asked_and_add_up_to_its_ttft(pool: Pool) -> None:
    pool.clock.turn(0.25)
    pool.core.submit(ask("told", tell_waits=True))
    pool.core.submit(ask("untold"))
    pool.core.submit(ask("short", out=1, tell_waits=True))
    results = steps(pool)
    told = {name: waits for r in results if r.waits for name, waits in r.waits.items()}
    assert set(told) == {"told", "short"}
    assert sum(bool(r.waits) for r in results) == 1, "once, with the first token"
    ttft_s = {e.request_id: e.ttft_s for r in results for e in r.ended}
    for name, waits in told.items():
        front_s = 0.25  # passed before the pool had it
        assert front_s + sum(waits) == pytest.approx(ttft_s[name])
    assert not pool.core._under_way.telling


def test_logprobs_come_with_the_tokens_of_who_asked(pool: Pool) -> None:
    pool.core.submit(ask("told", logprobs=2))
    pool.core.submit(ask("untold"))
    results = [r for r in steps(pool) if r.tokens]
    assert [set(r.logprobs or ()) for r in results] == [{"told"}] * 3
    assert results[0].logprobs == {"told": TokenLogprobs(-1.0, ((5, -1.0), (5, -1.0)))}


def test_an_answer_that_is_whole_finishes_with_what_was_made_and_gives_its_pages_back(
    pool: Pool,
) -> None:
    free = pool.core.status().free_pages
    pool.core.submit(ask("r", out=1000))
    made = sum(len(pool.core.step().tokens) for _ in range(4))
    pool.core.complete("r")
    pool.core.complete("unknown")
    (ended,) = [e for r in steps(pool) for e in r.ended]
    assert (ended.outcome, ended.reason) == (Outcome.FINISHED, "stop")
    assert made <= ended.output_tokens <= made + 1
    pool.core.complete("r")  # a second word finds nobody
    assert [e for r in steps(pool) for e in r.ended] == []
    pool.core.scheduler.check_integrity()
    assert pool.core.status().running == 0
    assert pool.core.status().free_pages + pool.core.scheduler._prefix.pages >= free


def test_one_that_is_waiting_can_be_whole_too(pool: Pool) -> None:
    pool.core.submit(ask("r"))
    pool.core.complete("r")
    (ended,) = [e for r in steps(pool) for e in r.ended]
    assert (ended.outcome, ended.output_tokens) == (Outcome.FINISHED, 0)
    pool.core.scheduler.check_integrity()
