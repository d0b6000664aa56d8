"""Cuts a model in memory to one rank's part. Reads no file; joins nothing."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.model.config import MODULES
from engine.model.loaders import LoadedModel
from engine.model.tensor_names import HEAD, linear_name
from engine.model.weights import Weights
from engine.parallel.cut import BY_INPUT, Cut


def cut_model(model: LoadedModel, cut: Cut) -> LoadedModel:
    """A copy of rank `cut.rank`'s part, under the model's own name and hash.

    Cut are the linears of the layers (`engine.parallel.cut`). Embedding and norms are every rank's;
    an output head of its own (an untied one) is rank 0's alone, which chooses the tokens. A bias
    that is added after the sum is rank 0's too, or it would be added once a rank.

    Raises ConfigError for a model that cannot be cut so.
    """
    config = cut.config(model.config)
    weights = Weights(config, model.dtype)
    linears = {
        f"{linear_name(layer, module)}.{kind}": (module, kind)
        for layer in range(config.layers)
        for module in MODULES
        for kind in ("weight", "bias")
    }
    for name, tensor in model.weights.items():
        if name == HEAD and cut.rank > 0:
            continue
        if name in linears:
            tensor = _part(tensor, *linears[name], cut)
        weights.put(name, tensor)
    return replace(model, config=config, weights=weights)


def _part(tensor: torch.Tensor, module: str, kind: str, cut: Cut) -> torch.Tensor:
    """weight [out, in], bias [out]."""
    if module not in BY_INPUT:
        return tensor[cut.part(len(tensor))]
    if kind == "bias":
        return tensor if cut.rank == 0 else torch.zeros_like(tensor)
    return tensor[:, cut.part(tensor.shape[1])]
