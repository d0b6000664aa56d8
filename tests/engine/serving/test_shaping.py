"""How a body shapes its distribution: what is taken, what is refused, how it reaches the worker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.shaping import PLAIN, Shaping
from engine.serving import shaped
from engine.serving.api.bodies import parse_chat, parse_completion
from engine.serving.api.openai import ApiError
from engine.serving.api.shaping import MOST_BIASES, check_ids
from telemetry.proto import tenantscope_pb2 as pb


def parse(**body: Any) -> Shaping:
    return parse_completion(json.dumps({"model": "m", "prompt": "hi"} | body).encode()).shaping


def test_everything_is_taken_by_both_endpoints() -> None:
    body: dict[str, Any] = {
        "top_k": 40, "min_p": 0.05, "presence_penalty": -2, "frequency_penalty": 2,
        "repetition_penalty": 1.1, "logit_bias": {"50": -100, "7": 2.5},
    }  # fmt: skip
    expected = Shaping(40, 0.05, -2.0, 2.0, 1.1, ((7, 2.5), (50, -100.0)))
    assert parse(**body) == expected
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    assert parse_chat(json.dumps(chat).encode()).shaping == expected


@pytest.mark.parametrize(
    "body",
    [
        {"top_k": 0}, {"top_k": -1}, {"min_p": 0}, {"presence_penalty": 0}, {"logit_bias": {}},
        {"repetition_penalty": 1}, {"frequency_penalty": None, "logit_bias": None},
    ],
)  # fmt: skip
def test_neutral_values_ask_for_nothing(body: dict[str, Any]) -> None:
    assert parse(**body) == PLAIN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", -2), ("top_k", 1.5), ("top_k", True), ("top_k", 1 << 31),
        ("min_p", 1.01), ("min_p", -0.1), ("min_p", "a"),
        ("presence_penalty", 2.1), ("frequency_penalty", -2.1), ("frequency_penalty", True),
        ("repetition_penalty", 0), ("repetition_penalty", 2.1),
        ("logit_bias", []), ("logit_bias", {"a": 1}), ("logit_bias", {"-1": 1}),
        ("logit_bias", {"07": 1}), ("logit_bias", {"": 1}), ("logit_bias", {"²": 1}),
        ("logit_bias", {"9" * 11: 1}), ("logit_bias", {"3000000000": 1}),
        ("logit_bias", {"7": 100.5}), ("logit_bias", {"7": None}), ("logit_bias", {"7": True}),
        ("logit_bias", {str(i): 1 for i in range(MOST_BIASES + 1)}),
    ],
)  # fmt: skip
def test_a_value_out_of_range_names_its_parameter(name: str, value: Any) -> None:
    with pytest.raises(ApiError) as e:
        parse(**{name: value})
    assert (e.value.status, e.value.param) == (400, name)
    assert len(e.value.message) < 300


def test_a_bias_of_no_token_of_the_model_is_refused_with_both_numbers() -> None:
    check_ids(Shaping(logit_bias=((255, 1.0),)), 256)
    with pytest.raises(ApiError, match="256 is no token id of this model, expected 0 to 255"):
        check_ids(Shaping(logit_bias=((1, 1.0), (256, 1.0))), 256)


@given(
    st.builds(
        Shaping,
        top_k=st.integers(0, 1 << 31),
        min_p=st.floats(0, 1),
        presence_penalty=st.floats(-2, 2),
        frequency_penalty=st.floats(-2, 2),
        repetition_penalty=st.floats(0.01, 2),
        logit_bias=st.lists(
            st.tuples(st.integers(0, 1 << 31), st.floats(-100, 100)), max_size=3
        ).map(tuple),
    )
)
def test_the_worker_reads_what_the_front_wrote(shaping: Shaping) -> None:
    wire = pb.Ask(request_id="r", **shaped.to_fields(shaping)).SerializeToString()
    assert shaped.of_proto(pb.Ask.FromString(wire)) == shaping


def test_an_ask_that_says_nothing_is_plain() -> None:
    assert shaped.of_proto(pb.Ask(request_id="r")) is PLAIN
