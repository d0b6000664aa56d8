"""The adapters that a worker serves, by name, while they come and go. Owns names; moves no bytes.

A name that was taken away can be resolved until its bytes have left, so that a request the front
let through a moment before does not fail.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.chronicle import KnownAdapter


@dataclass(frozen=True, slots=True)
class Placed:
    """An adapter of the pool: its content hash, and the pages it needs on the device."""

    key: str
    pages: int


class AdapterNames(Mapping[str, Placed]):
    """Any thread. `lock` is held by whoever resolves a name and hands the request over, so that
    no name changes in between."""

    def __init__(self, known: tuple[KnownAdapter, ...], folders: Mapping[str, str]) -> None:
        self.lock = threading.Lock()
        self._folders = dict(folders)  # of every name wanted, served or left out
        self._known = {a.name: a for a in known}
        self._late: dict[str, KnownAdapter] = {}

    def __getitem__(self, name: str) -> Placed:
        known = self._known.get(name) or self._late[name]
        return Placed(known.key, known.pages)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def known(self) -> tuple[KnownAdapter, ...]:
        """What is served now."""
        return tuple(self._known.values())

    def folder(self, name: str) -> str | None:
        """Where the name's adapter is read from, whether or not it could be."""
        return self._folders.get(name)

    def is_served(self, name: str) -> bool:
        return name in self._known

    def change(self, come: tuple[KnownAdapter, ...], folders: Mapping[str, str]) -> list[str]:
        """These come (or are other ones than before); names that are not in `folders` go. Returns
        the names that go."""
        with self.lock:
            known = dict(self._known)
            known.update({a.name: a for a in come})
            gone = [name for name in known if name not in folders]
            # One generation is enough: what left two changes ago is not on its way any more.
            self._late = {name: known.pop(name) for name in gone}
            self._known, self._folders = known, dict(folders)
        return gone
