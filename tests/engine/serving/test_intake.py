"""Long prompts: refused before they are tokenized, read in fair turns, guessed at honestly."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from front_bench import ALICE, BOB, ThreadedPost, bench, settings, text_reply
from hypothesis import given
from hypothesis import strategies as st
from serving_fakes import FakeCore, FakeTokenizer

from engine.config import Limits, PoolSpec, Settings
from engine.model.text import load_tokenizer
from engine.serving.api.brake import Brake
from engine.serving.api.intake import INLINE_CHARACTERS
from engine.serving.api.lengths import Lengths
from engine.serving.api.turns import TurnRefused, Turns

LONG = "x" * (INLINE_CHARACTERS + 1)


# -- turns


def in_turns(turns: Turns, *asked: tuple[str, str], hold: threading.Event | None = None) -> Any:
    """Ask for all at once; returns the order in which the work began, and what each got."""
    began: list[str] = []

    def work(name: str) -> str:
        if hold is not None and not began:
            began.append(name)
            hold.wait(10)
        else:
            began.append(name)
        return name

    async def run() -> list[Any]:
        jobs = [asyncio.ensure_future(turns.run(t, lambda n=n: work(n))) for t, n in asked]
        for _ in range(5):
            await asyncio.sleep(0)
        if hold is not None:
            hold.set()
        return await asyncio.gather(*jobs, return_exceptions=True)

    return began, asyncio.run(run())


def test_tenants_take_turns_however_many_one_has_waiting() -> None:
    asked = [("a", f"a{i}") for i in range(4)] + [("b", "b0"), ("c", "c0")]
    began, got = in_turns(Turns(at_once=1), *asked, hold=threading.Event())
    assert began == ["a0", "b0", "c0", "a1", "a2", "a3"]
    assert got == [name for _, name in asked]


def test_of_one_tenant_one_piece_runs_at_a_time() -> None:
    running: list[int] = []
    most: list[int] = []

    def work() -> None:
        running.append(1)
        most.append(len(running))
        running.pop()

    async def run() -> None:
        turns = Turns(at_once=4)
        await asyncio.gather(*(turns.run("a", work) for _ in range(8)))

    asyncio.run(run())
    assert most == [1] * 8


def test_what_waits_is_bounded_for_each_and_in_all() -> None:
    asked = [("a", "a0"), ("a", "a1"), ("a", "a2"), ("b", "b0"), ("c", "c0")]
    turns = Turns(at_once=1, each=2, most=3)
    began, got = in_turns(turns, *asked, hold=threading.Event())
    assert began == ["a0", "b0", "a1"]
    assert [g.own if isinstance(g, TurnRefused) else g for g in got] == [
        "a0",
        "a1",
        True,
        "b0",
        False,
    ]


def test_who_leaves_while_it_waits_or_runs_gives_its_turn_back() -> None:
    hold = threading.Event()

    async def run() -> str:
        turns = Turns(at_once=1, each=2)
        first = asyncio.ensure_future(turns.run("a", lambda: hold.wait(10)))
        second = asyncio.ensure_future(turns.run("a", lambda: "never"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        third = asyncio.ensure_future(turns.run("a", lambda: "third"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        assert isinstance(turns.full_for("a"), TurnRefused), "the work goes on, and counts"
        hold.set()
        return await asyncio.wait_for(third, 10)

    assert asyncio.run(run()) == "third"


# -- lengths


TOKENIZER = load_tokenizer("synthetic")


@given(st.text(max_size=300))
def test_no_text_has_fewer_tokens_than_the_least(text: str) -> None:
    lengths = Lengths(TOKENIZER.longest_bytes)
    tokens = len(TOKENIZER.encode(text))
    assert not text or lengths.least(len(text.encode())) <= tokens


def test_a_guess_follows_what_was_read_and_is_never_below_the_least() -> None:
    lengths = Lengths(8)
    assert lengths.likely(4000) == 1000
    for _ in range(100):
        lengths.learn(100_000, 50_000)
    assert lengths.likely(4000) == pytest.approx(2000, rel=0.01)
    for _ in range(100):
        lengths.learn(100_000, 1)
    assert lengths.likely(4000) == lengths.least(4000) == 500


def test_where_a_token_may_stand_for_anything_one_is_all_that_is_sure() -> None:
    assert Lengths(None).least(1 << 20) == 1


# -- at the door


class Counting(FakeTokenizer):
    """Notes what it is given."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.hold: threading.Event | None = None
        self.began = threading.Event()  # what is held

    def encode(self, text: str) -> list[int]:
        self.read.append(len(text))
        if self.hold is not None and text.startswith("slow"):
            self.began.set()
            self.hold.wait(10)
        return super().encode(text)


def roomy(**alice: Any) -> Settings:
    chosen = settings(**alice)
    return Settings(
        engine=chosen.engine,
        model=chosen.model,
        limits=Limits(max_context=100_000, page_tokens=16),
        tenants=chosen.tenants,
        adapters=chosen.adapters,
    )


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Counting:
    tokenizer = Counting()
    monkeypatch.setattr("front_bench.FakeTokenizer", lambda: tokenizer)
    return tokenizer


@pytest.mark.parametrize(
    ("limits", "dimension"),
    [
        ({"rpm": 1}, "rpm"),
        ({"tpm": 5000}, "tpm"),
        ({"concurrency": 0}, "concurrency"),
        ({"queue": 0}, "queue"),
    ],
)
def test_a_tenant_over_its_limit_has_no_long_prompt_tokenized(
    limits: dict[str, int], dimension: str, reader: Counting
) -> None:
    with bench(FakeCore(text_reply("x")), roomy(**limits)) as (b, client):
        b.post(client, prompt="short", max_tokens=4500)
        if dimension == "tpm":
            b.core.reply = None
            with ThreadedPost(b, client, prompt="hold", max_tokens=4500) as holding:
                b.core.wait_for(lambda: len(b.core.asks) == 2)
                refused = b.post(client, prompt=LONG * 2, max_tokens=100)
                b.core.end(b.core.asks[1], "length", 0)
                holding.result()
        else:
            refused = b.post(client, prompt=LONG, max_tokens=100)
    error = refused.json()["error"]
    assert (refused.status_code, error["dimension"]) == (429, dimension)
    assert max(reader.read) < INLINE_CHARACTERS
    row = b.minute()
    assert getattr(row, f"rejected_{dimension}_requests") >= 1
    assert row.offered_tokens == row.admitted_tokens + sum(
        getattr(row, f"rejected_{r}_tokens") for r in ("rpm", "tpm", "concurrency", "queue")
    )
    if dimension == "tpm":
        assert "at least" in error["message"]
        assert error["retry_after_is_estimate"] is True


def test_what_surely_never_fits_is_refused_untokenized_with_both_numbers(reader: Counting) -> None:
    with bench(chosen=roomy(tpm=50)) as (b, client):
        refused = b.post(client, prompt=LONG, max_tokens=1)
    error = refused.json()["error"]
    assert (refused.status_code, error["dimension"], error["limit"]) == (400, "impossible", 50)
    assert "at least" in error["message"]
    assert reader.read == []


def test_a_long_prompt_that_is_let_in_is_counted_to_the_token(reader: Counting) -> None:
    with bench(FakeCore(text_reply("x")), roomy(tpm=100_000)) as (b, client):
        used = b.post(client, prompt=LONG, max_tokens=10).json()["usage"]
        view = b.front._door.view("alice", b.clock.now())
    assert used["prompt_tokens"] == len(LONG)
    assert view.settled_tokens == used["total_tokens"]
    assert b.minute().offered_tokens == len(LONG) + 10


def test_a_flood_of_long_prompts_is_bounded_and_leaves_the_others_their_turn(
    reader: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.hold = threading.Event()
    monkeypatch.setattr(Turns.__init__, "__defaults__", (2, 2, 64))
    with bench(FakeCore(text_reply("x")), roomy()) as (b, client):
        slow = "slow" + LONG
        with (
            ThreadedPost(b, client, prompt=slow, max_tokens=9) as one,
            ThreadedPost(b, client, prompt=slow, max_tokens=9) as two,
        ):
            turns = b.front._completions.intake.turns
            client.portal.call(_until_full, turns, "alice")  # type: ignore[union-attr]
            refused = b.post(client, key=ALICE, prompt=slow, max_tokens=9)
            other = b.post(client, key=BOB, prompt=LONG, max_tokens=9)
            short = b.post(client, key=ALICE, max_tokens=9)
            reader.hold.set()
            assert [one.result().status_code, two.result().status_code] == [200, 200]
    error = refused.json()["error"]
    assert (refused.status_code, error["dimension"], error["limit"]) == (429, "front", 2)
    assert refused.headers["retry-after"] == "1"
    assert (other.status_code, short.status_code) == (200, 200)
    assert b.minute().rejected_queue_requests == 1
    assert b.minute().offered_requests == b.minute().admitted_requests + 1


def test_a_tenant_that_moves_while_its_prompt_is_read_is_served_where_it_went(
    reader: Counting,
) -> None:
    reader.hold = threading.Event()
    cores = [FakeCore(text_reply("old")), FakeCore(text_reply("new"))]
    limits = Limits(max_context=100_000, page_tokens=16)
    pools = (PoolSpec("tail", limits=limits), PoolSpec("gold", limits=limits))
    chosen = replace(roomy(), pools=pools)
    moved = replace(
        chosen,
        tenants=tuple(
            replace(t, pool="gold" if t.name == "alice" else None) for t in chosen.tenants
        ),
    )
    with (
        bench(cores, chosen) as (b, client),
        ThreadedPost(b, client, prompt="slow" + LONG, max_tokens=9) as running,
    ):
        assert reader.began.wait(10)
        client.portal.call(b.front.apply, moved)  # type: ignore[union-attr]
        reader.hold.set()
        assert running.result().json()["choices"][0]["text"] == "new"
    assert b.minute().pool == "gold"
    assert b.minute().admitted_requests == 1


def test_a_chat_of_several_answers_is_not_refused_for_room_that_its_prompt_takes(
    reader: Counting,
) -> None:
    """497 tokens of 600 leave 103 to each of 8 answers; the shortest prompt had left 512."""
    chosen = replace(roomy(tpm=3000), limits=Limits(max_context=600, page_tokens=16))
    turns = [{"role": "user", "content": "x"}] * 71
    body = {"model": "tiny", "messages": turns, "n": 8}
    with bench(FakeCore(text_reply("x")), chosen) as (b, client):
        key = {"authorization": f"Bearer {ALICE}"}
        answered = client.post("/v1/chat/completions", json=body, headers=key)
        assert (answered.status_code, b.core.asks[0].max_tokens) == (200, 103)
        small = client.post("/v1/chat/completions", json=body | {"max_tokens": 400}, headers=key)
    assert small.json()["error"]["dimension"] == "impossible"
    assert reader.read == [497], "what was asked for is known before"


async def _until_full(turns: Turns, tenant: str) -> None:
    while turns.full_for(tenant) is None:
        await asyncio.sleep(0.001)


# -- a caller who takes no notice of refusals


def test_refusals_beyond_a_pace_are_told_later_and_only_to_whom_they_concern() -> None:
    brake = Brake(a_second=20.0, hold_s=0.25)
    told = [brake.delay_s("a", 0.0) for _ in range(25)]
    assert told == [0.0] * 20 + [0.25] * 5
    assert brake.delay_s("b", 0.0) == 0.0
    assert brake.delay_s("a", 0.1) == 0.0, "two more a tenth of a second"
    assert [brake.delay_s("a", 9.0) for _ in range(21)] == [0.0] * 20 + [0.25]


def test_a_refused_callers_answer_waits_and_an_admitted_ones_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[str] = []

    async def hold(self: Brake, tenant: str) -> None:
        held.append(tenant)

    monkeypatch.setattr(Brake, "hold", hold)
    with bench(FakeCore(text_reply("x")), settings(rpm=1)) as (b, client):
        for key in (ALICE, ALICE, "ts-nobody", BOB):
            b.post(client, key=key)
    assert held == ["alice", ""]


def test_more_ids_than_a_context_holds_are_refused_without_a_look_at_each() -> None:
    with bench(FakeCore(text_reply("x"))) as (b, client):
        refused = b.post(client, prompt=[10**30] * 300, max_tokens=1)
        again = b.post(client, prompt=[97] * 300, max_tokens=1)
    for response in (refused, again):
        error = response.json()["error"]
        assert (response.status_code, error["dimension"]) == (400, "impossible")
        assert (error["limit"], error["used"]) == (200, 301)
    assert b.minute().rejected_impossible_tokens == 602
