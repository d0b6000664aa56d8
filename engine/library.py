"""Host copies of adapters: keeps those it is not told to drop, reads the others from their folders.

Decides nothing: residency says which copies go (`drop`). Keys are content hashes: a folder that
has changed since is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from engine.chronicle import KnownAdapter
from engine.errors import AdapterError
from engine.model.adapter_reader import AdapterReader
from engine.model.loaders import LoadedModel
from engine.scheduling.plan import HostAdapter

_LOOKED_AT = 8  # copies that wait for the word; others are read again when they are needed


class HostCopy(HostAdapter, Protocol):
    """An adapter that was read: `AdapterWeights`, or its shares of several ranks. `rank` is the
    LoRA's, the largest of its blocks."""

    @property
    def rank(self) -> int: ...

    @property
    def synthetic(self) -> bool: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...


def known_as(name: str, weights: HostCopy) -> KnownAdapter:
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

    `most` adapters and `most_bytes` bytes, in whole pages, bound the copies that `add` keeps, the
    last added ones: what residency keeps, too, when it is told of the adapters in the same order.
    """

    def __init__(
        self,
        model: LoadedModel,
        page_bytes: int,
        most: int,
        most_bytes: int | None = None,
        read: Callable[[Path], HostCopy] | None = None,
    ) -> None:
        """`read` makes a copy of a folder, by default the one that a runner of the whole model
        takes; it raises AdapterError when the folder is refused."""
        self._read = read or AdapterReader(model.config, model.dtype, page_bytes)
        self._most = most
        self._most_bytes = most_bytes
        self._page_bytes = page_bytes
        self._folders: dict[str, Path] = {}
        self._kept: dict[str, HostCopy] = {}
        self._looked_at: dict[str, tuple[Path, HostCopy]] = {}

    def add(self, folder: Path, most_pages: int | None = None) -> HostCopy:
        """Read a folder and make its key known; the same content again changes nothing. Raises
        AdapterError when the folder is refused, or needs more than `most_pages` (None: any)."""
        weights = self._read(folder)
        if most_pages is not None and weights.pages > most_pages:
            raise AdapterError(
                f"it needs {weights.pages} pages, and adapters may take {most_pages} of this pool: "
                "make limits.pool_bytes larger, or its rank smaller"
            )
        if weights.key not in self._folders:
            self._folders[weights.key] = folder
            self._kept[weights.key] = weights
            while self._over():
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

    def fetch(self, key: str) -> HostCopy:
        """The host copy of a key, kept from now on; read from its folder when there is none.
        Raises AdapterError when the folder is not what it was."""
        weights = self._kept.get(key)
        if weights is None:
            weights = self._kept[key] = self.peek(key)
        return weights

    def peek(self, key: str) -> HostCopy:
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

    def _over(self) -> bool:
        held = sum(w.pages for w in self._kept.values()) * self._page_bytes
        most_bytes = self._most_bytes
        return len(self._kept) > self._most or (most_bytes is not None and held > most_bytes)

    @property
    def kept(self) -> tuple[str, ...]:
        """Keys of the copies in memory."""
        return tuple(self._kept)
