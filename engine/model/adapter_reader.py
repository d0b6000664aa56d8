"""Reads adapter folders of one base model, an unchanged one again in a fraction of the time.

Owns what is kept of folders that were read (`engine.model.adapter_again`), within a bound; keeps no
adapter's bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.model.adapter_again import Recipe, read_again
from engine.model.config import ModelConfig
from engine.model.lora import AdapterWeights, read_new

if TYPE_CHECKING:
    import torch

MOST_RECIPES = 1024  # of about 50 kB each for a model of 30 layers


class AdapterReader:
    """One worker's. Any thread may call; two of them read side by side."""

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        page_bytes: int,
        *,
        most_recipes: int = MOST_RECIPES,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """See `read_adapter`. `wall_s`: Unix time."""
        self._config = config
        self._dtype = dtype
        self._page_bytes = page_bytes
        self._most = most_recipes
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._recipes: dict[Path, Recipe] = {}  # in order of use
        self.parsed = 0  # folders that were read whole: parsed, checked, hashed
        self.repeated = 0  # and those that were known

    def __call__(self, folder: Path) -> AdapterWeights:
        """The adapter of a folder as it is now. Raises AdapterError when it is refused."""
        with self._lock:
            recipe = self._recipes.pop(folder, None)
        weights = None if recipe is None else read_again(folder, recipe)
        is_known = weights is not None
        if weights is None:
            weights, recipe = read_new(
                folder, self._config, self._dtype, self._page_bytes, self._wall_s
            )
        with self._lock:
            self.parsed += not is_known
            self.repeated += is_known
            if recipe is not None:
                self._recipes[folder] = recipe
                if len(self._recipes) > self._most:
                    del self._recipes[next(iter(self._recipes))]
        return weights
