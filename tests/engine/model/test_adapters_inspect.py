"""`tenantscope adapters inspect`: what is in a folder, what is odd, whether it would be served."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from engine.adapters_cli import adapters
from engine.model.adapter_report import spans
from engine.model.config import model_config
from engine.model.made_adapters import make_adapter
from tests.engine.model.adapter_bench import Q, edit_options, edit_tensors, read, rename

SYNTHETIC = model_config("synthetic")


@pytest.fixture
def folder(tmp_path):
    return make_adapter(
        tmp_path / "adapter", SYNTHETIC, 4, ["q_proj", "down_proj"], alpha=8, base_model="synthetic"
    )


def inspect(folder, *options):
    return CliRunner().invoke(adapters, ["inspect", str(folder), *options])


def test_a_good_folder_is_told_whole_and_would_be_served(folder):
    done = inspect(folder, "--model", "synthetic", "--dtype", "bfloat16")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        str(folder),
        "plain LoRA, scaled by alpha / rank, synthetic",
        "made for 'synthetic', it says",
        "module     layers  linears  out   in  rank  alpha  scale",
        "q_proj     0-3           4  128  128  4     8      2",
        "down_proj  0-3           4  128  256  4     8      2",
        "stored 0.04 MB of F32; on the device 0.02 MB as bfloat16, 2 pages of 16384 bytes",
        "would be served on synthetic",
    ]


def test_the_figures_are_those_of_the_reader(folder):
    done = json.loads(
        inspect(folder, "--model", "synthetic", "--dtype", "float32", "--json").stdout
    )
    weights = read(folder, page_bytes=done["page_bytes"], config=SYNTHETIC)
    assert done["served"] is True
    assert (done["key"], done["device_bytes"], done["pages"]) == (
        weights.key, weights.device_bytes, weights.pages,
    )  # fmt: skip
    assert done["stored_bytes"] == 4 * 4 * 4 * (128 + 128 + 128 + 256)
    assert done["modules"][0] == {
        "module": "q_proj", "layers": "0-3", "linears": 4, "ranks": [4], "alphas": [8.0],
        "scales": [2.0], "shape": [128, 128],
    }  # fmt: skip


def test_without_a_model_all_but_shapes_is_checked(folder):
    done = inspect(folder)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == (
        "nothing speaks against it; its shapes were not checked: name a --model"
    )
    assert json.loads(inspect(folder, "--json").stdout)["served"] is None
    edit_tensors(folder, lambda ts: ts[f"{Q}.lora_B.weight"].fill_(float("nan")))
    done = inspect(folder)
    assert done.exit_code == 1
    assert "refused: " in done.stdout
    assert "NaN" in done.stdout


def test_a_folder_for_another_model_is_refused_and_its_table_is_shown(folder):
    done = inspect(folder, "--model", "smollm2-135m")
    assert done.exit_code == 1
    assert "q_proj     0-3" in done.stdout
    assert "hidden size 128" in done.stdout.splitlines()[-1]
    told = json.loads(inspect(folder, "--model", "smollm2-135m", "--json").stdout)
    assert told["served"] is False
    assert told["pages"] is None


def test_ranks_and_scales_that_differ_are_told_as_ranges(folder):
    edit_options(folder, alpha_pattern={"layers.0.self_attn.q_proj": 4}, use_rslora=True)
    row = next(x for x in inspect(folder).stdout.splitlines() if x.startswith("q_proj"))
    assert row.split() == ["q_proj", "0-3", "4", "128", "128", "4", "4", "to", "8", "2", "to", "4"]


@pytest.mark.parametrize("model", [[], ["--model", "synthetic"]])
def test_what_is_odd_is_warned_of(folder, model):
    edit_options(folder, target_modules=["c_attn"])
    done = inspect(folder, *model)
    assert done.exit_code == 0
    assert "warning: target_modules ['c_attn'] match 0 of the 28 linears" in done.stdout


def test_names_that_would_move_the_cursor_are_escaped(folder):
    rename(folder, lambda n: "\x1b[2J" + n if ".0." in n else n)
    done = inspect(folder)
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    edit_options(folder, base_model_name_or_path="a\x1b[31mb\nc")
    assert "\x1b" not in inspect(folder).stdout


def test_an_unknown_model_is_an_error_that_names_it(folder):
    done = inspect(folder, "--model", "nowhere/model")
    assert "nowhere/model" in str(done.exception)


def test_layers_in_few_words():
    assert spans([5, 0, 1, 2, 9, 10, 1]) == "0-2,5,9-10"


def test_a_look_without_a_model_loads_no_torch(folder):
    code = (
        "import sys\nfrom pathlib import Path\nfrom engine.model.adapter_report import examine\n"
        f"assert examine(Path({str(folder)!r}), None).refusal is None\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
