"""Adapter folders to spoil: makes one, changes its options, its tensors or its raw header."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import AdapterError
from engine.model.config import synthetic_config
from engine.model.lora import AdapterWeights, read_adapter

CONFIG = synthetic_config(layers=2)
PAGE = 8192
OPTIONS = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
Q = "base_model.model.model.layers.0.self_attn.q_proj"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


def read(folder: Path, dtype: torch.dtype = torch.float32, page_bytes: int = PAGE, config=CONFIG):
    return read_adapter(folder, config, dtype, page_bytes)


def edit_options(folder: Path, **changes: Any) -> None:
    path = folder / OPTIONS
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    path = folder / WEIGHTS
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def rename(folder: Path, rule: Callable[[str], str]) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        renamed = {rule(n): t for n, t in tensors.items()}
        tensors.clear()
        tensors.update(renamed)

    edit_tensors(folder, change)


def edit_header(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what the header says, and leave the data as it is."""
    raw = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    change(header)
    put_header(folder, json.dumps(header).encode(), raw[8 + length :])


def put_header(folder: Path, header: bytes, data: bytes = b"") -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + data)


def refused(folder: Path, *words: str) -> str:
    """Reading it is refused, in one line that names the folder and holds the words."""
    with pytest.raises(AdapterError) as e:
        read(folder)
    for word in (str(folder), *words):
        assert word in str(e.value)
    assert "\n" not in str(e.value)
    return str(e.value)


def unpacked(weights: AdapterWeights) -> dict[tuple[int, str, str], torch.Tensor]:
    """The blocks of the packed image, by layer, module and side."""
    found: dict[tuple[int, str, str], list[torch.Tensor]] = {}
    for span in weights.layout.spans:
        spec = weights.blocks[span.block]
        raw = weights.image[span.page, span.offset : span.offset + span.rows * spec.row_bytes]
        rows = torch.from_numpy(raw.copy()).view(weights.dtype).view(span.rows, -1)
        found.setdefault((spec.layer, spec.module, spec.side), []).append(rows[:, : spec.width])
    return {at: torch.cat(rows) for at, rows in found.items()}
