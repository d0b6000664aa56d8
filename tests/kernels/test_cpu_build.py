"""The CPU kernels are built where they can be, loaded where they fit, and missed out loud."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from setuptools import Distribution
from setuptools.errors import CompileError

from kernels import cpu, cpu_lora
from kernels.cpu import Absent, Isa, Native, find, held, kind_of, native
from kernels.cpu_lora import CpuLora, best_lora
from kernels.torch_ops import GroupedLora
from tests.kernels.lora_cases import EVEN, LAYERS

ROOT = Path(__file__).parents[2]
FOUND = native()
built = pytest.mark.skipif(isinstance(FOUND, Absent), reason=str(FOUND))


@pytest.fixture
def setup_file(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("tenantscope_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@built
def test_the_library_shares_torchs_threads() -> None:
    assert isinstance(FOUND, Native)
    before = torch.get_num_threads()
    try:
        for threads in (3, 1):
            torch.set_num_threads(threads)
            assert FOUND.functions.ts_threads() == threads
    finally:
        torch.set_num_threads(before)
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split()[-1] for line in maps if "libgomp.so.1" in line}
    assert len(mapped) == 1


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler", "c++ -fno-such-flag-at-all"])
def test_an_install_goes_on_where_nothing_compiles(
    setup_file: ModuleType, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("CXX", compiler)
    made = Distribution({"ext_modules": [setup_file.KERNELS], "cmdclass": setup_file.COMMANDS})
    command = made.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(tmp_path / "lib"), str(tmp_path / "temp")
    command.ensure_finalized()
    command.run()
    said = capsys.readouterr().out
    assert "the CPU kernels were not built, plain torch will be used" in said
    assert compiler.split()[0] in said
    assert not list(tmp_path.rglob("*.so"))


def test_a_failed_build_leaves_the_old_library_alone(
    setup_file: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "libtenantscope.so"
    old.write_bytes(b"old")
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "broken.cpp").write_text("#error this does not compile\n")
    with pytest.raises(CompileError, match="broken"):
        setup_file.build_library(old, tmp_path / "scratch", tmp_path / "csrc")
    assert old.read_bytes() == b"old"
    assert sorted(f.name for f in tmp_path.glob("lib*")) == [old.name]


def test_a_files_name_says_what_it_may_use(setup_file: ModuleType) -> None:
    assert setup_file.isa_of(Path("lora_avx2.cpp")) == "avx2"
    assert setup_file.isa_of(Path("lora_amx.cpp")) == "amx"
    assert setup_file.isa_of(Path("attention_neonbf16.cpp")) == "neonbf16"
    assert setup_file.isa_of(Path("lora.cpp")) is None
    for source in (ROOT / "kernels/csrc").glob("*.cpp"):
        if setup_file.isa_of(source) is None:
            used = re.findall(r"immintrin\.h|x86\.h|arm_neon\.h", source.read_text())
            assert not used, f"{source.name} must run on any CPU"


def test_absence_says_why_and_what_to_do(tmp_path: Path) -> None:
    nothing = tmp_path / "none.so"
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"\x7fELF")
    for environ, said in (
        ({"TENANTSCOPE_NATIVE": "0"}, "TENANTSCOPE_NATIVE=0 turns them off"),
        ({"TENANTSCOPE_NATIVE": str(nothing)}, f"'{nothing}' is no file: name a library, 0 for"),
        ({"TENANTSCOPE_NATIVE": "n" * 300}, "cannot be loaded .*File name too long"),
        ({"TENANTSCOPE_NATIVE": str(tmp_path)}, "cannot be loaded .*Is a directory"),
        ({"TENANTSCOPE_NATIVE": str(damaged)}, "damaged.so cannot be loaded .*build it anew"),
    ):
        found = find(environ)
        assert isinstance(found, Absent)
        assert re.search(said, found.reason), found.reason


def test_an_install_without_a_compiler_is_told_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "LIBRARY", tmp_path / "none.so")
    found = find({})
    assert isinstance(found, Absent)
    assert re.search(r"none\.so is not there: .*install g\+\+ and reinstall", found.reason)


@built
def test_a_library_that_is_cut_short_is_never_mapped(tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    cut.write_bytes(cpu.LIBRARY.read_bytes()[:20_000])
    found = find({"TENANTSCOPE_NATIVE": str(cut)})
    assert found == Absent(f"{cut} is cut short: build it anew on this machine")


@built
def test_a_library_of_an_older_state_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "FUNCTIONS", (*cpu.FUNCTIONS, "ts_of_tomorrow"))
    found = find(os.environ)
    assert isinstance(found, Absent)
    assert "has no ts_of_tomorrow, it is of another version: build it anew" in found.reason


@built
def test_every_function_that_is_called_is_looked_for_first() -> None:
    assert isinstance(FOUND, Native)
    words = re.compile(r"\bts_[a-z_]+\b")
    called = {w for f in (ROOT / "kernels").glob("cpu*.py") for w in words.findall(f.read_text())}
    there = {w for w in called if hasattr(FOUND.functions, w)} - {"ts_abi", "ts_best_isa"}
    assert there <= set(cpu.FUNCTIONS)


@built
def test_another_interface_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ABI", cpu.ABI + 1)
    found = find(os.environ)
    assert isinstance(found, Absent)
    assert f"interface {cpu.ABI - 1}, this version needs {cpu.ABI}" in found.reason


@built
def test_the_instruction_set_can_be_held_down_but_not_up() -> None:
    assert isinstance(FOUND, Native)
    best = FOUND.functions.ts_best_isa()
    for isa in Isa:
        found = find({"TENANTSCOPE_ISA": isa.name.lower()})
        assert isinstance(found, Native)
        assert found.isa == held(best, isa)
    unknown = find({"TENANTSCOPE_ISA": "sse9"})
    assert unknown == Absent(
        "TENANTSCOPE_ISA='sse9' is none of plain, avx2, avx512, amx, neon, neonbf16"
    )


def test_a_cpu_is_never_held_to_another_kinds_instructions() -> None:
    for best in Isa:
        for limit in Isa:
            assert held(best, limit) in kind_of(best)
            assert held(best, limit) <= best
    assert held(Isa.NEONBF16, Isa.NEON) == Isa.NEON
    assert held(Isa.NEONBF16, Isa.AVX2) == held(Isa.NEON, Isa.PLAIN) == Isa.NEON
    assert held(Isa.AVX512, Isa.NEON) == Isa.AVX512


@built
def test_the_engine_is_told_which_kernels_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(FOUND, Native)
    for isa in (Isa.PLAIN, FOUND.isa):
        monkeypatch.setattr(cpu_lora, "native", lambda isa=isa: Native(FOUND.functions, isa))
        lora, said = best_lora(LAYERS, EVEN, torch.bfloat16)
        assert isinstance(lora, CpuLora)
        assert said == f"LoRA: native kernels, {isa.name.lower()}, bfloat16"
    monkeypatch.setattr(cpu_lora, "native", lambda: Native(FOUND.functions, Isa.PLAIN))
    lora, said = best_lora(LAYERS, EVEN, torch.float16)
    assert isinstance(lora, GroupedLora)
    assert said.startswith("LoRA: plain torch, which is slower: this CPU has no F16C")


def test_without_the_library_plain_torch_computes_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_lora, "native", lambda: Absent("there is no compiler"))
    lora, said = best_lora(LAYERS, EVEN, torch.float32)
    assert isinstance(lora, GroupedLora)
    assert said == "LoRA: plain torch, which is slower: there is no compiler"
