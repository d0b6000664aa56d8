"""Slows a caller down who is refused again and again and asks on at once. Owns a count a tenant.

A refusal costs the front as much as it costs to read a request; a client that takes no notice of
them would spend the time of everybody else's. Beyond so many a second each is told a little later:
who waits for an answer before it asks again is held to a pace, and nobody else waits with it.
"""

from __future__ import annotations

import asyncio

A_SECOND = 20.0  # refusals of one tenant that are told at once
HOLD_S = 0.25


class Brake:
    """Of one front. The empty name stands for those without a key."""

    def __init__(self, a_second: float = A_SECOND, hold_s: float = HOLD_S) -> None:
        self._rate = a_second
        self._hold_s = hold_s
        self._left: dict[str, tuple[float, float]] = {}  # refusals left, and when that was counted

    def delay_s(self, tenant: str, now_s: float) -> float:
        """The tenant is refused once more: how long the telling waits, seconds."""
        left, since_s = self._left.get(tenant, (self._rate, now_s))
        left = min(self._rate, left + (now_s - since_s) * self._rate)
        self._left[tenant] = (max(0.0, left - 1.0), now_s)
        return 0.0 if left >= 1.0 else self._hold_s

    async def hold(self, tenant: str) -> None:
        """Let that time pass."""
        delay_s = self.delay_s(tenant, asyncio.get_running_loop().time())
        if delay_s:
            await asyncio.sleep(delay_s)
