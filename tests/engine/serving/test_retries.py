"""Retries: told by the client, or by a prompt that ended badly within a minute."""

from __future__ import annotations

import pytest

from engine.serving.api.retries import RetryMemory, says_retry


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-stainless-retry-count": "1"}, True),
        ({"x-retry-count": "3"}, True),
        ({"x-stainless-retry-count": "0"}, False),
        ({"x-retry-count": "-1"}, False),
        ({"x-retry-count": "many"}, False),
        ({"x-retry-count": "²"}, False),
        ({"x-retry-count": "9" * 6000}, True),
        ({}, False),
    ],
)
def test_a_client_may_say_that_it_retries(headers: dict[str, str], told: bool) -> None:
    assert says_retry(headers) is told


def test_the_same_prompt_of_the_same_tenant_is_a_retry_for_a_minute() -> None:
    memory = RetryMemory()
    mark = memory.print_of("alice", "m", "hello")
    assert not memory.seen(mark, 0.0)
    memory.note(mark, 0.0)
    assert memory.seen(memory.print_of("alice", "m", "hello"), 60.0)
    assert not memory.seen(mark, 60.1)


def test_another_tenant_model_or_prompt_is_none() -> None:
    memory = RetryMemory()
    memory.note(memory.print_of("alice", "m", "hello"), 0.0)
    for other in [("bob", "m", "hello"), ("alice", "n", "hello"), ("alice", "m", "hello!")]:
        assert not memory.seen(memory.print_of(*other), 1.0)


def test_a_hash_is_framed_and_tells_text_from_ids() -> None:
    memory = RetryMemory()
    assert memory.print_of("a", "bc", "x") != memory.print_of("ab", "c", "x")
    assert memory.print_of("a", "b", (1, 23)) != memory.print_of("a", "b", (12, 3))
    assert memory.print_of("a", "b", "1,23") != memory.print_of("a", "b", (1, 23))


def test_a_hash_means_nothing_in_another_process() -> None:
    assert RetryMemory().print_of("a", "m", "p") != RetryMemory().print_of("a", "m", "p")


def test_memory_is_bounded_and_the_newest_stay() -> None:
    memory = RetryMemory(most=10)
    marks = [memory.print_of("a", "m", (i,)) for i in range(50)]
    for i, mark in enumerate(marks):
        memory.note(mark, i * 0.01)
    assert len(memory) == 10
    assert memory.seen(marks[-1], 1.0)
    assert not memory.seen(marks[0], 1.0)


def test_ending_badly_again_prolongs_the_minute() -> None:
    memory = RetryMemory()
    first, second = memory.print_of("a", "m", "1"), memory.print_of("a", "m", "2")
    memory.note(first, 0.0)
    memory.note(second, 10.0)
    memory.note(first, 50.0)
    assert memory.seen(first, 100.0)
    assert not memory.seen(second, 100.0)
