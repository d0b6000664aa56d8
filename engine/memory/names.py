"""What adapters are called: name -> content hash. Identity is the hash; the name is a label.

Knows no pages and no files. A name that comes with other bytes names a new adapter from then on;
the old one is to be unloaded when no other name means it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Registered:
    """A name and what it means now. `version` counts the contents it has had. `replaced`: the key
    that no name means any more, to be unloaded; None when there is none."""

    name: str
    key: str
    version: int
    replaced: str | None = None


class AdapterNames:
    """One worker's names."""

    def __init__(self) -> None:
        self._by_name: dict[str, Registered] = {}
        self._names: dict[str, dict[str, None]] = {}  # key -> its names
        self._versions: dict[str, int] = {}  # of names that are gone, too

    def register(self, name: str, key: str) -> Registered:
        """From now on the name means this key. The same key again changes nothing."""
        known = self._by_name.get(name)
        if known is not None and known.key == key:
            return known
        replaced = self.remove(name)
        version = self._versions.get(name, 0) + 1
        self._versions[name] = version
        self._by_name[name] = now = Registered(name, key, version)
        self._names.setdefault(key, {})[name] = None
        return Registered(name, key, version, replaced) if replaced is not None else now

    def remove(self, name: str) -> str | None:
        """The name means nothing any more. Returns the key to unload: None when there was no such
        name, or another one still means its key."""
        known = self._by_name.pop(name, None)
        if known is None:
            return None
        names = self._names[known.key]
        del names[name]
        if names:
            return None
        del self._names[known.key]
        return known.key

    def key(self, name: str) -> str | None:
        known = self._by_name.get(name)
        return None if known is None else known.key

    def version(self, name: str) -> int:
        """How many different contents the name has had; 0 = it is not known."""
        known = self._by_name.get(name)
        return 0 if known is None else known.version

    def names(self, key: str) -> tuple[str, ...]:
        """In the order they were given."""
        return tuple(self._names.get(key, ()))
