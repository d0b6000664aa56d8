"""Several choices, stop strings, logprobs, seeds: what a caller asks of an answer beside text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from front_bench import ThreadedPost, bench, chunks, settings, text_reply
from serving_fakes import EOS, FakeCore, FakeTokenizer

from engine.scheduling.request import Ask, Outcome
from engine.scheduling.shaping import PLAIN, Shaping


def numbered() -> Callable[[Ask], list[int]]:
    """Each choice says another text, by its place."""

    def reply(ask: Ask) -> list[int]:
        place = ask.request_id.rpartition("-")[2]
        place = place if len(place) == 1 else "0"
        return [*map(ord, f"choice {place}"), EOS]

    return reply


# -- n


@pytest.mark.parametrize("stream", [False, True])
def test_each_choice_is_answered_in_its_place(stream: bool) -> None:
    with bench(FakeCore(numbered())) as (b, client):
        response = b.post(client, n=3, stream=stream)
    texts = {0: "", 1: "", 2: ""}
    answers = chunks(response) if stream else [response.json()]
    for answer in answers:
        for choice in answer["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "choice 0", 1: "choice 1", 2: "choice 2"}


def test_the_prompt_counts_once_and_every_choice_counts() -> None:
    with bench(FakeCore(numbered()), settings(tpm=1000, rpm=10, concurrency=3)) as (b, client):
        used = b.post(client, n=3).json()["usage"]
        view = b.front._door.view("alice", 0.0)
    assert used["prompt_tokens"] == 3
    assert used["completion_tokens"] == 3 * (len("choice 0") + 1)
    assert view.settled_tokens == used["total_tokens"]
    assert (view.tpm_level, view.rpm_level) == (1000 - used["total_tokens"], 7)
    assert (view.reserved_tokens, view.concurrency) == (0, 0)


def test_choices_are_let_in_together_or_not_at_all() -> None:
    with bench(FakeCore(numbered()), settings(rpm=4, tpm=2000, concurrency=5)) as (b, client):
        assert b.post(client, n=3).status_code == 200
        refused = b.post(client, n=2)
        assert b.post(client, n=1).status_code == 200, "the refused ones took nothing"
    assert refused.status_code == 429
    assert refused.json()["error"]["dimension"] == "rpm"
    assert len(b.core.asks) == 4
    assert (b.minute().offered_requests, b.minute().admitted_requests) == (6, 4)
    assert b.minute().rejected_rpm_requests == 2


@pytest.mark.parametrize("limits", [{"rpm": 2}, {"tpm": 250}, {"concurrency": 2}])
def test_more_choices_than_could_ever_be_let_in_are_impossible(limits: dict[str, int]) -> None:
    with bench(FakeCore(numbered()), settings(**limits)) as (b, client):
        refused = b.post(client, n=3)
    assert refused.status_code == 400
    assert refused.json()["error"]["dimension"] == "impossible"
    assert "n = 3" in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_one_choice_that_fails_gives_the_others_up(stream: bool) -> None:
    core = FakeCore()
    with bench(core, settings(concurrency=3)) as (b, client):
        with ThreadedPost(b, client, n=3, stream=stream) as running:
            core.wait_for(lambda: len(core.asks) == 3)
            core.end(core.asks[1], "its adapter broke", 0, Outcome.FAILED)
            response = running.result()
        assert core.wait_for(lambda: len(core.aborted) == 2)
        core.reply = text_reply("again")
        while b.link.open_requests:
            client.portal.call(_breathe)  # type: ignore[union-attr]
        assert b.post(client, n=3).status_code == 200
    assert response.status_code == 500
    assert sorted(core.aborted) == sorted(a.request_id for a in (core.asks[0], core.asks[2])), (
        "once each"
    )


async def _breathe() -> None:
    return None


def test_seeds_of_choices_differ_and_repeat() -> None:
    with bench(FakeCore(numbered())) as (b, client):
        b.post(client, n=3, seed=7)
        b.post(client, n=3, seed=7)
        b.post(client, n=1, seed=7)
        b.post(client, n=2)
    seeds = [a.seed for a in b.core.asks]
    assert seeds[:3] == seeds[3:6]
    assert len(set(seeds[:3])) == 3
    assert seeds[0] == seeds[6] == 7
    assert seeds[7:] == [None, None]


# -- stop


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_answer_before_it_and_is_said_to_the_worker_once(
    stream: bool,
) -> None:
    core = FakeCore()
    with bench(core, settings(tpm=500)) as (b, client):
        with ThreadedPost(b, client, stream=stream, stop=["ND OF", "zz"]) as running:
            core.wait_for(lambda: len(core.asks) == 1)
            core.make(core.asks[0], [ord(c) for c in "the END OF it, and on"])
            response = running.result()
        view = b.front._door.view("alice", 0.0)
    assert core.completed == [core.asks[0].request_id]
    assert core.aborted == []
    if stream:
        parts = chunks(response)
        assert "".join(p["choices"][0]["text"] for p in parts) == "the E"
        assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    else:
        body = response.json()
        assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == (
            "the E",
            "stop",
        )
        assert body["usage"]["total_tokens"] == view.settled_tokens
    # What was made is charged, what lay ahead is not.
    assert view.settled_tokens == 3 + len("the END OF it, and on")


def test_no_part_of_a_stop_string_is_shown_while_it_may_still_be_one() -> None:
    core = FakeCore()
    with bench(core) as (b, client), ThreadedPost(b, client, stream=True, stop="</s>") as running:
        core.wait_for(lambda: len(core.asks) == 1)
        for char in "a</b></":
            core.make(core.asks[0], [ord(char)])
        core.end(core.asks[0], "length", 7)
        parts = chunks(running.result())
    texts = [p["choices"][0]["text"] for p in parts]
    assert "".join(texts) == "a</b></"
    assert not any(t.endswith(("<", "</")) for t in texts[:-1])
    assert core.completed == []


# -- logprobs


class Plain:
    """A decoder to which every token is a whole character."""

    def push(self, token: int) -> str:
        return chr(token)

    def finish(self) -> str:
        return ""


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTokenizer, "stream", lambda self: Plain())


@pytest.mark.usefixtures("plain")
def test_logprobs_of_a_completion_stand_beside_its_text() -> None:
    with bench(FakeCore(text_reply("abc"))) as (b, client):
        choice = b.post(client, logprobs=2).json()["choices"][0]
        parts = chunks(b.post(client, logprobs=2, stream=True))
    told = choice["logprobs"]
    assert told["tokens"] == ["a", "b", "c"]
    assert told["token_logprobs"] == [-0.5] * 3
    assert told["top_logprobs"][0] == {"a": -0.5, "b": -1.5}
    assert told["text_offset"] == [0, 1, 2]
    streamed = [p["choices"][0]["logprobs"] for p in parts]
    assert [t for s in streamed for t in s["tokens"]] == told["tokens"]
    assert [t for s in streamed for t in s["text_offset"]] == told["text_offset"]


def test_logprobs_of_a_chat_spell_out_bytes() -> None:
    with bench(FakeCore(text_reply("é"))) as (b, client):
        choice = b.chat(client, logprobs=True, top_logprobs=1).json()["choices"][0]
        without = b.chat(client, logprobs=True).json()["choices"][0]
    (entry,) = choice["logprobs"]["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("é", -0.5, [0xC3, 0xA9])
    assert entry["top_logprobs"][0]["token"] == "é"
    assert without["logprobs"]["content"][0]["top_logprobs"] == []


@pytest.mark.usefixtures("plain")
def test_tokens_cut_off_by_a_stop_string_have_no_logprobs() -> None:
    core = FakeCore(text_reply("ab END"))
    with bench(core) as (b, client):
        choice = b.post(client, logprobs=0, stop="END").json()["choices"][0]
    assert choice["text"] == "ab "
    assert choice["logprobs"]["tokens"] == ["a", "b", " "]


def test_sampling_reaches_the_worker_as_it_was_asked() -> None:
    with bench(FakeCore(text_reply("x"))) as (b, client):
        b.post(client, temperature=0.5, top_p=0.25, logprobs=3, seed=9)
        b.chat(client)
        b.post(client, top_k=5, logit_bias={"7": -1.5})
    asked: list[Any] = [(a.temperature, a.top_p, a.logprobs, a.seed) for a in b.core.asks]
    assert asked == [(0.5, 0.25, 3, 9), (1.0, 1.0, None, None), (1.0, 1.0, None, None)]
    shaping = Shaping(top_k=5, logit_bias=((7, -1.5),))
    assert [a.shaping for a in b.core.asks] == [PLAIN, PLAIN, shaping]
