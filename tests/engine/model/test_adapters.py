"""Adapter folders: what is refused and why, what identity and packed size mean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from engine.adapters_cli import adapters
from engine.errors import AdapterError
from engine.memory.packing import padded_row_bytes
from engine.model.config import MODULES, SMOLLM2_135M, model_config, synthetic_config
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter

CONFIG = synthetic_config(layers=2)
PAGE = 8192
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def read(folder: Path, dtype=torch.float32, page_bytes=PAGE):
    return read_adapter(folder, CONFIG, dtype, page_bytes)


@pytest.fixture
def folder(tmp_path):
    return make_adapter(tmp_path / "adapter", CONFIG, 4, seed=1)


def edit_options(folder: Path, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder: Path, change):
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def refused(folder: Path, *words: str):
    with pytest.raises(AdapterError) as e:
        read(folder)
    for word in (str(folder), *words):
        assert word in str(e.value)


def test_a_missing_folder_or_file_is_named(folder, tmp_path):
    refused(tmp_path / "nowhere", "no such folder")
    (folder / "adapter_config.json").unlink()
    refused(folder, "adapter_config.json is missing")


def test_a_pickle_is_never_opened(folder):
    (folder / "adapter_model.safetensors").unlink()
    refused(folder, "adapter_model.safetensors is missing")
    (folder / "adapter_model.bin").write_bytes(b"\x80\x02cos\nsystem\n")
    refused(folder, "adapter_model.bin is a pickle", "save the adapter as")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "IA3"}, ("'IA3'", "LORA")),
        ({"use_dora": True}, ("use_dora",)),
        ({"bias": "all"}, ("bias", "'all'")),
        ({"lora_bias": True}, ("lora_bias",)),
        ({"modules_to_save": ["lm_head"]}, ("modules_to_save", "lm_head")),
        ({"fan_in_fan_out": True}, ("fan_in_fan_out",)),
        ({"r": 8}, ("says rank 8", "have rank 4")),
        ({"rank_pattern": {"q_proj": 2}}, ("says rank 2", "q_proj")),
        ({"rank_pattern": {"(": 2}}, ("no regular expression",)),
        ({"rank_pattern": [1]}, ("rank_pattern", "expected an object")),
        ({"lora_alpha": "much"}, ("lora_alpha", "'much'")),
        ({"lora_alpha": float("nan")}, ("lora_alpha",)),
        ({"lora_alpha": 1e300}, ("overflows",)),
    ],
)
def test_options_that_are_not_served_are_refused_by_name(folder, changes, words):
    edit_options(folder, **changes)
    refused(folder, *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(f"{Q}.lora_A.weight"), ("layer 0 q_proj", "no lora_A")),
        (lambda t: t.pop(f"{Q}.lora_B.weight"), ("layer 0 q_proj", "no lora_B")),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 99)}), ("[4, 99]", "[r, 128]")),
        (lambda t: t.update({f"{Q}.lora_B.weight": torch.ones(99, 4)}), ("[99, 4]", "[128, r]")),
        (lambda t: t.update({f"{Q}.lora_B.weight": torch.ones(128, 3)}), ("same rank",)),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4)}), ("A [4]",)),
        (lambda t: t[f"{Q}.lora_A.weight"].__setitem__((0, 0), float("nan")), ("NaN",)),
        (lambda t: t[f"{Q}.lora_B.weight"].__setitem__((0, 0), float("inf")), ("infinite",)),
        (lambda t: t.update({f"{Q}.lora_A.weight": torch.ones(4, 128).int()}), ("int32",)),
        (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": torch.ones(4, 128)}),
         ("lm_head", "none of this model's")),
        (lambda t: t.update({Q.replace(".0.", ".7.") + ".lora_A.weight": torch.ones(4, 128)}),
         ("layer 7", "has 2 layers")),
        (lambda t: t.update({f"{Q}.lora_magnitude_vector": torch.ones(128)}), ("DoRA",)),
        (lambda t: t.clear(), ("no tensors",)),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(folder, change, words):
    edit_tensors(folder, change)
    refused(folder, *words)


def test_a_truncated_file_is_refused(folder):
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(folder, "damaged or cut short")
    path.write_bytes(b"")
    refused(folder, "damaged or cut short")


def test_an_lfs_pointer_is_recognised(folder):
    (folder / "adapter_model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    )
    refused(folder, "Git LFS pointer", "git lfs pull")


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_options_that_are_no_object_are_refused(folder, text):
    (folder / "adapter_config.json").write_bytes(text.encode("latin-1"))
    refused(folder, "adapter_config.json")


def test_identity_is_the_content_not_the_name(folder, tmp_path):
    same = make_adapter(tmp_path / "other-name", CONFIG, 4, seed=1)
    edit_options(same, base_model_name_or_path="elsewhere", lora_dropout=0.5)
    assert read(same).key == read(folder).key
    assert read(make_adapter(tmp_path / "seed", CONFIG, 4, seed=2)).key != read(folder).key
    rescaled = make_adapter(tmp_path / "alpha", CONFIG, 4, seed=1, alpha=9)
    assert read(rescaled).key != read(folder).key


def test_identity_does_not_depend_on_the_stored_type(folder, tmp_path):
    def halve(tensors):
        for name, t in tensors.items():
            tensors[name] = t.bfloat16()

    edit_tensors(folder, halve)
    widened = make_adapter(tmp_path / "wide", CONFIG, 4, seed=1)
    edit_tensors(widened, lambda ts: ts.update({n: t.bfloat16().float() for n, t in ts.items()}))
    assert read(widened).key == read(folder).key


@pytest.mark.parametrize("rank", [1, 3, 33, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_bytes_are_true_rank_bytes(tmp_path, rank, dtype):
    modules = ("q_proj", "down_proj")
    weights = read(make_adapter(tmp_path / "a", CONFIG, rank, modules), dtype)
    a_layer = 0
    for module in modules:
        out, width = CONFIG.module_shape(module)
        a_layer += padded_row_bytes(out, dtype.itemsize) + padded_row_bytes(width, dtype.itemsize)
    assert weights.device_bytes == rank * a_layer * CONFIG.layers
    assert weights.pages == weights.image.shape[0]
    assert weights.device_bytes <= weights.pages * PAGE
    assert weights.rank == rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_packed_copy_holds_a_and_the_scaled_transpose_of_b(folder, dtype):
    edit_options(folder, lora_alpha=10)
    stored = load_file(folder / "adapter_model.safetensors")
    weights = read(folder, dtype)
    found = {}
    for span in weights.layout.spans:
        spec = weights.blocks[span.block]
        raw = weights.image[span.page, span.offset : span.offset + span.rows * spec.row_bytes]
        rows = torch.from_numpy(raw.copy()).view(dtype).view(span.rows, -1)[:, : spec.width]
        found.setdefault((spec.layer, spec.module, spec.side), []).append(rows)
    a = torch.cat(found[0, "q_proj", "A"])
    bt = torch.cat(found[0, "q_proj", "Bt"])
    assert torch.equal(a, stored[f"{Q}.lora_A.weight"].to(dtype))
    assert torch.equal(bt, (stored[f"{Q}.lora_B.weight"].T * 2.5).to(dtype))
    assert len(found) == 2 * len(MODULES) * CONFIG.layers


def test_a_page_too_small_for_a_row_is_said(folder):
    with pytest.raises(AdapterError, match="does not fit a page"):
        read(folder, page_bytes=256)


def test_made_adapters_are_labelled_and_loadable_by_peft(tmp_path):
    from peft import LoraConfig

    runner = CliRunner()
    done = runner.invoke(
        adapters,
        ["make", str(tmp_path / "many"), "--model", "synthetic", "--count", "3", "--rank", "2",
         "--rank", "8", "--modules", "q_proj, v_proj"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "3 synthetic adapter(s)" in done.output
    config = model_config("synthetic")
    made = [
        read_adapter(tmp_path / "many" / f"adapter-{i:03d}", config, torch.float32, 1 << 16)
        for i in range(3)
    ]
    assert [m.rank for m in made] == [2, 8, 2]
    assert len({m.key for m in made}) == 3
    assert all(m.synthetic for m in made)
    assert LoraConfig.from_pretrained(tmp_path / "many" / "adapter-000").r == 2


def test_making_over_an_adapter_needs_force(folder):
    command = ["make", str(folder), "--model", "synthetic"]
    refusal = CliRunner().invoke(adapters, command)
    assert isinstance(refusal.exception, AdapterError)
    assert "--force" in str(refusal.exception)
    assert CliRunner().invoke(adapters, [*command, "--force"]).exit_code == 0


def test_making_refuses_what_cannot_be(tmp_path):
    with pytest.raises(AdapterError, match="x_proj"):
        make_adapter(tmp_path / "a", CONFIG, 4, ["x_proj"])
    with pytest.raises(AdapterError, match="rank 0"):
        make_adapter(tmp_path / "a", CONFIG, 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(AdapterError, match="cannot write"):
        make_adapter(tmp_path / "file" / "a", CONFIG, 4)


def test_making_is_seeded_and_fits_smollm2(tmp_path):
    one = load_file(make_adapter(tmp_path / "1", SMOLLM2_135M, 2, ["v_proj"], seed=5)
                    / "adapter_model.safetensors")  # fmt: skip
    two = load_file(make_adapter(tmp_path / "2", SMOLLM2_135M, 2, ["v_proj"], seed=5)
                    / "adapter_model.safetensors")  # fmt: skip
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[n], two[n]) for n in one)
    assert len(one) == 2 * 30
