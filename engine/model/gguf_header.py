"""Reads a GGUF file's header: metadata, and where each tensor lies. Believes nothing it says.

Maps the file and walks it once: milliseconds, also where a vocabulary has 150,000 tokens. Format:
ggml's docs/gguf.md, versions 2 and 3, little-endian. Imports no torch.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelError

_MAGIC = b"GGUF"
_LFS = b"version https://git-lfs"
_STRING, _ARRAY, _BOOL = 8, 9, 7
# GGUF's value types as numpy has them.
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "|b1", 10: "<u8",
    11: "<i8", 12: "<f8",
}  # fmt: skip
_MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`kind` is ggml's number of its type; `shape` as torch has it, rows first; `at`: its first
    byte in the file."""

    name: str
    kind: int
    shape: tuple[int, ...]
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class GgufHeader:
    """metadata: key -> number, bool, str, or a list of one of them."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    file_bytes: int


class _Cut(Exception):
    """The file ends before what it announces."""


def read_header(path: Path) -> GgufHeader:
    """Raises ModelError for a file that is none, damaged, or of another version."""
    try:
        if not path.is_file() and not path.is_dir() and path.exists():  # a pipe waits for a writer
            raise ModelError(f"{path}: not a plain file: name the GGUF file itself")
        with path.open("rb") as f:
            start = f.read(max(len(_LFS), 8))
            _check_start(path, start)
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Walk(data).header()
    except OSError as e:
        raise ModelError(f"{path}: cannot be read ({e.strerror})") from None
    except _Cut:
        raise ModelError(f"{path}: damaged or cut short: its header does not end") from None
    except (ValueError, struct.error, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: damaged: its header cannot be read ({e})") from None


def _check_start(path: Path, start: bytes) -> None:
    if start.startswith(_LFS):
        raise ModelError(
            f"{path} is a Git LFS pointer, not the model: run `git lfs pull` there, or download "
            "the file itself"
        )
    if start[:4] != _MAGIC or len(start) < 8:
        raise ModelError(f"{path}: not a GGUF file (it does not begin with GGUF)")
    version = int.from_bytes(start[4:8], "little")
    if version not in (2, 3):
        big = int.from_bytes(start[4:8], "big") in (2, 3)
        what = "big-endian" if big else f"version {version}"
        raise ModelError(f"{path}: {what} GGUF; little-endian versions 2 and 3 are read")


class _Walk:
    """A position in the mapped file, and what is read from there on."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 8
        self._size = len(data)

    def header(self) -> GgufHeader:
        tensors, keys = self._u64(), self._u64()
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._string()
            if key in metadata:
                raise ValueError(f"it says {key!r} twice")
            metadata[key] = self._value(self._u32())
        found = [self._tensor() for _ in range(tensors)]
        align = metadata.get("general.alignment", 32)
        if type(align) is not int or align < 1:
            raise ValueError(f"general.alignment is {align!r}")
        begin = -(-self._at // align) * align
        placed = {n: GgufTensor(n, kind, shape, begin + at) for n, kind, shape, at in found}
        if len(placed) < len(found):
            raise ValueError("it has two tensors of one name")
        return GgufHeader(metadata, placed, self._size)

    def _tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        name, dimensions = self._string(), self._u32()
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._u64() for _ in range(dimensions))
        return name, self._u32(), shape[::-1], self._u64()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._numbers(kind, 1)[0]

    def _array(self) -> list[Any]:
        kind, count = self._u32(), self._u64()
        if kind == _STRING:
            if count > self._size // 8:
                raise _Cut
            return [self._string() for _ in range(count)]
        if kind == _ARRAY:
            raise ValueError("an array of arrays")
        return self._numbers(kind, count)

    def _numbers(self, kind: int, count: int) -> list[Any]:
        if kind not in _NUMBERS:
            raise ValueError(f"value type {kind} is not known")
        each = np.dtype(_NUMBERS[kind])
        raw = self._take(count * each.itemsize)
        if kind == _BOOL:
            return [byte != 0 for byte in raw]
        found: list[Any] = np.frombuffer(raw, dtype=each).tolist()
        return found

    def _string(self) -> str:
        return self._take(self._u64()).decode("utf-8")

    def _u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _u64(self) -> int:
        return int.from_bytes(self._take(8), "little")

    def _take(self, count: int) -> bytes:
        stop = self._at + count
        if stop > self._size:
            raise _Cut
        taken = self._data[self._at : stop]
        self._at = stop
        return taken
