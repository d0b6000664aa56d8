"""Adapter folders that are served: identity, packed size, what is made; names and warnings."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from engine.adapters_cli import adapters
from engine.errors import AdapterError
from engine.memory.packing import padded_row_bytes
from engine.model.config import MODULES, SMOLLM2_135M, model_config
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from tests.engine.model.adapter_bench import (
    CONFIG,
    PAGE,
    WEIGHTS,
    Q,
    edit_options,
    edit_tensors,
    read,
    rename,
    unpacked,
)

TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture
def folder(tmp_path):
    return make_adapter(tmp_path / "adapter", CONFIG, 4, seed=1)


# -- identity and size


def test_identity_is_the_content_not_the_name(folder, tmp_path):
    same = make_adapter(tmp_path / "other-name", CONFIG, 4, seed=1)
    edit_options(same, base_model_name_or_path="elsewhere", lora_dropout=0.5)
    assert read(same).key == read(folder).key
    assert read(make_adapter(tmp_path / "seed", CONFIG, 4, seed=2)).key != read(folder).key
    rescaled = make_adapter(tmp_path / "alpha", CONFIG, 4, seed=1, alpha=9)
    assert read(rescaled).key != read(folder).key


def test_identity_does_not_depend_on_the_stored_type_or_on_prefixes(folder, tmp_path):
    def halve(tensors):
        for name, t in tensors.items():
            tensors[name] = t.bfloat16()

    edit_tensors(folder, halve)
    widened = make_adapter(tmp_path / "wide", CONFIG, 4, seed=1)
    edit_tensors(widened, lambda ts: ts.update({n: t.bfloat16().float() for n, t in ts.items()}))
    rename(widened, lambda n: n.removeprefix("base_model.model."))
    assert read(widened).key == read(folder).key


@pytest.mark.parametrize("rank", [1, 3, 33, 64])
@pytest.mark.parametrize("dtype", TYPES)
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


@pytest.mark.parametrize("dtype", TYPES)
def test_the_packed_copy_holds_a_and_the_scaled_transpose_of_b(folder, dtype):
    edit_options(folder, lora_alpha=10)
    stored = load_file(folder / WEIGHTS)
    found = unpacked(read(folder, dtype))
    assert torch.equal(found[0, "q_proj", "A"], stored[f"{Q}.lora_A.weight"].to(dtype))
    assert torch.equal(found[0, "q_proj", "Bt"], (stored[f"{Q}.lora_B.weight"].T * 2.5).to(dtype))
    assert len(found) == 2 * len(MODULES) * CONFIG.layers


@pytest.mark.parametrize("stored", TYPES)
def test_every_stored_type_is_read_exactly(folder, stored):
    edit_tensors(folder, lambda ts: ts.update({n: t.to(stored) for n, t in ts.items()}))
    there = load_file(folder / WEIGHTS)
    found = unpacked(read(folder))
    assert torch.equal(found[0, "q_proj", "A"], there[f"{Q}.lora_A.weight"].float())


def test_what_overflows_float16_is_refused_and_bfloat16_holds_it(folder):
    edit_tensors(folder, lambda ts: ts[f"{Q}.lora_A.weight"].fill_(1e5))
    with pytest.raises(AdapterError, match="layer 0 q_proj lora_A overflows float16"):
        read(folder, torch.float16)
    assert read(folder, torch.bfloat16).warnings == ()


def test_a_page_too_small_for_a_row_is_said(folder):
    with pytest.raises(AdapterError, match="does not fit a page"):
        read(folder, page_bytes=256)


# -- names


@pytest.mark.parametrize(
    "rule",
    [
        lambda n: n.removeprefix("base_model.model."),
        lambda n: n.removeprefix("base_model.model.model."),
        lambda n: n.replace("base_model.model.model.", "base_model.model."),
        lambda n: n.replace(".weight", ".default.weight"),
        lambda n: "module." + n,
        lambda n: n.replace(".layers.", "._fsdp_wrapped_module.layers.")
        .replace(".self_attn", "._fsdp_wrapped_module._checkpoint_wrapped_module.self_attn"),
        lambda n: n.replace(".self_attn", "._orig_mod.self_attn"),
    ],
)  # fmt: skip
def test_names_of_older_versions_and_of_wrapped_models_are_the_same_tensors(folder, rule):
    was = read(folder)
    rename(folder, rule)
    now = read(folder)
    assert now.key == was.key
    assert now.warnings == ()


# -- warnings


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({}, None),
        ({"target_modules": "all-linear"}, None),
        ({"target_modules": ".*_proj"}, None),
        ({"target_modules": None}, None),
        ({"target_modules": r"(?i).*Q_PROJ"}, None),  # not evaluated, so not held against it
        ({"target_modules": r"(a+)+\1"}, None),
        ({"target_modules": ["c_attn"]},
         "target_modules ['c_attn'] match 0 of the 14 linears; served is what the file holds "
         "tensors for: 14 linears (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj)"),
        ({"target_modules": ["q_proj"]},
         "the file has tensors for 12 linears (k_proj, v_proj, o_proj, gate_proj, up_proj, "
         "down_proj) that the options leave out: they are served, where PEFT would ignore them"),
        ({"layers_to_transform": [1]},
         "the file has tensors for 7 linears (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
         "down_proj) that the options leave out: they are served, where PEFT would ignore them"),
        ({"exclude_modules": ["layers.1.mlp.up_proj"]},
         "the file has tensors for 1 linear (up_proj) that the options leave out: they are "
         "served, where PEFT would ignore them"),
        ({"task_type": "SEQ_CLS"},
         "task_type is 'SEQ_CLS': it was trained for another task than writing text"),
        ({"note": "mine", "b": 1}, "options that are not known here have no effect: 'b', 'note'"),
    ],
)  # fmt: skip
def test_what_the_options_say_and_the_tensors_do_not_is_told(folder, options, warning):
    edit_options(folder, **options)
    assert read(folder).warnings == (() if warning is None else (warning,))


def test_declared_four_kinds_and_found_one(folder):
    edit_options(folder, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
    edit_tensors(folder, lambda ts: [ts.pop(n) for n in list(ts) if ".q_proj." not in n])
    assert read(folder).warnings == (
        "target_modules declare 4 kinds of linears, the file has tensors for 1: k_proj, v_proj, "
        "o_proj are served as the base model has them",
    )


def test_a_layer_without_tensors_is_told(folder):
    edit_tensors(folder, lambda ts: [ts.pop(n) for n in list(ts) if ".layers.1." in n])
    assert read(folder).warnings == (
        "the options declare 14 linears, the file has tensors for 7: layer 1 down_proj is the "
        "first that is served as the base model has it",
    )


def test_an_adapter_that_does_nothing_is_told_so(folder):
    edit_tensors(folder, lambda ts: [t.zero_() for n, t in ts.items() if "lora_B" in n])
    (warning,) = read(folder).warnings
    assert "all 14 linears is zero: the adapter has no effect" in warning


def test_linears_that_do_nothing_are_counted(folder):
    edit_tensors(folder, lambda ts: ts[f"{Q}.lora_B.weight"].zero_())
    assert read(folder).warnings == (
        "A or B of 1 of 14 linears is zero and changes nothing there; the first is layer 0 q_proj",
    )
    edit_options(folder, lora_alpha=0)
    assert "no effect" in read(folder).warnings[0]


# -- making


def test_made_adapters_are_labelled(tmp_path):
    done = CliRunner().invoke(
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
    assert all(m.synthetic and m.warnings == () for m in made)


def test_making_over_an_adapter_needs_force(folder):
    command = ["make", str(folder), "--model", "synthetic"]
    refusal = CliRunner().invoke(adapters, command)
    assert isinstance(refusal.exception, AdapterError)
    assert "--force" in str(refusal.exception)
    assert CliRunner().invoke(adapters, [*command, "--force"]).exit_code == 0


def test_making_refuses_what_cannot_be(tmp_path):
    with pytest.raises(AdapterError, match="x_proj"):
        make_adapter(tmp_path / "a", CONFIG, 4, ["x_proj"])
    with pytest.raises(AdapterError, match="name each one once"):
        make_adapter(tmp_path / "a", CONFIG, 4, ["q_proj", "q_proj"])
    with pytest.raises(AdapterError, match="rank 0"):
        make_adapter(tmp_path / "a", CONFIG, 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(AdapterError, match="cannot write"):
        make_adapter(tmp_path / "file" / "a", CONFIG, 4)


def test_a_disk_that_is_full_leaves_no_half_adapter_in_the_way(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(AdapterError, match=r"cannot write the adapter to .*too large"):
            make_adapter(tmp_path / "a", CONFIG, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "a" / "adapter_config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["make", "", "--model", "synthetic"], "'' is blank and names nothing"),
        (["inspect", ""], "'' is blank and names nothing"),
        (["make", "a", "--model", "synthetic", "--seed", "-1"], "-1 is not in the range"),
    ],
)
def test_what_names_no_folder_and_no_seed_is_a_usage_error(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(adapters, arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert not list(tmp_path.iterdir())


def test_making_is_seeded_and_fits_smollm2(tmp_path):
    one, two = (
        load_file(make_adapter(tmp_path / n, SMOLLM2_135M, 2, ["v_proj"], seed=5) / WEIGHTS)
        for n in "12"
    )
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[n], two[n]) for n in one)
    assert len(one) == 2 * 30
