"""Waits for adapters that are on their way: few holders each, so plain dictionaries.

Owns, for each awaited adapter, who is blamed and which victims wait; knows no queue. Time is two
cumulative clocks (charged seconds, lost seconds) that the matrix hands in; nothing here is touched
while a step merely passes.
"""

from __future__ import annotations

from collections.abc import Mapping

from telemetry.conventions import CAPACITY, SELF, TENANT

Holder = tuple[str, str]  # (kind, tenant name or "")
_CAPACITY: Holder = (CAPACITY, "")
Charged = dict[str, dict[Holder, float]]  # victim -> holder -> seconds


class _Awaited:
    __slots__ = ("blame", "lost_s", "stands", "sums", "table_s")

    def __init__(self, table_s: float, lost_s: float) -> None:
        self.blame: dict[Holder, float] = {(SELF, ""): 1.0}
        self.table_s = table_s
        self.lost_s = lost_s
        self.sums: dict[Holder, float] = {}
        self.stands: dict[str, tuple[int, dict[Holder, float]]] = {}  # number, sums then


class AwaitedAdapters:
    def __init__(self) -> None:
        self._groups: dict[str, _Awaited] = {}
        self._charged: Charged = {}

    def change(self, victim: str, key: str, by: int, table_s: float, lost_s: float) -> None:
        """`by` more of the victim's requests wait for the adapter."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Awaited(table_s, lost_s)
        self._bring_up(group, table_s, lost_s)
        count = group.stands[victim][0] if victim in group.stands else 0
        if count + by < 0:
            raise ValueError(f"{count + by} requests in group adapter:{key}")
        if count:
            self._book(victim, group)
        if count + by:
            group.stands[victim] = (count + by, group.sums.copy())
        else:
            group.stands.pop(victim, None)
            if not group.stands:
                del self._groups[key]

    def blame(
        self, key: str, blame: Mapping[str | None, float], table_s: float, lost_s: float
    ) -> None:
        """Whom waits for the adapter are charged to from now on, in parts; None = the waiter."""
        group = self._groups.get(key)
        if group is None:
            return
        whole = sum(blame.values())
        if whole <= 0:
            return
        held = {((SELF, "") if t is None else (TENANT, t)): s / whole for t, s in blame.items()}
        if held != group.blame:
            self._bring_up(group, table_s, lost_s)
            group.blame = held

    def charged(self, table_s: float, lost_s: float) -> Charged:
        """Everything charged since the last `drain`, as a copy."""
        for group in self._groups.values():
            self._bring_up(group, table_s, lost_s)
            for victim in group.stands:
                self._book(victim, group)
        return {victim: row.copy() for victim, row in self._charged.items()}

    def drain(self) -> None:
        """A new bucket; `charged` was called just before. Clocks may begin again from zero."""
        self._charged = {}
        for group in self._groups.values():
            group.sums = {}
            group.table_s = group.lost_s = 0.0
            group.stands = {victim: (n, {}) for victim, (n, _) in group.stands.items()}

    def _bring_up(self, group: _Awaited, table_s: float, lost_s: float) -> None:
        passed, lost = table_s - group.table_s, lost_s - group.lost_s
        sums = group.sums
        if passed > 0:
            for holder, share in group.blame.items():
                sums[holder] = sums.get(holder, 0.0) + share * passed
        if lost > 0:
            sums[_CAPACITY] = sums.get(_CAPACITY, 0.0) + lost
        group.table_s, group.lost_s = table_s, lost_s

    def _book(self, victim: str, group: _Awaited) -> None:
        count, then = group.stands[victim]
        row = self._charged.setdefault(victim, {})
        for holder, seconds in group.sums.items():
            more = count * (seconds - then.get(holder, 0.0))
            if more:
                row[holder] = row.get(holder, 0.0) + more
        group.stands[victim] = (count, group.sums.copy())
