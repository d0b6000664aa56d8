"""The interference matrix while it grows: who waits in which group, and who holds what.

Owns the groups' populations, the holders' shares and the passing of time over them; knows no
queues, steps or requests. Waiting requests stand in *groups*: `shared` (all requests the scan did
not reach; their reason flips together), one a reason for those examined and refused, `adapter`
for adapters that cannot be ordered, one an awaited adapter, and `stall` for running sequences.
Victims and holders are indices of `telemetry.ledger.tenants`. Passing time costs a note for each
group that somebody stands in, and so does a change. What is noted is multiplied out by
`telemetry.ledger.fold`, outside the ledger's lock.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from telemetry.ledger.awaited import AwaitedAdapters, Charged
from telemetry.ledger.costs import NOTHING, Costs, accumulate
from telemetry.ledger.cumulative import Group, Note, Slots
from telemetry.ledger.fold import Window
from telemetry.ledger.tenants import dense, grown
from telemetry.ledger.vectors import Vector

SHARED, STALL = "shared", "stall"
ADAPTER_SHORT = "adapter"
_AWAITED = "adapter:"
_MOST_ROWS = 512
_MOST_BYTES = 16 << 20  # of dense vectors referred to


def adapter_group(key: str) -> str:
    """The group of those who wait for an adapter that is on its way."""
    return _AWAITED + key


class Interference:
    """Not thread-safe: the ledger holds the lock. `window` is the open bucket's matrix."""

    def __init__(self, width: int, running: Vector, held: Vector) -> None:
        """`running` (sequences) and `held` (bytes) are the holders' vectors, changed by others;
        every change of `running` is told to `runs` too."""
        self.window = Window()
        self.used = 0  # indices from here on belong to nobody
        self._width = width
        self._running = running
        self._running_total = 0.0
        self._held = held
        self.held_changed = True  # told by whoever changes it: a copy is made when it is needed
        self._held_then = np.zeros(0)
        self.costs = NOTHING  # of the step in force
        self._capacity_bytes = self._policy_bytes = 0.0
        self._stall: dict[int, float] = {}
        self.own, self.owns = dense(width)  # own prefill inside own stall, to be taken off
        self._table_s = self._lost_s = 0.0  # cumulative, of the bucket
        self._awaited = AwaitedAdapters()
        self._groups = {
            SHARED: Group(SHARED, "budget", width),
            STALL: Group(STALL, STALL, width),
            ADAPTER_SHORT: Group(ADAPTER_SHORT, "adapter", width),
            **{r: Group(r, r, width) for r in ("slot", "budget", "kv")},
        }
        self._stalled = self._groups[STALL]
        self._shared = self._groups[SHARED]
        self._waiting = [g for g in self._groups.values() if g is not self._stalled]
        self._notes: list[Note] = []  # of the open stretch: where time passed for somebody
        self._row = 0  # how many
        self._bytes = 0
        self._noted = NOTHING  # the costs referred to last
        self._slots = Slots(running.copy())

    # -- populations

    def change(self, victim: int, name: str, group: str, by: int) -> None:
        """`by` more (or fewer) of the victim's requests stand in the group from now on.

        Raises ValueError when fewer than none would be left, and for a group nobody knows.
        """
        entry = self._groups.get(group)
        try:
            if entry is not None:
                entry.change(victim, by, self._row)
            elif group.startswith(_AWAITED):
                key = group[len(_AWAITED) :]
                self._awaited.change(name, key, by, self._table_s, self._lost_s)
            else:
                known = ", ".join([*self._groups, _AWAITED + "<key>"])
                raise ValueError(f"no group {group!r} (there are {known})")
        except ValueError as e:
            raise ValueError(f"{name!r}: {e}") from None

    def runs(self, holder: int, by: float) -> None:
        """The holder's number of running sequences has just changed."""
        self._running_total += by
        slots = self._slots
        slots.rows.append(self._row)
        slots.holders.append(holder)
        slots.changes.append(by)

    def present(self) -> Vector:
        """Above zero, by index, for those who take part in steps or in the cost of this one."""
        present = self._stalled.counts.copy()
        accumulate(present, self.costs.whole())
        return present

    # -- holders

    def shared_reason(self, reason: str) -> None:
        self._shared.flip(reason)

    def use_costs(self, decode: Vector | None, prefill: Mapping[int, float]) -> Costs:
        """Budget is held by cost, from now on: seconds by index, kept for good."""
        self.costs = costs = Costs(decode, prefill)
        return costs

    def pool(self, capacity_bytes: float, policy_bytes: float) -> None:
        """Bytes of the pool that no tenant holds: free or unreferenced, and pinned or reserved."""
        self._capacity_bytes = max(0.0, capacity_bytes)
        self._policy_bytes = max(0.0, policy_bytes)

    def stall(self, rates: dict[int, float]) -> None:
        """Shares of a step's second spent on each tenant's prefill; they need not sum to 1.

        A sequence is not stalled by its own prefill: each tenant's own part is counted for all
        its sequences but one, which is exact however many of them prefill.
        """
        self._stall = rates

    def blame(self, blame: Mapping[str, Mapping[str | None, float]]) -> None:
        for key, shares in blame.items():
            self._awaited.blame(key, shares, self._table_s, self._lost_s)

    # -- time

    def advance(self, table_s: float, lost_s: float) -> None:
        """Let time pass: `table_s` charged by the table of reasons, `lost_s` to capacity."""
        self._table_s += table_s
        self._lost_s += lost_s
        if self._row >= _MOST_ROWS or self._bytes > _MOST_BYTES:
            self.close()
        row = self._row
        noted = by_bytes = by_cost = False
        for group in self._waiting:
            if group.population:
                noted = True
                group.passed.append(row)
                reason = group.reason
                if reason == "kv" or reason == "adapter":
                    by_bytes = True
                elif reason != "slot":
                    by_cost = True
        stalled = self._stalled
        if self._stall and table_s and stalled.population:
            noted = True
            for index, rate in self._stall.items():
                seconds = table_s * rate
                stalled.stalls.append((row + 1, index, seconds))
                if stalled.count[index]:
                    self.own[index] += seconds
        if not noted:
            return
        costs = NOTHING
        if by_cost:
            costs = self.costs
            if costs is not self._noted:
                self._noted = costs
                self._bytes += costs.size_bytes
        self._notes.append(
            (
                table_s,
                lost_s,
                costs,
                self._running_total,
                self._held_now() if by_bytes else None,
                self._capacity_bytes,
                self._policy_bytes,
            )
        )
        self._row = row + 1

    def _held_now(self) -> Vector:
        """A copy of what everybody holds; the one made last, while nothing has changed."""
        if self.held_changed or len(self._held_then) != self.used:
            self._held_then = self._held[: self.used].copy()
            self._bytes += self._held_then.nbytes
            self.held_changed = False
        return self._held_then

    # -- buckets

    def close(self) -> None:
        """Everything up to now is in `window`'s chunks."""
        rows, slots = self._row + 1, self._slots
        for group in self._groups.values():
            closed = group.close(self._notes, rows, slots)
            if closed:
                self.window.add(closed)
        self._notes = []
        self._row = self._bytes = 0
        self._noted = NOTHING
        self._slots = Slots(self._running.copy())

    def awaited(self) -> Charged:
        """Charges of waits for adapters on their way, of the bucket so far; a copy."""
        return self._awaited.charged(self._table_s, self._lost_s)

    def drain(self) -> None:
        """A new bucket: counts stay, sums begin from zero. `close` and `awaited` came before."""
        self.window = Window()
        self._awaited.drain()
        self._table_s = self._lost_s = 0.0
        self.owns[:] = 0.0

    def grow(self, width: int, running: Vector, held: Vector) -> None:
        """More tenants than before fit from now on."""
        self.close()
        for group in self._groups.values():
            group.grow(width)
        self._running, self._held = running, held
        self._slots = Slots(running.copy())
        self.own, self.owns = grown(self.own, width)
        self._width = width
