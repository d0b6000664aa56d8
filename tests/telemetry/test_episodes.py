"""Where an incident begins and ends: marks far apart are one episode while the engine is unwell."""

from __future__ import annotations

import pytest

from telemetry.baseline import choose_baseline, impaired
from telemetry.incidents import episodes
from telemetry.verdict import judge
from telemetry.window import Window
from tests.telemetry.synthetic_rows import CAPACITY, Pool

CALM, ILL, END = 30, 44, 50  # buckets: calm before, unwell from there, as ever again
HURT = (31, 32, 37, 38, 42, 43)  # where somebody misses: four calm buckets between


def unwell(*, slow: bool = False, lost: bool = False, bucket_s: float = 10.0) -> Pool:
    """A pool in which few requests come: two of a minute miss while something is the matter."""
    pool = Pool(bucket_s)
    for i in range(END):
        ill = CALM <= i < ILL
        for run in ("r1",) if ill and lost else ("r1", "r2"):
            pool.run = run
            pool.engine(i, busy_s=5.6 if ill and slow else 4.0, predicted_s=4.0)
        pool.run = "r1"
        for t in ("y", "z"):
            worst = i in (42, 43)
            held = {CAPACITY: 9.0 if worst else 1.0} if i in HURT else None
            missed = (3 if worst else 1) if i in HURT else 0
            pool.tenant(i, t, missed=missed, waits={"slot": held} if held else None)
    return pool


def spans(pool: Pool) -> list[tuple[float, float]]:
    window = pool.window(CALM - 5, END)
    found = episodes(window, choose_baseline(window))
    return [
        (round((e.onset - pool.at(0)) / pool.bucket_s), round((e.end - pool.at(0)) / pool.bucket_s))
        for e in found
    ]


@pytest.mark.parametrize("fault", [{"slow": True}, {"lost": True}])
def test_one_fault_is_one_episode_however_few_requests_feel_it(fault: dict[str, bool]):
    assert spans(unwell(**fault)) == [(31, 44)]


def test_on_a_sound_engine_marks_far_apart_are_episodes_of_their_own():
    assert spans(unwell()) == [(31, 33), (37, 39), (42, 44)]


@pytest.mark.parametrize("shift", [-5, 0, 3])
def test_the_onset_of_a_slow_engine_is_its_first_harm_wherever_the_window_begins(shift: int):
    pool = unwell(slow=True)
    verdict = judge(pool.window(CALM + shift, END))
    assert (verdict.kind, verdict.onset) == ("capacity", pool.at(31))


def test_a_bucket_is_unwell_by_pace_or_by_missing_workers_and_unknown_is_neither():
    pool = unwell(slow=True)
    window = pool.window(CALM - 5, END)
    base = choose_baseline(window)
    ill = impaired(window.buckets, base)
    assert [i for i, x in enumerate(ill) if x] == list(range(CALM, ILL))
    assert not any(impaired(_without_pace(pool).buckets, base))


def _without_pace(pool: Pool) -> Window:
    told = Pool(pool.bucket_s)
    for i in range(END):
        for run in ("r1", "r2"):
            told.run = run
            told.engine(i, busy_s=None, predicted_s=None)
    return told.window(CALM, END)
