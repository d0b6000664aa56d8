"""One safetensors file: its header, checked against the file's size, then single tensors.

Reads the header first and data only when asked, never maps the file (one that is cut short while it
is read must end in an error, not in the process's end), and believes nothing the header says.
Format: a little-endian u64, so many bytes of JSON, then the data without holes. Messages name the
file; whoever calls names the folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import AdapterError
from engine.model.adapter_folder import LFS_START, opened, read_at, refuse_pointer, shown
from engine.model.strict_json import read_object

MOST_HEADER_BYTES = 16 << 20
MOST_DATA_BYTES = 8 << 30  # rank 256 on every linear of a model of 70B takes 6 GB in 16 bits
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
# What quantised weights and other tools store: refused when it is asked for, not in the header.
_OTHER_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2,
    "I32": 4, "U32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorAt:
    """Where a tensor lies: `begin` is its byte in the file, `size` its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int


class TensorFile:
    """An open file, by its descriptor `fd`. `tensors` by name, as the header has them."""

    def __init__(self, fd: int, name: str, tensors: Mapping[str, TensorAt]) -> None:
        self.fd = fd
        self._name = name
        self.tensors = tensors

    def read(self, at: TensorAt) -> np.ndarray:
        """As `floats`. Raises AdapterError also when it holds NaN or infinite values."""
        full = self.floats(at)
        if not np.isfinite(full).all():
            raise AdapterError(
                f"{shown(at.name)} holds NaN or infinite values: its training diverged, or the "
                "file is damaged; save an earlier checkpoint"
            )
        return full

    def floats(self, at: TensorAt) -> np.ndarray:
        """The tensor in float32, exact for the three types there are. Raises AdapterError when the
        file is shorter than it was."""
        raw = read_at(self.fd, self._name, at.begin, at.size)
        if at.dtype == "BF16":
            bits = np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16
            full = bits.view(np.float32)
        else:
            stored = np.frombuffer(raw, dtype="<f4" if at.dtype == "F32" else "<f2")
            full = stored.astype(np.float32, copy=False)
        return full.reshape(at.shape)


@contextmanager
def open_tensors(folder: Path, name: str) -> Iterator[TensorFile]:
    """Open a file of the folder and check its header. Raises AdapterError."""
    with opened(folder, name) as (fd, size):
        yield TensorFile(fd, name, _header(fd, name, size))


def _header(fd: int, name: str, size: int) -> dict[str, TensorAt]:
    damaged = f"{name} is damaged or cut short"
    if size == 0:
        raise AdapterError(f"{damaged}: it is empty, a copy or an upload did not end")
    start = bytes(read_at(fd, name, 0, min(size, max(8, len(LFS_START)))))
    refuse_pointer(name, start)
    # One sound file in 32 begins with 0x80 too, as part of its header's length; then comes a brace.
    if start[8:9] != b"{" and start.startswith((b"\x80", b"PK\x03\x04")):
        raise AdapterError(
            f"{name} is a pickle under another name, which can run code and is never opened; save "
            "the adapter with PEFT's save_pretrained"
        )
    length = int.from_bytes(start[:8], "little")
    if size < 8 or length > size - 8:
        raise AdapterError(
            f"{damaged}: its header would take {length} bytes and the file has {size}"
        )
    if length > MOST_HEADER_BYTES:
        raise AdapterError(f"{name}: its header takes {length} bytes, {MOST_HEADER_BYTES} at most")
    try:
        entries = read_object(bytes(read_at(fd, name, 8, length)))
    except ValueError as e:
        raise AdapterError(f"{damaged}: its header {e}") from None
    entries.pop("__metadata__", None)
    tensors = {n: _tensor(damaged, n, entry, 8 + length) for n, entry in entries.items()}
    _check_cover(damaged, tensors, 8 + length, size)
    return tensors


def _tensor(damaged: str, name: str, entry: object, data_begin: int) -> TensorAt:
    fault = f"{damaged}: its header says of {shown(name)} {shown(entry)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise AdapterError(f"{fault}, not type, shape and place")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (_counts(shape) and len(shape) <= 8 and _counts(place) and len(place) == 2):
        raise AdapterError(f"{fault}, and its shape or place is no list of counts")
    bytes_each = {**_ITEM_BYTES, **_OTHER_BYTES}.get(dtype) if isinstance(dtype, str) else None
    if bytes_each is None:
        raise AdapterError(f"{fault}, and that type is not known; save it as F32, F16 or BF16")
    begin, end = place
    if end - begin != math.prod(shape) * bytes_each:
        raise AdapterError(f"{fault}, and the shape does not fill the place")
    return TensorAt(name, dtype, tuple(shape), data_begin + begin, end - begin)


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in value)


def _check_cover(damaged: str, tensors: Mapping[str, TensorAt], begin: int, size: int) -> None:
    """The data has no holes, no overlaps and no rest."""
    at = begin
    for t in sorted(tensors.values(), key=lambda t: (t.begin, t.size)):
        if t.begin != at:
            raise AdapterError(f"{damaged}: {shown(t.name)} begins at byte {t.begin}, not at {at}")
        at += t.size
    if at != size:
        raise AdapterError(f"{damaged}: its tensors end at byte {at} and the file has {size}")
    if size > MOST_DATA_BYTES:
        raise AdapterError(
            f"{size} bytes of tensors; {MOST_DATA_BYTES} are the most that is read of an adapter"
        )


def is_float(at: TensorAt) -> bool:
    """Whether `TensorFile.read` can read it."""
    return at.dtype in _ITEM_BYTES
