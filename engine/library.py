"""Host copies of adapters: keeps those it is not told to drop, reads the others from their folders.

Decides nothing: residency says which copies go (`drop`). Keys are content hashes: a folder that
has changed since is refused.
"""

from __future__ import annotations

from pathlib import Path

from engine.chronicle import KnownAdapter
from engine.errors import AdapterError
from engine.model.loaders import LoadedModel
from engine.model.lora import AdapterWeights, read_adapter

_LOOKED_AT = 8  # copies that wait for the word; others are read again when they are needed


def known_as(name: str, weights: AdapterWeights) -> KnownAdapter:
    """An adapter as the core needs it, under this name."""
    return KnownAdapter(
        weights.key,
        name,
        weights.pages,
        weights.device_bytes,
        weights.rank,
        weights.synthetic,
        weights.warnings,
    )


class AdapterLibrary:
    """One worker's. `add` at the start, on one thread; then `fetch` on the loader's threads and
    `drop` on the core's: single dict operations, which need no lock between them.

    `most` bounds the copies that `add` keeps, the last added ones: what residency keeps, too, when
    it is told of the adapters in the same order.
    """

    def __init__(self, model: LoadedModel, page_bytes: int, most: int) -> None:
        self._model = model
        self._page_bytes = page_bytes
        self._most = most
        self._folders: dict[str, Path] = {}
        self._kept: dict[str, AdapterWeights] = {}
        self._looked_at: dict[str, tuple[Path, AdapterWeights]] = {}

    def add(self, folder: Path) -> AdapterWeights:
        """Read a folder and make its key known; the same content again changes nothing. Raises
        AdapterError when the folder is refused."""
        weights = self._read(folder)
        if weights.key not in self._folders:
            self._folders[weights.key] = folder
            self._kept[weights.key] = weights
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return weights

    def look_at(self, name: str, folder: Path) -> KnownAdapter:
        """Read and check a folder while the worker serves; nothing is served from it before
        `keep`. One thread at a time. Raises AdapterError when the folder is refused."""
        weights = self._read(folder)
        self._looked_at[weights.key] = (folder, weights)
        if len(self._looked_at) > _LOOKED_AT:
            del self._looked_at[next(iter(self._looked_at))]
        return known_as(name, weights)

    def keep(self, known: KnownAdapter, folder: Path) -> None:
        """What was looked at is to be served, from this folder from now on."""
        _, weights = self._looked_at.pop(known.key, (folder, None))
        self._folders[known.key] = folder
        if weights is not None:
            self._kept[known.key] = weights

    def fetch(self, key: str) -> AdapterWeights:
        """The host copy of a key, kept from now on; read from its folder when there is none.
        Raises AdapterError when the folder is not what it was."""
        weights = self._kept.get(key)
        if weights is None:
            weights = self._kept[key] = self.peek(key)
        return weights

    def peek(self, key: str) -> AdapterWeights:
        """As `fetch`; a copy that had to be read is not kept."""
        weights = self._kept.get(key)
        if weights is not None:
            return weights
        folder = self._folders[key]
        weights = self._read(folder)
        if weights.key != key:
            raise AdapterError(
                f"{folder}: the adapter's content has changed since it was loaded; "
                "give the new one a name of its own"
            )
        return weights

    def drop(self, key: str) -> None:
        """The copy is not kept any longer. No error when there is none."""
        self._kept.pop(key, None)

    @property
    def kept(self) -> tuple[str, ...]:
        """Keys of the copies in memory."""
        return tuple(self._kept)

    def _read(self, folder: Path) -> AdapterWeights:
        return read_adapter(folder, self._model.config, self._model.dtype, self._page_bytes)
