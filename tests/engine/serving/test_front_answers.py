"""Answers: OpenAI's shapes, whole and streamed, and whose adapter gives them."""

from __future__ import annotations

from front_bench import TEXT, bench, chunks


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


def test_usage_so_far_stands_in_every_chunk_and_grows_to_what_comes_last() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    with bench() as (b, client):
        parts = chunks(b.post(client, stream=True, stream_options=options))
        alone = chunks(b.post(client, stream=True, stream_options={"continuous_usage_stats": True}))
    counts = [p["usage"]["completion_tokens"] for p in parts]
    assert counts == sorted(counts)
    assert counts[0] >= 1
    assert counts[-1] == len(TEXT) + 1
    assert {p["usage"]["prompt_tokens"] for p in parts} == {parts[-1]["usage"]["prompt_tokens"]}
    assert all("usage" not in p for p in alone)


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
