"""Where a worker's operator reads adapters from. Owns no bytes: the library keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.chronicle import KnownAdapter
from engine.errors import AdapterError


class Shelf(Protocol):
    """Reads adapters' folders and keeps them ready for the device."""

    def read(self, name: str, folder: Path) -> KnownAdapter:
        """Raises AdapterError when the folder is refused, or too large for the pool."""
        ...

    def keep(self, known: KnownAdapter, folder: Path) -> None:
        """What was read is to be served, from this folder."""
        ...


class LibraryShelf:
    """A shelf over the worker's library: what is read is kept only when it is to be served."""

    def __init__(self, library: Library, most_pages: int) -> None:
        self._library = library
        self._most_pages = most_pages

    def read(self, name: str, folder: Path) -> KnownAdapter:
        known = self._library.look_at(name, folder)
        if known.pages > self._most_pages:
            raise AdapterError(
                f"adapter {name!r} needs {known.pages} pages, and adapters may take "
                f"{self._most_pages} of this pool: make limits.pool_bytes larger"
            )
        return known

    def keep(self, known: KnownAdapter, folder: Path) -> None:
        self._library.keep(known, folder)


class Library(Protocol):
    """See `engine.library.AdapterLibrary`."""

    def look_at(self, name: str, folder: Path) -> KnownAdapter: ...
    def keep(self, known: KnownAdapter, folder: Path) -> None: ...
