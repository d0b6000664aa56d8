"""The front over HTTP: who is let in, what is refused and how, what a caller reads back."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving_fakes import EOS, FakeCore, FakeExporter, FakeTokenizer, FakeWorker, short_folder, step
from starlette.testclient import TestClient

from engine.clock import TurnedClock
from engine.config import Limits, Settings, Tenant
from engine.scheduling.request import Ask, Outcome
from engine.serving.auth import digest_of
from engine.serving.front import Front
from telemetry.otlp import encode
from telemetry.records import EventRecord, RequestRecord, TenantMinute

ALICE, BOB = "ts-alice-key", "ts-bob-key"
TEXT = "a grüße 🙂 tail"


def settings(**alice: Any) -> Settings:
    return Settings(
        engine="e",
        model="tiny",
        limits=Limits(max_context=200, page_tokens=16),
        tenants=(
            Tenant(name="alice", adapters=("ada",), key_sha256=(digest_of(ALICE),), **alice),
            Tenant(name="bob", adapters=("bob-law",), key_sha256=(digest_of(BOB),)),
        ),
        adapters=(("ada", "/a"), ("bob-law", "/b")),
    )


def text_reply(text: str) -> Callable[[Ask], list[int]]:
    return lambda ask: [*map(ord, text), EOS]


class Bench:
    """One front, one fake worker, and everything they let out."""

    def __init__(self, core: FakeCore, chosen: Settings, folder: Path) -> None:
        self.core = core
        self.clock = TurnedClock()
        self.exporter = FakeExporter()
        self.worker = FakeWorker(core, folder)
        self.front = Front(
            chosen,
            self.clock,
            "run-1",
            worker_address=self.worker.address,
            tokenizer=FakeTokenizer(),
            exporter=self.exporter,
        )

    def post(self, client: TestClient, key: str | None = ALICE, **body: Any) -> Any:
        headers = body.pop("headers", {})
        if key is not None:
            headers = headers | {"authorization": f"Bearer {key}"}
        asked = {"model": "tiny", "prompt": "abc", "max_tokens": 100} | body
        return client.post("/v1/completions", json=asked, headers=headers)

    def minute(self, tenant: str = "alice") -> TenantMinute:
        """The latest row of a tenant."""
        return [r for r in self.exporter.rows(TenantMinute) if r.tenant == tenant][-1]


@contextmanager
def bench(
    core: FakeCore | None = None, chosen: Settings | None = None
) -> Iterator[tuple[Bench, TestClient]]:
    with short_folder() as folder:
        b = Bench(core or FakeCore(text_reply(TEXT)), chosen or settings(), folder)
        with TestClient(b.front.app) as client:
            for _ in range(500):
                if client.get("/ready").status_code == 200:
                    break
                client.portal.call(b.front.link.wait_up, 0.1)  # type: ignore[union-attr]
            yield b, client
        b.worker.stop()


def chunks(response: Any) -> list[Any]:
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


# -- answers


def test_a_completion_has_openais_shape() -> None:
    with bench() as (b, client):
        response = b.post(client)
        body = response.json()
    assert response.status_code == 200
    assert body["object"] == "text_completion"
    assert body["model"] == "tiny"
    assert body["choices"] == [
        {"text": TEXT, "index": 0, "logprobs": None, "finish_reason": "stop"}
    ]
    tokens = len(TEXT) + 1
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": tokens,
        "total_tokens": 3 + tokens,
    }
    assert response.headers["x-request-id"] == body["id"]
    assert body["created"] == int(b.clock.base.wall_s)


def test_the_joined_stream_is_the_whole_text() -> None:
    with bench() as (b, client):
        whole = b.post(client).json()["choices"][0]
        streamed = b.post(client, stream=True)
        parts = chunks(streamed)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert "".join(p["choices"][0]["text"] for p in parts) == whole["text"] == TEXT
    reasons = [p["choices"][0]["finish_reason"] for p in parts]
    assert reasons[-1] == whole["finish_reason"] == "stop"
    assert set(reasons[:-1]) <= {None}
    assert len({p["id"] for p in parts}) == 1


def test_usage_comes_last_and_only_when_asked_for() -> None:
    with bench() as (b, client):
        parts = chunks(b.post(client, stream=True, stream_options={"include_usage": True}))
        without = chunks(b.post(client, stream=True))
    assert parts[-1]["choices"] == []
    assert parts[-1]["usage"]["completion_tokens"] == len(TEXT) + 1
    assert all(p["usage"] is None for p in parts[:-1])
    assert all("usage" not in p for p in without)


def test_max_tokens_cuts_and_says_length() -> None:
    with bench() as (b, client):
        choice = b.post(client, max_tokens=4).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (TEXT[:4], "length")


def test_ignoring_the_end_mark_is_passed_to_the_worker() -> None:
    with bench() as (b, client):
        b.post(client, ignore_eos=True)
        b.post(client)
    assert [bool(a.stop_tokens) for a in b.core.asks] == [False, True]


def test_token_ids_are_taken_as_they_are_and_checked_against_the_vocabulary() -> None:
    with bench() as (b, client):
        assert b.post(client, prompt=[5, 6, 7]).status_code == 200
        refused = b.post(client, prompt=[5, 0x110000])
    assert b.core.asks[0].prompt == (5, 6, 7)
    assert refused.status_code == 400
    assert "prompt[1] = 1114112" in refused.json()["error"]["message"]


def test_the_adapter_a_caller_names_is_the_adapter_that_answers() -> None:
    with bench() as (b, client):
        assert b.post(client, model="ada").status_code == 200
        assert b.post(client, model="tiny").status_code == 200
    assert [(a.adapter_name, a.adapter) for a in b.core.asks] == [
        ("ada", "hash-of-ada"),
        (None, None),
    ]


# -- who, and which model


@pytest.mark.parametrize("key", [None, "ts-wrong", ""])
def test_no_key_and_a_wrong_key_get_one_and_the_same_401(key: str | None) -> None:
    with bench() as (b, client):
        response = b.post(client, key=key)
        other = b.post(client, key="ts-quite-another")
        listing = client.get("/v1/models")
    assert response.status_code == listing.status_code == 401
    assert response.json() == other.json()
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert b.core.asks == []


def test_unknown_foreign_and_mistyped_models_get_the_same_404_and_never_the_base_model() -> None:
    with bench() as (b, client):
        answers = [b.post(client, model=m) for m in ("nothing", "bob-law", "adb", "Tiny", "tiny ")]
    shapes = {
        (a.status_code, a.text.replace(json.loads(a.request.content)["model"], "NAME"))
        for a in answers
    }
    assert len(shapes) == 1
    assert answers[0].status_code == 404
    assert b.core.asks == []


def test_a_listing_shows_the_base_model_and_the_callers_adapters_only() -> None:
    with bench() as (_, client):
        listing = client.get("/v1/models", headers={"authorization": f"Bearer {ALICE}"}).json()
    assert [(m["id"], m["parent"]) for m in listing["data"]] == [("tiny", None), ("ada", "tiny")]


# -- quotas


def test_a_429_says_when_to_come_back_and_what_was_used_up() -> None:
    with bench(chosen=settings(rpm=2)) as (b, client):
        first = b.post(client)
        b.post(client)
        refused = b.post(client)
        error = refused.json()["error"]
        assert b.post(client, key=BOB).status_code == 200
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert (error["dimension"], error["limit"], error["used"]) == ("rpm", 2, 2)


def test_waiting_as_long_as_told_is_enough() -> None:
    with bench(chosen=settings(rpm=2)) as (b, client):
        b.post(client)
        b.post(client)
        refused = b.post(client)
        b.clock.turn(float(refused.headers["retry-after"]))
        assert b.post(client).status_code == 200


def test_concurrency_is_held_while_a_request_runs_and_given_back_at_its_end() -> None:
    core = FakeCore()
    with bench(core, settings(concurrency=1)) as (b, client):
        with ThreadedPost(b, client) as running:
            core.wait_for(lambda: len(core.asks) == 1)
            refused = b.post(client)
            core.publish(step([(core.asks[0].request_id, ord("x"))]))
            core.end(core.asks[0], "length", 1)
            assert running.result().json()["choices"][0]["text"] == "x"
        core.reply = text_reply("y")
        assert b.post(client).status_code == 200
    assert refused.status_code == 429
    assert refused.json()["error"]["dimension"] == "concurrency"


def test_a_time_to_come_back_that_is_only_an_estimate_is_marked_as_one() -> None:
    with bench(FakeCore(), settings(rpm=5, concurrency=1)) as (b, client):
        with ThreadedPost(b, client) as running:
            b.core.wait_for(lambda: len(b.core.asks) == 1)
            busy = b.post(client)
            b.core.end(b.core.asks[0], "length", 0)
            running.result()
        b.core.reply = text_reply("y")
        for _ in range(4):
            b.post(client)
        spent = b.post(client)
    assert busy.json()["error"]["retry_after_is_estimate"] is True
    assert busy.headers["retry-after"] == "2"
    assert spent.json()["error"]["dimension"] == "rpm"
    assert "retry_after_is_estimate" not in spent.json()["error"]


@pytest.mark.parametrize("window", ["bucket", "fixed", "sliding"])
def test_a_tenants_window_decides_how_its_minute_is_counted(window: str) -> None:
    with bench(chosen=settings(rpm=2, window=window)) as (b, client):
        b.clock.turn(59.0)
        b.post(client)
        b.post(client)
        b.clock.turn(1.0)
        status = b.post(client).status_code
    assert status == {"bucket": 429, "fixed": 200, "sliding": 429}[window]


def test_a_blocked_tenant_is_told_so_and_no_time_to_come_back() -> None:
    with bench(chosen=settings(rpm=0)) as (b, client):
        refused = b.post(client)
    assert refused.status_code == 429
    assert "blocked" in refused.json()["error"]["message"]
    assert "retry-after" not in refused.headers


@pytest.mark.parametrize(
    ("limits", "ask", "limit"),
    [
        ({}, {"max_tokens": 198}, 200),  # the context
        ({"tpm": 50}, {"max_tokens": 48}, 50),  # the bucket
        ({}, {"max_tokens": 10**9}, 200),
    ],
)
def test_what_could_never_be_served_is_a_400_with_both_numbers_and_no_time_to_come_back(
    limits: dict[str, int], ask: dict[str, int], limit: int
) -> None:
    with bench(chosen=settings(**limits)) as (b, client):
        refused = b.post(client, **ask)
    error = refused.json()["error"]
    assert refused.status_code == 400
    assert (error["dimension"], error["limit"]) == ("impossible", limit)
    assert error["used"] == 3 + ask["max_tokens"]
    assert str(limit) in error["message"]
    assert str(error["used"]) in error["message"]
    assert "retry-after" not in refused.headers


def test_what_the_pool_could_never_hold_beside_its_adapter_is_impossible_too() -> None:
    core = FakeCore(text_reply("x"))
    core.pages = 25  # the adapter needs 20, so 5 pages of 16 tokens are left
    with bench(core) as (b, client):
        assert b.post(client, model="ada", max_tokens=77).status_code == 200
        refused = b.post(client, model="ada", max_tokens=78)
        assert b.post(client, model="tiny", max_tokens=78).status_code == 200
    error = refused.json()["error"]
    assert refused.status_code == 400
    assert (error["limit"], error["used"]) == (80, 81)


# -- malformed


def test_malformed_bodies_are_400_and_too_long_ones_413() -> None:
    with bench() as (_, client):
        headers = {"authorization": f"Bearer {ALICE}"}
        broken = client.post("/v1/completions", content=b"{", headers=headers)
        long = client.post("/v1/completions", content=b" " * (1 << 20) + b"{}", headers=headers)

        def unannounced() -> Iterator[bytes]:
            for _ in range(40):
                yield b" " * (1 << 15)

        chunked = client.post("/v1/completions", content=unannounced(), headers=headers)
    assert broken.status_code == 400
    assert "not valid JSON" in broken.json()["error"]["message"]
    assert long.status_code == chunked.status_code == 413
    assert long.json()["error"]["limit"] == 1 << 20


def test_an_unsupported_parameter_is_named() -> None:
    with bench() as (b, client):
        refused = b.post(client, n=2)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "n"


def test_a_wrong_path_or_method_is_said_in_the_same_shape() -> None:
    with bench() as (_, client):
        path, method = client.post("/v1/chat/completions"), client.get("/v1/completions")
    assert (path.status_code, method.status_code) == (404, 405)
    assert "POST /v1/completions" in path.json()["error"]["message"]
    assert method.headers["allow"] == "POST"


def test_a_key_is_never_sent_on_to_where_a_host_header_points() -> None:
    with bench() as (b, client):
        told = b.post(client, headers={"host": "elsewhere.example"})
        slashed = client.post("/v1/completions/", headers={"host": "elsewhere.example"}, json={})
    assert told.status_code == 200
    assert slashed.status_code == 404
    assert "location" not in slashed.headers


def test_the_fronts_book_outlives_a_tick_that_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[float] = []
    again = threading.Event()

    def tick(now_s: float) -> None:
        ticks.append(now_s)
        if len(ticks) == 1:
            raise KeyError("ts-alice-key")
        again.set()

    monkeypatch.setattr("engine.serving.front._TICK_S", 0.001)
    with bench() as (b, client):
        monkeypatch.setattr(b.front.book, "tick", tick)
        assert again.wait(20)
        assert b.post(client).status_code == 200
    assert "the front's book: KeyError at " in caplog.text
    assert "ts-alice-key" not in caplog.text


# -- the caller leaves


class ThreadedPost:
    """A request under way in another thread."""

    def __init__(self, b: Bench, client: TestClient, **body: Any) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(b.post, client, **body)

    def __enter__(self) -> ThreadedPost:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def result(self) -> Any:
        return self._future.result(20)


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
    while b.front.link.open_requests:
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


# -- the worker goes away


async def tokens_seen(b: Bench) -> None:
    while not any(flight.received for flight in b.front.link._flights.values()):
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
        assert client.portal.call(b.front.link.wait_up, 10.0)  # type: ignore[union-attr]
        assert b.post(client).json()["choices"][0]["text"] == "back"
    assert [r.status_code for r in lost] == [502, 502]
    assert lost[0].json()["error"]["code"] == "worker_lost"
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "/ready" in refused.json()["error"]["message"]
    assert (ready.status_code, health.status_code) == (503, 200)
    rows = b.exporter.rows(RequestRecord)
    assert [(r.outcome, r.run_id) for r in rows] == [("failed", "run-1")] * 2
    (event,) = b.exporter.rows(EventRecord)
    assert "2 open requests failed" in event.detail
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
        client.portal.call(b.front.link.let_go)  # type: ignore[union-attr]
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


# -- what is written down


def test_offered_is_rejected_plus_admitted_by_request_and_by_token() -> None:
    with bench(chosen=settings(rpm=3)) as (b, client):
        for _ in range(5):
            b.post(client, max_tokens=10)
        b.post(client, max_tokens=500)
        b.post(client, model="nothing")  # never offered to the pool: there is no such pool
        b.post(client, n=7)
    row = b.minute()
    assert (row.offered_requests, row.admitted_requests) == (6, 3)
    assert (row.rejected_rpm_requests, row.rejected_impossible_requests) == (2, 1)
    assert row.offered_tokens == 5 * 13 + 503
    assert row.offered_tokens == (
        row.admitted_tokens + row.rejected_rpm_tokens + row.rejected_impossible_tokens
    )


def test_a_rejected_request_becomes_a_row_with_its_reason() -> None:
    with bench(chosen=settings(rpm=1)) as (b, client):
        b.post(client, model="ada")
        b.clock.turn(0.5)
        b.post(client, model="ada", max_tokens=7)
    (row,) = b.exporter.rows(RequestRecord)
    assert (row.tenant, row.adapter, row.outcome, row.reject_reason) == (
        "alice",
        "ada",
        "rejected",
        "rpm",
    )
    assert (row.prompt_tokens, row.max_tokens) == (3, 7)
    assert row.arrived == b.clock.base.unix(0.5)
    assert row.admitted is None
    assert b.exporter.closed


def test_a_retry_is_marked_by_header_or_by_the_same_prompt_after_a_429() -> None:
    with bench(chosen=settings(rpm=1)) as (b, client):
        b.post(client)
        b.post(client)  # 429
        b.post(client)  # the same again: a retry
        b.post(client, prompt="other")
        b.post(client, key=BOB, headers={"x-stainless-retry-count": "2"})
    assert b.minute().offered_retries == 1
    assert b.minute("bob").offered_retries == 1
    assert [a.is_retry for a in b.core.asks] == [False, True]


def test_a_bucket_is_sealed_when_it_ends_and_the_next_one_starts_empty() -> None:
    with bench(chosen=replace(settings(), bucket_s=10.0)) as (b, client):
        b.post(client)
        b.clock.turn(10.0)
        b.front.book.tick(b.clock.now())
        b.post(client)
        b.post(client)
    batches = [x for x in b.exporter.batches if x.minutes]
    assert [(x.sealed, x.minutes[0].offered_requests) for x in batches] == [(True, 1), (True, 2)]
    assert batches[0].minutes[0].bucket_start + 10.0 == batches[1].minutes[0].bucket_start
    assert batches[0].seq < batches[1].seq


def test_the_open_bucket_goes_out_provisionally_in_between() -> None:
    with bench() as (b, client):
        b.post(client)
        b.clock.turn(10.0)
        b.front.book.tick(b.clock.now())
        (first,) = [x for x in b.exporter.batches if x.minutes]
    assert not first.sealed
    assert first.minutes[0].admitted_requests == 1
    assert b.exporter.batches[-1].sealed


def test_prompts_keys_and_headers_reach_neither_telemetry_nor_logs(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    canary = "CANARY-5f1d"
    with bench(chosen=settings(rpm=2)) as (b, client):
        for _ in range(3):
            b.post(client, prompt=canary, headers={"x-secret": canary, "x-request-id": canary})
        b.post(client, key=canary)
        b.post(client, prompt=[canary])
        client.post(
            f"/v1/completions?key={canary}",
            content=canary.encode(),
            headers={"authorization": f"Bearer {ALICE}"},
        )
        tokenizer = b.front._completions._tokenizer

        def broken(text: str) -> list[int]:
            raise ValueError(f"cannot encode {text}")

        tokenizer.encode = broken  # type: ignore[method-assign]
        failed = TestClient(b.front.app, raise_server_exceptions=False)
        assert b.post(failed, prompt=canary).status_code == 500
    assert b.exporter.batches
    out = capfd.readouterr()
    for batch in b.exporter.batches:
        for data in encode(batch):
            assert canary.encode() not in (data or b"")
            assert ALICE.encode() not in (data or b"")
    # The test's own client logs its URLs; everything else is ours.
    logged = [r.getMessage() for r in caplog.records if not r.name.startswith("httpx")]
    for text in (*logged, out.out, out.err, repr(b.exporter.batches)):
        assert canary not in text
        assert ALICE not in text
    assert any("ValueError at" in line for line in logged)  # the fault itself is not hushed up


# -- the process


def test_the_front_process_loads_no_torch_and_no_duckdb() -> None:
    script = (
        "import sys, engine.serving.front, engine.model.text, telemetry.pipeline.exporter\n"
        "engine.model.text.load_tokenizer('synthetic').stream().push(1)\n"
        "bad = {'torch', 'duckdb', 'triton', 'numpy'} & set(sys.modules)\n"
        "print(sorted(bad))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
