"""Every call of the native library equals plain loops in double: here, and compiled for AArch64.

The checks are C++ (tests/kernels/native), so that they also run where no Python loads the library:
in an emulator, as a CPU without products of bf16 and as one with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu import Absent, Isa, kind_of, native

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).with_name("native")
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
CALLS = {"normed", "gated", "attend", "lora", "head", "pack"}
pytestmark = pytest.mark.full  # seconds of a compiler, more of an emulator


def compiled(compiler: str, library: Path, folder: Path) -> Path:
    """The checks, linked to a library, in `folder`."""
    made = folder / "checks"
    subprocess.run(
        [
            *compiler.split(), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror",
            f"-I{ROOT / 'kernels/csrc'}", str(CHECKS / "main.cpp"), str(library),
            f"-Wl,-rpath,{library.parent}", "-o", str(made),
        ],
        check=True,
    )  # fmt: skip
    return made


def levels_checked(command: list[str | Path]) -> set[str]:
    """The instruction sets of which every call was right."""
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line[0] for line in lines} == {"ok"}
    calls = {(line[1], line[2]) for line in lines}
    levels = {level for level, _ in calls}
    assert calls == {(level, call) for level in levels for call in CALLS}
    return levels


def test_every_call_equals_a_double_loop_on_this_cpu(tmp_path: Path) -> None:
    found = native()
    if isinstance(found, Absent):
        pytest.skip(found.reason)
    library = Path(found.functions._name)
    checks = compiled(os.environ.get("CXX", "c++"), library, tmp_path)
    best = Isa(found.functions.ts_best_isa())
    here = {isa.name.lower() for isa in kind_of(best) if isa <= best}
    assert levels_checked([checks, "20"]) == here


@pytest.fixture(scope="module")
def on_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checks and the library, built as an install builds it."""
    for tool in (CROSS, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}: Debian has it in g++-aarch64-linux-gnu, or in qemu-user")
    folder = tmp_path_factory.mktemp("aarch64")
    build = [sys.executable, "setup.py", "build_ext", "--force"]
    subprocess.run(
        [*build, "--build-lib", str(folder), "--build-temp", str(folder / "temp")],
        env={**os.environ, "CXX": f"{CROSS} -Wall -Wextra -Werror"},
        cwd=ROOT,
        check=True,
    )
    return compiled(CROSS, folder / "kernels/libtenantscope.so", folder)


@pytest.mark.parametrize(
    ("cpu", "levels"), [("cortex-a57", {"neon"}), ("max", {"neon", "neonbf16"})]
)
def test_every_call_equals_a_double_loop_on_aarch64(
    on_aarch64: Path, cpu: str, levels: set[str]
) -> None:
    root = f"/usr/{CROSS.removesuffix('-g++')}"
    assert levels_checked([EMULATOR, "-L", root, "-cpu", cpu, on_aarch64, "6"]) == levels
