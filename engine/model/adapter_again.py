"""Packs an adapter's file natively, and keeps what is needed to read an unchanged one again.

A folder that was read once is known by its files' stamps: then nothing of it is parsed or hashed
again, its bytes are read, checked and packed in one native call, which stands back for the step.
Does only what goes well: whatever is odd answers None, and the plain reader says what it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import AdapterError
from engine.memory.packing import Layout
from engine.model.adapter_folder import CONFIG_FILE, WEIGHTS_FILE, opened
from engine.model.adapter_image import ContentHash, Idle, RowBytes
from engine.model.peft_tensors import Pair
from engine.model.safetensors_file import TensorFile

if TYPE_CHECKING:  # a look at a folder needs no torch, and starts in a tenth of the time
    import torch

    from engine.model.lora import AdapterWeights
    from kernels.cpu_pack import PackJob

# A file that changes twice within one tick of its file system's clock has one stamp for both: what
# was written just now may change yet without its stamp telling. The coarsest clocks tick in 2 s.
SETTLED_S = 2.5
# Beside a step that wants all cores a tenth of one, and whatever the step leaves idle: the adapter
# comes later by as much as the step is not held up.
NICER = 10
_STORED = {"F32": 0, "BF16": 1, "F16": 2}  # TsDtype of csrc/common.h


@dataclass(frozen=True, slots=True)
class Stamps:
    """Which files a folder's two are, and when they last changed: (device, inode, size, mtime,
    ctime) each, times in ns. The ctime is the system's own: nobody sets it back."""

    config: tuple[int, int, int, int, int]
    weights: tuple[int, int, int, int, int]

    def settled(self, now_s: float) -> bool:
        """Whether a change from now on must show. `now_s`: Unix time."""
        latest_ns = max(*self.config[3:], *self.weights[3:])
        return now_s - latest_ns / 1e9 >= SETTLED_S


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """An adapter that was read: all of it but its bytes. `told`: it, with an image of no pages;
    `checksum`: of its tensors' bytes in the file."""

    stamps: Stamps
    job: PackJob
    checksum: int
    told: AdapterWeights


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What a native read has found: see `engine.model.adapter_image.pack`."""

    image: np.ndarray
    key: str
    idle: Idle
    job: PackJob
    checksum: int


def stamps_of(folder: Path) -> Stamps | None:
    """The stamps of a folder's files now; None where one is missing or cannot be looked at."""
    try:
        return Stamps(_stamp(folder / CONFIG_FILE), _stamp(folder / WEIGHTS_FILE))
    except (OSError, ValueError):  # the reader says which, and why
        return None


def read_natively(
    file: TensorFile,
    pairs: Sequence[Pair],
    blocks: Sequence[RowBytes],
    layout: Layout,
    dtype: torch.dtype,
    page_bytes: int,
) -> Read | None:
    """As `engine.model.adapter_image.pack`; None where there is no native library, or something is
    not as it should be. Reads the file twice, once for its hash: for files that do not change."""
    from kernels.cpu_pack import overflows

    job = pack_job(pairs, blocks, layout, page_bytes)
    found = _packed(file.fd, job, layout.pages, dtype, page_bytes)
    if found is None:
        return None
    image, most, checksum = found
    if not np.isfinite(most).all() or overflows(most, job, dtype).any():
        return None
    content = ContentHash()
    for p in pairs:
        content.add(p, file.floats(p.a), file.floats(p.b))
    idle = [
        (p.layer, p.module)
        for p, a, b in zip(pairs, most[::2].tolist(), most[1::2].tolist(), strict=True)
        if p.scale == 0 or a == 0 or b == 0
    ]
    return Read(image, content.key(), idle, job, checksum)


def read_again(folder: Path, recipe: Recipe) -> AdapterWeights | None:
    """The adapter of a folder that has not changed since the recipe was made; None where it has, or
    cannot be read: the plain reader says why."""
    if stamps_of(folder) != recipe.stamps:
        return None
    told = recipe.told
    try:
        with opened(folder, WEIGHTS_FILE) as (fd, _):
            page_bytes = told.image.shape[1]
            found = _packed(fd, recipe.job, told.pages, told.dtype, page_bytes, NICER)
    except AdapterError:
        return None
    if found is None:
        return None
    image, _, checksum = found
    # The stamps once more: it might have changed while it was read. The checksum: stamps are what
    # a file system says, and disks fail.
    if checksum != recipe.checksum or stamps_of(folder) != recipe.stamps:
        return None
    return replace(told, image=image)


def pack_job(
    pairs: Sequence[Pair], blocks: Sequence[RowBytes], layout: Layout, page_bytes: int
) -> PackJob:
    """Where the sides of the pairs lie in their file, and where their rows go in the image."""
    from kernels.cpu_pack import PackJob

    counts = [0] * len(blocks)
    for span in layout.spans:
        counts[span.block] += 1
    sides, scales, first = [], [], 0
    for i, p in enumerate(pairs):
        for turned, at in enumerate((p.a, p.b)):
            block = 2 * i + turned
            row_bytes, spans = blocks[block].row_bytes, counts[block]
            place = (at.begin, _STORED[at.dtype], *at.shape)
            sides.append((*place, turned, row_bytes, first, spans))
            scales.append(p.scale if turned else 1.0)
            first += spans
    rows = [(s.first_row, s.rows, s.page * page_bytes + s.offset) for s in layout.spans]
    with np.errstate(over="ignore"):  # an infinite scale overflows, and is found so
        return PackJob(
            np.array(sides, np.int64), np.array(rows, np.int64), np.array(scales, np.float32)
        )


def _packed(
    fd: int, job: PackJob, pages: int, dtype: torch.dtype, page_bytes: int, nicer: int = 0
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """The image, the largest size of each side's values, the checksum."""
    from kernels.cpu_pack import FileEnded, native_pack

    packer = native_pack()
    if packer is None:
        return None
    image = np.empty((pages, page_bytes), dtype=np.uint8)  # zeroed would be with Python's lock held
    try:
        packed = packer(fd, job, image, dtype, nicer)
    except (FileEnded, OSError):
        return None
    return image, packed.most, packed.checksum


def _stamp(file: Path) -> tuple[int, int, int, int, int]:
    s = os.stat(file)
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
