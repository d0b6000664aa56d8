"""Reads a PEFT LoRA folder, checks it against the base model, and packs it for the arena.

Nothing of a folder is executed: safetensors and JSON only, and only those two files are opened.
The arithmetic is numpy's, on one thread: it runs beside the step, whose cores torch's own thread
pool would take.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors

from engine.errors import AdapterError
from engine.memory.packing import Layout, lay_out, padded_row_bytes
from engine.model.config import ATTENTION_MODULES, MODULES, ModelConfig
from engine.model.made_adapters import SYNTHETIC_KEY, make_adapter

__all__ = ["AdapterWeights", "BlockSpec", "make_adapter", "read_adapter"]

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_LFS = b"version https://git-lfs"
_TENSOR = re.compile(
    r"(?:base_model\.model\.)?model\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)
# Options of PEFT that change the arithmetic in ways the kernels do not compute.
_REFUSED_OPTIONS = (
    "use_dora",
    "lora_bias",
    "modules_to_save",
    "trainable_token_indices",
    "target_parameters",
    "layer_replication",
    "alora_invocation_tokens",
    "use_qalora",
    "use_bdlora",
    "fan_in_fan_out",
)

Pair = tuple[np.ndarray, np.ndarray]  # A [r, in], B [out, r], float32


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """What a block of the layout is: side "A" is [rank, in], "Bt" is [rank, out]."""

    layer: int
    module: str
    side: str
    rank: int
    width: int
    row_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class AdapterWeights:
    """An adapter in host memory, packed as it will lie on the device (`HostAdapter`).

    `image` is uint8 [pages, page_bytes], blocks placed by `layout`, scale merged into Bt.
    `device_bytes` counts true-rank rows. `key` is the content hash: the same tensors and scales
    have the same key whatever the folder is called.
    """

    key: str
    rank: int
    device_bytes: int
    blocks: tuple[BlockSpec, ...]
    layout: Layout
    image: np.ndarray
    dtype: torch.dtype
    synthetic: bool

    @property
    def pages(self) -> int:
        return self.layout.pages


def read_adapter(
    folder: Path, config: ModelConfig, dtype: torch.dtype, page_bytes: int
) -> AdapterWeights:
    """Read, check and pack a PEFT LoRA folder.

    Raises AdapterError naming the folder and the cause. The base model's `config` decides shapes;
    `dtype` is the arena's; `page_bytes` its page.
    """
    options = _read_config(folder)
    pairs = _read_pairs(folder, config)
    scales = {at: _scale(folder, options, *at, pair[0].shape[0]) for at, pair in pairs.items()}
    return _pack(folder, pairs, scales, dtype, page_bytes, options.get(SYNTHETIC_KEY) is True)


def _read_config(folder: Path) -> dict[str, Any]:
    raw = _read_file(folder, CONFIG_FILE)
    try:
        options = json.loads(raw)
    except ValueError as e:
        raise AdapterError(f"adapter {str(folder)!r}: {CONFIG_FILE} is not JSON ({e})") from None
    if not isinstance(options, dict):
        raise AdapterError(f"adapter {str(folder)!r}: {CONFIG_FILE} is not a JSON object")
    if (kind := options.get("peft_type")) != "LORA":
        raise AdapterError(f"adapter {str(folder)!r}: peft_type is {kind!r}; only 'LORA' is served")
    for name in _REFUSED_OPTIONS:
        if options.get(name):
            raise AdapterError(
                f"adapter {str(folder)!r}: {name} is {options[name]!r}, which is not supported; "
                "train a plain LoRA without it"
            )
    if (bias := options.get("bias", "none")) != "none":
        raise AdapterError(f"adapter {str(folder)!r}: bias is {bias!r}; only 'none' is supported")
    return options


def _read_file(folder: Path, name: str) -> bytes:
    try:
        data = (folder / name).read_bytes()
    except FileNotFoundError:
        raise AdapterError(_missing(folder, name)) from None
    except OSError as e:
        raise AdapterError(f"adapter {str(folder)!r}: cannot read {name} ({e.strerror})") from None
    if data.startswith(_LFS):
        raise AdapterError(
            f"adapter {str(folder)!r}: {name} is a Git LFS pointer, not the file: "
            "run `git lfs pull` in that repository"
        )
    return data


def _missing(folder: Path, name: str) -> str:
    if not folder.is_dir():
        return f"adapter {str(folder)!r}: no such folder"
    if name == WEIGHTS_FILE and (pickles := sorted(p.name for p in folder.glob("*.bin"))):
        return (
            f"adapter {str(folder)!r}: {pickles[0]} is a pickle, which can run code and is never "
            f"opened; save the adapter as {WEIGHTS_FILE}"
        )
    return f"adapter {str(folder)!r}: {name} is missing"


def _read_pairs(folder: Path, config: ModelConfig) -> dict[tuple[int, str], Pair]:
    """(layer, module) -> (A, B) in float32, checked for shape and finiteness."""
    try:
        tensors = load_safetensors(_read_file(folder, WEIGHTS_FILE))
    except SafetensorError as e:
        raise AdapterError(
            f"adapter {str(folder)!r}: {WEIGHTS_FILE} is damaged or cut short ({e})"
        ) from None
    if not tensors:
        raise AdapterError(f"adapter {str(folder)!r}: {WEIGHTS_FILE} holds no tensors")
    sides: dict[tuple[int, str], dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        layer, module, side = _place(folder, config, name)
        if not tensor.is_floating_point():
            raise AdapterError(
                f"adapter {str(folder)!r}: {name} is {tensor.dtype}, expected floats"
            )
        full = _float32(tensor)
        if not np.isfinite(full).all():
            raise AdapterError(f"adapter {str(folder)!r}: {name} holds NaN or infinite values")
        sides.setdefault((layer, module), {})[side] = full
    pairs = {}
    for (layer, module), both in sorted(sides.items()):
        if len(both) != 2:
            present, absent = ("A", "B") if "A" in both else ("B", "A")
            raise AdapterError(
                f"adapter {str(folder)!r}: layer {layer} {module} has lora_{present} "
                f"but no lora_{absent}"
            )
        a, b = both["A"], both["B"]
        out, width = config.module_shape(module)
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != width or b.shape[0] != out:
            raise AdapterError(
                f"adapter {str(folder)!r}: layer {layer} {module} has A {list(a.shape)} and "
                f"B {list(b.shape)}; this base model needs A [r, {width}] and B [{out}, r]"
            )
        if a.shape[0] != b.shape[1] or a.shape[0] == 0:
            raise AdapterError(
                f"adapter {str(folder)!r}: layer {layer} {module}: A has {a.shape[0]} rows, "
                f"B has {b.shape[1]} columns; both must be the same rank, at least 1"
            )
        pairs[layer, module] = (a, b)
    return pairs


def _place(folder: Path, config: ModelConfig, name: str) -> tuple[int, str, str]:
    if "lora_magnitude_vector" in name:
        raise AdapterError(f"adapter {str(folder)!r}: {name} belongs to DoRA; not supported")
    match = _TENSOR.fullmatch(name)
    if match is None or match[2] not in MODULES:
        raise AdapterError(
            f"adapter {str(folder)!r}: tensor {name!r} is none of this model's; supported are "
            f"lora_A and lora_B of {', '.join(MODULES)}"
        )
    layer, module, side = int(match[1]), match[2], match[3]
    if layer >= config.layers:
        raise AdapterError(
            f"adapter {str(folder)!r}: {name} is for layer {layer}; "
            f"this base model has {config.layers} layers"
        )
    return layer, module, side


def _scale(folder: Path, options: Mapping[str, Any], layer: int, module: str, rank: int) -> float:
    """alpha/r, or alpha/sqrt(r) for rsLoRA, with PEFT's pattern overrides."""
    parent = "self_attn" if module in ATTENTION_MODULES else "mlp"
    full = f"model.layers.{layer}.{parent}.{module}"
    stated = _by_pattern(folder, options, "rank_pattern", full, options.get("r", 8))
    if stated != rank:
        raise AdapterError(
            f"adapter {str(folder)!r}: {CONFIG_FILE} says rank {stated!r} for {full}, "
            f"its tensors have rank {rank}"
        )
    alpha = _by_pattern(folder, options, "alpha_pattern", full, options.get("lora_alpha", 8))
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise AdapterError(
            f"adapter {str(folder)!r}: lora_alpha for {full} is {alpha!r}, expected a number"
        )
    return float(alpha) / (math.sqrt(rank) if options.get("use_rslora") else rank)


def _by_pattern(
    folder: Path, options: Mapping[str, Any], field: str, full: str, default: Any
) -> Any:
    """The first pattern that matches the end of the module's name decides, as in PEFT."""
    patterns = options.get(field) or {}
    if not isinstance(patterns, dict):
        raise AdapterError(f"adapter {str(folder)!r}: {field} is {patterns!r}, expected an object")
    for pattern, value in patterns.items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", full):
                return value
        except re.error as e:
            raise AdapterError(
                f"adapter {str(folder)!r}: {field} has {pattern!r}, no regular expression ({e})"
            ) from None
    return default


def _pack(
    folder: Path,
    pairs: Mapping[tuple[int, str], Pair],
    scales: Mapping[tuple[int, str], float],
    dtype: torch.dtype,
    page_bytes: int,
    synthetic: bool,
) -> AdapterWeights:
    digest = hashlib.sha256()
    specs: list[BlockSpec] = []
    rows: list[np.ndarray] = []
    for (layer, module), (a, b) in pairs.items():
        scale = scales[layer, module]
        with np.errstate(over="ignore", invalid="ignore"):  # `_cast` finds what overflows
            scaled = b.T * np.float32(scale)
        digest.update(f"{layer} {module} {list(a.shape)} {list(b.shape)} {scale!r}\n".encode())
        digest.update(np.ascontiguousarray(a).data)
        digest.update(np.ascontiguousarray(b).data)
        # Scaled in float32 and only in this copy: the tensors read stay as they were.
        for side, matrix in (("A", a), ("Bt", scaled)):
            cast = _cast(matrix, dtype)
            if cast is None:
                raise AdapterError(
                    f"adapter {str(folder)!r}: layer {layer} {module} lora_{side[0]} overflows "
                    f"{str(dtype).removeprefix('torch.')} once scaled by {scale:g}"
                )
            width = matrix.shape[1]
            row_bytes = padded_row_bytes(width, dtype.itemsize)
            specs.append(BlockSpec(layer, module, side, matrix.shape[0], width, row_bytes))
            rows.append(cast)
    try:
        layout = lay_out([(s.rank, s.row_bytes) for s in specs], page_bytes)
    except ValueError as e:
        raise AdapterError(f"adapter {str(folder)!r}: {e}") from None
    image = np.zeros((layout.pages, page_bytes), dtype=np.uint8)
    for span in layout.spans:
        spec = specs[span.block]
        target = image[span.page, span.offset : span.offset + span.rows * spec.row_bytes]
        source = rows[span.block][span.first_row : span.first_row + span.rows]
        raw = source.view(np.uint8)
        target.reshape(span.rows, spec.row_bytes)[:, : raw.shape[1]] = raw
    return AdapterWeights(
        key=digest.hexdigest(),
        rank=max(s.rank for s in specs),
        device_bytes=sum(s.rank * s.row_bytes for s in specs),
        blocks=tuple(specs),
        layout=layout,
        image=image,
        dtype=dtype,
        synthetic=synthetic,
    )


def _float32(tensor: torch.Tensor) -> np.ndarray:
    """Exact for float32, float16 and bfloat16."""
    if tensor.dtype == torch.bfloat16:
        high = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
        return (high.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(tensor.numpy(), dtype=np.float32)


def _cast(matrix: np.ndarray, dtype: torch.dtype) -> np.ndarray | None:
    """Contiguous rows in `dtype` (bfloat16 as its bits); None when a value leaves its range."""
    full = np.ascontiguousarray(matrix, dtype=np.float32)
    if not np.isfinite(full).all():
        return None
    if dtype == torch.float32:
        return full
    bits = full.view(np.uint32)
    # Round to nearest, ties to even, as torch does.
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return None if ((rounded & 0x7F80) == 0x7F80).any() else rounded
