"""Finds and loads the native CPU kernels, or says why they are absent. Holds no kernel.

TENANTSCOPE_NATIVE=0 turns them off; a path there is loaded instead of the installed library.
TENANTSCOPE_ISA=plain, avx2, avx512, amx, neon or neonbf16 holds them to that instruction set, or to
the nearest below that this kind of CPU has.
"""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# First: the library is linked to libgomp, and must find torch's copy, whose threads it shares,
# already there.
import torch

ABI = 1  # TS_ABI of csrc/common.h
LIBRARY = Path(__file__).with_name("libtenantscope.so")
# What is called of it. A library of a checkout's older state has the interface and not all of them.
FUNCTIONS = (
    "ts_attend", "ts_gated", "ts_head", "ts_head_best", "ts_head_best_scratch", "ts_head_scratch",
    "ts_linear", "ts_lora", "ts_normed", "ts_pack", "ts_scratch_bytes",
)  # fmt: skip
DTYPES: Mapping[torch.dtype, int] = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Isa(enum.IntEnum):
    """Instruction sets (TsIsa of csrc/common.h), each with those below it that its CPUs have."""

    PLAIN = 0
    AVX2 = 1
    AVX512 = 2
    AMX = 3
    NEON = 16
    NEONBF16 = 17


def kind_of(isa: Isa) -> tuple[Isa, ...]:
    """The sets of that kind of CPU, the lowest first. On AArch64 nothing is below NEON."""
    return tuple(other for other in Isa if (other >= Isa.NEON) == (isa >= Isa.NEON))


def held(best: Isa, limit: Isa) -> Isa:
    """The highest set of a CPU whose best is `best` that is not above `limit`, or its lowest."""
    kind = kind_of(best)
    return max((isa for isa in kind if isa <= min(best, limit)), default=kind[0])


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """The library, its C functions by name on `functions`, and the instruction set to use."""

    functions: ctypes.CDLL
    isa: Isa


@dataclass(frozen=True, slots=True)
class Absent:
    """No native kernels, and why: a sentence with what to do."""

    reason: str


@cache
def native() -> Native | Absent:
    """The native kernels of this process, looked for once."""
    return find(os.environ)


def find(environ: Mapping[str, str]) -> Native | Absent:
    """Load as `environ` asks. Never raises: whoever cannot have them runs on plain torch."""
    asked = environ.get("TENANTSCOPE_NATIVE", "")
    if asked == "0":
        return Absent("TENANTSCOPE_NATIVE=0 turns them off")
    path = LIBRARY if asked in ("", "1") else Path(asked)
    try:
        with path.open("rb") as f:
            whole = _ends_in_file(f.read(64), os.fstat(f.fileno()).st_size)
        if not whole:  # the loader would map it, and the process die of what is not there
            return Absent(f"{path} is cut short: build it anew on this machine")
        # With a slash: a bare name would be looked for in the system's folders.
        functions = ctypes.CDLL(str(path.absolute()))
        found = int(functions.ts_abi())
        if found != ABI:
            return Absent(f"{path} has interface {found}, this version needs {ABI}: build it anew")
        missing = [name for name in FUNCTIONS if not hasattr(functions, name)]
        if missing:
            return Absent(f"{path} has no {missing[0]}, it is of another version: build it anew")
        best = Isa(functions.ts_best_isa())
    except FileNotFoundError:
        if path != LIBRARY:
            return Absent(
                f"TENANTSCOPE_NATIVE={asked!r} is no file: name a library, 0 for none, or unset it"
            )
        return Absent(
            f"{path} is not there: no C++ compiler was found at install; install g++ and reinstall "
            "(in a checkout: python setup.py build_ext --inplace)"
        )
    except (OSError, AttributeError, ValueError) as e:
        return Absent(f"{path} cannot be loaded ({e}): build it anew on this machine")
    name = environ.get("TENANTSCOPE_ISA", "")
    if not name:
        return Native(functions, best)
    limit = Isa.__members__.get(name.upper())
    if limit is None:
        names = ", ".join(Isa.__members__).lower()
        return Absent(f"TENANTSCOPE_ISA={name!r} is none of {names}")
    return Native(functions, held(best, limit))


def _ends_in_file(start: bytes, size: int) -> bool:
    """Whether an ELF file (64 bits, little-endian) holds its section table, which lies at its end:
    a copy that was cut short does not. Other formats are the loader's to judge."""
    if start[:6] != b"\x7fELF\x02\x01" or len(start) < 64:
        return True
    at = int.from_bytes(start[40:48], "little")
    each, count = (int.from_bytes(start[i : i + 2], "little") for i in (58, 60))
    return at + each * count <= size
