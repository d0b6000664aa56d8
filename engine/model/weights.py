"""A model's tensors in memory, each held once, whatever it is read or computed as. No math.

The linears that share an input lie in one tensor, so that a decoder multiplies them at once; by
their Hugging Face names they are views of it. Once a group is asked for as a `Linear` that packs
its weight, the packed form is the only one, and reading a name unpacks it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from engine.errors import ModelError
from engine.model.config import ModelConfig
from engine.model.linear import Linear
from engine.model.tensor_names import expected_shapes, linear_name
from kernels.backend import GROUPS

_LARGEST_HALF = 65504.0


@dataclass(frozen=True, slots=True)
class _Part:
    """Where a linear's weight or bias lies: rows start .. stop of a group's tensor."""

    layer: int
    group: str
    kind: str  # "weight" or "bias"
    start: int
    stop: int


class Weights(Mapping[str, torch.Tensor]):
    """Tensors by Hugging Face's names: matrices in `dtype`, vectors in float32.

    Filled by `put`, then read. Reading is safe from several threads.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._shapes = expected_shapes(config)
        self._parts = _parts(config)
        self._plain: dict[str, torch.Tensor] = {}
        self._groups: dict[tuple[int, str], dict[str, torch.Tensor]] = {}
        self._linears: dict[tuple[int, str], Linear] = {}
        self._there: set[str] = set()
        self._lock = threading.Lock()
        self._config = config

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor in, cast. Raises ModelError for a value that the dtype cannot hold, and
        KeyError for a name the model does not have."""
        shape = self._shapes[name]
        kept = torch.float32 if len(shape) == 1 else self._dtype
        if kept == torch.float16 and float(tensor.abs().amax()) > _LARGEST_HALF:
            raise ModelError(
                f"{name} has values beyond {_LARGEST_HALF:.0f}, which float16 cannot hold: choose "
                "dtype bfloat16 or float32"
            )
        part = self._parts.get(name)
        if part is None:
            target = self._plain[name] = torch.empty(shape, dtype=kept)
        else:
            target = self._room(part, kept)[part.start : part.stop]
        target.copy_(tensor)
        self._there.add(name)

    def linear(self, layer: int, group: str) -> Linear:
        """A layer's linears of one group, their weights stacked by rows: always the same object.

        Raises KeyError for a weight that was never put.
        """
        with self._lock:
            made = self._linears.get((layer, group))
            if made is None:
                held = self._groups.pop((layer, group))
                made = Linear(held["weight"], held.get("bias"))
                self._linears[layer, group] = made
            return made

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._there:
            raise KeyError(name)
        part = self._parts.get(name)
        if part is None:
            return self._plain[name]
        with self._lock:
            held = self._groups.get((part.layer, part.group))
            if held is not None:
                return held[part.kind][part.start : part.stop]
            linear = self._linears[part.layer, part.group]
        whole = linear.weight() if part.kind == "weight" else linear.bias
        assert whole is not None
        return whole[part.start : part.stop].to(
            torch.float32 if part.kind == "bias" else self._dtype
        )

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._shapes if name in self._there)

    def __len__(self) -> int:
        return len(self._there)

    def _room(self, part: _Part, dtype: torch.dtype) -> torch.Tensor:
        """The group's tensor that `part` lies in, made when its first part comes."""
        held = self._groups.setdefault((part.layer, part.group), {})
        if part.kind not in held:
            modules = GROUPS[part.group]
            rows = sum(self._config.module_shape(m)[0] for m in modules)
            if part.kind == "bias":  # of a module without one: zero
                held["bias"] = torch.zeros(rows, dtype=dtype)
            else:
                width = self._config.module_shape(modules[0])[1]
                held["weight"] = torch.empty(rows, width, dtype=dtype)
        return held[part.kind]


def _parts(config: ModelConfig) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    for layer in range(config.layers):
        for group, modules in GROUPS.items():
            start = 0
            for module in modules:
                stop = start + config.module_shape(module)[0]
                for kind in ("weight", "bias"):
                    name = f"{linear_name(layer, module)}.{kind}"
                    parts[name] = _Part(layer, group, kind, start, stop)
                start = stop
    return parts
