"""A caller's own usage: asked from the store, about nobody else, and never at serving's cost."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from front_bench import ALICE, bench, settings

from engine.scheduling.quota import QuotaDoor
from engine.serving.api.usage import OwnUsage
from telemetry.errors import NotAllowed, StoreBusy, StoreError, StoreUnreachable

ROW = {
    "period": "2026-11-30",
    "tenant": "alice",
    "offered_requests": 3,
    "admitted_requests": 3,
    "finished": 2,
    "prompt_tokens": 10,
    "cached_tokens": 5,
    "output_tokens": 7,
    "recomputed_tokens": 0,
    "engine_seconds": 0.25,
    "provisional": True,
}


class Store:
    """Answers as told, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def query(self, name: str, **parameters: Any) -> Any:
        self.asked.append({"name": name} | parameters)
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(dicts=lambda: self.answer)


def asked(store: Store | None, query: str = "", **alice: Any) -> Any:
    with bench(chosen=settings(**alice)) as (b, client):
        b.front._usage = OwnUsage(store.query if store else None, b.front._door.view)
        b.post(client, max_tokens=50)
        return client.get(f"/v1/usage{query}", headers={"authorization": f"Bearer {ALICE}"})


def test_usage_is_the_callers_own_and_says_what_is_left() -> None:
    store = Store([ROW])
    body = asked(store, rpm=10, tpm=1000).json()
    assert (body["object"], body["tenant"], body["by"]) == ("usage", "alice", "day")
    assert body["data"][0]["total_tokens"] == 22
    assert "tenant" not in body["data"][0]
    assert body["quota"]["requests_per_minute"] == {"limit": 10, "left": 9}
    assert body["quota"]["tokens_per_minute"]["reserved"] == 0
    (question,) = store.asked
    assert (question["name"], question["tenant"]) == ("usage_of", "alice")
    assert question["start"] % 86_400 == 0


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (StoreUnreachable("no store answers at /secret/path"), "not up"),
        (StoreBusy("busy"), "busy"),
        (NotAllowed("token"), "answers no questions"),
        (StoreError("row of bob"), "could not say"),
    ],
)
def test_a_store_that_does_not_answer_is_a_503_with_the_reason(
    failure: Exception, said: str
) -> None:
    refused = asked(Store(failure))
    message = refused.json()["error"]["message"]
    assert refused.status_code == 503
    assert said in message
    assert "secret" not in message
    assert "bob" not in message


def test_one_who_asks_without_end_takes_no_turn_of_the_others() -> None:
    held = threading.Event()
    door = QuotaDoor(settings())

    def ask(name: str, **parameters: Any) -> Any:
        if parameters["tenant"] == "alice":
            held.wait(20)
        return SimpleNamespace(dicts=list)

    async def all_of_them() -> tuple[list[Any], Any, Any]:
        usage = OwnUsage(ask, door.view)
        many = [asyncio.create_task(usage.of("alice", {}, 0.0, 0.0)) for _ in range(6)]
        refused, _ = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
        other = await usage.of("bob", {}, 0.0, 0.0)
        held.set()
        await asyncio.wait(many)
        return [t.exception() for t in refused], other, await usage.of("alice", {}, 0.0, 0.0)

    refused, other, later = asyncio.run(all_of_them())
    assert [e.code for e in refused] == ["usage_unavailable"] * 4
    assert (other["tenant"], later["tenant"]) == ("bob", "alice")


def test_without_a_store_it_is_said_so() -> None:
    assert "without a store" in asked(None).json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?tenant=bob", "tenant"),
        ("?by=minute", "by"),
        ("?days=0", "days"),
        ("?days=32", "days"),
        ("?days=%C2%B2", "days"),
        ("?days=" + "9" * 50, "days"),
        ("?days=0000000012", "days"),
    ],
)
def test_a_question_that_is_none_is_a_400_and_nobody_elses_can_be_asked(
    query: str, param: str
) -> None:
    store = Store([ROW])
    refused = asked(store, query)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert store.asked == []


@pytest.mark.parametrize("query", ["?by=month&days=366", "?days=31"])
def test_days_and_months_can_be_asked_for(query: str) -> None:
    assert asked(Store([ROW]), query).status_code == 200
