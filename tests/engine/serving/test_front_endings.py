"""Ends that are none of the answer's own: the caller leaves, time runs out, a worker dies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from front_bench import ALICE, BOB, Bench, ThreadedPost, bench, settings, text_reply
from serving_fakes import FakeCore, step

from engine.config import Settings
from engine.scheduling.request import Outcome
from engine.serving.api.auth import digest_of
from telemetry.records import EventRecord, RequestRecord, TenantMinute


async def hang_up(b: Bench, stream: bool, after_first_token: bool) -> list[dict[str, Any]]:
    """Speak ASGI by hand: ask, wait until the core has it, and hang up."""
    body = json.dumps({"model": "tiny", "prompt": "abc", "stream": stream}).encode()
    sent: list[dict[str, Any]] = []
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/completions",
        "raw_path": b"/v1/completions",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"authorization", f"Bearer {ALICE}".encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def send(message: Any) -> None:
        sent.append(message)

    call = asyncio.ensure_future(b.front.app(scope, inbox.get, send))
    await asyncio.to_thread(b.core.wait_for, lambda: len(b.core.asks) == 1)
    if after_first_token:
        b.core.publish(
            step([(b.core.asks[0].request_id, ord("x")), (b.core.asks[0].request_id, 1)])
        )
        while not sent and stream:
            await asyncio.sleep(0)
    inbox.put_nowait({"type": "http.disconnect"})
    await asyncio.wait_for(call, 20)
    await asyncio.to_thread(b.core.wait_for, lambda: bool(b.core.aborted))
    while b.link.open_requests:
        await asyncio.sleep(0)
    return sent


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after_first_token", [True, False])
def test_a_caller_who_leaves_aborts_the_request_and_gets_the_tokens_back(
    stream: bool, after_first_token: bool
) -> None:
    with bench(FakeCore(), settings(tpm=150, concurrency=1)) as (b, client):
        client.portal.call(hang_up, b, stream, after_first_token)  # type: ignore[union-attr]
        b.core.reply = text_reply("again")
        again = b.post(client)  # concurrency and tokens are free again
    assert b.core.aborted == [b.core.asks[0].request_id]
    assert again.status_code == 200
    assert b.core.asks[1].is_retry  # the same prompt within a minute of an abort


async def tokens_seen(b: Bench) -> None:
    while not any(flight.received for flight in b.link._flights.values()):
        await asyncio.sleep(0)


def test_a_worker_that_dies_fails_open_requests_and_new_ones_are_told_to_wait() -> None:
    core = FakeCore()
    with bench(core) as (b, client):
        with ThreadedPost(b, client) as whole, ThreadedPost(b, client, stream=True) as early:
            core.wait_for(lambda: len(core.asks) == 2)
            b.worker.die()
            lost = [whole.result(), early.result()]
        refused = b.post(client)
        ready = client.get("/ready")
        health = client.get("/health")
        core.reply = text_reply("back")
        b.worker.start("run-2")
        assert client.portal.call(b.link.wait_up, 10.0)  # type: ignore[union-attr]
        assert b.post(client).json()["choices"][0]["text"] == "back"
    assert [(r.status_code, r.headers["retry-after"]) for r in lost] == [(503, "1")] * 2
    assert lost[0].json()["error"]["code"] == "worker_lost"
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "/ready" in refused.json()["error"]["message"]
    assert (ready.status_code, health.status_code) == (503, 200)
    rows = b.exporter.rows(RequestRecord)
    assert [(r.outcome, r.run_id) for r in rows] == [("failed", "run-1")] * 2
    went, came = b.exporter.rows(EventRecord)
    assert "the worker went away; 2 open requests failed" in went.detail
    assert "the worker answers again after" in came.detail
    minutes = {r.run_id: r for r in b.exporter.rows(TenantMinute)}
    assert minutes["run-1"].admitted_requests == 2
    assert minutes["run-2"].admitted_requests == 1


def test_a_worker_that_dies_after_the_first_token_ends_the_stream_with_an_error() -> None:
    core = FakeCore()
    with bench(core) as (b, client), ThreadedPost(b, client, stream=True) as streaming:
        core.wait_for(lambda: len(core.asks) == 1)
        core.publish(step([(core.asks[0].request_id, ord(c)) for c in "xyz"]))
        client.portal.call(tokens_seen, b)  # type: ignore[union-attr]
        b.worker.die()
        response = streaming.result()
    last = response.text.rstrip().split("\n\n")[-1]
    assert json.loads(last[6:])["error"]["code"] == "worker_lost"
    assert "[DONE]" not in response.text


@pytest.mark.parametrize("stream", [True, False])
def test_a_front_that_stops_tells_open_requests_and_gives_them_up(stream: bool) -> None:
    core = FakeCore()
    with bench(core) as (b, client), ThreadedPost(b, client, stream=stream) as running:
        core.wait_for(lambda: len(core.asks) == 1)
        client.portal.call(b.link.let_go)  # type: ignore[union-attr]
        response = running.result()
        refused = b.post(client)
        assert core.wait_for(lambda: core.aborted == [core.asks[0].request_id])
    assert response.status_code == 503
    assert "the front is stopping" in response.json()["error"]["message"]
    assert refused.status_code == 503
    assert b.exporter.rows(RequestRecord) == []  # the worker writes the row of what it aborted


def asks_timeouts(chosen: Settings, key: str) -> tuple[float | None, float | None]:
    with bench(chosen=chosen) as (b, client):
        b.post(client, key=key)
        (asked,) = b.core.asks
    return asked.queue_timeout_s, asked.deadline_s


def test_an_ask_carries_the_tenants_timeouts_and_else_the_pools() -> None:
    own = settings(queue_timeout_s=1.5, deadline_s=9.0)
    pools = replace(own, limits=replace(own.limits, queue_timeout_s=20.0, deadline_s=60.0))
    assert asks_timeouts(pools, ALICE) == (1.5, 9.0)
    assert asks_timeouts(pools, BOB) == (20.0, 60.0)
    assert asks_timeouts(own, BOB) == (None, None)


def test_an_ask_says_which_key_called_and_nothing_that_opens() -> None:
    with bench() as (b, client):
        b.post(client)
    (asked,) = b.core.asks
    assert asked.key_id == digest_of(ALICE)[:12]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("queue_timeout", "waited 1.5 s without a first step"),
        ("deadline", "not finished within 9 s"),
    ],
)
def test_a_request_given_up_names_which_time_ran_out_and_gets_its_tokens_back(
    stream: bool, reason: str, words: str
) -> None:
    core = FakeCore()
    chosen = settings(queue_timeout_s=1.5, deadline_s=9.0, tpm=200, concurrency=1)
    with bench(core, chosen) as (b, client):
        with ThreadedPost(b, client, stream=stream) as running:
            core.wait_for(lambda: len(core.asks) == 1)
            core.end(core.asks[0], f"{reason}: in the worker's words", 0, Outcome.TIMED_OUT)
            response = running.result()
        core.reply = text_reply("again")
        again = b.post(client)
    error = response.json()["error"]
    assert response.status_code == 504
    assert (error["type"], error["code"]) == ("timeout", reason)
    assert words in error["message"]
    assert again.status_code == 200, "tokens and concurrency are free again"
    assert core.asks[1].is_retry


@pytest.mark.parametrize(("outcome", "status"), [(Outcome.FAILED, 500), (Outcome.TIMED_OUT, 504)])
def test_a_request_that_fails_in_the_pool_says_why(outcome: Outcome, status: int) -> None:
    core = FakeCore()
    with bench(core) as (b, client):
        for stream in (False, True):
            core.asks.clear()
            with ThreadedPost(b, client, stream=stream) as running:
                core.wait_for(lambda: len(core.asks) == 1)
                core.end(core.asks[0], "its adapter broke", 0, outcome)
                response = running.result()
            assert response.status_code == status
            assert "its adapter broke" in response.json()["error"]["message"]
