"""Reads the weights of a Hugging Face folder: safetensors, whole or in shards. Knows no tokenizer.

The headers are checked before a weight is read, so that an unfit folder is refused at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.errors import ModelError
from engine.model.config import ModelConfig
from engine.model.tensor_names import EMBEDDING, HEAD, check_tensors, expected_shapes, told_extra
from engine.model.weights import Weights

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_LFS = b"version https://git-lfs"
_FLOATS = {"F64", "F32", "F16", "BF16"}
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth")


def read_folder(
    folder: Path, config: ModelConfig, dtype: torch.dtype, say: Callable[[str], None]
) -> tuple[ModelConfig, Weights, str]:
    """Config (with `tied` as the weights have it), weights and the content's sha256 (hex).

    Raises ModelError naming the file and what is wrong with it.
    """
    where = f"model {str(folder)!r}"
    with ExitStack() as open_files:
        files = [(p, open_files.enter_context(_opened(p))) for p in _weight_files(folder)]
        places = _places(where, files)
        config = _tied(where, config, places)
        shapes = {n: tuple(f.get_slice(n).get_shape()) for n, f in places.items()}
        extra = check_tensors(where, config, shapes, "config.json")
        if told := told_extra(n for n in extra if n != HEAD):
            say(f"{where}: {told}")
        weights = Weights(config, dtype)
        for name in expected_shapes(config):
            _check_type(where, name, places[name].get_slice(name).get_dtype())
            weights.put(name, places[name].get_tensor(name))
    digest = hashlib.sha256(repr(config).encode())
    for path, _ in files:
        with path.open("rb") as f:
            digest.update(hashlib.file_digest(f, "sha256").digest())
    return config, weights, digest.hexdigest()


def read_whole(path: Path, config: ModelConfig, dtype: torch.dtype) -> Weights:
    """The weights of one safetensors file that holds just a model's tensors. Raises ModelError."""
    weights = Weights(config, dtype)
    with _opened(path) as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            weights.put(name, file.get_tensor(name))
    return weights


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if not index.is_file():
        return [_one_file(folder)]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ModelError(f"{index}: not an index of weight files ({e})") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or "\0" in name:
            raise ModelError(f"{index}: {name!r} is not a file of this folder")
    if not names:
        raise ModelError(f"{index}: it names no weight files")
    return [folder / n for n in names]


def _one_file(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.exists():
        for pickle in _PICKLES:
            if (folder / pickle).exists():
                raise ModelError(
                    f"model {str(folder)!r}: its weights are pickles ({pickle}), which can run "
                    f"code and are never opened; save them as {WEIGHTS} with transformers' "
                    "save_pretrained"
                )
    return path


def _opened(path: Path) -> Any:
    # Imported here: a bare machine with torch alone runs made weights through the same decoder.
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as f:
            if f.read(len(_LFS)) == _LFS:
                raise ModelError(
                    f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in the "
                    "folder, or download the file itself"
                )
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as e:
        raise ModelError(f"{path}: cannot be read ({e})") from None


def _places(where: str, files: list[tuple[Path, Any]]) -> dict[str, Any]:
    """Tensor name -> the open file it is in."""
    places: dict[str, Any] = {}
    for path, file in files:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            if name in places:
                raise ModelError(f"{where}: {name} is in {path.name} and in another of its files")
            places[name] = file
    return places


def _tied(where: str, config: ModelConfig, places: Mapping[str, Any]) -> ModelConfig:
    """A head that is not there is the embedding; one that is there beside `tied` must equal it."""
    if HEAD not in places:
        return replace(config, tied=True)
    if config.tied and EMBEDDING in places:
        head, embedding = places[HEAD].get_tensor(HEAD), places[EMBEDDING].get_tensor(EMBEDDING)
        if not torch.equal(head, embedding):
            raise ModelError(
                f"{where}: config.json says tie_word_embeddings, yet {HEAD} differs from "
                f"{EMBEDDING}: set it to false, or remove {HEAD}"
            )
    return config


def _check_type(where: str, name: str, kind: str) -> None:
    if kind in _FLOATS:
        return
    why = "expected floats" if not kind.startswith("F8") else "quantised models are not served"
    raise ModelError(f"{where}: {name} is {kind}; {why}")
