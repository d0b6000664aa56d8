"""What an adapter's `adapter_config.json` says: options of a plain LoRA, or why it is refused.

Owns the meaning of PEFT's options (as of PEFT 0.21: `LoraConfig`, `check_target_module_exists`,
`get_pattern_key`); reads no tensors and knows no base model. Messages name the option; whoever
calls names the folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import AdapterError
from engine.model.adapter_folder import CONFIG_FILE, read_small, shown
from engine.model.made_adapters import SYNTHETIC_KEY
from engine.model.peft_pattern import (
    PatternError,
    is_plain,
    matches_end,
    matches_start,
    matches_whole,
)
from engine.model.peft_refusals import refuse_other_formats, refuse_variants, unknown_options
from engine.model.strict_json import read_object

MOST_CONFIG_BYTES = 1 << 20  # a model of 80 layers with every module named twice takes 100 kB
_MOST_EXPRESSIONS = 50  # real expressions a field; plain names are not counted
ALL_LINEAR = "all-linear"


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """A plain LoRA's options. `target_modules`: names or ends of names, one expression, or None
    when the file names none."""

    rank: int
    alpha: float
    rslora: bool
    rank_pattern: tuple[tuple[str, int], ...]
    alpha_pattern: tuple[tuple[str, float], ...]
    target_modules: frozenset[str] | str | None
    exclude_modules: frozenset[str] | str
    layers_to_transform: frozenset[int] | None
    layers_pattern: tuple[str, ...]
    base_model: str
    synthetic: bool
    warnings: tuple[str, ...]

    def rank_of(self, name: str) -> int:
        """The rank stated for a module (`model.layers.0.self_attn.q_proj`). Raises AdapterError."""
        return next((v for p, v in self.rank_pattern if _matches(p, name)), self.rank)

    def alpha_of(self, name: str) -> float:
        """The alpha stated for a module. Raises AdapterError."""
        return next((v for p, v in self.alpha_pattern if _matches(p, name)), self.alpha)

    def scale_of(self, name: str, rank: int) -> float:
        """alpha/r, or alpha/sqrt(r) with rsLoRA (Kalajdzievski 2023, arXiv 2312.03732)."""
        return self.alpha_of(name) / (math.sqrt(rank) if self.rslora else rank)

    def targets(self, layer: int, name: str) -> bool | None:
        """Whether the options give this module of `layer` an adapter; None when they do not say,
        or say it in an expression that is not evaluated."""
        if self.target_modules is None:
            return None
        try:
            return self._targets(layer, name)
        except PatternError:
            return None

    def _targets(self, layer: int, name: str) -> bool:
        if isinstance(self.exclude_modules, str):
            if self.exclude_modules and matches_whole(self.exclude_modules, name):
                return False
        elif _named(self.exclude_modules, name):
            return False
        if isinstance(self.target_modules, str):
            if self.target_modules.lower() == ALL_LINEAR:
                return True
            return matches_whole(self.target_modules, name)
        if not _named(self.target_modules or frozenset(), name):
            return False
        if not self.layers_to_transform or name in (self.target_modules or ()):
            return True  # a module named in full is meant whatever its layer
        return layer in self.layers_to_transform and (
            not self.layers_pattern
            or any(matches_start(rf"(?:^|.*?\.){p}\.\d+\.", name) for p in self.layers_pattern)
        )


def read_config(folder: Path) -> PeftConfig:
    """Read the options of a folder. Raises AdapterError: what is wrong and what to do."""
    raw = read_small(folder, CONFIG_FILE, MOST_CONFIG_BYTES)
    try:
        options = read_object(raw)
    except ValueError as e:
        raise AdapterError(f"{CONFIG_FILE} {e}") from None
    return config_from(options)


def config_from(options: Mapping[str, Any]) -> PeftConfig:
    """The options as values. Raises AdapterError."""
    refuse_other_formats(options)
    refuse_variants(options)
    targets = _targets(options)
    task = options.get("task_type")
    warnings = list(unknown_options(options))
    if task not in (None, "CAUSAL_LM"):
        warnings.append(
            f"task_type is {shown(task)}: it was trained for another task than writing text"
        )
    base = options.get("base_model_name_or_path")
    return PeftConfig(
        rank=_whole(options.get("r", 8), "r"),
        alpha=_number(options.get("lora_alpha", 8), "lora_alpha"),
        rslora=_switch(options, "use_rslora"),
        rank_pattern=tuple((k, _whole(v, f"rank_pattern of {shown(k)}"))
                           for k, v in _patterns(options, "rank_pattern").items()),
        alpha_pattern=tuple((k, _number(v, f"alpha_pattern of {shown(k)}"))
                            for k, v in _patterns(options, "alpha_pattern").items()),
        target_modules=targets,
        exclude_modules=_names(options, "exclude_modules") or frozenset(),
        layers_to_transform=_layers(options),
        layers_pattern=_layers_pattern(options),
        base_model=base if isinstance(base, str) else "",
        synthetic=options.get(SYNTHETIC_KEY) is True,
        warnings=tuple(warnings),
    )  # fmt: skip


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AdapterError(f"{name} is {shown(value)}, expected a whole number, at least 1")
    return value


def _number(value: object, name: str) -> float:
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise AdapterError(f"{name} is {shown(value)}, expected a number")


def _switch(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise AdapterError(f"{name} is {shown(value)}, expected true or false")


def _patterns(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    patterns = options.get(name) or {}
    if not isinstance(patterns, dict):
        raise AdapterError(f"{name} is {shown(patterns)}, expected an object")
    expressions = [p for p in patterns if not is_plain(p)]
    if len(expressions) > _MOST_EXPRESSIONS:
        raise AdapterError(
            f"{name} has {len(expressions)} regular expressions; {_MOST_EXPRESSIONS} are the most: "
            "name the modules in full"
        )
    for pattern in expressions:
        try:
            _matches(pattern, "model.layers.0.self_attn.q_proj")
        except AdapterError as e:
            raise AdapterError(f"{name}: {e}") from None
    return patterns


def _matches(pattern: str, name: str) -> bool:
    try:
        return matches_end(pattern, name)
    except PatternError as e:
        raise AdapterError(f"pattern {shown(pattern)}: {e}; name the modules") from None


def _names(options: Mapping[str, Any], name: str) -> frozenset[str] | str | None:
    """A list of names, or one expression."""
    value = options.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return frozenset(value)
    raise AdapterError(f"{name} is {shown(value)}, expected a list of names or one expression")


def _targets(options: Mapping[str, Any]) -> frozenset[str] | str | None:
    targets = _names(options, "target_modules")
    if isinstance(targets, frozenset):
        for name in sorted(targets):
            if (end := name.rpartition(".")[2]) in ("embed_tokens", "lm_head", "wte"):
                raise AdapterError(
                    f"target_modules names {end}, whose LoRA is not supported; train one on the "
                    "linears of the layers only"
                )
    return targets


def _layers(options: Mapping[str, Any]) -> frozenset[int] | None:
    value = options.get("layers_to_transform")
    if value is None:
        return None
    layers = value if isinstance(value, list) else [value]
    if any(isinstance(n, bool) or not isinstance(n, int) for n in layers):
        raise AdapterError(f"layers_to_transform is {shown(value)}, expected numbers of layers")
    if layers and isinstance(options.get("target_modules"), str):
        raise AdapterError(
            "layers_to_transform is set and target_modules is one expression: PEFT takes one or "
            "the other; name the modules in a list"
        )
    return frozenset(layers)


def _layers_pattern(options: Mapping[str, Any]) -> tuple[str, ...]:
    value = options.get("layers_pattern") or []
    patterns = [value] if isinstance(value, str) else value
    if (
        not isinstance(patterns, list)
        or len(patterns) > 16
        or not all(isinstance(p, str) for p in patterns)
    ):
        raise AdapterError(f"layers_pattern is {shown(value)}, expected names of layer lists")
    return tuple(patterns)


def _named(names: frozenset[str], name: str) -> bool:
    """In full, or by its last parts."""
    rest = name
    while rest not in names:
        _, dot, rest = rest.partition(".")
        if not dot:
            return False
    return True
