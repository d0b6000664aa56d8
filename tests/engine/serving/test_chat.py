"""Chats: messages in, OpenAI's chat objects out, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from front_bench import TEXT, bench, chunks
from serving_fakes import FakeCore

from engine.model.chat_template import ChatRefused
from engine.serving.api.bodies import DEFAULT_CHAT_TOKENS, parse_chat
from engine.serving.api.openai import ApiError

MESSAGES = [{"role": "user", "content": "hi"}]


def refusal(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as e:
        parse_chat(json.dumps({"model": "m", "messages": MESSAGES} | body).encode())
    return e.value


def test_a_chat_has_openais_shape() -> None:
    with bench() as (b, client):
        body = b.chat(client).json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": TEXT, "refusal": None}
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    prompt = len("user:hi\n")
    assert body["usage"]["prompt_tokens"] == prompt
    assert "".join(map(chr, b.core.asks[0].prompt)) == "user:hi\n"


def test_a_streamed_chat_says_who_speaks_first_and_joins_to_the_whole() -> None:
    with bench() as (b, client):
        whole = b.chat(client).json()["choices"][0]
        parts = chunks(b.chat(client, stream=True, stream_options={"include_usage": True}))
    assert {p["object"] for p in parts} == {"chat.completion.chunk"}
    deltas = [p["choices"][0]["delta"] for p in parts[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(d.get("content", "") for d in deltas) == whole["message"]["content"]
    assert parts[-2]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert parts[-1]["usage"]["completion_tokens"] == len(TEXT) + 1


def test_parts_of_text_are_one_text_and_a_developer_is_the_system() -> None:
    said = [
        {"role": "developer", "content": [{"type": "text", "text": "be"}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "name": "kim",
        },
    ]
    asked = parse_chat(json.dumps({"model": "m", "messages": said}).encode())
    assert [(m.role, m.content) for m in asked.messages()] == [("system", "be"), ("user", "ab")]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "robot", "content": "hi"}], "messages[0].role"),
        ([{"role": "tool", "content": "hi"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([*MESSAGES, {"role": "assistant", "tool_calls": [{"id": "x"}]}], "messages[1].tool_calls"),
    ],
)
def test_a_message_that_cannot_be_taken_is_named_by_its_place(messages: Any, param: str) -> None:
    error = refusal(messages=messages)
    assert (error.status, error.param) == (400, param)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("response_format", {"type": "json_object"}),
        ("top_logprobs", 3),
        ("logprobs", 1),
        ("prompt", "hi"),
        ("modalities", ["audio"]),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


def test_two_maxima_that_differ_are_one_too_many() -> None:
    assert refusal(max_tokens=5, max_completion_tokens=6).param == "max_tokens"


def test_the_default_length_is_what_the_context_still_holds() -> None:
    asked = parse_chat(json.dumps({"model": "m", "messages": MESSAGES}).encode())
    assert asked.room(100, 4096) == DEFAULT_CHAT_TOKENS
    assert asked.room(4000, 4096) == 96
    assert asked.room(4096, 4096) == 1  # the door says what is wrong, with both numbers


def test_a_prompt_that_no_template_makes_is_a_400_that_names_the_fix() -> None:
    with bench() as (b, client):

        def none(messages: Any) -> list[int]:
            raise ChatRefused("this model has no chat template: use POST /v1/completions")

        b.front._completions._tokenizer.chat = none  # type: ignore[method-assign]
        refused = b.chat(client)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "chat_template")
    assert "POST /v1/completions" in error["message"]


def test_completions_and_chats_are_charged_alike_whatever_their_shape() -> None:
    used = []
    for chat in (False, True):
        for more in ({}, {"stream": True}, {"logprobs": True if chat else 1}):
            core = FakeCore(lambda ask: [ord(c) for c in "four"])
            with bench(core, _limited()) as (b, client):
                if chat:
                    b.chat(client, "abc", max_tokens=4, **more)
                else:
                    b.post(client, prompt="user:abc\n", max_tokens=4, **more)
                used.append(b.front._door.view("alice", 0.0).settled_tokens)
    assert set(used) == {len("user:abc\n") + 4}


def _limited() -> Any:
    from front_bench import settings

    return settings(tpm=1000)
