"""A model's weights on another device. Moves tensors; computes nothing."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.model.loaders import LoadedModel
from engine.model.weights import Weights


def placed(model: LoadedModel, device: torch.device) -> LoadedModel:
    """The model with its weights there; the one that was given stays as it is. Where they are there
    already, it is the one that was given."""
    if next(iter(model.weights.values())).device.type == device.type:
        return model
    weights = Weights(model.config, model.dtype)
    with device:  # what `put` makes room for a tensor in
        for name, tensor in model.weights.items():
            weights.put(name, tensor)
    return replace(model, weights=weights)
