"""The pool: fixed byte-pages of one arena, who holds them, and one free list.

Owns page numbers and their holders; never touches bytes, requests or queues. A page is held
either by a sequence's KV (charged to its tenant) or by an adapter (charged, in equal parts, to
the tenants with a running reference to it; to nobody when there is none).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Short:
    """Why pages were not given: `missing` more would have been needed."""

    missing: int


@dataclass(slots=True)
class _Adapter:
    pages: tuple[int, ...]
    references: dict[str, int] = field(default_factory=dict)  # tenant -> running sequences


@dataclass(frozen=True, slots=True)
class Holdings:
    """Bytes of the arena by holder. kv + adapters + cached + free = the arena."""

    kv: dict[str, int]
    adapters: dict[str, float]  # referenced adapter bytes, shared ones in equal parts
    cached: int  # adapters with no running reference
    free: int

    def by_tenant(self) -> dict[str, float]:
        total: dict[str, float] = {t: float(b) for t, b in self.kv.items()}
        for tenant, held in self.adapters.items():
            total[tenant] = total.get(tenant, 0.0) + held
        return total


class PagePool:
    """One allocator for KV and adapters. Taking and giving back are O(pages moved)."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        if pages < 1 or page_bytes < 1:
            raise ValueError(f"a pool needs pages and bytes, got {pages} x {page_bytes}")
        self.pages = pages
        self.page_bytes = page_bytes
        self._free = list(range(pages - 1, -1, -1))
        self._kv: dict[str, int] = {}  # tenant -> pages
        self._adapters: dict[str, _Adapter] = {}

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def try_take_kv(self, tenant: str, count: int) -> list[int] | Short:
        """`count` pages for a sequence of `tenant`, or how many are missing. All or nothing."""
        pages = self._try_take(count)
        if isinstance(pages, list) and pages:
            self._kv[tenant] = self._kv.get(tenant, 0) + count
        return pages

    def give_back_kv(self, tenant: str, pages: Sequence[int]) -> None:
        if not pages:
            return
        left = self._kv[tenant] - len(pages)
        if left < 0:
            raise ValueError(f"{tenant!r} gives back {len(pages)} pages more than it holds")
        if left:
            self._kv[tenant] = left
        else:
            del self._kv[tenant]
        self._free.extend(pages)

    def try_take_adapter(self, key: str, count: int) -> list[int] | Short:
        if key in self._adapters:
            raise ValueError(f"adapter {key} holds pages already")
        pages = self._try_take(count)
        if isinstance(pages, list):
            self._adapters[key] = _Adapter(tuple(pages))
        return pages

    def give_back_adapter(self, key: str) -> int:
        """Free an adapter's pages; returns their count. Raises when a sequence still uses it."""
        entry = self._adapters[key]
        if entry.references:
            raise ValueError(f"adapter {key} is in use by {sorted(entry.references)}")
        del self._adapters[key]
        self._free.extend(entry.pages)
        return len(entry.pages)

    def adapter_pages(self, key: str) -> tuple[int, ...]:
        return self._adapters[key].pages

    def refer(self, key: str, tenant: str) -> None:
        references = self._adapters[key].references
        references[tenant] = references.get(tenant, 0) + 1

    def release(self, key: str, tenant: str) -> None:
        references = self._adapters[key].references
        references[tenant] -= 1
        if not references[tenant]:
            del references[tenant]

    def references(self, key: str) -> int:
        entry = self._adapters.get(key)
        return sum(entry.references.values()) if entry else 0

    def holdings(self) -> Holdings:
        size = self.page_bytes
        adapters: dict[str, float] = {}
        cached = 0
        for entry in self._adapters.values():
            held = len(entry.pages) * size
            if not entry.references:
                cached += held
                continue
            part = held / len(entry.references)
            for tenant in entry.references:
                adapters[tenant] = adapters.get(tenant, 0.0) + part
        kv = {t: n * size for t, n in self._kv.items()}
        return Holdings(kv, adapters, cached, len(self._free) * size)

    def check_integrity(self) -> None:
        """Every page is in exactly one place. Raises ValueError naming the first that is not."""
        seen = set(self._free)
        if len(seen) != len(self._free):
            raise ValueError("a page stands in the free list twice")
        for key, entry in self._adapters.items():
            overlap = seen.intersection(entry.pages)
            if overlap:
                raise ValueError(f"pages {sorted(overlap)[:4]} of adapter {key} are held twice")
            seen.update(entry.pages)
        held = self.pages - len(seen)
        booked = sum(self._kv.values())
        if held != booked:
            raise ValueError(f"KV books say {booked} pages, the pool is short of {held}")

    def _try_take(self, count: int) -> list[int] | Short:
        if count > len(self._free):
            return Short(count - len(self._free))
        if count == 0:
            return []
        pages = self._free[-count:]
        del self._free[-count:]
        return pages
