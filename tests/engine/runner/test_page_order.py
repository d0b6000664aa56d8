"""Steps and copies that share a page are done in the order in which they were issued; others wait
for nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from held_lanes import WITHIN_S, HeldLane, StepLane
from hypothesis import given
from hypothesis import strategies as st

from engine.runner.lanes import AtOnce
from engine.runner.page_order import PageOrder

PAGES = st.frozensets(st.integers(0, 7), max_size=4)
WORK = st.lists(st.tuples(st.sampled_from(["step", "copy"]), PAGES), max_size=12)


def issued(order: PageOrder, work, done: list[int]) -> None:
    for number, (kind, pages) in enumerate(work):
        if kind == "step":
            with order.step(lambda pages=pages: pages):
                order.steps.issue(lambda number=number: done.append(number))
        else:
            order.copy(pages, lambda number=number: done.append(number))


def needed(work, last: int) -> set[int]:
    """What must be done before number `last` is: its own lane's work before it, and whatever shares
    a page with any of that."""
    found, open_ = set(), [last]
    while open_:
        number = open_.pop()
        if number in found:
            continue
        found.add(number)
        kind, pages = work[number]
        open_ += [
            i for i, (k, p) in enumerate(work[:number]) if k == kind or not p.isdisjoint(pages)
        ]
    return found


@given(WORK, st.booleans(), st.integers(0, 12))
def test_a_lane_makes_the_other_do_what_shares_a_page_with_it_and_no_more(work, first, count):
    steps, copies = HeldLane(), HeldLane()
    done: list[int] = []
    issued(PageOrder(steps, copies), work, done)
    kind, lane = ("step", steps) if first else ("copy", copies)
    mine = [i for i, (k, _) in enumerate(work) if k == kind][:count]
    while lane.todo and not (mine and mine[-1] in done):
        lane.todo.popleft()()
    if mine:
        assert set(done) == needed(work, mine[-1])
    steps.go()
    copies.go()
    assert sorted(done) == list(range(len(work)))
    for at, number in enumerate(done):
        for later in done[at + 1 :]:
            shared = not work[number][1].isdisjoint(work[later][1])
            assert number < later or not (shared or work[number][0] == work[later][0])


def test_what_is_over_is_forgotten():
    order = PageOrder(StepLane(), copies := HeldLane())
    for page in range(50):
        order.copy([page], lambda: None)
        with order.step(lambda: [100]):
            pass
    assert order.under_way == (0, 50)
    copies.go()
    assert order.under_way == (0, 0)


def test_a_copy_into_a_page_of_a_step_that_is_still_being_issued_waits_for_its_end():
    class Waited(threading.Condition):
        def wait(self, timeout=None):
            waiting.set()
            return super().wait(timeout)

    waiting = threading.Event()
    order, done = PageOrder(AtOnce(), AtOnce()), []
    order._changed = Waited()
    with ThreadPoolExecutor(1) as loader:
        with order.step(lambda: [1, 2]):
            copy = loader.submit(order.copy, [2, 3], lambda: done.append("copy"))
            assert waiting.wait(WITHIN_S)
            order.copy([3, 4], lambda: done.append("elsewhere"))
            done.append("step")
        copy.result(WITHIN_S)
    assert done == ["elsewhere", "step", "copy"]


def test_a_copy_that_fails_half_way_has_ended_before_it_is_known():
    class Failing(HeldLane):
        def issue(self, work):
            super().issue(work)
            raise RuntimeError("the second half was not issued")

    copies, done = Failing(), []
    order = PageOrder(StepLane(), copies)
    with ThreadPoolExecutor(1) as loader:
        failing = loader.submit(order.copy, [1], lambda: done.append("half"))
        copies.holds(2)  # the half, and the mark behind it
        copies.go()
        with pytest.raises(RuntimeError, match="second half"):
            failing.result(WITHIN_S)
    assert done == ["half"]
    copies.go()
    assert order.under_way == (0, 0)
