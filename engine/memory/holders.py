"""Who may hold a page, and the counting and checking of all pages afresh. Pure; changes nothing.

The pool keeps running books; what stands here goes through every page, so that the books can be
held against it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.memory.books import Parts


class Of(enum.Enum):
    """Holders of a page that are no tenant. Not strings: a tenant may be called anything."""

    PREFIX = "prefix"
    ADAPTER = "adapter"


Holder = str | Of | None  # a tenant's own KV; shared; free


@dataclass(slots=True)
class HeldAdapter:
    """An adapter's pages, and the running sequences that refer to it, by tenant."""

    pages: tuple[int, ...]
    references: dict[str, int] = field(default_factory=dict)
    count: int = 0  # of all references


@dataclass(frozen=True, slots=True)
class Holdings:
    """Bytes of the arena by holder. kv + adapters + cached + free = the arena."""

    kv: dict[str, float]  # own pages, and shared ones in equal parts
    adapters: dict[str, float]  # referenced adapters, shared ones in equal parts
    cached: int  # adapters and prefix pages to which nobody refers
    free: int

    def by_tenant(self) -> dict[str, float]:
        total = dict(self.kv)
        for tenant, held in self.adapters.items():
            total[tenant] = total.get(tenant, 0.0) + held
        return total


def count_holdings(
    holders: Sequence[Holder],
    shared: Mapping[int, Mapping[str, int]],
    adapters: Mapping[str, HeldAdapter],
    parts: Parts,
    page_bytes: int,
) -> Holdings:
    """Holdings by going through all pages. `shared`: prefix page -> tenant -> references."""
    kv: dict[str, float] = {}
    held: dict[str, float] = {}
    cached = free = 0
    for holder in holders:
        if isinstance(holder, str):
            kv[holder] = kv.get(holder, 0.0) + page_bytes
        free += holder is None
    for references in shared.values():
        cached += not references
        for tenant in references:
            kv[tenant] = kv.get(tenant, 0.0) + parts[len(references)]
    for entry in adapters.values():
        if not entry.references:
            cached += len(entry.pages)
        part = parts[len(entry.references)] * len(entry.pages)
        for tenant in entry.references if part else ():
            held[tenant] = held.get(tenant, 0.0) + part
    return Holdings(kv, held, cached * page_bytes, free * page_bytes)


def check_places(
    holders: Sequence[Holder],
    shared: Mapping[int, Mapping[str, int]],
    adapters: Mapping[str, HeldAdapter],
    free: Sequence[int],
) -> tuple[int, int]:
    """Pages held by KV and by adapters. Raises ValueError unless every page is in exactly one
    place and is marked as what it is."""
    place: list[Holder] = [h if isinstance(h, str) else None for h in holders]
    for page in shared:
        if place[page] is not None:
            raise ValueError(f"page {page} of the prefix cache is held by {place[page]!r} too")
        place[page] = Of.PREFIX
    held = 0
    for key, entry in adapters.items():
        if entry.count != sum(entry.references.values()):
            raise ValueError(f"adapter {key}: {entry.count} references booked, others listed")
        for page in entry.pages:
            if place[page] is not None:
                raise ValueError(f"page {page} of adapter {key} is held by {place[page]!r} too")
            place[page] = Of.ADAPTER
        held += len(entry.pages)
    for page, (found, marked) in enumerate(zip(place, holders, strict=True)):
        if found != marked:
            raise ValueError(f"page {page} is held by {found!r}, but marked as {marked!r}")
    unheld = place.count(None)
    if len(set(free)) != len(free):
        raise ValueError("a page stands in the free list twice")
    for page in free:
        if place[page] is not None:
            raise ValueError(f"page {page} is free, and held by {place[page]!r}")
    if len(free) != unheld:
        raise ValueError(f"{unheld} pages are held by nobody, {len(free)} are in the free list")
    return len(place) - unheld - held, held


def check_books(what: str, counted: Mapping[str, float], booked: Mapping[str, float]) -> None:
    """Raises ValueError naming a tenant whose running books differ from what was counted."""
    if counted != booked:
        tenant = min(t for t, _ in counted.items() ^ booked.items())
        raise ValueError(
            f"the books say {booked.get(tenant, 0.0)} {what} bytes of {tenant!r}, its pages say "
            f"{counted.get(tenant, 0.0)}"
        )
