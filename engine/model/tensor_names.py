"""What a model's tensors are called and how large each is, by its config. Holds no tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from engine.errors import ModelError
from engine.model.config import ATTENTION_MODULES, MODULES, ModelConfig

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"
NORM_ATTENTION = "input_layernorm"
NORM_MLP = "post_attention_layernorm"
Q_NORM, K_NORM = "self_attn.q_norm", "self_attn.k_norm"


def layer_prefix(layer: int) -> str:
    return f"model.layers.{layer}."


def linear_name(layer: int, module: str) -> str:
    """A linear's name, to which `.weight` and `.bias` are added."""
    room = "self_attn" if module in ATTENTION_MODULES else "mlp"
    return f"{layer_prefix(layer)}{room}.{module}"


def layer_weight_names(layer: int) -> dict[str, str]:
    """Module -> name of its weight in layer `layer`."""
    return {m: f"{linear_name(layer, m)}.weight" for m in MODULES}


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor a model of this config has."""
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab, config.hidden),
        NORM: (config.hidden,),
    }
    if not config.tied:
        shapes[HEAD] = (config.vocab, config.hidden)
    for layer in range(config.layers):
        prefix = layer_prefix(layer)
        for norm in (NORM_ATTENTION, NORM_MLP):
            shapes[f"{prefix}{norm}.weight"] = (config.hidden,)
        if config.head_norms:
            for norm in (Q_NORM, K_NORM):
                shapes[f"{prefix}{norm}.weight"] = (config.head_dim,)
        for module in MODULES:
            out, width = config.module_shape(module)
            name = linear_name(layer, module)
            shapes[f"{name}.weight"] = (out, width)
            if module in config.biased:
                shapes[f"{name}.bias"] = (out,)
    return shapes


def check_tensors(
    where: str, config: ModelConfig, found: Mapping[str, tuple[int, ...]], source: str
) -> tuple[str, ...]:
    """The names in `found` (name -> shape) that the model does not need, sorted.

    `where` begins messages, `source` says what the shapes must agree with. Raises ModelError for a
    missing tensor, another shape, and a tensor inside the decoder that the config does not speak
    of: to leave it out would be another model.
    """
    if config.layers > len(found):  # or a damaged file would ask for a table without end
        first = next(n for i in count() for n in layer_weight_names(i).values() if n not in found)
        raise ModelError(
            f"{where}: tensor {first} is missing; {source} says {config.layers} layers"
        )
    expected = expected_shapes(config)
    if missing := [name for name in expected if name not in found]:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ModelError(f"{where}: tensor {missing[0]} is missing{more}")
    for name, shape in expected.items():
        if tuple(found[name]) != shape:
            raise ModelError(
                f"{where}: {name} has shape {tuple(found[name])}, {source} says {shape}"
            )
    extra = sorted(name for name in found if name not in expected and not _computed(name))
    for name in extra:
        if _inside(name, config.layers):
            raise ModelError(
                f"{where}: tensor {name} is there, but {source} does not speak of it: it would "
                "change what the model computes, so it is not left out"
            )
    return tuple(extra)


def told_extra(extra: Iterable[str]) -> str:
    """A sentence of tensors that are left out; "" where there are none."""
    names = list(extra)
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"left out, as the decoder has no use for them: {', '.join(names[:3])}{more}"


def _computed(name: str) -> bool:
    """Old files keep RoPE's frequencies, which are computed from the config."""
    return name.endswith(".rotary_emb.inv_freq")


def _inside(name: str, layers: int) -> bool:
    parts = name.split(".")
    if name in (HEAD, "lm_head.bias"):
        return name == "lm_head.bias"
    if parts[:2] == ["model", "layers"] and len(parts) > 2 and parts[2].isdecimal():
        return int(parts[2]) < layers
    return parts[:2] in (["model", "norm"], ["model", "embed_tokens"])
