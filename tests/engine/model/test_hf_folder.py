"""Hugging Face folders: what is read of them, and what is refused, by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ModelError
from engine.model.config import model_config, synthetic_config
from engine.model.hf_config import read_hf_config
from engine.model.loaders import load_model, synthetic_model
from engine.model.scaling import Llama3Scaling
from engine.model.text import synthetic_json


@pytest.fixture
def folder(tmp_path):
    """A Hugging Face folder, written by hand."""
    config = synthetic_config(layers=2)
    model = synthetic_model(config)
    where = tmp_path / "llama"
    where.mkdir()
    raw = {
        "architectures": ["LlamaForCausalLM"], "vocab_size": config.vocab,
        "hidden_size": config.hidden, "intermediate_size": config.ff,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_context, "tie_word_embeddings": False,
        "eos_token_id": [0, 3], "hidden_act": "silu",
    }  # fmt: skip
    (where / "config.json").write_text(json.dumps(raw))
    (where / "tokenizer.json").write_text(synthetic_json(config.vocab), encoding="utf-8")
    save_file(dict(model.weights), where / "model.safetensors")
    return where


def change(folder: Path, **changes):
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in raw.items() if v != "gone"}))


def test_a_hugging_face_folder_loads(folder):
    model = load_model(str(folder), "float32")
    assert (model.name, model.synthetic) == ("llama", False)
    assert model.config.eos_ids == (0, 3)
    assert model_config(str(folder)) == model.config
    stored = load_file(folder / "model.safetensors")
    assert all(torch.equal(model.weights[n], stored[n]) for n in stored)


def test_a_sharded_folder_is_the_same_model(folder):
    whole = load_model(str(folder), "float32")
    stored = load_file(folder / "model.safetensors")
    names = sorted(stored)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, some in shards.items():
        save_file({n: stored[n] for n in some}, folder / file)
    (folder / "model.safetensors").unlink()
    weight_map = {n: file for file, some in shards.items() for n in some}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    model = load_model(str(folder), "float32")
    assert all(torch.equal(model.weights[n], whole.weights[n]) for n in whole.weights)
    index.write_text(json.dumps({"weight_map": {"x": "../../secret.safetensors"}}))
    with pytest.raises(ModelError, match="not a file of this folder"):
        load_model(str(folder))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM.*served are Llama"),
        ({"architectures": "gone"}, "architectures is None"),
        ({"architectures": ["MistralForCausalLM"], "attention_bias": True}, "no place for"),
        ({"architectures": ["Qwen2ForCausalLM"], "mlp_bias": True}, "no place for"),
        ({"architectures": ["Qwen2ForCausalLM"]}, "q_proj.bias is missing"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "q_norm.weight is missing"),
        ({"attention_bias": True}, "q_proj.bias is missing"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ({"embedding_multiplier": 12.0}, "embedding_multiplier is 12.0"),
        ({"logits_scaling": 8.0}, "logits_scaling is 8.0; only 1 is served"),
        ({"num_local_experts": 8}, "num_local_experts is 8"),
        ({"no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"attention_sinks": True}, "attention_sinks is True"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "'linear_attention'"),
        ({"auto_map": {"AutoModelForCausalLM": "m.X"}}, "auto_map names code of its own"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "'dynamic'.*each sequence"),
        ({"rope_scaling": {"type": "longrope"}}, "'longrope'"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 0}},
            "factor is 0; expected a number above 0",
        ),
        ({"rope_scaling": {"rope_type": "linear"}}, "'factor' is missing"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "differs by kind of layer"),
        ({"vocab_size": "gone"}, "'vocab_size' is missing"),
        ({"vocab_size": None}, "vocab_size is None; expected a whole number"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"hidden_size": 128.5}, "hidden_size is 128.5"),
        ({"head_dim": "wide"}, "head_dim is 'wide'"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0; expected a number above 0"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ({"rope_parameters": "long"}, "wrong type"),
        ({"layer_types": 3}, "wrong type"),
        ({"eos_token_id": "32"}, "eos_token_id is '32'; expected a token's id"),
        ({"eos_token_id": [0, 1.5]}, r"eos_token_id is \[0, 1.5\]"),
        ({"eos_token_id": True}, "eos_token_id is True"),
        ({"rms_norm_eps": True}, "rms_norm_eps is True; expected a number above 0"),
        ({"rope_theta": 0}, "rope_theta is 0; expected a number above 0"),
        (
            {"tie_word_embeddings": "false"},
            "tie_word_embeddings is 'false'; expected true or false",
        ),
        ({"attention_bias": []}, r"attention_bias is \[\]; expected true or false"),
        (
            {"rope_scaling": {"type": "yarn", "original_max_position_embeddings": -4}},
            "original_max_position_embeddings is -4; expected a number above 0",
        ),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": -1}, "sliding_window is -1"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": "x"}, "sliding_window is 'x'"),
        ({"num_hidden_layers": 2_000_000_000}, "layers.2.*is missing; config.json says 2000000000"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"num_hidden_layers": 3}, "layers.2.*is missing"),
        ({"intermediate_size": 99}, r"gate_proj.weight has shape .*99"),
    ],
)
def test_folders_that_are_not_supported_are_refused_by_name(folder, changes, says):
    change(folder, **changes)
    with pytest.raises(ModelError, match=says):
        load_model(str(folder), "float32")


def test_damaged_folders_are_refused(folder, tmp_path):
    with pytest.raises(ModelError, match=r"config\.json.*smollm2-135m"):
        load_model(str(tmp_path / "nowhere"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read"):
        load_model(str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json: cannot be read"):
        load_model(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        read_hf_config(folder)


def test_rope_settings_are_read_from_both_generations_of_config(folder):
    change(folder, rope_theta="gone", rope_parameters={"rope_type": "default", "rope_theta": 7.0})
    assert read_hf_config(folder).rope_theta == 7.0
    scaling = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
               "original_max_position_embeddings": 64}  # fmt: skip
    change(folder, rope_parameters="gone", rope_theta=9.0, rope_scaling=scaling)
    config = read_hf_config(folder)
    assert config.rope_theta == 9.0
    assert config.rope_scaling == Llama3Scaling(8, 1, 4, 64)


def test_a_yarn_config_may_name_the_context_before_stretching(folder):
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    change(folder, rope_scaling=yarn)
    assert read_hf_config(folder).max_context == 4 * 4096
    for original in (512, None):
        change(folder, rope_scaling=yarn | {"original_max_position_embeddings": original})
        assert read_hf_config(folder).max_context == 4096


_DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_json_nested_without_end_is_refused_and_ends_no_process(folder, name):
    (folder / name).write_text(_DEEP)
    with pytest.raises(ModelError, match=rf"{name}: not JSON"):
        read_hf_config(folder)


@pytest.mark.parametrize(
    ("index", "says"),
    [(_DEEP, "not an index"), ('{"weight_map": {"a": "b\\u0000"}}', r"'b\\x00' is not a file of")],
)
def test_an_odd_index_of_weight_files_is_refused_by_name(folder, index, says):
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=says):
        load_model(str(folder), "float32")


def test_a_window_shorter_than_the_context_caps_it_where_it_is_on(folder):
    mistral = {"architectures": ["MistralForCausalLM"], "sliding_window": 1024}
    qwen = mistral | {"architectures": ["Qwen2ForCausalLM"]}
    for changes, context in (
        (mistral, 1024),
        (mistral | {"sliding_window": 4096}, 4096),
        (mistral | {"sliding_window": None}, 4096),
        (qwen, 4096),
        (qwen | {"use_sliding_window": True}, 1024),
        ({"architectures": ["LlamaForCausalLM"]}, 4096),
    ):
        change(folder, **changes)
        config = read_hf_config(folder)
        assert (config.max_context, bool(config.remarks)) == (context, context < 4096)


def test_what_generation_stops_at_outranks_the_config(folder):
    for said, ends in (
        ({"eos_token_id": [7, 9]}, (7, 9)),
        ({"eos_token_id": 5}, (5,)),
        ({}, (0, 3)),
    ):
        (folder / "generation_config.json").write_text(json.dumps(said))
        assert read_hf_config(folder).eos_ids == ends


def rewrite(folder: Path, gone: str = "", **put):
    stored = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in stored.items() if n != gone}
    save_file(
        kept | {n.replace("__", "."): t for n, t in put.items()}, folder / "model.safetensors"
    )


def test_an_absent_head_is_the_embedding(folder):
    rewrite(folder, gone="lm_head.weight")
    model = load_model(str(folder), "float32")
    assert model.config.tied
    assert "lm_head.weight" not in model.weights


def test_a_head_beside_tied_embeddings_must_equal_them(folder):
    change(folder, tie_word_embeddings=True)
    with pytest.raises(ModelError, match=r"lm_head.weight differs from model.embed_tokens"):
        load_model(str(folder), "float32")
    same = load_file(folder / "model.safetensors")["model.embed_tokens.weight"].clone()
    rewrite(folder, lm_head__weight=same)
    said: list[str] = []
    assert load_model(str(folder), "float32", progress=said.append).config.tied
    assert said == []


def test_tensors_of_no_use_are_said_and_those_that_would_matter_refused(folder):
    inv = "model__layers__0__self_attn__rotary_emb__inv_freq"
    rewrite(folder, score__weight=torch.ones(2, 2), **{inv: torch.ones(16)})
    said: list[str] = []
    model = load_model(str(folder), "float32", progress=said.append)
    assert "score.weight" not in model.weights
    assert [s.split(": ", 1)[1] for s in said] == [
        "left out, as the decoder has no use for them: score.weight"
    ]
    rewrite(folder, model__layers__0__self_attn__q_proj__bias=torch.ones(128))
    with pytest.raises(ModelError, match=r"q_proj.bias is there, but config.json does not speak"):
        load_model(str(folder), "float32")


def test_weights_in_eight_bits_are_refused(folder):
    name = "model.layers.1.mlp.up_proj.weight"
    put = load_file(folder / "model.safetensors")[name].to(torch.float8_e4m3fn)
    rewrite(folder, **{name.replace(".", "__"): put})
    with pytest.raises(ModelError, match=r"up_proj.weight is F8_E4M3; quantised models"):
        load_model(str(folder), "float32")


def test_values_beyond_float16_are_refused_in_float16_only(folder):
    name = "model.layers.1.mlp.up_proj.weight"
    put = load_file(folder / "model.safetensors")[name].clone()
    put[3, 4] = 70_000.0
    rewrite(folder, **{name.replace(".", "__"): put})
    assert load_model(str(folder), "bfloat16").weights[name][3, 4] == 70_144.0
    with pytest.raises(ModelError, match=r"up_proj.weight has values beyond 65504.*bfloat16"):
        load_model(str(folder), "float16")


def test_pointers_and_pickles_are_no_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(ModelError, match=r"model.safetensors is a Git LFS pointer.*git lfs pull"):
        load_model(str(folder))
    weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"pickles \(pytorch_model.bin\).*save_pretrained"):
        load_model(str(folder))


def test_a_folder_with_another_kind_of_tokenizer_says_how_to_make_one(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelError, match=r"tokenizer.model but no tokenizer.json.*AutoTokenizer"):
        load_model(str(folder))


def test_links_in_a_circle_are_no_model(tmp_path):
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ModelError, match=r"cannot read config\.json"):
        load_model(str(tmp_path / "round"))
