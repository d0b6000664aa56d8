"""An adapter's file packed into its image by the native library: read, checked, cast, in one call.

Knows no folders and no names; whoever calls has checked the file's header. The call holds no lock
of Python's and computes on one thread: it runs beside a step. The struct is that of csrc/pack.h.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import torch

from kernels.cpu import DTYPES, Absent, Native, native

SIDE = 8  # int64 of a TsPackSide: from, dtype, rows, columns, turned, row_bytes, first_span, spans
SPAN = 3  # of a TsPackSpan: first_row, rows, at
_CHUNK_BYTES = 1 << 15  # of a file at once: with its floats it stays in a core's nearest caches
_ALIGNED = 64
_ITEM_BYTES = np.array([dtype.itemsize for dtype in DTYPES])

_int = ctypes.c_int64
_at = ctypes.c_void_p


class _Pack(ctypes.Structure):
    _fields_ = (
        ("isa", _int), ("dtype", _int), ("nicer", _int), ("fd", _int), ("count", _int),
        ("sides", _at), ("spans", _at), ("scales", _at), ("image", _at), ("image_bytes", _int),
        ("scratch", _at), ("chunk_bytes", _int), ("most", _at), ("checksum", ctypes.c_uint64),
        ("ended", _int), ("failed", _int),
    )  # fmt: skip


class FileEnded(Exception):
    """The file has fewer bytes than its header said; the argument is where it ends."""


@dataclass(frozen=True, slots=True, eq=False)
class PackJob:
    """What to read and where to put it: nothing of it depends on the file's bytes.

    `sides`: int64 [n, SIDE], in the order of the columns above; `spans`: int64 [m, SPAN];
    `scales`: float32 [n]. A side that is turned is B [out, rank] and becomes rows of [rank, out].
    """

    sides: np.ndarray
    spans: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """What was seen: of each side the largest size of a stored value, NaN where one was NaN or
    infinite (float32 [n]); and a checksum of the sides' bytes in the file."""

    most: np.ndarray
    checksum: int


class NativePack:
    """The native packer. Any thread calls."""

    def __init__(self, found: Native) -> None:
        self._isa = found.isa
        self._call = found.functions.ts_pack
        self._call.argtypes, self._call.restype = [_at], ctypes.c_int

    def __call__(
        self, fd: int, job: PackJob, image: np.ndarray, dtype: torch.dtype, nicer: int = 0
    ) -> Packed:
        """Read the open file `fd` into the image: uint8, contiguous, writable, in `dtype`. All of
        it is written; the spans follow each other in it, in the sides' order. `nicer`: by so much
        others are preferred where cores are short (Linux); the caller's thread stays as it is.

        Raises FileEnded, OSError when a read fails, and ValueError for a job that does not fit the
        image: C goes by addresses alone.
        """
        _check(job, image, dtype)
        sides, spans = np.ascontiguousarray(job.sides), np.ascontiguousarray(job.spans)
        scales = np.ascontiguousarray(job.scales)
        widest = int((sides[:, 3] * _ITEM_BYTES[sides[:, 1]]).max(initial=0))
        chunk_bytes = -(-max(_CHUNK_BYTES, widest) // _ALIGNED) * _ALIGNED
        scratch = np.empty(3 * chunk_bytes + _ALIGNED, np.uint8)
        most = np.zeros(len(sides), np.float32)
        struct = _Pack(
            isa=self._isa,
            dtype=DTYPES[dtype],
            nicer=nicer,
            fd=fd,
            count=len(sides),
            sides=sides.ctypes.data,
            spans=spans.ctypes.data,
            scales=scales.ctypes.data,
            image=image.ctypes.data,
            image_bytes=image.nbytes,
            scratch=-(-scratch.ctypes.data // _ALIGNED) * _ALIGNED,
            chunk_bytes=chunk_bytes,
            most=most.ctypes.data,
        )
        why = self._call(ctypes.addressof(struct))
        if why == 1:
            raise FileEnded(struct.ended)
        if why:
            raise OSError(struct.failed, "cannot be read")
        return Packed(most, int(struct.checksum))


def native_pack(found: Native | Absent | None = None) -> NativePack | None:
    """The native packer; None where there is no library."""
    found = native() if found is None else found
    return None if isinstance(found, Absent) else NativePack(found)


def overflows(most: np.ndarray, job: PackJob, dtype: torch.dtype) -> np.ndarray:
    """bool [n]: sides of which a value, once scaled, is infinite in `dtype`; `most` as `Packed` has
    it. Rounding is monotonous: the largest size overflows if any does."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = most * np.abs(job.scales)
    return np.asarray(~(scaled < _INFINITE_FROM[dtype]))


# The least float32 that rounds to infinity: half a unit above the largest finite value.
_INFINITE_FROM = {
    torch.float32: np.float32(np.inf),
    torch.bfloat16: np.array(0x7F7F8000, np.uint32).view(np.float32)[()],
    torch.float16: np.float32(65520),
}


def _check(job: PackJob, image: np.ndarray, dtype: torch.dtype) -> None:
    sides, spans = job.sides, job.spans
    if sides.dtype != np.int64 or sides.ndim != 2 or sides.shape[1] != SIDE:
        raise ValueError(f"sides are {sides.dtype} {sides.shape}, not int64 [n, {SIDE}]")
    if spans.dtype != np.int64 or spans.ndim != 2 or spans.shape[1] != SPAN:
        raise ValueError(f"spans are {spans.dtype} {spans.shape}, not int64 [n, {SPAN}]")
    if job.scales.dtype != np.float32 or job.scales.shape != (len(sides),):
        raise ValueError(f"scales are {job.scales.dtype} {job.scales.shape}, not a float32 a side")
    if image.dtype != np.uint8 or not image.flags.c_contiguous or not image.flags.writeable:
        raise ValueError(f"the image is {image.dtype} {image.shape}, not writable whole bytes")
    if dtype not in DTYPES:
        raise ValueError(f"an image in {dtype}: one of {', '.join(map(str, DTYPES))}")
    begin, stored, rows, columns, turned, row_bytes, first, count = sides.T
    if len(sides) and (
        min(begin.min(), first.min(), count.min()) < 0
        or min(rows.min(), columns.min()) < 1
        or not np.isin(stored, list(DTYPES.values())).all()
        or (first + count).max() > len(spans)
    ):
        raise ValueError("a side lies before its file, has no rows, or spans that are not there")
    width = np.where(turned, rows, columns) * dtype.itemsize
    if (width > row_bytes).any():
        raise ValueError(f"a row of {int(width.max())} bytes is longer than its place")
    block_rows = np.where(turned, columns, rows)
    of = np.repeat(np.arange(len(sides)), count)
    mine = spans[np.repeat(first, count) + _counted(count)]
    ends = mine[:, 2] + mine[:, 1] * row_bytes[of]
    if len(mine) and (
        mine.min() < 0
        or (ends[:-1] > mine[1:, 2]).any()
        or ends[-1] > image.nbytes
        or (mine[:, 2] % dtype.itemsize).any()
        or (mine[:, 0] + mine[:, 1] > block_rows[of]).any()
    ):
        raise ValueError(
            f"blocks lie outside the {image.nbytes} bytes, on each other, or have other rows"
        )


def _counted(counts: np.ndarray) -> np.ndarray:
    """0 .. n-1 for each count n, one after the other."""
    ends = np.cumsum(counts)
    return np.asarray(np.arange(int(counts.sum())) - np.repeat(ends - counts, counts))
