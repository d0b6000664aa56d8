"""The adapters that one core serves, by name. Owns which content each name means; moves no byte.

Names are the operator's, contents the residency's: one content may have several names, and stays
as long as one of them does.
"""

from __future__ import annotations

from engine.chronicle import Chronicle, KnownAdapter
from engine.scheduling.scheduler import Scheduler


class ServedAdapters:
    """`known` in the order in which they came."""

    def __init__(self, adapters: tuple[KnownAdapter, ...], chronicle: Chronicle) -> None:
        self.known = adapters
        self._by_name = {a.name: a for a in adapters}
        self._chronicle = chronicle

    def key_of(self, name: str) -> str | None:
        """Content hash of a named adapter; None when no such adapter is known."""
        known = self._by_name.get(name)
        return known.key if known else None

    def take_in(self, known: KnownAdapter, scheduler: Scheduler) -> None:
        """An adapter is served from now on, under its name. Within `between_steps`."""
        was = self._by_name.get(known.name)
        scheduler.orders.take_in(known.key, known.pages)
        self.known = (*(a for a in self.known if a.name != known.name), known)
        self._by_name = {a.name: a for a in self.known}
        self._chronicle.adapter(known)
        if was is not None:
            self._leave_if_nameless(was.key, scheduler)

    def let_leave(self, name: str, scheduler: Scheduler) -> None:
        """The name is no adapter's any more; its bytes go when no request needs them and no other
        name is theirs. Within `between_steps`."""
        gone = self._by_name.pop(name, None)
        self.known = tuple(a for a in self.known if a.name != name)
        if gone is not None:
            self._leave_if_nameless(gone.key, scheduler)

    def _leave_if_nameless(self, key: str, scheduler: Scheduler) -> None:
        if all(a.key != key for a in self.known):
            scheduler.orders.let_leave(key)
