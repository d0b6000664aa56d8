"""Bytes by tenant, exactly, and the listener that is told of every change. Knows no pages.

A shared page is charged in equal parts to the tenants that refer to it. Parts are rounded down to
multiples of a quantum so small (2**-52 of the arena) that every sum and difference of them is
exact in a float: whatever comes and goes, a tenant that holds nothing is at 0.0, and the
listener's sums never drift from these books.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol


class Listener(Protocol):
    """Is told, at once, how many bytes more (or fewer) a tenant holds from now on."""

    def kv_bytes(self, tenant: str, by: float) -> None: ...

    def adapter_bytes(self, tenant: str, by: float) -> None: ...


class Parts:
    """One page's bytes split among n tenants: `parts[n]` is what each of them is charged."""

    def __init__(self, page_bytes: int, arena_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._quantum = 2.0 ** (math.frexp(arena_bytes)[1] - 52)
        self._parts: list[float] = [0.0, float(page_bytes)]

    def __getitem__(self, tenants: int) -> float:
        parts = self._parts
        while tenants >= len(parts):
            part = self._page_bytes / len(parts)
            parts.append(math.floor(part / self._quantum) * self._quantum)
        return parts[tenants]


class Books:
    """What every tenant holds. Tenants that hold nothing are not in it."""

    __slots__ = ("adapters", "kv", "listener")

    def __init__(self, listener: Listener | None) -> None:
        self.kv: dict[str, float] = {}
        self.adapters: dict[str, float] = {}
        self.listener = listener

    def book_kv(self, tenant: str, by: float) -> None:
        held = self.kv.get(tenant, 0.0) + by
        if held:
            self.kv[tenant] = held
        else:
            del self.kv[tenant]
        if self.listener is not None:
            self.listener.kv_bytes(tenant, by)

    def book_adapters(self, tenant: str, by: float) -> None:
        held = self.adapters.get(tenant, 0.0) + by
        if held:
            self.adapters[tenant] = held
        else:
            del self.adapters[tenant]
        if self.listener is not None:
            self.listener.adapter_bytes(tenant, by)

    def held(self, tenant: str) -> float:
        """KV and adapter bytes of a tenant together."""
        return self.kv.get(tenant, 0.0) + self.adapters.get(tenant, 0.0)

    def holders(self) -> Iterable[str]:
        """Tenants that hold something, in an order that does not depend on the hash seed."""
        return (self.kv | self.adapters).keys() if self.adapters else self.kv.keys()
