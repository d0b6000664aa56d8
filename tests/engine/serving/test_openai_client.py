"""The official `openai` client against a real `serve`: what its users do works as they expect."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from engine.config import Limits, Settings, Tenant
from engine.serving.api.auth import digest_of
from engine.serving.processes import ServeProcesses

SETTINGS = Settings(
    engine="clients",
    model="synthetic",
    dtype="float32",
    bucket_s=10.0,
    provisional_s=0.2,
    limits=Limits(slots=8, step_tokens=64, max_context=1024, pool_bytes=16 << 20),
    tenants=(
        Tenant(name="alice", key_sha256=(digest_of("ts-a"),)),
        Tenant(name="tight", rpm=1, key_sha256=(digest_of("ts-t"),)),
    ),
)
pytestmark = pytest.mark.xdist_group("openai-client")
FOREVER = {"ignore_eos": True}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServeProcesses(SETTINGS, tmp_path_factory.mktemp("clients") / "store") as running:
        yield f"{running.url}/v1"


def client(url: str, key: str = "ts-a") -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def test_a_completion_and_its_stream_are_one_text_with_one_usage(url: str) -> None:
    with client(url) as ask:
        whole = ask.completions.create(
            model="synthetic", prompt="one two", max_tokens=12, temperature=0, extra_body=FOREVER
        )
        parts = list(
            ask.completions.create(
                model="synthetic",
                prompt="one two",
                max_tokens=12,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=FOREVER,
            )
        )
    assert whole.choices[0].finish_reason == "length"
    assert "".join(c.text for p in parts for c in p.choices) == whole.choices[0].text
    assert parts[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 12


def test_a_chat_gives_choices_with_logprobs(url: str) -> None:
    with client(url) as ask:
        got = ask.chat.completions.create(
            model="synthetic",
            messages=[{"role": "user", "content": "tell me"}],
            n=2,
            seed=3,
            logprobs=True,
            top_logprobs=2,
            max_completion_tokens=6,
            extra_body=FOREVER,
        )
        streamed = list(
            ask.chat.completions.create(
                model="synthetic",
                messages=[{"role": "user", "content": "tell me"}],
                n=2,
                seed=3,
                max_completion_tokens=6,
                stream=True,
                extra_body=FOREVER,
            )
        )
    assert [c.index for c in got.choices] == [0, 1]
    for choice in got.choices:
        joined = "".join(
            c.delta.content or ""
            for part in streamed
            for c in part.choices
            if c.index == choice.index
        )
        assert joined == choice.message.content
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == 6
        assert all(len(told.top_logprobs) == 2 for told in choice.logprobs.content)


def test_the_clients_own_errors_are_raised(url: str) -> None:
    with client(url) as ask, pytest.raises(openai.NotFoundError, match="nobodys") as missing:
        ask.completions.create(model="nobodys", prompt="x")
    assert missing.value.code == "model_not_found"
    with client(url, "ts-wrong") as ask, pytest.raises(openai.AuthenticationError):
        ask.models.list()
    with client(url) as ask, pytest.raises(openai.BadRequestError, match="temperature"):
        ask.completions.create(model="synthetic", prompt="x", temperature=-1)
    with client(url, "ts-t") as ask:
        ask.completions.create(model="synthetic", prompt="x", max_tokens=1)
        with pytest.raises(openai.RateLimitError, match="1 a minute are left") as refused:
            ask.completions.create(model="synthetic", prompt="x", max_tokens=1)
    assert int(refused.value.response.headers["retry-after"]) > 0
    assert refused.value.response.headers["x-ratelimit-limit-requests"] == "1"


def test_models_are_listed_and_looked_up(url: str) -> None:
    with client(url) as ask:
        assert [m.id for m in ask.models.list()] == ["synthetic"]
        assert ask.models.retrieve("synthetic").object == "model"
