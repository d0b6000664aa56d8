"""Folders that are refused: each with a sentence of its own that says what to do."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch

from engine.errors import AdapterError
from engine.model import safetensors_file
from engine.model.adapter_folder import read_small
from engine.model.config import SMOLLM2_135M
from engine.model.made_adapters import make_adapter
from tests.engine.model.adapter_bench import (
    CONFIG,
    LFS,
    OPTIONS,
    WEIGHTS,
    Q,
    edit_header,
    edit_options,
    edit_tensors,
    put_header,
    read,
    refused,
    rename,
)


@pytest.fixture
def folder(tmp_path):
    return make_adapter(tmp_path / "adapter", CONFIG, 4, ["q_proj", "down_proj"], seed=1)


# -- folders


def test_a_missing_folder_or_file_is_named(folder, tmp_path):
    refused(tmp_path / "nowhere", "no such folder")
    with pytest.raises(AdapterError, match="File name too long"):
        read(tmp_path / ("x" * 300))
    (folder / OPTIONS).unlink()
    refused(folder, "adapter_config.json is missing", "save_pretrained")


def test_a_file_is_no_folder(folder):
    refused(folder / WEIGHTS, "this is a file", "the folder that holds it")


def test_a_name_that_no_path_can_be_is_no_folder(folder):
    with pytest.raises(AdapterError, match="no such folder"):
        read_small(folder / "a\0b", OPTIONS, 100)


def test_a_folder_or_file_that_is_a_dangling_link_is_said_to_be_one(folder, tmp_path):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("../blobs/gone")
    refused(folder, "is a link to '../blobs/gone', which is not there")
    (tmp_path / "link").symlink_to("nowhere")
    refused(tmp_path / "link", "the folder is a link to 'nowhere'")


def test_a_link_that_leads_to_the_file_is_followed(folder, tmp_path):
    shutil.move(folder / WEIGHTS, tmp_path / "blob")
    (folder / WEIGHTS).symlink_to(tmp_path / "blob")
    assert read(folder).rank == 4


def test_a_pipe_is_refused_and_waits_for_nobody(folder):
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)
    refused(folder, "not a plain file")


def test_a_folder_inside_which_the_adapter_is_is_told(folder, tmp_path):
    refused(tmp_path, "there is an adapter in its folder 'adapter'")


def test_what_may_not_be_read_is_told(folder, monkeypatch):
    def forbid(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("engine.model.adapter_folder.os.open", forbid)
    refused(folder, "cannot read adapter_config.json (Permission denied)")


@pytest.mark.parametrize("name", ["adapter_model.bin", "weights.pt", "adapter.ckpt"])
def test_a_pickle_is_never_opened(folder, name):
    (folder / WEIGHTS).rename(folder / name)
    refused(folder, f"'{name}' is a pickle", "never opened", "save the adapter as")


@pytest.mark.parametrize("start", [b"\x80\x02cos\nsystem\n", b"PK\x03\x04archive"])
def test_a_pickle_under_the_other_name_is_not_either(folder, start):
    (folder / WEIGHTS).write_bytes(start + bytes(100))
    refused(folder, "a pickle under another name", "never opened")


def test_a_header_whose_length_begins_like_a_pickle_is_none(folder):
    raw = (folder / WEIGHTS).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    longer = length + (0x80 - length) % 256
    padded = raw[8 : 8 + length] + b" " * (longer - length) + raw[8 + length :]
    (folder / WEIGHTS).write_bytes(longer.to_bytes(8, "little") + padded)
    assert read(folder).rank == 4


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("adapters.safetensors", "an MLX adapter"),
        ("adapters.npz", "an MLX adapter"),
        ("pytorch_adapter.bin", "an AdapterHub adapter"),
        ("pytorch_lora_weights.safetensors", "a diffusers adapter"),
        ("model.safetensors", "a whole model"),
        ("lora-f16.gguf", "llama.cpp's format"),
    ],
)
def test_folders_of_other_formats_are_known_by_their_files(folder, file, words):
    (folder / WEIGHTS).rename(folder / file)
    refused(folder, "adapter_model.safetensors is missing", words)


@pytest.mark.parametrize("file", [OPTIONS, WEIGHTS])
def test_an_lfs_pointer_is_recognised(folder, file):
    (folder / file).write_text(LFS)
    refused(folder, f"{file} is a Git LFS pointer", "git lfs pull")


# -- options


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object but list"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"r": 4, "lora_alpha": 8, "r": 8}', "says 'r' twice"),
        (b'{"peft_type": "LORA", "rank_pattern": {"q": 1, "q": 2}}', "says 'q' twice"),
        (b'{"r": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (1 << 20) + b"{}", "1048576 is the most"),
    ],
    ids=range(9),
)
def test_options_that_cannot_be_read_are_refused(folder, text, words):
    (folder / OPTIONS).write_bytes(text)
    refused(folder, OPTIONS, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": None}, ("peft_type is None", "only 'LORA'")),
        ({"peft_type": ["LORA"]}, ("only 'LORA'",)),
        ({"peft_type": "IA3"}, ("'IA3'", "scales activations", "merge")),
        ({"peft_type": "LOHA"}, ("'LOHA'", "two LoRAs")),
        ({"peft_type": "LOKR"}, ("'LOKR'", "Kronecker")),
        ({"peft_type": "PREFIX_TUNING"}, ("prefix tuning",)),
        ({"peft_type": "PROMPT_TUNING"}, ("prompt tuning",)),
        ({"peft_type": "VERA"}, ("VeRA",)),
        ({"peft_type": "XLORA"}, ("X-LoRA",)),
        ({"peft_type": "ADALORA"}, ("AdaLoRA",)),
        ({"use_dora": True}, ("use_dora", "DoRA", "merge it")),
        ({"alora_invocation_tokens": [1, 2]}, ("alora_invocation_tokens", "aLoRA")),
        ({"bias": "all"}, ("bias is 'all'", "only 'none'")),
        ({"bias": "lora_only"}, ("bias is 'lora_only'",)),
        ({"lora_bias": True}, ("lora_bias", "gives B a bias")),
        ({"modules_to_save": ["lm_head"]}, ("modules_to_save", "lm_head", "left out")),
        ({"trainable_token_indices": [3]}, ("trainable_token_indices", "embedding")),
        ({"target_parameters": ["experts.w1"]}, ("target_parameters", "no linears")),
        ({"layer_replication": [[0, 2], [1, 2]]}, ("layer_replication", "repeated")),
        ({"fan_in_fan_out": True}, ("fan_in_fan_out", "transposed")),
        ({"use_qalora": True}, ("use_qalora", "QA-LoRA")),
        ({"use_bdlora": {"nblocks": 2}}, ("use_bdlora", "block-diagonal")),
        ({"megatron_config": {"tp": 2}}, ("megatron_config", "Megatron")),
        ({"arrow_config": {"top_k": 3}}, ("arrow_config", "router")),
        ({"kasa_config": {"beta": 1}}, ("kasa_config", "KaSA")),
        ({"monteclora_config": {"num_samples": 8}}, ("monteclora_config",)),
        ({"velora_config": {"scale": 1.0}}, ("velora_config",)),
        ({"enable_lora": [True, False]}, ("enable_lora", "MergedLinear")),
        ({"init_lora_weights": "pissa_niter_16"}, ("'pissa_niter_16'", "save it again")),
        ({"init_lora_weights": "olora"}, ("'olora'", "does not fit the base model")),
        ({"init_lora_weights": "corda"}, ("'corda'",)),
        ({"init_lora_weights": "loftq"}, ("'loftq'",)),
        ({"use_newest": True}, ("'use_newest' is True", "not known here")),
        ({"newest_config": {"a": 1}}, ("'newest_config'", "not known here")),
        ({"lora_parameters": {"rank": 8}}, ("is MLX's", "convert")),
        ({"fine_tune_type": "dora"}, ("is MLX's",)),
        ({"target_modules": ["q_proj", "lm_head"]}, ("names lm_head", "linears of the layers")),
        ({"target_modules": ["model.embed_tokens"]}, ("names embed_tokens",)),
        ({"target_modules": 4}, ("target_modules is 4", "list of names")),
        ({"exclude_modules": [1]}, ("exclude_modules is [1]",)),
        ({"target_modules": "q_proj", "layers_to_transform": [0]}, ("one or the other",)),
        ({"layers_to_transform": "all"}, ("layers_to_transform is 'all'",)),
        ({"layers_to_transform": [0, True]}, ("layers_to_transform",)),
        ({"layers_to_transform": [0], "layers_pattern": {"a": 1}}, ("layers_pattern",)),
        ({"r": 8}, ("says rank 8", "have rank 4")),
        ({"r": 0}, ("r is 0", "at least 1")),
        ({"r": "4"}, ("r is '4'",)),
        ({"r": True}, ("r is True",)),
        ({"r": 4.0}, ("r is 4.0",)),
        ({"rank_pattern": {"q_proj": 2}}, ("says rank 2", "q_proj")),
        ({"rank_pattern": {"q_proj": None}}, ("rank_pattern of 'q_proj'",)),
        ({"rank_pattern": {"(": 2}}, ("rank_pattern: pattern '('", "no regular expression")),
        ({"rank_pattern": {"(?i)q_proj": 2}}, ("no regular expression", "global flags")),
        ({"rank_pattern": {"(?i:q_proj)": 2}}, ("flags", "name the modules")),
        ({"rank_pattern": {r"(q)_\1": 2}}, ("groupref", "name the modules")),
        ({"rank_pattern": {"(" * 2000 + ")" * 2000: 2}}, ("nested too deeply",)),
        ({"rank_pattern": {"q" * 5000 + "*": 2}}, ("4096 is the most",)),
        ({"rank_pattern": {f"q{i}+": 4 for i in range(300)}}, ("50 are the most",)),
        ({"rank_pattern": [1]}, ("rank_pattern", "expected an object")),
        ({"lora_alpha": "much"}, ("lora_alpha is 'much'",)),
        ({"lora_alpha": float("nan")}, ("lora_alpha is nan",)),
        ({"lora_alpha": 10**400}, ("lora_alpha is 1000",)),
        ({"alpha_pattern": {"q_proj": "2"}}, ("alpha_pattern of 'q_proj'",)),
        ({"lora_alpha": 1e300}, ("overflows",)),
        ({"use_rslora": "no"}, ("use_rslora is 'no'", "true or false")),
    ],
)
def test_options_that_are_not_served_are_refused_by_name(folder, changes, words):
    edit_options(folder, **changes)
    refused(folder, *words)


def test_an_adapterhub_config_is_known_by_what_it_says(folder):
    hub = {"config": {"architecture": "lora", "r": 8}, "hidden_size": 128, "model_type": "llama"}
    (folder / OPTIONS).write_text(json.dumps(hub))
    refused(folder, "is AdapterHub's", "with PEFT")


# -- tensors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(f"{Q}.lora_A.weight"), ("layer 0 q_proj", "no lora_A")),
        (lambda t: t.pop(f"{Q}.lora_B.weight"), ("layer 0 q_proj", "no lora_B")),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 99)}), ("[4, 99]", "[r, 128]")),
        (lambda t: t.update({f"{Q}.lora_B.weight": torch.ones(99, 4)}), ("[99, 4]", "[128, r]")),
        (lambda t: t.update({f"{Q}.lora_B.weight": torch.ones(128, 3)}), ("same rank",)),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4)}), ("A [4]", "a shard")),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(0, 128)}), ("A [0, 128]",)),
        (lambda t: t[f"{Q}.lora_A.weight"].__setitem__((0, 0), float("nan")), ("NaN", "diverged")),
        (lambda t: t[f"{Q}.lora_B.weight"].__setitem__((0, 0), float("inf")), ("infinite",)),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 128).int()}), ("I32", "floats")),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 128).double()}), ("F64",)),
        (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": torch.ones(4, 128)}),
         ("lm_head", "the head, which is not supported")),
        (lambda t: t.update({"base_model.model.model.embed_tokens.lora_embedding_A":
                             torch.ones(4, 512)}), ("embedding",)),
        (lambda t: t.update({"base_model.model.model.embed_tokens.weight": torch.ones(520, 128)}),
         ("520 rows", "512", "resized vocabulary", "save_embedding_layers=False")),
        (lambda t: t.update({"base_model.model.lm_head.weight": torch.ones(512, 128)}),
         ("whole embedding or head",)),
        (lambda t: t.update({"base_model.model.model.embed_tokens.token_adapter."
                             "trainable_tokens_delta": torch.ones(1, 128)}), ("trained rows",)),
        (lambda t: t.update({"base_model.model.score.weight": torch.ones(2, 128)}),
         ("whole module",)),
        (lambda t: t.update({f"{Q}.base_layer.weight.absmax": torch.ones(8)}), ("quantised",)),
        (lambda t: t.update({f"{Q}.lora_diag": torch.ones(4)}), ("another method",)),
        (lambda t: t.update({f"{Q}.base_layer.bias": torch.ones(128)}), ("bias 'none'",)),
        (lambda t: t.update({f"{Q}.base_layer.weight": torch.ones(4, 128)}), ("the base model",)),
        (lambda t: t.update({f"{Q}.lora_B.bias": torch.ones(128)}), ("lora_bias",)),
        (lambda t: t.update({Q.replace(".0.", ".7.") + ".lora_A.weight": torch.ones(4, 128),
                             Q.replace(".0.", ".7.") + ".lora_B.weight": torch.ones(128, 4)}),
         ("layer 7", "has 2 layers", "model of 8 layers")),
        (lambda t: t.update({f"{Q}.lora_magnitude_vector": torch.ones(128)}), ("DoRA",)),
        (lambda t: t.update({Q.replace("self_attn", "mlp") + ".lora_A.weight": torch.ones(4, 128)}),
         ("none of this model's",)),
        (lambda t: t.update({"model.layers.0.mlp.experts.1.up_proj.lora_A.weight":
                             torch.ones(4, 128)}), ("mixture of experts",)),
        (lambda t: t.update({Q.removeprefix("base_model.model.") + ".lora_A.weight":
                             torch.ones(4, 128)}), ("the same tensor by two names",)),
        (lambda t: t.update({f"{Q}.lora_A.b.weight": t.pop(f"{Q}.lora_A.weight"),
                             f"{Q}.lora_B.b.weight": t.pop(f"{Q}.lora_B.weight")}),
         ("2 adapters ('', 'b')", "save each by itself")),
        (lambda t: t.update({"x" * 5000: torch.ones(1)}), ("...", "none of this model's")),
        (lambda t: t.clear(), ("no tensors",)),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(folder, change, words):
    edit_tensors(folder, change)
    assert len(refused(folder, *words)) < 1200


def test_mlx_names_are_known(folder):
    rename(folder, lambda n: n.removeprefix("base_model.model.").removesuffix(".weight").lower())
    refused(folder, "MLX", "transposed")


def test_another_architectures_adapter_is_told_with_what_it_was_made_for(folder):
    rename(folder, lambda n: n.replace("model.layers.", "transformer.h.").replace("q_proj", "c_fc"))
    rename(folder, lambda n: n.replace("down_proj", "c_proj"))
    edit_options(folder, base_model_name_or_path="gpt2")
    refused(folder, "0 of its 8 tensors", "another architecture", "made for 'gpt2'")


def test_another_size_of_model_is_told_with_what_its_shapes_fit(folder, tmp_path):
    other = make_adapter(tmp_path / "big", SMOLLM2_135M, 1, base_model="SmolLM2-135M")
    refused(other, "hidden size 576", "feed-forward size 1536", "30 layers or more",
            "made for 'SmolLM2-135M'")  # fmt: skip


# -- damaged files


def test_a_file_cut_short_anywhere_is_refused(folder):
    path = folder / WEIGHTS
    raw = path.read_bytes()
    for end in (len(raw) - 1, len(raw) - 100, len(raw) // 2, 300, 9, 8, 7, 1, 0):
        path.write_bytes(raw[:end])
        refused(folder, "damaged or cut short")
    path.write_bytes(raw + b"\0")
    refused(folder, "damaged or cut short")


def test_a_file_cut_short_while_it_is_read_ends_in_a_refusal(folder, monkeypatch):
    whole = safetensors_file._check_cover

    def cut(*args: object) -> None:
        whole(*args)
        os.truncate(folder / WEIGHTS, 2000)

    monkeypatch.setattr(safetensors_file, "_check_cover", cut)
    refused(folder, "damaged or cut short")


def test_ten_gigabytes_are_refused_before_they_are_read(folder):
    size = 10 << 30
    entry = {"dtype": "F32", "shape": [size // 512, 128], "data_offsets": [0, size]}
    put_header(folder, json.dumps({f"{Q}.lora_A.weight": entry}).encode())
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size + size)
    refused(folder, "bytes of tensors", "the most")


A = f"{Q}.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h[A].update(shape=[4, 129]), "does not fill the place"),
        (lambda h: h[A].update(shape=[-4, -128]), "no list of counts"),
        (lambda h: h[A].update(shape=[4, True]), "no list of counts"),
        (lambda h: h[A].update(shape="wide"), "no list of counts"),
        (lambda h: h[A].update(shape=[1] * 9), "no list of counts"),
        (lambda h: h[A].update(shape=[1 << 40, 1 << 40]), "does not fill the place"),
        (lambda h: h[A].update(data_offsets=[0]), "no list of counts"),
        (lambda h: h[A].update(data_offsets=[10**30, 10**31]), "no list of counts"),
        (lambda h: h[A].update(data_offsets=[4096, 2048]), "does not fill the place"),
        (lambda h: h[A].update(data_offsets=[n + 4 for n in h[A]["data_offsets"]]), "begins at"),
        (lambda h: h[A].update(dtype="F4"), "that type is not known"),
        (lambda h: h[A].update(dtype=["F32"]), "that type is not known"),
        (lambda h: h[A].update(extra=1), "not type, shape and place"),
        (lambda h: h.update({A: 3}), "not type, shape and place"),
        (lambda h: h.pop(A), "begins at"),
        (lambda h: h.update({"b": h[A]}), "begins at"),
    ],
)
def test_a_header_that_lies_is_refused(folder, change, words):
    edit_header(folder, change)
    refused(folder, "damaged or cut short", words)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b'{"a": 1, "a": 2}', "says 'a' twice"),
        (b" " * (17 << 20), "16777216 at most"),
    ],
    ids=range(5),
)
def test_a_header_that_is_none_is_refused(folder, header, words):
    put_header(folder, header)
    refused(folder, words)
