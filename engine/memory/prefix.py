"""The prefix cache: which whole pages of KV stand for which beginnings of prompts.

Owns the keys, the tree and the order of disuse; page numbers and who is charged are the pool's.

A key stands for a page *and all before it*: a digest of the framed salt, the framed adapter and
the tokens up to the page's end. Frames carry their length, so that (`a`, `bc`) and (`ab`, `c`)
never meet, and a prompt of the base model never meets one of an adapter.

A sequence holds pages from the start of its prompt on. So whoever refers to a page refers to all
before it, a page goes out of use no later than those before it, and the page that has been out of
use the longest has no others after it: it can go at once.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from engine.memory.pool import PagePool

KEY_BYTES = 16


@dataclass(slots=True, eq=False)
class _Node:
    key: bytes
    page: int
    parent: _Node | None
    children: int = 0
    stamp: int = 0  # when it went out of use, by the pool's count
    last_used_s: float = 0.0


def _frame(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(8, "little") + raw


class PrefixCache:
    """One pool's. All costs are in the pages handed over, none in the pages cached."""

    def __init__(self, pool: PagePool, page_tokens: int) -> None:
        if page_tokens < 1:
            raise ValueError(f"pages of {page_tokens} tokens: at least 1")
        self._pool = pool
        self._page_tokens = page_tokens
        self._nodes: dict[bytes, _Node] = {}
        self._by_page: dict[int, _Node] = {}
        self._unused: OrderedDict[int, _Node] = OrderedDict()  # by page, longest unused first
        self.evicted_pages = 0  # since the start

    # -- questions

    @property
    def pages(self) -> int:
        """Pages that are the cache's, in use or not."""
        return len(self._nodes)

    @property
    def unused_pages(self) -> int:
        """Pages to which no sequence refers: they can be evicted."""
        return len(self._unused)

    @property
    def oldest_stamp(self) -> int | None:
        """When, by the pool's count, the longest unused page went out of use."""
        for node in self._unused.values():
            return node.stamp
        return None

    def keys(self, salt: str, adapter: str | None, tokens: Sequence[int]) -> tuple[bytes, ...]:
        """One key for each whole page of `tokens` (ids that fit 64 bits), computed once a request.

        `salt` parts those who must not share (a tenant, or the group that it shares with);
        `adapter` is the content hash, None = the base model. To sample from a prompt its last
        token must be computed: match no more than (len(tokens) - 1) // page_tokens of them.
        """
        size = self._page_tokens
        whole = len(tokens) // size
        if not whole:
            return ()
        running = hashlib.blake2b(_frame(salt), digest_size=KEY_BYTES)
        running.update(b"\0" if adapter is None else b"\1" + _frame(adapter))
        data = memoryview(array("q", tokens[: whole * size])).cast("B")
        step = 8 * size
        keys = []
        for start in range(0, whole * step, step):
            running.update(data[start : start + step])
            keys.append(running.digest())
        return tuple(keys)

    def match(self, keys: Sequence[bytes]) -> tuple[int, ...]:
        """Pages of the longest cached run from the start. Changes nothing."""
        nodes = self._nodes
        pages = []
        for key in keys:
            node = nodes.get(key)
            if node is None:
                break
            pages.append(node.page)
        return tuple(pages)

    def unused_among(self, pages: Sequence[int]) -> int:
        """How many of these cached pages nobody uses: holding them takes them from what could be
        evicted."""
        unused = self._unused
        return sum(page in unused for page in pages)

    # -- pairs

    def hold(self, keys: Sequence[bytes], tenant: str, now: float) -> list[int]:
        """A sequence of `tenant` uses these pages from now on; returns them. `keys` begin at the
        start of the prompt. Raises ValueError when one is not cached."""
        if not keys:
            return []
        found: list[_Node] = []
        for key in keys:
            node = self._nodes.get(key)
            if node is None:
                raise ValueError(f"page {len(found)} of the prompt is not cached: match it first")
            found.append(node)
        if found[0].parent is not None:
            raise ValueError("a sequence holds its pages from the start of its prompt on")
        pages = []
        unused = self._unused
        for node in found:
            node.last_used_s = now
            pages.append(node.page)
            unused.pop(node.page, None)
        self._pool.refer_kv(tenant, pages)
        return pages

    def publish(
        self, keys: Sequence[bytes], pages: Sequence[int], held: int, tenant: str, now: float
    ) -> int:
        """pages[held : len(keys)], private pages of `tenant` that are computed now, become the
        cache's, used by the tenant, as far as their keys are new. Stops at the first key that
        another page stands for already. Returns how many leading pages are the cache's now.

        pages[:held] are the cache's already. Raises ValueError when the last of them is not, or
        when fewer pages than keys are given.
        """
        if len(pages) < len(keys):
            raise ValueError(f"{len(keys)} keys for {len(pages)} pages: one page each")
        parent: _Node | None = None
        if held:
            parent = self._by_page.get(pages[held - 1])
            if parent is None or parent.key != keys[held - 1]:
                raise ValueError(f"page {pages[held - 1]} does not stand for key {held - 1}")
        end = held
        nodes = self._nodes
        while end < len(keys) and keys[end] not in nodes:
            end += 1
        if end == held:
            return held
        new = pages[held:end]
        self._pool.share_kv(tenant, new)
        for key, page in zip(keys[held:end], new, strict=True):
            node = _Node(key, page, parent, last_used_s=now)
            if parent is not None:
                parent.children += 1
            nodes[key] = self._by_page[page] = parent = node
        return end

    def release(self, pages: Sequence[int], tenant: str, now: float) -> None:
        """A sequence of `tenant` uses these pages no longer: all it holds, in its own order.
        Those that nobody uses stay cached, the last ones of the prompt to go first."""
        if not pages:
            return
        pool, by_page = self._pool, self._by_page
        for page in pool.release_kv(tenant, pages[::-1]):
            node = by_page[page]
            node.stamp, node.last_used_s = pool.stamp(), now
            self._unused[page] = node

    def evict(self) -> float:
        """Free the page that has been out of use the longest; returns since when. Raises
        ValueError when every page is in use."""
        if not self._unused:
            raise ValueError("every page of the prefix cache is in use")
        page, node = next(iter(self._unused.items()))
        if node.children:
            raise ValueError(f"page {page} is out of use, and {node.children} after it are not")
        del self._unused[page]
        del self._nodes[node.key]
        del self._by_page[page]
        if node.parent is not None:
            node.parent.children -= 1
        self._pool.give_back_shared(page)
        self.evicted_pages += 1
        return node.last_used_s

    def clear(self) -> int:
        """Free all pages that nobody uses; returns how many."""
        count = len(self._unused)
        while self._unused:
            self.evict()
        return count

    def check_integrity(self) -> None:
        """The tree is whole and agrees with the pool. O(pages). Raises ValueError."""
        children: dict[bytes, int] = {}
        if {n.page for n in self._nodes.values()} != set(self._by_page):
            raise ValueError("the tree and its pages differ")
        shared = self._pool.shared_pages()
        if set(self._by_page) != set(shared):
            odd = min(set(self._by_page) ^ set(shared))
            raise ValueError(f"page {odd} is the cache's for the tree or for the pool, not both")
        for node in self._nodes.values():
            parent = node.parent
            references = shared[node.page]
            if bool(references) == (node.page in self._unused):
                raise ValueError(f"page {node.page}: {references} refer to it, yet it is not so")
            if parent is None:
                continue
            children[parent.key] = children.get(parent.key, 0) + 1
            if self._nodes.get(parent.key) is not parent:
                raise ValueError(f"page {node.page} comes after a page that is gone")
            before = shared[parent.page]
            if any(before.get(t, 0) < n for t, n in references.items()):
                raise ValueError(f"page {node.page} is used by more than the page before it")
            if not before and parent.stamp < node.stamp:
                raise ValueError(f"page {parent.page} would be evicted before one after it")
        for node in self._nodes.values():
            if node.children != children.get(node.key, 0):
                raise ValueError(f"page {node.page} has not the {node.children} pages after it")
        stamps = [n.stamp for n in self._unused.values()]
        if stamps != sorted(stamps):
            raise ValueError("unused pages are out of order")
