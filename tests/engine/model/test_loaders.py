"""Models by name: the synthetic one, types of weights, tensors in memory once."""

from __future__ import annotations

import os

import pytest
import torch

from engine.errors import ModelError
from engine.model.config import model_config, synthetic_config
from engine.model.decoder import Decoder
from engine.model.loaders import load_model, pick_dtype, synthetic_model
from engine.model.tensor_names import expected_shapes, layer_weight_names


def test_the_synthetic_model_is_labelled_and_repeatable():
    one, two = load_model("synthetic", "float32"), load_model("synthetic", "float32")
    assert one.synthetic
    assert one.name.startswith("synthetic-")
    assert one.hash == two.hash
    assert all(torch.equal(one.weights[n], two.weights[n]) for n in one.weights)
    assert one.tokenizer.vocab_size == one.config.vocab
    assert synthetic_model(synthetic_config(layers=2)).hash != one.hash


def test_dtypes_by_name():
    assert pick_dtype("float32") is torch.float32
    assert pick_dtype("bfloat16") is torch.bfloat16
    assert pick_dtype("auto") in (torch.float32, torch.bfloat16)
    assert pick_dtype("float16") is torch.float16
    with pytest.raises(ModelError, match=r"'int8'.*float16 or float32"):
        pick_dtype("int8")
    assert load_model("synthetic", "bfloat16").dtype_name == "bfloat16"


def test_float16_is_said_to_be_slower_where_bfloat16_has_hardware(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    load_model("synthetic", "float16", progress=said.append)
    load_model("synthetic", "bfloat16", progress=said.append)
    assert len(said) == 1
    assert "bfloat16 would be faster" in said[0]


@pytest.mark.parametrize("name", ["", " ", "a\0b"])
def test_a_name_that_is_no_path_is_not_the_current_folder(name):
    for read in (load_model, model_config):
        with pytest.raises(ModelError, match="name `smollm2-135m`") as refused:
            read(name)
        assert str(refused.value).startswith(f"model {name!r}: ")


@pytest.mark.parametrize("file", ["m.gguf", "m/config.json"])
def test_a_pipe_is_refused_and_not_waited_for(file, tmp_path):
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / file)
    with pytest.raises(ModelError, match=r"a pipe|not a plain file"):
        model_config(str(tmp_path / file).removesuffix("/config.json"))


def test_every_module_has_a_weight_name():
    assert len(set(layer_weight_names(3).values())) == 7


def held_bytes(tensors) -> int:
    """Bytes of the memory that tensors lie in, each piece of it once."""
    pieces = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(pieces.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_are_held_once_by_name_and_by_layer(dtype):
    config = synthetic_config(biased=("q_proj", "k_proj", "v_proj"), head_norms=True)
    model = synthetic_model(config, pick_dtype(dtype))
    before = {name: tensor.clone() for name, tensor in model.weights.items()}
    assert set(before) == set(expected_shapes(config))
    one, two = Decoder(model), Decoder(model)
    for mine, other in zip(one._layers, two._layers, strict=True):
        assert all(mine.linears[group] is other.linears[group] for group in mine.linears)
    assert all(torch.equal(model.weights[name], tensor) for name, tensor in before.items())
    assert model.weights._groups == {}  # the decoder's linears are all there is
    if dtype != "bfloat16":  # packed weights tell no address
        held = held_bytes([model.weights[name] for name in before])
        # q, k and v have one bias and gate and up none: nothing is held beside what is named.
        assert held == sum(t.nbytes for t in before.values())


def test_a_tensor_that_was_never_put_is_not_there():
    model = synthetic_model(synthetic_config())
    with pytest.raises(KeyError):
        model.weights["model.layers.99.mlp.up_proj.weight"]
    with pytest.raises(KeyError):
        model.weights["model.layers.0.mlp.up_proj.bias"]
    assert len(model.weights) == len(list(model.weights)) == len(expected_shapes(model.config))
