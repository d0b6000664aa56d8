"""The tenants' API over a real model of made-up weights: what is asked for is what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.config import Limits, Settings, Tenant
from engine.serving.api.auth import digest_of
from engine.serving.api.waits import REASONS, header_of
from engine.serving.client import WorkerClient
from engine.serving.processes import ServeProcesses

SETTINGS = Settings(
    engine="api",
    model="synthetic",
    dtype="float32",
    bucket_s=10.0,
    provisional_s=0.2,
    limits=Limits(slots=8, step_tokens=64, max_context=1024, pool_bytes=16 << 20),
    tenants=(
        Tenant(name="alice", tpm=10**9, key_sha256=(digest_of("ts-a"),)),
        Tenant(name="bob", key_sha256=(digest_of("ts-b"),)),
    ),
)
pytestmark = pytest.mark.xdist_group("serve-api")


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcesses]:
    with ServeProcesses(SETTINGS, tmp_path_factory.mktemp("api") / "store") as running:
        yield running


@pytest.fixture
def url(processes: ServeProcesses) -> str:
    return processes.url


def client() -> httpx.Client:
    """One that reads no certificates first: that takes longer than most answers here."""
    return httpx.Client(verify=False, trust_env=False, timeout=60)


def post(url: str, path: str = "/v1/completions", key: str = "ts-a", **body: Any) -> httpx.Response:
    asked: dict[str, Any] = {"model": "synthetic", "max_tokens": 24, "ignore_eos": True}
    if "chat" in path:
        asked["messages"] = [{"role": "user", "content": "tell me"}]
    else:
        asked["prompt"] = "one two"
    headers = body.pop("headers", {}) | {"authorization": f"Bearer {key}"}
    with client() as asks:
        response = asks.post(f"{url}{path}", json=asked | body, headers=headers)
    response.raise_for_status()
    return response


def events(response: httpx.Response) -> list[Any]:
    lines = response.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line[6:]) for line in lines[:-2]]


def text_of(choice: dict[str, Any]) -> str:
    found: str = choice["text"]
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_seed_repeats_its_choices_and_a_stream_joins_to_the_whole(
    url: str, temperature: float
) -> None:
    ask = {"temperature": temperature, "seed": 11, "n": 3, "logprobs": 2}
    first, again = (post(url, **ask).json()["choices"] for _ in range(2))
    for one, other in zip(first, again, strict=True):
        mine, others = one.pop("logprobs"), other.pop("logprobs")
        assert one == other
        assert mine["tokens"] == others["tokens"]
        # Sums in another order (another batch) differ in their last digits.
        assert mine["token_logprobs"] == pytest.approx(others["token_logprobs"], abs=1e-3)
        one["tokens"] = mine["tokens"]
    texts: dict[int, str] = dict.fromkeys(range(3), "")
    told: dict[int, list[str]] = {i: [] for i in range(3)}
    for part in events(post(url, stream=True, **ask)):
        for choice in part["choices"]:
            texts[choice["index"]] += choice["text"]
            told[choice["index"]] += choice["logprobs"]["tokens"]
    assert texts == {c["index"]: c["text"] for c in first}
    assert told == {c["index"]: c["tokens"] for c in first}
    assert len(set(texts.values())) == (1 if temperature == 0 else 3)


def test_greedy_tokens_are_the_likeliest_and_logprobs_are_logarithms_of_chances(url: str) -> None:
    told = post(url, temperature=0, logprobs=5).json()["choices"][0]["logprobs"]
    assert len(told["tokens"]) == 24
    for token, own, top in zip(
        told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True
    ):
        assert own <= 0
        assert top[token] == own == max(top.values())


def test_a_tiny_nucleus_is_greedy_whatever_the_temperature(url: str) -> None:
    greedy = post(url, temperature=0).json()["choices"][0]["text"]
    assert post(url, temperature=2, top_p=1e-6, seed=5).json()["choices"][0]["text"] == greedy


def test_biases_and_penalties_move_a_greedy_answer(url: str) -> None:
    def told(**body: Any) -> list[str]:
        tokens: list[str] = post(url, temperature=0, logprobs=0, **body).json()["choices"][0][
            "logprobs"
        ]["tokens"]
        return tokens

    plain = told()
    never = told(presence_penalty=2, frequency_penalty=2, repetition_penalty=2)
    assert len(set(never)) > len(set(plain)), "a penalised answer repeats itself less"
    assert len(set(told(logit_bias={"70": 100}))) == 1
    with pytest.raises(httpx.HTTPStatusError) as e:
        told(logit_bias={"70000": 1})
    assert "70000 is no token id of this model" in e.value.response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_cuts_the_text_that_would_have_come(url: str, stream: bool) -> None:
    whole = text_of(post(url, temperature=0).json()["choices"][0])
    stop = whole[9:12]
    expected = whole[: whole.index(stop)]
    response = post(url, temperature=0, stop=[stop], stream=stream, max_tokens=900)
    if stream:
        parts = [p["choices"][0] for p in events(response)]
        assert "".join(map(text_of, parts)) == expected
        assert parts[-1]["finish_reason"] == "stop"
    else:
        choice = response.json()["choices"][0]
        assert (text_of(choice), choice["finish_reason"]) == (expected, "stop")
        assert response.json()["usage"]["completion_tokens"] < 900


def test_a_chat_speaks_through_the_models_template(url: str) -> None:
    whole = post(url, "/v1/chat/completions", temperature=0).json()
    parts = events(post(url, "/v1/chat/completions", temperature=0, stream=True))
    content = "".join(p["choices"][0]["delta"].get("content", "") for p in parts)
    assert content == whole["choices"][0]["message"]["content"]
    prompt = "user: tell me\nassistant:"
    same = post(url, prompt=prompt, temperature=0).json()
    assert same["choices"][0]["text"] == content
    assert same["usage"] == whole["usage"]


def test_waits_are_told_to_who_asks(url: str) -> None:
    told = post(url, stream=True, headers={"x-tenantscope-waits": "1"}).headers
    assert all(float(told[header_of(reason)]) >= 0 for reason in REASONS)
    assert float(told[header_of("prefill")]) > 0


def test_a_tenants_cached_prefixes_are_its_own_whatever_salt_a_client_sends(url: str) -> None:
    """Alice warms a long prompt; bob, with the same words and the same salt, finds nothing."""
    ask = {"prompt": "the very same words " * 20, "max_tokens": 1, "cache_salt": "shared"}
    for key in ("ts-a", "ts-a", "ts-b"):
        post(url, key=key, **ask)

    def stored(key: str, column: str) -> int:
        answer = httpx.get(f"{url}/v1/usage", headers={"authorization": f"Bearer {key}"})
        return sum(r[column] for r in answer.json()["data"])

    for _ in range(2000):  # until the open interval has reached the store
        if stored("ts-a", "cached_tokens") and stored("ts-b", "finished"):
            break
    assert stored("ts-a", "cached_tokens") > 0
    assert stored("ts-b", "finished") > 0
    assert stored("ts-b", "cached_tokens") == 0


def test_usage_adds_up_to_what_answers_said(url: str) -> None:
    key = {"authorization": "Bearer ts-b"}

    def stored() -> tuple[int, int]:
        data = httpx.get(f"{url}/v1/usage", headers=key).json()["data"]
        prompts = sum(r["prompt_tokens"] + r["cached_tokens"] for r in data)
        return prompts, sum(r["output_tokens"] for r in data)

    before = stored()
    used = [post(url, key="ts-b", prompt=f"count {i}").json()["usage"] for i in range(3)]
    wanted = (
        before[0] + sum(u["prompt_tokens"] for u in used),
        before[1] + sum(u["completion_tokens"] for u in used),
    )
    found = before
    for _ in range(2000):
        found = stored()
        if found == wanted:
            break
    assert found == wanted


def test_a_crowd_of_which_a_third_leaves_anywhere_leaves_nothing_behind(
    processes: ServeProcesses,
) -> None:
    """The others' texts are what one alone would have got."""
    expected = text_of(post(processes.url, temperature=0).json()["choices"][0])
    asked = {"model": "synthetic", "prompt": "one two", "max_tokens": 24, "temperature": 0}
    asked |= {"ignore_eos": True, "stream": True}
    key = {"authorization": "Bearer ts-a"}

    async def one(client: httpx.AsyncClient, leaves_after: int | None) -> str | None:
        text = ""
        url = f"{processes.url}/v1/completions"
        async with client.stream("POST", url, json=asked, headers=key) as response:
            assert response.status_code == 200
            if leaves_after == 0:
                return None
            events = 0
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    text += text_of(json.loads(line[6:])["choices"][0])
                    events += 1
                    if events == leaves_after:
                        return None
        return text if leaves_after is None else None  # fewer, larger pieces came than that

    async def crowd() -> list[str | None]:
        limits = httpx.Limits(max_connections=90)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            places = [i % 7 if i % 3 == 0 else None for i in range(90)]
            return await asyncio.gather(*(one(client, place) for place in places))

    texts = asyncio.run(crowd())
    assert [t for t in texts if t is not None] == [expected] * 60
    with WorkerClient(processes.worker_address) as worker:
        for _ in range(5000):
            status = worker.status()
            if not status.running and not status.waiting:
                break
        assert (status.running, status.waiting) == (0, 0)
    quota = httpx.get(f"{processes.url}/v1/usage", headers=key).json()["quota"]
    assert quota["tokens_per_minute"]["reserved"] == 0
    assert quota["concurrency"]["used"] == 0
