"""Many look at once, one changes alone, and nobody who looks for long holds that up for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from telemetry.ask import turns
from telemetry.ask.turns import Turns
from tests.telemetry.delivered import until


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def test_many_look_at_once(pool: ThreadPoolExecutor) -> None:
    one = Turns(lambda: None)
    together = threading.Barrier(4, timeout=10)

    def look() -> None:
        with one.shared():
            together.wait()

    for looking in [pool.submit(look) for _ in range(4)]:
        looking.result(timeout=10)


def test_who_is_alone_sees_no_other_and_may_do_either_again(pool: ThreadPoolExecutor) -> None:
    one = Turns(lambda: None)
    inside: list[str] = []

    def look() -> None:
        with one.shared():
            inside.append("look")

    def change() -> None:
        with one:
            inside.append("change")

    with one:
        others = [pool.submit(look), pool.submit(change), pool.submit(look)]
        with one, one.shared():
            inside.append("mine")
        assert one.acquire(timeout=0.0)
        one.release()
        assert not any(o.done() for o in others)
        assert inside == ["mine"]
    for o in others:
        o.result(timeout=10)
    assert sorted(inside[1:]) == ["change", "look", "look"]


def test_who_wants_to_be_alone_goes_before_who_comes_later(pool: ThreadPoolExecutor) -> None:
    one = Turns(lambda: None)
    order: list[str] = []

    def change() -> None:
        with one:
            order.append("change")

    def look() -> None:
        with one.shared():
            order.append("look")

    with one.shared():
        changing = pool.submit(change)
        until(lambda: one._wanting == 1)
        looking = pool.submit(look)
        assert not one.acquire(timeout=0.01)
        assert order == []
    changing.result(timeout=10)
    looking.result(timeout=10)
    assert order == ["change", "look"]


def test_who_looks_for_long_is_hurried(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.05)
    hurried = threading.Event()
    one = Turns(hurried.set)

    def look() -> bool:
        with one.shared():
            return hurried.wait(10)

    looking = pool.submit(look)
    until(lambda: one._looking == 1)
    with one:
        assert looking.result(timeout=10) is True


def test_an_error_inside_lets_the_next_one_in() -> None:
    one = Turns(lambda: None)
    for turn in (one.shared, lambda: one):
        with pytest.raises(ValueError, match="x"), turn():
            raise ValueError("x")
    assert one.acquire(timeout=0.0)
    one.release()
