"""Quotas at the door: what is refused, with which numbers, and when to come back."""

from __future__ import annotations

import pytest
from front_bench import BOB, ThreadedPost, bench, settings, text_reply
from serving_fakes import FakeCore, step

from telemetry.records import RequestRecord


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
    (row,) = [r for r in b.exporter.rows(RequestRecord) if r.outcome == "rejected"]
    assert refused.headers["x-request-id"] == row.request_id
    assert (error["dimension"], error["limit"], error["used"]) == ("rpm", 2, 2)
    assert (error["reserved"], error["reset_s"]) == (0, int(refused.headers["retry-after"]))
    assert refused.headers["x-ratelimit-reset-requests"] == "60s"


def test_tokens_held_by_running_requests_are_told_apart_from_those_spent() -> None:
    core = FakeCore()
    with bench(core, settings(tpm=300)) as (b, client):
        with ThreadedPost(b, client, max_tokens=197) as running:
            core.wait_for(lambda: len(core.asks) == 1)
            refused = b.post(client, max_tokens=150)
            core.end(core.asks[0], "length", 10)
            running.result()
        core.reply = text_reply("y")
        assert b.post(client, max_tokens=150).status_code == 200
    error = refused.json()["error"]
    assert (error["dimension"], error["limit"], error["used"]) == ("tpm", 300, 200)
    assert error["reserved"] == 200
    assert error["reset_s"] == int(refused.headers["retry-after"])


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
    assert refused.headers["x-request-id"].startswith("cmpl-")
    assert (error["limit"], error["used"]) == (80, 81)
