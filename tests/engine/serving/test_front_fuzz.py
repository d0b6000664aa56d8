"""Any request whatever gets an answer of the API's own: no 500, no hang, no word of another's."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from front_bench import ALICE, BOB, bench, settings, text_reply
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from serving_fakes import FakeCore

from engine.serving.api import bodies
from engine.serving.api.brake import Brake

STATUSES = {200, 400, 401, 404, 405, 413, 429}
text = st.text(st.characters(codec="utf-8"), max_size=12)
number = st.one_of(st.integers(-5, 300), st.floats(), st.sampled_from([2**31, 2**63, 10**30]))
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), number, text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool"]), "content": text | anything}
)
likely: dict[str, Any] = {
    "model": st.sampled_from(["tiny", "ada", "bob-law", "", "tiny "]),
    "prompt": text | st.lists(st.integers(-1, 0x110000), max_size=5),
    "messages": st.lists(message, max_size=3),
    "max_tokens": st.integers(0, 250),
    "n": st.integers(0, 9),
    "stop": st.lists(text, max_size=5) | text,
    "logprobs": st.integers(-1, 6) | st.booleans(),
    "top_logprobs": st.integers(-1, 21),
    "temperature": number,
    "top_p": st.floats(0, 1),
    "seed": st.integers(0, 9),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries(
        {"include_usage": st.booleans()}, optional={"continuous_usage_stats": st.booleans()}
    ),
}
names = [*dict.fromkeys([*bodies.CHAT_KEYS, *bodies.COMPLETION_KEYS])]
good_completion = st.fixed_dictionaries(
    {k: likely[k] for k in ("model", "prompt")},
    optional={k: v for k, v in likely.items() if k not in ("model", "prompt", "messages")},
)
good_chat = st.fixed_dictionaries(
    {k: likely[k] for k in ("model", "messages")},
    optional={k: v for k, v in likely.items() if k not in ("model", "prompt", "messages")},
)
odd = st.dictionaries(st.sampled_from(names) | text, anything, max_size=6)
body = st.one_of(
    st.one_of(good_completion, good_chat, odd).map(lambda b: json.dumps(b).encode()),
    st.binary(max_size=60),
)
path = st.sampled_from(
    ["/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/usage", "/v1/models/ada"]
) | text.map(lambda t: "/" + quote(t))
request = st.tuples(
    st.sampled_from(["POST"] * 6 + ["GET", "PUT", "HEAD", "OPTIONS"]),
    path,
    st.sampled_from([ALICE, BOB, "", "ts-nobody"]),
    body,
)


def fuzz(examples: int) -> None:
    core = FakeCore(text_reply("an answer of a kind"))
    with bench(core, settings(tpm=10**9, rpm=10**9, concurrency=50)) as (b, client):
        b.front._completions._brake = Brake(a_second=1e9)  # most are refused: that is the point

        @how(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(request)
        def one(asked: tuple[str, str, str, bytes]) -> None:
            method, where, key, content = asked
            headers = {"authorization": f"Bearer {key}".encode()}
            answer = client.request(method, where, content=content, headers=headers)
            known = STATUSES | ({503} if where == "/v1/usage" else set())
            assert answer.status_code in known, (answer.status_code, answer.text)
            if answer.status_code != 200 and method != "HEAD":
                assert answer.json()["error"]["message"]
            core.asks.clear()

        one()
        assert b.link.open_requests == 0
        view = b.front._door.view("alice", b.clock.now())
        assert (view.reserved_tokens, view.concurrency) == (0, 0)


def test_five_hundred_requests_of_any_kind_are_answered() -> None:
    fuzz(500)


@pytest.mark.full
def test_ten_thousand_requests_of_any_kind_are_answered() -> None:
    fuzz(10_000)
