"""The dialect: what a body may say, and that what it may not say is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.api import bodies, openai, reading
from engine.serving.api.answer import refusal as refusal_response
from engine.serving.api.bodies import Asked, parse_chat, parse_completion
from engine.serving.api.openai import ApiError
from engine.serving.api.shapes import ChatShape, CompletionShape, Part


def parse(**body: Any) -> Asked:
    return parse_completion(json.dumps({"model": "m", "prompt": "hi"} | body).encode())


def refusal(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as e:
        parse(**body)
    return e.value


def test_defaults_are_openais() -> None:
    asked = parse()
    assert (asked.room(5, 100), asked.temperature, asked.stream) == (16, 1.0, False)
    assert (asked.n, asked.top_p, asked.stop, asked.logprobs) == (1, 1.0, (), None)
    assert asked.seed is None
    assert not asked.ignore_eos


def test_null_means_default() -> None:
    names = ["max_tokens", "temperature", "seed", "stream", "stop", "logprobs", "n"]
    nothing = dict.fromkeys(names)
    assert parse(**nothing) == parse()


def test_everything_supported_is_taken() -> None:
    asked = parse(
        prompt=[5, 6],
        max_tokens=3,
        temperature=0,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
        ignore_eos=True,
        n=2,
        top_p=0.5,
        stop="\n",
        logprobs=5,
        user="u",
    )
    assert asked == Asked(
        "m",
        (5, 6),
        max_tokens=3,
        temperature=0.0,
        top_p=0.5,
        n=2,
        stop=("\n",),
        seed=7,
        logprobs=5,
        stream=True,
        include_usage=True,
        ignore_eos=True,
    )


@pytest.mark.parametrize("prompt", [["one text"], [[1, 2, 3]]])
def test_a_list_of_one_prompt_is_that_prompt(prompt: list[Any]) -> None:
    asked = parse(prompt=prompt)
    assert asked.prompt == (prompt[0] if isinstance(prompt[0], str) else tuple(prompt[0]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", 3),
        ("echo", True),
        ("suffix", "x"),
    ],
)
def test_what_would_change_the_answer_is_refused_with_name_value_and_what_is_allowed(
    name: str, value: Any
) -> None:
    error = refusal(**{name: value})
    assert error.status == 400
    assert error.param == name
    assert error.message.startswith(f"{name} = {json.dumps(value)}: not supported; allowed: null")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("top_p", 1.0),
        ("echo", False),
        ("stop", []),
        ("cache_salt", "whatever a client says"),
        ("prompt_cache_key", "k"),
    ],
)
def test_neutral_values_pass(name: str, value: Any) -> None:
    assert parse(**{name: value}) == parse()


def test_a_mistyped_parameter_is_refused_with_the_nearest_name() -> None:
    error = refusal(max_token=5)
    assert error.param == "max_token"
    assert "did you mean max_tokens?" in error.message


def test_a_name_of_a_megabyte_is_cut_before_anything_near_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_for: list[str] = []

    def near(word: str, known: Any, n: int) -> list[str]:
        looked_for.append(word)
        return []

    monkeypatch.setattr(reading.difflib, "get_close_matches", near)
    refusal(**{"max_tokens" * 100_000: 1})
    assert [len(word) for word in looked_for] == [80]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1 << 31),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", "16"),
        ("temperature", -0.1),
        ("temperature", 2.01),
        ("temperature", "hot"),
        ("temperature", False),
        ("seed", -1),
        ("seed", 1 << 63),
        ("n", 0),
        ("n", True),
        ("n", 9),
        ("top_p", 1.1),
        ("top_p", -1),
        ("logprobs", 6),
        ("logprobs", True),
        ("stop", ""),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", ["a", 5]),
        ("stop", "x" * 257),
        ("stop", {"a": 1}),
        ("stream", "yes"),
        ("ignore_eos", 1),
        ("model", ""),
        ("model", 5),
        ("prompt", ""),
        ("prompt", []),
        ("prompt", ["a", "b"]),
        ("prompt", [[1], [2]]),
        ("prompt", [1, "a"]),
        ("prompt", [True]),
        ("prompt", {"text": "a"}),
        ("prompt", None),
        ("stream_options", {"include_usage": True}),
    ],
)
def test_a_value_out_of_range_names_its_parameter(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(ApiError) as e:
        parse_completion(b'{"model": "m", "prompt": "hi", "temperature": %s}' % number.encode())
    assert e.value.param == "temperature"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b'{"model": "m", "prompt": ' + b"[" * 200_000,
        b'{"model": "m", "prompt": "hi", "seed": ' + b"9" * 10_000 + b"}",
    ],
)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(ApiError) as e:
        parse_completion(body)
    assert e.value.status == 400


def test_half_a_surrogate_pair_is_refused_before_any_tokenizer_sees_it() -> None:
    with pytest.raises(ApiError) as e:
        parse_completion(rb'{"model": "m", "prompt": "a\ud800b"}')
    assert "surrogate" in e.value.message


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_fail_other_than_with_a_400(body: bytes) -> None:
    status = 200
    try:
        parse_completion(body)
    except ApiError as e:
        status = e.status
    assert status in (200, 400)


def answered(body: bytes) -> int:
    """The status a caller would read; a refusal must also be possible to write."""
    statuses = set()
    for parser in (parse_completion, parse_chat):
        try:
            parser(body)
            statuses.add(200)
        except ApiError as e:
            json.loads(refusal_response(e).body)
            statuses.add(e.status)
    return max(statuses)


any_text = st.text(st.characters(), max_size=5)  # half a surrogate pair too
any_number = st.one_of(st.integers(), st.sampled_from([10**400, -(10**400)]), st.floats())
any_json = st.recursive(
    st.one_of(st.none(), st.booleans(), any_number, any_text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
any_name = st.one_of(
    st.sampled_from([*bodies.CHAT_KEYS, *bodies.COMPLETION_KEYS, *bodies.CHAT_NEUTRAL]), any_text
)


@given(st.dictionaries(any_name, any_json, max_size=3))
def test_no_values_make_the_parser_or_its_refusal_fail(odd: dict[str, Any]) -> None:
    for said in ({"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}):
        assert answered(json.dumps({"model": "m"} | said | odd).encode()) in (200, 400)


def test_nesting_of_any_depth_is_a_400() -> None:
    for depth in range(850, 1050):  # around what the interpreter can read, and can write
        nested = b"[" * depth + b"]" * depth
        assert answered(b'{"model": "m", "prompt": "hi", "top_p": ' + nested + b"}") == 400


def test_a_name_no_text_can_carry_is_quoted_as_json_escapes_it() -> None:
    with pytest.raises(ApiError) as e:
        parse_completion(rb'{"model": "m", "prompt": "hi", "\ud800x": 1}')
    body = bytes(refusal_response(e.value).body)
    assert rb"\ud800x = 1: unknown parameter" in body
    assert json.loads(body)["error"]["param"] == "\ud800x"


def test_an_error_has_openais_shape() -> None:
    body = openai.model_not_found("x").body()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert body["code"] == "model_not_found"


def test_chunks_carry_a_null_usage_only_when_usage_was_asked_for() -> None:
    for shape in (CompletionShape, ChatShape):
        assert "usage" not in shape("i", 1, "m", bytes).chunk(Part(0, "t"))
        told = shape("i", 1, "m", bytes, include_usage=True).chunk(Part(0, "t"))
        assert told["usage"] is None


def test_events_keep_newlines_inside_json() -> None:
    assert openai.event({"a": "x\ny\r\n"}) == b'data: {"a": "x\\ny\\r\\n"}\n\n'
