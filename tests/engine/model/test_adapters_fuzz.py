"""Whatever a folder's two files hold: it is served, or refused with an AdapterError of one line."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import AdapterError
from engine.model.adapter_report import Base, examine
from engine.model.made_adapters import make_adapter
from engine.model.peft_refusals import _KNOWN, _VARIANTS
from tests.engine.model.adapter_bench import CONFIG, OPTIONS, PAGE, WEIGHTS, read, unpacked

MANY = settings(max_examples=500, deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from(["LORA", "q_proj", "all-linear", "none", ".*q_proj", "(", 4, 8, 1 << 70]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8) | st.sampled_from(["q_proj", ".*", "("]), inner,
                      max_size=4),
    max_leaves=8,
)  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make_adapter(tmp_path_factory.mktemp("fuzz") / "a", CONFIG, 4, ["q_proj", "o_proj"])


@pytest.fixture(scope="module")
def files(sound):
    return (sound / OPTIONS).read_bytes(), (sound / WEIGHTS).read_bytes()


def outcome(folder: Path, options: bytes, weights: bytes) -> bool:
    """Whether it is served; the report says the same, and neither raises anything else."""
    (folder / OPTIONS).write_bytes(options)
    (folder / WEIGHTS).write_bytes(weights)
    told = examine(folder, Base("m", CONFIG, torch.float32, PAGE)).refusal
    json.dumps(examine(folder, None).as_dict())
    adapter = reason = None
    try:
        adapter = read(folder)
    except AdapterError as e:
        reason = str(e)
    assert told == reason
    if adapter is None:
        assert "\n" not in told
        assert len(told) < 2000
        return False
    assert all(torch.isfinite(block).all() for block in unpacked(adapter).values())
    return True


def mutated(draw: Any, data: bytes, within: int) -> bytes:
    """A few bytes changed, put in, taken out or cut off, in the first `within`."""
    raw = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(within, len(raw))))
        kind = draw(st.sampled_from(["set", "insert", "delete", "cut"]))
        if kind == "set" and at < len(raw):
            raw[at] = draw(st.integers(0, 255))
        elif kind == "insert":
            raw[at:at] = draw(st.binary(max_size=4))
        elif kind == "delete":
            del raw[at : at + draw(st.integers(1, 64))]
        else:
            del raw[at:]
    return bytes(raw)


@pytest.mark.full
@MANY
@given(data=st.data())
def test_spoilt_bytes_of_the_options(sound, files, data):
    options, weights = files
    outcome(sound, mutated(data.draw, options, len(options)), weights)


@pytest.mark.full
@MANY
@given(changes=st.dictionaries(
    st.sampled_from(sorted(_KNOWN | set(_VARIANTS))) | st.text(max_size=10), JSON, min_size=1,
    max_size=4,
))  # fmt: skip
def test_options_of_any_value(sound, files, changes):
    options, weights = files
    outcome(sound, json.dumps(json.loads(options) | changes).encode(), weights)


@pytest.mark.full
@MANY
@given(data=st.data())
def test_spoilt_bytes_of_the_tensors(sound, files, data):
    options, weights = files
    (length,) = struct.unpack("<Q", weights[:8])
    within = data.draw(st.sampled_from([8, 8 + length, len(weights)]))
    outcome(sound, options, mutated(data.draw, weights, within))


@pytest.mark.full
@MANY
@given(data=st.data())
def test_headers_of_any_value(sound, files, data):
    options, weights = files
    (length,) = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8 : 8 + length])
    name = data.draw(st.sampled_from(sorted(header)))
    if data.draw(st.booleans()) and isinstance(header[name], dict):
        header[name][data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))] = data.draw(
            JSON
        )
    elif data.draw(st.booleans()):
        header[data.draw(st.text(max_size=30))] = header.pop(name)
    else:
        header[name] = data.draw(JSON)
    raw = json.dumps(header).encode()
    outcome(sound, options, struct.pack("<Q", len(raw)) + raw + weights[8 + length :])


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_values_of_any_bits(sound, files, data):
    """Every bit pattern of the data is a number, or NaN or infinite: served, or refused for it."""
    options, weights = files
    (length,) = struct.unpack("<Q", weights[:8])
    body = np.frombuffer(weights[8 + length :], dtype=np.float32).copy()
    at = data.draw(st.integers(0, len(body) - 1))
    value = data.draw(st.floats(width=32))
    body[at] = value
    served = outcome(sound, options, weights[: 8 + length] + body.tobytes())
    assert served == bool(np.isfinite(value))


def test_the_fuzz_begins_with_a_folder_that_is_served(sound, files):
    assert outcome(sound, *files)
