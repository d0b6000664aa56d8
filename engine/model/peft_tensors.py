"""Which tensor of an adapter's file is which side of which linear, by names and shapes alone.

Decides what the file adapts, at which rank and scale, whether it fits the base model, and what is
odd about it. Pure functions of the header and the options: no tensor's data is read. Whoever calls
names the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import AdapterError
from engine.model.adapter_folder import CONFIG_FILE, WEIGHTS_FILE, shown
from engine.model.config import ATTENTION_MODULES, MODULES, ModelConfig
from engine.model.peft_config import PeftConfig
from engine.model.safetensors_file import TensorAt, is_float

# What training wraps a model in. They add a part to every name and change nothing.
_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
# `base_model.model.` is PEFT's; early versions and saves of the bare module leave it out. A save
# of the model without its head (AutoModel) has no `model.` of its own. The part behind lora_A is
# an adapter's name, which PEFT takes out when it saves.
_TENSOR = re.compile(
    r"(?:module\.)?(?:base_model\.model\.)?(?:model\.)?layers\.(0|[1-9][0-9]{0,5})"
    r"\.(self_attn|mlp)\.([a-z_]{1,20})\.lora_([AB])(?:\.([^.]+))?\.weight"
)
# What other tensors a file may hold are signs of. First match decides.
_SIGNS = (
    (r"lora_magnitude_vector", "a magnitude of DoRA, which is not computed here: merge the "
     "adapter into the base model, or train without use_dora"),
    (r"lora_[AB].*\.bias$", "a bias of the LoRA (lora_bias), which is not added here: train "
     "without it"),
    (r"trainable_tokens", "trained rows of the embedding, which would be left out: train without "
     "trainable_token_indices"),
    (r"lora_embedding_[AB]|(embed_tokens|lm_head|wte)\.lora_", "a LoRA on the embedding or the "
     "head, which is not supported: train one on the linears of the layers only"),
    (r"(embed_tokens|lm_head|wte)(\.base_layer|\.original_module)?\.weight$", "a whole embedding "
     "or head: {vocab}; such weights would be left out, so save the adapter without them "
     "(save_embedding_layers=False) if they were not trained"),
    (r"modules_to_save|(score|classifier|v_head)\b", "weights of a whole module "
     "(modules_to_save), which would be left out: train a plain LoRA without it"),
    (r"(absmax|quant_map|quant_state|nested_|SCB|weight_format|qweight|qzeros|g_idx)", "part of "
     "a quantised weight: save the LoRA alone, in float32, float16 or bfloat16"),
    (r"\.lora_[ab](\.weight)?$|\.[AB]$", "named and laid out as MLX does (A and B transposed): "
     "convert the adapter to PEFT's names and layout first"),
    (r"lora_(up|down)\.|lora_(unet|te)|\.lora\.", "named as diffusers does, and for images"),
    (r"^loras\.|adapters?\.", "named as AdapterHub does: train or convert the adapter with PEFT"),
    (r"lora_diag|lora_E|lora_velora|lora_monteclora|hada_|lokr_|ia3_|vera_|oft_|boft_|prompt_",
     "of another method than plain LoRA: train a plain LoRA"),
    (r"experts?\.|block_sparse_moe|\.gate\.", "for a mixture of experts, which is not supported"),
    (r"\.bias$", "a bias, which would be left out: train with bias 'none'"),
    (r"base_layer\.", "a weight of the base model: save the adapter alone with PEFT's "
     "save_pretrained"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """One linear's A [rank, in] and B [out, rank], and what their product is scaled by."""

    layer: int
    module: str
    rank: int
    scale: float
    a: TensorAt
    b: TensorAt

    @property
    def out_width(self) -> tuple[int, int]:
        """(out, in) of the linear."""
        return self.b.shape[0], self.a.shape[1]


def full_name(layer: int, module: str) -> str:
    """A linear's name in the model, which options match."""
    return f"model.layers.{layer}.{_parent(module)}.{module}"


def plan_pairs(
    tensors: Mapping[str, TensorAt], options: PeftConfig, config: ModelConfig | None
) -> tuple[Pair, ...]:
    """The pairs of a file, by layer and module. Without a base model's `config` shapes are only
    held against one another. Raises AdapterError: nothing of the file is usable then."""
    if not tensors:
        raise AdapterError(f"{WEIGHTS_FILE} holds no tensors")
    sides: dict[tuple[int, str], dict[str, TensorAt]] = {}
    strange: list[str] = []
    adapters: set[str] = set()
    for name, at in tensors.items():
        place = _place(name)
        if place is None:
            strange.append(name)
            continue
        layer, module, side, adapter = place
        both = sides.setdefault((layer, module), {})
        if side in both:
            raise AdapterError(
                f"{shown(name)} and {shown(both[side].name)} are the same tensor by two names: "
                "keep one"
            )
        both[side] = at
        adapters.add(adapter)
    if strange:
        raise AdapterError(_strange(strange, tensors, options, config))
    if len(adapters) > 1:
        raise AdapterError(
            f"{WEIGHTS_FILE} holds tensors of {len(adapters)} adapters "
            f"({', '.join(shown(a, 40) for a in sorted(adapters)[:4])}): save each by itself"
        )
    pairs = tuple(_pair(at, both, options) for at, both in sorted(sides.items()))
    if config is not None:
        _check_fit(pairs, options, config)
    return pairs


def oddities(pairs: Sequence[Pair], options: PeftConfig, layers: int | None) -> list[str]:
    """What the options declare and the tensors do not bear out, as sentences. `layers` of the
    base model; as far as the tensors go when it is not known."""
    layers = layers if layers is not None else 1 + max(p.layer for p in pairs)
    found = {(p.layer, p.module) for p in pairs}
    declared: set[tuple[int, str]] = set()
    for layer in range(layers):
        for module in MODULES:
            meant = options.targets(layer, full_name(layer, module))
            if meant is None:
                return []
            if meant:
                declared.add((layer, module))
    said = shown(
        options.target_modules
        if isinstance(options.target_modules, str)
        else sorted(options.target_modules or ())
    )
    if not declared:
        return [
            f"target_modules {said} match 0 of the {layers * len(MODULES)} linears; served is what "
            f"the file holds tensors for: {_linears(found)}"
        ]
    odd = []
    kinds, held = {m for _, m in declared}, {m for _, m in found}
    if absent := declared - found:
        if kinds - held:
            odd.append(
                f"target_modules declare {len(kinds)} kinds of linears, the file has tensors for "
                f"{len(kinds & held)}: {', '.join(m for m in MODULES if m in kinds - held)} "
                "are served as the base model has them"
            )
        else:
            layer, module = min(absent)
            odd.append(
                f"the options declare {len(declared)} linears, the file has tensors for "
                f"{len(declared & found)}: layer {layer} {module} is the first that is served as "
                "the base model has it"
            )
    if extra := found - declared:
        odd.append(
            f"the file has tensors for {_linears(extra)} that the options leave out: they are "
            "served, where PEFT would ignore them"
        )
    return odd


def _linears(at: Iterable[tuple[int, str]]) -> str:
    at = set(at)
    kinds = ", ".join(m for m in MODULES if m in {module for _, module in at})
    return f"{len(at)} linear{'s' if len(at) > 1 else ''} ({kinds})"


def _parent(module: str) -> str:
    return "self_attn" if module in ATTENTION_MODULES else "mlp"


def _place(name: str) -> tuple[int, str, str, str] | None:
    """(layer, module, "A" or "B", the adapter's name or ""), None for another tensor."""
    parts = name.split(".")
    if not _WRAPPERS.isdisjoint(parts):
        name = ".".join(p for p in parts if p not in _WRAPPERS)
    match = _TENSOR.fullmatch(name)
    if match is None or match[3] not in MODULES or match[2] != _parent(match[3]):
        return None
    return int(match[1]), match[3], match[4], match[5] or ""


def _strange(
    names: Sequence[str],
    tensors: Mapping[str, TensorAt],
    options: PeftConfig,
    config: ModelConfig | None,
) -> str:
    """Why there are tensors that are no linear's A or B."""
    for sign, what in _SIGNS:
        for name in names:
            if re.search(sign, name[:1000]):
                told = what.format(vocab=_vocabulary(tensors[name].shape, config))
                return f"{shown(name)} is {told}"
    if len(names) == len(tensors):
        return (
            f"0 of its {len(tensors)} tensors are for a linear of this model (the first is "
            f"{shown(names[0])}): it was made for another architecture{_made_for(options)}"
        )
    return (
        f"tensor {shown(names[0])} is none of this model's, and there are {len(names)} such of "
        f"{len(tensors)}; supported are lora_A and lora_B of {', '.join(MODULES)}"
    )


def _vocabulary(shape: tuple[int, ...], config: ModelConfig | None) -> str:
    if config is not None and shape and shape[0] != config.vocab:
        return f"it has {shape[0]} rows and this base model {config.vocab}, a resized vocabulary"
    return f"it has shape {list(shape)}"


def _pair(at: tuple[int, str], both: Mapping[str, TensorAt], options: PeftConfig) -> Pair:
    layer, module = at
    where = f"layer {layer} {module}"
    if len(both) != 2:
        present, absent = ("A", "B") if "A" in both else ("B", "A")
        raise AdapterError(
            f"{where} has lora_{present} but no lora_{absent}: the save was not whole"
        )
    a, b = both["A"], both["B"]
    for side in (a, b):
        if not is_float(side):
            raise AdapterError(
                f"{shown(side.name)} is {side.dtype}, expected floats: save the LoRA in F32, F16 "
                "or BF16"
            )
        if len(side.shape) != 2 or 0 in side.shape:
            raise AdapterError(
                f"{where} has A {list(a.shape)} and B {list(b.shape)}, expected A [r, in] and "
                "B [out, r]: a shard of a parallel run was saved (gather the parameters first)"
            )
    rank = a.shape[0]
    if rank != b.shape[1]:
        raise AdapterError(
            f"{where}: A {list(a.shape)} has {rank} rows, B {list(b.shape)} has {b.shape[1]} "
            "columns; both must be the same rank"
        )
    name = full_name(layer, module)
    if (stated := options.rank_of(name)) != rank:
        raise AdapterError(
            f"{CONFIG_FILE} says rank {shown(stated)} for {name}, its tensors have rank {rank}: "
            "the two files are not of one save"
        )
    return Pair(layer, module, rank, options.scale_of(name, rank), a, b)


def _check_fit(pairs: Sequence[Pair], options: PeftConfig, config: ModelConfig) -> None:
    for p in pairs:
        if p.layer >= config.layers:
            layers = 1 + max(q.layer for q in pairs)
            raise AdapterError(
                f"{shown(p.a.name)} is for layer {p.layer}; this base model has {config.layers} "
                f"layers. It was made for a model of {layers} layers or more{_made_for(options)}"
            )
        out, width = config.module_shape(p.module)
        if p.out_width != (out, width):
            raise AdapterError(
                f"layer {p.layer} {p.module} has A {list(p.a.shape)} and B {list(p.b.shape)}; "
                f"this base model needs A [r, {width}] and B [{out}, r]. {_fits(pairs)}"
                f"{_made_for(options)}"
            )


def _fits(pairs: Sequence[Pair]) -> str:
    """The base model that the tensors are for, as far as their shapes tell."""
    widths: dict[str, int] = {}
    for p in pairs:
        out, width = p.out_width
        if p.module in ("down_proj", "o_proj"):
            widths["hidden"] = out
        else:
            widths["hidden"] = width
        if p.module in ("gate_proj", "up_proj"):
            widths["feed-forward"] = out
        elif p.module == "down_proj":
            widths["feed-forward"] = width
    sizes = ", ".join(f"{name} size {size}" for name, size in widths.items())
    layers = 1 + max(p.layer for p in pairs)
    return f"Its tensors fit a model of {sizes} and {layers} layers or more"


def _made_for(options: PeftConfig) -> str:
    if not options.base_model:
        return ""
    return f"; {CONFIG_FILE} says it was made for {shown(options.base_model)}"
