"""Models named `hf:org/name[@revision]`: their files, through huggingface_hub and its cache.

Only configuration, safetensors and tokenizer files are ever fetched; nothing fetched is run. What
is in the cache whole is used as it is, without the network, so that every process of one serve
reads the same files. Imports no torch.
"""

from __future__ import annotations

import enum
import errno
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from engine.errors import ModelError

Progress = Callable[[str], None]
_T = TypeVar("_T")

PREFIX = "hf:"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
# Beside those two; a model that lacks one of them is whole without it.
_OPTIONAL = ("generation_config.json", "tokenizer_config.json", "chat_template.jinja")
_NAME = re.compile(r"(?!.*(?:--|\.\.))[\w.-]*\w/\w[\w.-]*\w|\w+/\w+", re.ASCII)
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]*", re.ASCII)
_MOST_NAME = 96
_TOLD_BYTES = 10_000_000
_CACHE = "set HF_HOME to another folder"


@dataclass(frozen=True, slots=True)
class HubName:
    repo: str
    revision: str = "main"

    def __str__(self) -> str:
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"{PREFIX}{self.repo}{at}"


class Absent(enum.Enum):
    """The model has no such file."""

    ABSENT = "absent"


class Hub(Protocol):
    """What is asked of a hub. Each raises ModelError, worded for who typed the name."""

    def cached(self, name: HubName, file: str) -> Path | Absent | None:
        """The path of a file in the cache, or that the model has none; None: not known."""
        ...

    def files(self, name: HubName) -> Mapping[str, int]:
        """File -> bytes of everything the model holds."""
        ...

    def fetch(self, name: HubName, file: str) -> Path | Absent:
        """Download a file into the cache, which also remembers that there is none."""
        ...


def is_hub_name(name: str) -> bool:
    return name.startswith(PREFIX)


def parse(name: str) -> HubName:
    """Raises ModelError for what is no `hf:org/name[@revision]`."""
    repo, at, revision = name.removeprefix(PREFIX).partition("@")
    odd = len(repo) > _MOST_NAME or not _NAME.fullmatch(repo) or repo.startswith(("-", "."))
    if odd or (at and not _REVISION.fullmatch(revision)):
        raise ModelError(
            f"model {name!r}: expected hf:org/name or hf:org/name@revision, "
            "for example hf:Qwen/Qwen2.5-0.5B-Instruct"
        )
    return HubName(repo, revision if at else "main")


def config_folder(name: str, progress: Progress | None = None, hub: Hub | None = None) -> Path:
    """The folder with a model's config.json, fetched where it is not cached.

    Raises ModelError, as `tokenizer_folder` and `model_folder` do, when the model is not found,
    gated, out of reach, or does not fit on the disk.
    """
    return _folder(name, (_CONFIG,), progress, hub)


def tokenizer_folder(name: str, progress: Progress | None = None, hub: Hub | None = None) -> Path:
    """The folder with config and tokenizer, without weights."""
    return _folder(name, (_CONFIG, _TOKENIZER), progress, hub)


def model_folder(name: str, progress: Progress | None = None, hub: Hub | None = None) -> Path:
    """The folder with everything `hf_folder` reads. `progress` is told what is fetched."""
    return _folder(name, (_CONFIG, _TOKENIZER), progress, hub, weights=True)


def missing_bytes(name: str, hub: Hub | None = None) -> int:
    """What `model_folder` would download; 0 when all of it is cached."""
    hub, parsed = hub or _HuggingFace(), parse(name)
    wanted = (_CONFIG, _TOKENIZER)
    if _cached_folder(hub, parsed, wanted, weights=True) is not None:
        return 0
    sizes = hub.files(parsed)
    files = [f for f in sizes if f in (*wanted, *_OPTIONAL) or _is_weights(f)]
    return sum(sizes[f] for f in files if not isinstance(hub.cached(parsed, f), Path))


def cache_place() -> Path:
    """Where files of a hub are kept."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _folder(
    typed: str,
    wanted: Sequence[str],
    progress: Progress | None,
    hub: Hub | None,
    weights: bool = False,
) -> Path:
    hub, name, say = hub or _HuggingFace(), parse(typed), progress or _silent
    found = _cached_folder(hub, name, wanted, weights)
    if found is not None and all(hub.cached(name, f) is not None for f in _OPTIONAL):
        return found
    try:
        sizes = hub.files(name)
    except ModelError as e:
        if found is None:
            raise
        say(f"{e}; going on with what is cached")
        return found
    folder = _fetch(hub, name, sizes, wanted, say)
    if not weights:
        return folder
    if INDEX in sizes:
        folder = _fetch(hub, name, sizes, (INDEX,), say, folder)
        return _fetch(hub, name, sizes, _shards(name, folder / INDEX), say, folder)
    if WEIGHTS not in sizes:
        kinds = sorted({Path(f).suffix for f in sizes} & {".bin", ".gguf", ".pth", ".safetensors"})
        held = f" (it holds {', '.join(kinds)} files)" if kinds else ""
        raise ModelError(f"{name}: there is no {WEIGHTS} in it{held}: only safetensors are read")
    return _fetch(hub, name, sizes, (WEIGHTS,), say, folder)


def _cached_folder(
    hub: Hub, name: HubName, wanted: Sequence[str], weights: bool = False
) -> Path | None:
    if weights:
        index = hub.cached(name, INDEX)
        wanted = (*wanted, *(_shards(name, index) if isinstance(index, Path) else (WEIGHTS,)))
    paths = [hub.cached(name, file) for file in wanted]
    folders = {path.parent for path in paths if isinstance(path, Path)}
    whole = all(isinstance(path, Path) for path in paths) and len(folders) == 1
    return folders.pop() if whole else None


def _fetch(
    hub: Hub,
    name: HubName,
    sizes: Mapping[str, int],
    wanted: Sequence[str],
    say: Progress,
    folder: Path | None = None,
) -> Path:
    """Fetch `wanted`, before them the optional files (with the first call). All must come from one
    revision."""
    for i, file in enumerate((*(() if folder else _OPTIONAL), *wanted)):
        if file not in sizes and file in wanted:
            raise ModelError(f"{name}: there is no {file} in it, and it is not served without")
        if sizes.get(file, 0) >= _TOLD_BYTES and not isinstance(hub.cached(name, file), Path):
            say(f"downloading {file} of {name} ({_size(sizes[file])}; {i + 1} of {len(wanted)})")
        path = hub.fetch(name, file)
        if isinstance(path, Absent):
            continue
        if folder is not None and path.parent != folder:
            raise ModelError(f"{name} was changed while it was downloaded: start again")
        folder = path.parent
    assert folder is not None
    return folder


def _shards(name: HubName, index: Path) -> Sequence[str]:
    try:
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if all(_is_weights(f) for f in files) and files:
            return files
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        files = []
    raise ModelError(f"{name}: {INDEX} is not an index of weight files")


def _is_weights(file: object) -> bool:
    """A safetensors file at the top, of transformers' own layout."""
    return (
        isinstance(file, str)
        and "/" not in file
        and file.endswith(".safetensors")
        and not file.startswith("consolidated")
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _silent(_: str) -> None:
    """Nobody listens."""


class _HuggingFace:
    """huggingface_hub, its own settings (HF_TOKEN, HF_HOME, HF_HUB_OFFLINE, proxies) in force."""

    def cached(self, name: HubName, file: str) -> Path | Absent | None:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name.repo, file, revision=name.revision)
        if found is None:
            return None
        return Path(found) if isinstance(found, str) else Absent.ABSENT

    def files(self, name: HubName) -> Mapping[str, int]:
        from huggingface_hub import HfApi

        def ask() -> Mapping[str, int]:
            info = HfApi().model_info(name.repo, revision=name.revision, files_metadata=True)
            return {s.rfilename: s.size or 0 for s in info.siblings or ()}

        return _worded(name, ask)

    def fetch(self, name: HubName, file: str) -> Path | Absent:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
        from huggingface_hub.utils import (  # type: ignore[attr-defined,unused-ignore]
            disable_progress_bars,
        )

        if not sys.stderr.isatty():  # a bar is for a terminal; what is large is told in words
            disable_progress_bars()

        def ask() -> Path | Absent:
            try:
                return Path(hf_hub_download(name.repo, file, revision=name.revision))
            except LocalEntryNotFoundError:
                raise
            except EntryNotFoundError:
                return Absent.ABSENT

        return _worded(name, ask)


def _worded(name: HubName, ask: Callable[[], _T]) -> _T:
    """`ask`, its errors in words of this program."""
    from huggingface_hub import errors as hub

    offline = f"{name} is not in the cache whole"
    # Its error's bases are the errors of the HTTP library it is built on; hf_xet's are plain.
    unreachable: tuple[type[Exception], ...] = (
        *hub.HfHubHTTPError.__bases__,
        OSError,
        RuntimeError,
    )
    try:
        return ask()
    except hub.GatedRepoError:
        raise ModelError(
            f"{name} is gated: accept its terms on the model's page, then set HF_TOKEN to a token "
            "of that account"
        ) from None
    except hub.RevisionNotFoundError:
        raise ModelError(f"{name.repo} has no revision {name.revision!r}") from None
    except hub.RepositoryNotFoundError:
        raise ModelError(
            f"{name} is not found: check the spelling; for a private model set HF_TOKEN"
        ) from None
    except hub.OfflineModeIsEnabled:
        raise ModelError(
            f"{offline}, and HF_HUB_OFFLINE forbids the network: unset it, or fetch the model once"
        ) from None
    except hub.LocalEntryNotFoundError as e:
        raise ModelError(_unreachable(offline, e)) from None
    except hub.HfHubHTTPError as e:
        raise ModelError(f"{name}: the hub refused ({_first_line(e)}): try again later") from None
    except unreachable as e:
        number = getattr(e, "errno", None)
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"{name}: the disk of the model cache is full: free space there, or {_CACHE}"
            ) from None
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ModelError(
                f"{name}: the model cache cannot be written ({_first_line(e)}): {_CACHE}"
            ) from None
        raise ModelError(_unreachable(offline, e)) from None


def _unreachable(offline: str, error: Exception) -> str:
    return f"{offline}, and the hub cannot be reached ({_first_line(error)}): check the network"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
