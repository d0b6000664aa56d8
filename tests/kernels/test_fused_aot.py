"""Every Triton kernel compiles for real GPUs without one; the script for a GPU runs at toy size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = {"attend", "combine", "normed", "gated", "rotate", "shrink", "expand"}


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A process of its own: ahead-of-time compilation fails under TRITON_INTERPRET.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def compiled(*arguments: str) -> list[dict[str, object]]:
    run = script("aot_kernels.py", "--part", "compile", "--json", *arguments)
    assert run.returncode == 0, run.stderr
    rows: list[dict[str, object]] = json.loads(run.stdout)["compiled"]
    return rows


@pytest.mark.usefixtures("triton_here")
@pytest.mark.parametrize(
    ("targets", "dtypes"),
    [
        ("sm_90", "bf16"),
        pytest.param("sm_80,sm_90,sm_100,gfx942", "fp32,fp16,bf16", marks=pytest.mark.full),
    ],
)
def test_every_kernel_compiles_without_spills_within_shared_memory(targets, dtypes):
    rows = compiled("--targets", targets, "--dtypes", dtypes)
    assert {r["op"] for r in rows} == KERNELS
    assert len(rows) == 10 * len(targets.split(",")) * len(dtypes.split(","))
    for row in rows:
        assert row["spills"] == 0, row
        assert int(str(row["registers"])) > 0, row


@pytest.mark.full
@pytest.mark.usefixtures("triton_here")
def test_decode_kernels_ask_for_little_more_than_they_must_move():
    run = script("aot_kernels.py", "--part", "bytes", "--json")
    assert run.returncode == 0, run.stderr
    moved = json.loads(run.stdout)["moved"]
    ratios = {(m["kernel"], m["shape"]): m["asked_bytes"] / m["must_bytes"] for m in moved}
    assert min(ratios.values()) >= 1  # nothing can be computed without reading its operands
    for (kernel, shape), ratio in ratios.items():
        if kernel != "attend":  # a prompt chunk's tiles read its keys again
            assert ratio <= 1.25, (kernel, shape)


@pytest.mark.full
@pytest.mark.usefixtures("triton_here")
def test_the_script_for_a_gpu_runs_at_toy_size():
    run = script("gpu.py", "--toy")
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert {r["part"] for r in rows} == {
        "machine", "numerics", "sgmv", "attention", "step", "engine", "swap", "end",
    }  # fmt: skip
    assert {(r["graphs"], r["adapters"]) for r in rows if r["part"] == "engine"} == {
        (True, 0), (True, 1), (False, 0), (False, 1),
    }  # fmt: skip
    assert rows[-1]["wrong"] is False


@pytest.mark.full
@pytest.mark.usefixtures("triton_here")
def test_every_form_that_the_devices_runner_launches_compiles_without_spills():
    run = script("aot_runner.py", "--targets", "sm_90,gfx942", "--json")
    assert run.returncode == 0, run.stderr
    rows = json.loads(run.stdout)
    assert {r["kernel"] for r in rows} == (KERNELS - {"rotate"}) | {"rotate_and_store"}
    assert {r["form"].get("PARTIAL") for r in rows if r["kernel"] == "attend"} == {False, True}
    assert len(rows) == 2 * 22
    assert all(r["spills"] == 0 and r["fits"] for r in rows)


BARE = """
import importlib, importlib.util, pkgutil, sys

# What torch and triton cannot be without counts as theirs.
THEIRS = {"torch", "torchgen", "functorch", "triton", "numpy", "typing_extensions", "sympy",
          "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "setuptools"}
OURS = {"kernels", "engine", "telemetry"}


class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = THEIRS | OURS | sys.stdlib_module_names
        if path is None and top not in known and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NotInstalled())
names = ["engine.core", "engine.loading", "engine.chronicle", "engine.config", "telemetry.records"]
for package in ("kernels", "engine.scheduling", "engine.memory", "engine.model", "engine.runner",
                "telemetry.ledger"):
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")
    # The native kernels' library is found by its suffix, but is no Python module.
    names += [m.name for m in found if m.name != "kernels.libtenantscope"]
if importlib.util.find_spec("triton") is None:
    names = [n for n in names if not n.endswith("_jit")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_the_kernels_and_the_core_import_with_torch_triton_and_numpy_alone():
    run = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 100
