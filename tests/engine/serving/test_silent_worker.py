"""A worker that gives no sign of life: who leaves it, who waits for it, and what is booked."""

from __future__ import annotations

import pytest
from front_bench import Bench, ThreadedPost, bench, chunks, settings, text_reply
from serving_fakes import FakeCore
from several_pools import pool, pooled, said
from starlette.testclient import TestClient

from engine.serving.replica import GIVEN_UP_S
from telemetry.records import EventRecord

TWO_REPLICAS = pooled(pool("main", 2))


def _silent(b: Bench, client: TestClient, number: int, for_s: float = GIVEN_UP_S + 0.1) -> None:
    """Its stream is open, and questions run out of time."""

    def notice() -> None:
        b.front.pools.links[number].silent = True
        b.front.pools.tick()

    client.portal.call(notice)  # type: ignore[union-attr]
    _pass(b, client, for_s)


def _pass(b: Bench, client: TestClient, seconds: float) -> None:
    """In turns that are as short as the front's own may get."""
    for _ in range(8):
        b.clock.turn(seconds / 8)
        client.portal.call(b.front.pools.tick)  # type: ignore[union-attr]


@pytest.mark.parametrize("stream", [False, True])
def test_what_waits_at_a_silent_worker_is_given_to_another_and_the_silent_one_is_told(
    stream: bool,
) -> None:
    cores = [FakeCore(), FakeCore(text_reply("second life"))]
    chosen = pooled(pool("main", 2), tpm=1000, concurrency=1)
    with bench(cores, chosen) as (b, client), ThreadedPost(b, client, stream=stream) as waiting:
        cores[0].wait_for(lambda: len(cores[0].asks) == 1)
        _silent(b, client, 0, GIVEN_UP_S - 0.1)
        assert cores[1].asks == [], "it may be out of breath only"
        _pass(b, client, 0.2)
        response = waiting.result()
        old = cores[0].asks[0].request_id
        assert cores[0].wait_for(lambda: cores[0].aborted == [old]), "should it wake up"
        assert b.post(client).status_code == 200, "its concurrency is free"
        view = b.front._door.view("alice", b.clock.now())
        client.portal.call(setattr, b.front.pools.links[0], "silent", False)  # type: ignore[union-attr]
        client.portal.call(b.front.pools.tick)  # type: ignore[union-attr]
        cores[0].reply = text_reply("awake")
        assert b.post(client).json()["choices"][0]["text"] == "awake"
    assert response.status_code == 200
    answers = chunks(response) if stream else [response.json()]
    assert "".join(a["choices"][0]["text"] for a in answers) == "second life"
    assert view.settled_tokens == 2 * (3 + len("second life") + 1), "charged once each"
    assert (view.reserved_tokens, view.concurrency) == (0, 0)
    # The silent one woke up and booked that it was aborted: asked twice, it has ended twice.
    asked = b.minute().offered_requests, b.minute().offered_retries
    assert (asked, b.minute().admitted_requests) == ((4, 1), 4)
    events = [r.detail for r in b.exporter.rows(EventRecord)]
    assert events == [
        "the worker main/1 gives no sign of life",
        "the worker main/1 is silent for too long: 0 requests of which nothing had been said "
        "failed, 1 began again on another",
        "the worker main/1 answers again after 10.1 s",
    ]


def test_a_front_that_was_itself_kept_from_running_gives_nobody_up() -> None:
    core = FakeCore()
    with bench(core) as (b, client), ThreadedPost(b, client) as waiting:
        core.wait_for(lambda: len(core.asks) == 1)
        _silent(b, client, 0, 1.0)
        b.clock.turn(3600.0)
        client.portal.call(b.front.pools.tick)  # type: ignore[union-attr]
        core.end(core.asks[0], "length", 0)
        assert waiting.result().status_code == 200


def test_at_the_only_worker_a_silence_is_a_503_at_once_that_says_when_to_come_back() -> None:
    core = FakeCore()
    with bench(core, settings(concurrency=1)) as (b, client), ThreadedPost(b, client) as waiting:
        core.wait_for(lambda: len(core.asks) == 1)
        _silent(b, client, 0)
        responses = [waiting.result(), b.post(client), b.post(client, stream=True)]
    assert [r.status_code for r in responses] == [503] * 3
    codes = [r.json()["error"]["code"] for r in responses]
    assert codes == ["worker_lost", "worker_down", "worker_down"]
    assert {r.headers["retry-after"] for r in responses} == {"1"}


def test_who_has_a_part_of_an_answer_waits_for_the_rest_of_a_silent_worker() -> None:
    core = FakeCore()
    with (
        bench([core, FakeCore()], TWO_REPLICAS) as (b, client),
        ThreadedPost(b, client, stream=True) as half,
    ):
        core.wait_for(lambda: len(core.asks) == 1)
        core.make(core.asks[0], [*map(ord, "half ")])
        client.portal.call(said, b)  # type: ignore[union-attr]
        _silent(b, client, 0)
        core.make(core.asks[0], [*map(ord, "and half")])
        core.end(core.asks[0], "length", 13)
        text = "".join(c["choices"][0]["text"] for c in chunks(half.result()))
    assert (text, core.aborted) == ("half and half", [])


def test_who_hangs_up_with_a_part_of_an_answer_has_its_place_back_while_the_worker_is_silent() -> (
    None
):
    core = FakeCore()
    core.abort = core.aborted.append  # type: ignore[assignment,method-assign]  # it hears nothing
    chosen = pooled(pool("main", 2), concurrency=1)
    with (
        bench([core, FakeCore()], chosen) as (b, client),
        ThreadedPost(b, client, stream=True) as half,
    ):
        core.wait_for(lambda: len(core.asks) == 1)
        core.make(core.asks[0], [*map(ord, "half ")])
        client.portal.call(said, b)  # type: ignore[union-attr]
        _silent(b, client, 0)
        assert b.front._door.view("alice", b.clock.now()).concurrency == 1
        [flight] = b.front.pools.links[0]._flights.values()
        client.portal.call(flight.reader_gone)  # type: ignore[union-attr]
        client.portal.call(flight.give_up)  # type: ignore[union-attr]
        _pass(b, client, 1.0)
        assert b.front._door.view("alice", b.clock.now()).concurrency == 0
        half.result()


def test_the_choices_of_one_answer_leave_a_silent_worker_together() -> None:
    cores = [FakeCore() for _ in range(3)]
    cores[0].abort = cores[0].aborted.append  # type: ignore[assignment,method-assign]  # it sleeps
    with bench(cores, pooled(pool("main", 3))) as (b, client), ThreadedPost(b, client, n=3) as n3:
        cores[0].wait_for(lambda: len(cores[0].asks) == 3)
        _silent(b, client, 0)
        went = cores[1]
        assert went.wait_for(lambda: len(went.asks) == 3)
        late = sorted(tokens for _, tokens in b.front.pools.links[0]._elsewhere.values())
        for ask in went.asks:
            went.end(ask, "length", 0)
        assert n3.result().status_code == 200
    assert cores[2].asks == []
    assert late[:2] == [late[2] - 3] * 2, "the prompt of three was asked for once"
