"""The pool: fixed byte-pages of one arena, who holds them, and one free list.

Owns page numbers and their holders; never touches bytes, requests or queues. A page is free, or a
sequence's own KV (charged to its tenant), or KV of the prefix cache, or an adapter's; the last two
are charged, in equal parts, to the tenants that refer to them now, and to nobody when none does.
Of the arena `kv_floor_pages` are never taken by adapters, `adapter_floor_pages` never by KV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.memory.books import Books, Listener, Parts
from engine.memory.holders import (
    HeldAdapter,
    Holdings,
    Of,
    check_books,
    check_places,
    count_holdings,
)


@dataclass(frozen=True, slots=True)
class Short:
    """Why pages were not given: `missing` more would have been needed."""

    missing: int


class PagePool:
    """One allocator for KV and adapters. Taking and giving back are O(pages moved).

    `listener` is told of every change of what a tenant holds; it may be set later, as long as
    nothing is held. Raises ValueError for sizes and floors that cannot be.
    """

    def __init__(
        self,
        pages: int,
        page_bytes: int,
        *,
        kv_floor_pages: int = 0,
        adapter_floor_pages: int = 0,
        listener: Listener | None = None,
    ) -> None:
        if pages < 1 or page_bytes < 1:
            raise ValueError(f"a pool needs pages and bytes, got {pages} x {page_bytes}")
        if min(kv_floor_pages, adapter_floor_pages) < 0 or (
            kv_floor_pages + adapter_floor_pages > pages
        ):
            raise ValueError(
                f"floors of {kv_floor_pages} (KV) and {adapter_floor_pages} (adapters) pages do "
                f"not fit a pool of {pages}: lower them"
            )
        self.pages = pages
        self.page_bytes = page_bytes
        self.kv_floor_pages = kv_floor_pages
        self.adapter_floor_pages = adapter_floor_pages
        self._kv_cap = pages - adapter_floor_pages
        self._adapter_cap = pages - kv_floor_pages
        self._free = list(range(pages - 1, -1, -1))
        self._holder: list[str | Of | None] = [None] * pages
        self._shared: dict[int, dict[str, int]] = {}  # prefix page -> tenant -> references
        self._adapters: dict[str, HeldAdapter] = {}
        self._kv_used = 0  # private and prefix pages
        self._adapter_used = 0
        self._cached = 0  # prefix and adapter pages to which nobody refers
        self._parts = Parts(page_bytes, pages * page_bytes)
        self._page_size = float(page_bytes)
        self._books = Books(listener)
        self._stamps = 0

    @classmethod
    def of_bytes(
        cls, pool_bytes: int, page_bytes: int, kv_floor_bytes: int = 0, adapter_floor_bytes: int = 0
    ) -> PagePool:
        """As many whole pages as `pool_bytes` hold; floors are rounded up to whole pages."""
        return cls(
            pool_bytes // page_bytes,
            page_bytes,
            kv_floor_pages=-(-kv_floor_bytes // page_bytes),
            adapter_floor_pages=-(-adapter_floor_bytes // page_bytes),
        )

    # -- questions, all O(1)

    @property
    def listener(self) -> Listener | None:
        return self._books.listener

    @listener.setter
    def listener(self, listener: Listener | None) -> None:
        if list(self.holders()):
            raise ValueError("somebody holds pages already: a new listener would not know of it")
        self._books.listener = listener

    @property
    def free_pages(self) -> int:
        return len(self._free)

    @property
    def room_for_kv(self) -> int:
        """Pages that KV may take now: free, and not of the adapters' floor."""
        return min(len(self._free), self._kv_cap - self._kv_used)

    @property
    def room_for_adapters(self) -> int:
        """Pages that adapters may take now: free, and not of the KV's floor."""
        return min(len(self._free), self._adapter_cap - self._adapter_used)

    @property
    def adapters(self) -> int:
        """Adapters that hold pages, loading ones included."""
        return len(self._adapters)

    @property
    def most_adapter_pages(self) -> int:
        """Pages that adapters may ever hold together: all but the KV's floor."""
        return self._adapter_cap

    @property
    def below_kv_cap(self) -> int:
        """Pages by which KV may still grow if all others made way."""
        return self._kv_cap - self._kv_used

    @property
    def below_adapter_cap(self) -> int:
        """Pages by which adapters may still grow if all others made way."""
        return self._adapter_cap - self._adapter_used

    @property
    def unused_floor_bytes(self) -> int:
        """Free bytes that one of the two kinds may not take because of the other's floor."""
        kv = max(0, self.kv_floor_pages - self._kv_used)
        return (kv + max(0, self.adapter_floor_pages - self._adapter_used)) * self.page_bytes

    @property
    def free_bytes(self) -> int:
        return len(self._free) * self.page_bytes

    @property
    def cached_bytes(self) -> int:
        """Bytes of adapters and prefix pages to which nobody refers."""
        return self._cached * self.page_bytes

    def held_bytes(self, tenant: str) -> float:
        """KV and adapter bytes charged to a tenant now."""
        return self._books.held(tenant)

    def holders(self) -> Iterable[str]:
        """Tenants that hold bytes now."""
        return self._books.holders()

    def stamp(self) -> int:
        """A number larger than all before: the order in which adapters and prefix pages went out
        of use, on one scale."""
        self._stamps += 1
        return self._stamps

    # -- KV of one sequence

    def try_take_kv(self, tenant: str, count: int) -> list[int] | Short:
        """`count` pages for a sequence of `tenant`, or how many are missing. All or nothing."""
        free, holder = self._free, self._holder
        if count == 1 and free and self._kv_used < self._kv_cap:
            page = free.pop()
            holder[page] = tenant
            self._kv_used += 1
            self._books.book_kv(tenant, self._page_size)
            return [page]
        if count == 0:
            return []
        if count > (room := self.room_for_kv):
            return Short(count - room)
        pages = free[-count:]
        del free[-count:]
        for page in pages:
            holder[page] = tenant
        self._kv_used += count
        self._books.book_kv(tenant, self._page_size * count)
        return pages

    def give_back_kv(self, tenant: str, pages: Sequence[int]) -> None:
        """Free private pages. Raises ValueError, and frees none, when one is not the tenant's."""
        if not pages:
            return
        holder = self._holder
        for i, page in enumerate(pages):
            if holder[page] != tenant:
                for given in pages[:i]:
                    holder[given] = tenant
                raise ValueError(f"{tenant!r} gives back page {page}, which is not its own")
            holder[page] = None
        self._kv_used -= len(pages)
        self._free.extend(pages)
        self._books.book_kv(tenant, -self._page_size * len(pages))

    # -- KV pages of the prefix cache

    def share_kv(self, tenant: str, pages: Sequence[int]) -> None:
        """Private pages of `tenant` become the prefix cache's, referred to by it once."""
        for page in pages:
            if self._holder[page] != tenant:
                raise ValueError(f"{tenant!r} shares page {page}, which is not its own")
            self._holder[page] = Of.PREFIX
            self._shared[page] = {tenant: 1}

    def refer_kv(self, tenant: str, pages: Sequence[int]) -> None:
        """One more sequence of `tenant` uses these prefix pages."""
        shared, parts = self._shared, self._parts
        gained = 0.0
        changes: dict[str, float] = {}
        for page in pages:
            references = shared[page]
            count = references.get(tenant, 0)
            if count:
                references[tenant] = count + 1
                continue
            others = len(references)
            part = parts[others + 1]
            if others:
                less = part - parts[others]
                for other in references:
                    changes[other] = changes.get(other, 0.0) + less
            else:
                self._cached -= 1
            references[tenant] = 1
            gained += part
        if gained:
            self._books.book_kv(tenant, gained)
        for other, by in changes.items():
            self._books.book_kv(other, by)

    def release_kv(self, tenant: str, pages: Sequence[int]) -> list[int]:
        """A sequence of `tenant` uses them no longer. Returns those to which nobody refers now, in
        the order given. Raises KeyError when the tenant does not refer to one."""
        shared, parts = self._shared, self._parts
        lost = 0.0
        changes: dict[str, float] = {}
        unused: list[int] = []
        for page in pages:
            references = shared[page]
            count = references[tenant] - 1
            if count:
                references[tenant] = count
                continue
            del references[tenant]
            others = len(references)
            part = parts[others + 1]
            if others:
                more = parts[others] - part
                for other in references:
                    changes[other] = changes.get(other, 0.0) + more
            else:
                self._cached += 1
                unused.append(page)
            lost += part
        if lost:
            self._books.book_kv(tenant, -lost)
        for other, by in changes.items():
            self._books.book_kv(other, by)
        return unused

    def give_back_shared(self, page: int) -> None:
        """Free a prefix page. Raises ValueError when a sequence still uses it."""
        references = self._shared[page]
        if references:
            raise ValueError(f"prefix page {page} is in use by {sorted(references)}")
        del self._shared[page]
        self._holder[page] = None
        self._kv_used -= 1
        self._cached -= 1
        self._free.append(page)

    def shared_pages(self) -> Mapping[int, Mapping[str, int]]:
        """The prefix cache's pages, each with its references by tenant. To be read, not kept."""
        return self._shared

    # -- adapters

    def try_take_adapter(self, key: str, count: int) -> list[int] | Short:
        """`count` pages for an adapter, or how many are missing. Nobody is charged for them until
        a sequence refers to it."""
        if key in self._adapters:
            raise ValueError(f"adapter {key} holds pages already")
        if count > (room := self.room_for_adapters):
            return Short(count - room)
        pages = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        for page in pages:
            self._holder[page] = Of.ADAPTER
        self._adapters[key] = HeldAdapter(tuple(pages))
        self._adapter_used += count
        self._cached += count
        return pages

    def give_back_adapter(self, key: str) -> int:
        """Free an adapter's pages; returns their count. Raises when a sequence still uses it."""
        entry = self._adapters[key]
        if entry.count:
            raise ValueError(f"adapter {key} is in use by {sorted(entry.references)}")
        del self._adapters[key]
        for page in entry.pages:
            self._holder[page] = None
        self._free.extend(entry.pages)
        self._adapter_used -= len(entry.pages)
        self._cached -= len(entry.pages)
        return len(entry.pages)

    @property
    def resident_adapters(self) -> int:
        """Adapters that hold pages, in use or not."""
        return len(self._adapters)

    def adapter_pages(self, key: str) -> tuple[int, ...]:
        return self._adapters[key].pages

    def references(self, key: str) -> int:
        """Running sequences that use an adapter."""
        entry = self._adapters.get(key)
        return entry.count if entry else 0

    def refer(self, key: str, tenant: str) -> bool:
        """One more sequence of `tenant` uses the adapter. True when it is the first of anybody.

        O(1), and O(tenants that share it now) when a tenant comes to it."""
        entry = self._adapters[key]
        entry.count += 1
        references = entry.references
        mine = references.get(tenant, 0)
        references[tenant] = mine + 1
        if not mine:
            others = len(references) - 1
            size, parts = len(entry.pages), self._parts
            part = parts[others + 1]
            if not others:
                self._cached -= size
            else:
                self._charge_others(references, tenant, (part - parts[others]) * size)
            if size:
                self._books.book_adapters(tenant, part * size)
        return entry.count == 1

    def release(self, key: str, tenant: str) -> bool:
        """A sequence of `tenant` uses it no longer. True when nobody does. Raises KeyError when
        the tenant does not refer to it."""
        entry = self._adapters[key]
        references = entry.references
        mine = references[tenant] - 1
        entry.count -= 1
        if mine:
            references[tenant] = mine
            return False
        del references[tenant]
        others = len(references)
        size, parts = len(entry.pages), self._parts
        part = parts[others + 1]
        if not others:
            self._cached += size
        else:
            self._charge_others(references, tenant, (parts[others] - part) * size)
        if size:
            self._books.book_adapters(tenant, -part * size)
        return entry.count == 0

    def _charge_others(self, references: Iterable[str], tenant: str, by: float) -> None:
        if by:
            book = self._books.book_adapters
            for other in references:
                if other != tenant:
                    book(other, by)

    # -- the whole, by going through all of it

    def holdings(self) -> Holdings:
        """Counted afresh from the pages: O(pages)."""
        return count_holdings(
            self._holder, self._shared, self._adapters, self._parts, self.page_bytes
        )

    def check_integrity(self) -> None:
        """Every page is in exactly one place, and the books say what the pages say.

        O(pages + references). Raises ValueError naming the first thing that is not so.
        """
        kv, adapters = check_places(self._holder, self._shared, self._adapters, self._free)
        if (kv, adapters) != (self._kv_used, self._adapter_used):
            raise ValueError(
                f"KV holds {kv} pages and adapters {adapters}; booked are {self._kv_used} "
                f"and {self._adapter_used}"
            )
        if kv > self._kv_cap or adapters > self._adapter_cap:
            raise ValueError(
                f"KV holds {kv} pages of at most {self._kv_cap}, adapters {adapters} of "
                f"{self._adapter_cap}: a floor was taken"
            )
        found = self.holdings()
        if found.cached != self.cached_bytes:
            raise ValueError(f"{self.cached_bytes} bytes booked as cached, {found.cached} are")
        check_books("KV", found.kv, self._books.kv)
        check_books("adapter", found.adapters, self._books.adapters)
