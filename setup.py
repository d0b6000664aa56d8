"""Builds the CPU kernels at install, where a C++ compiler is present; without one, installs on.

One plain shared library with a C interface (no Python or torch headers), made of every
`kernels/csrc/*.cpp`: `kernels/libtenantscope.so`. A file's name says which instructions it may use:
`*_avx2.cpp` and the like are compiled with their own flags, for their kind of CPU only, and entered
only where the CPU has them. Everything else of the package is declared in pyproject.toml.

In a checkout: `python setup.py build_ext --inplace`. CXX names another compiler, which
may be one for another kind of machine.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCES = Path("kernels/csrc")
LIBRARY = "libtenantscope.so"

# -ffp-contract=off: a sum is fused where the source says so and nowhere else, so that copies of one
# loop unrolled for other batch sizes give the same bits.
FLAGS = [
    *("-std=c++17", "-O3", "-fPIC", "-fopenmp", "-fno-exceptions", "-fno-rtti"),
    *("-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno"),
]
_AVX2 = ["-mavx2", "-mfma", "-mf16c"]
_AVX512 = [*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
ISA_FLAGS = {
    "x86_64": {
        "avx2": _AVX2,
        "avx512": _AVX512,
        "amx": [*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"],
    },
    "aarch64": {"neonbf16": ["-march=armv8.2-a+bf16"]},
}
_ALSO_CALLED = {"amd64": "x86_64", "arm64": "aarch64"}


def isa_of(source: Path) -> str | None:
    """The instruction set a file is written for, by its suffix; None is any CPU."""
    suffix = source.stem.rpartition("_")[2]
    return suffix if any(suffix in flags for flags in ISA_FLAGS.values()) else None


def build_library(target: Path, scratch: Path, sources: Path = SOURCES) -> None:
    """Compile and link all sources into `target`, put there whole: a process that has the old
    library mapped keeps it. Raises CompileError with the compiler's own words."""
    compiler = os.environ.get("CXX", "c++").split()
    flags = ISA_FLAGS.get(_machine_of(compiler), {})
    files = [f for f in sorted(sources.glob("*.cpp")) if (isa_of(f) or "") in {"", *flags}]
    scratch.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)

    def compiled(source: Path) -> str:
        made = scratch / f"{source.stem}.o"
        extra = flags.get(isa_of(source) or "", [])
        _run([*compiler, *FLAGS, *extra, "-c", str(source), "-o", str(made)])
        return str(made)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, files))
    # as-needed leaves libstdc++ out. libgomp stays dynamic: the loader then gives the library the
    # copy that torch brought, whose threads it shares.
    whole = target.with_name(f"{target.name}.{os.getpid()}")
    _run([*compiler, "-shared", "-fopenmp", "-Wl,--as-needed", *objects, "-o", str(whole)])
    whole.replace(target)


def _machine_of(compiler: list[str]) -> str:
    """What the compiler compiles for, as `uname -m` has it."""
    name = _run([*compiler, "-dumpmachine"]).partition("-")[0].strip()
    return _ALSO_CALLED.get(name, name)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as e:
        raise CompileError(f"{command[0]} cannot be run ({e.strerror})") from None
    if done.returncode:
        raise CompileError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    return done.stdout


class BuildKernels(build_ext):
    """setuptools' build_ext for one library that is no Python module."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")[:-1], LIBRARY)

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        try:
            build_library(target, Path(self.build_temp) / "kernels")
        except CompileError as e:
            # Said here as well: pip shows a build's words only when asked, `tenantscope` at start.
            print(f"the CPU kernels were not built, plain torch will be used: {e}", flush=True)
            raise  # the extension is optional: setuptools warns and installs on


class PlatformWheel(bdist_wheel):
    """The library speaks C, not Python's ABI: one wheel serves every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


KERNELS = Extension(
    "kernels.libtenantscope",
    sources=[str(f) for f in sorted(SOURCES.glob("*.cpp"))],
    depends=[str(f) for f in sorted(SOURCES.glob("*.h"))],
    optional=True,
)
COMMANDS = {"build_ext": BuildKernels, "bdist_wheel": PlatformWheel}

if __name__ == "__main__":
    setup(ext_modules=[KERNELS], cmdclass=COMMANDS)
