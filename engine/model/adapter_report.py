"""What an adapter's folder is and whether it would be served: for the person who has it in hand.

Reads as a worker reads, changes nothing. Owns no wording of refusals: those are the reader's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import AdapterError
from engine.model.adapter_folder import WEIGHTS_FILE
from engine.model.config import MODULES, ModelConfig
from engine.model.lora import (
    block_specs,
    is_idle,
    naming,
    nothing_done,
    read_adapter,
    type_name,
)
from engine.model.peft_config import PeftConfig, read_config
from engine.model.peft_tensors import Pair, full_name, oddities, plan_pairs
from engine.model.safetensors_file import open_tensors

if TYPE_CHECKING:
    import torch

_UNKNOWN_ITEM_BYTES = 2  # without a base model: bfloat16, what most serve


@dataclass(frozen=True, slots=True)
class Base:
    """The base model that an adapter is held against: its sizes, and the arena's type and page."""

    name: str
    config: ModelConfig
    dtype: torch.dtype
    page_bytes: int


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One kind of linear in the file. `layers` such as "0-3,5"; several ranks, alphas or scales
    where its layers differ. `shape` is [out, in]."""

    module: str
    layers: str
    linears: int
    ranks: tuple[int, ...]
    alphas: tuple[float, ...]
    scales: tuple[float, ...]
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Report:
    """`refusal` is None when it would be served; without a base model (`model` is None), when
    nothing but the shapes could speak against it. `device_bytes` are at true rank in `dtype`;
    pages need a base model."""

    folder: str
    model: str | None
    refusal: str | None
    warnings: tuple[str, ...]
    base_model: str
    rslora: bool
    synthetic: bool
    stored_types: tuple[str, ...]
    stored_bytes: int
    modules: tuple[ModuleRow, ...]
    key: str | None
    dtype: str
    device_bytes: int | None
    page_bytes: int | None
    pages: int | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields, and `served`: true, false, or null where no base model was
        given and nothing speaks against it."""
        known = self.refusal is not None or self.model is not None
        return {"served": self.refusal is None if known else None, **asdict(self)}


def examine(folder: Path, base: Base | None) -> Report:
    """Look at a folder, with every check that a worker makes when a base model is given, and with
    all but those of shapes when none is. A folder that is refused is a report, no error."""
    found = _Found()
    try:
        with naming(folder):
            _look(folder, base, found)
        if base is not None:
            weights = read_adapter(folder, base.config, base.dtype, base.page_bytes)
            found.warnings, found.key, found.pages = weights.warnings, weights.key, weights.pages
    except AdapterError as e:
        found.refusal = str(e)
    specs = block_specs(found.pairs, base.dtype.itemsize if base else _UNKNOWN_ITEM_BYTES)
    options = found.options
    return Report(
        folder=str(folder),
        model=base.name if base else None,
        refusal=found.refusal,
        warnings=tuple(found.warnings),
        base_model=options.base_model if options else "",
        rslora=options is not None and options.rslora,
        synthetic=options is not None and options.synthetic,
        stored_types=_distinct(t.dtype for p in found.pairs for t in (p.a, p.b)),
        stored_bytes=sum(t.size for p in found.pairs for t in (p.a, p.b)),
        modules=_rows(found.pairs, options) if options else (),
        key=found.key,
        dtype=type_name(base.dtype) if base else "bfloat16",
        device_bytes=sum(s.rank * s.row_bytes for s in specs) if specs else None,
        page_bytes=base.page_bytes if base else None,
        pages=found.pages,
    )


class _Found:
    """What is known so far; a refusal leaves the rest as it is."""

    def __init__(self) -> None:
        self.options: PeftConfig | None = None
        self.pairs: Sequence[Pair] = ()
        self.warnings: Sequence[str] = ()
        self.refusal: str | None = None
        self.key: str | None = None
        self.pages: int | None = None


def _look(folder: Path, base: Base | None, found: _Found) -> None:
    options = found.options = read_config(folder)
    found.warnings = options.warnings
    with open_tensors(folder, WEIGHTS_FILE) as file:
        pairs = found.pairs = plan_pairs(file.tensors, options, None)
        if base is not None:
            return  # the worker's own reading tells the rest
        idle = [
            (p.layer, p.module) for p in pairs if is_idle(file.read(p.a), file.read(p.b), p.scale)
        ]
    found.warnings = (
        *options.warnings, *oddities(pairs, options, None), *nothing_done(idle, len(pairs))
    )  # fmt: skip


def _rows(pairs: Sequence[Pair], options: PeftConfig) -> tuple[ModuleRow, ...]:
    rows = []
    for module in MODULES:
        mine = [p for p in pairs if p.module == module]
        for shape in _distinct(p.out_width for p in mine):
            these = [p for p in mine if p.out_width == shape]
            names = [full_name(p.layer, p.module) for p in these]
            rows.append(
                ModuleRow(
                    module=module,
                    layers=spans(p.layer for p in these),
                    linears=len(these),
                    ranks=_distinct(p.rank for p in these),
                    alphas=_distinct(options.alpha_of(n) for n in names),
                    scales=_distinct(p.scale for p in these),
                    shape=shape,
                )
            )
    return tuple(rows)


def spans(numbers: Iterable[int]) -> str:
    """Numbers in few words: 0, 1, 2 and 5 are "0-2,5"."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))
