"""The interference matrix: seconds of waiting, by victim, reason and holder.

Owns cumulative vectors and victims' marks in them; knows no queues, steps or requests. Waiting
requests stand in *groups*: `shared` (all requests the scan did not reach; their reason flips
together), one a reason for those examined and refused, one an awaited adapter, and `stall` for
running sequences. A group keeps one cumulative vector S over holders, and

    M[victim] += n * (S - S_then)        whenever the victim's number n in the group changes,

so an interval costs O(groups x holders), never victims x holders, and a change O(holders).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT, WAIT_REASONS

Vector = npt.NDArray[np.float64]
Holder = tuple[str, str]  # (kind, tenant name or "")

SHARED, STALL = "shared", "stall"
TOP_HOLDERS = 8
_FIXED: tuple[Holder, ...] = ((SELF, ""), (CAPACITY, ""), (POLICY, ""))
_CAPACITY_INDEX = 1


def adapter_group(key: str) -> str:
    return "adapter:" + key


def reason_of(group: str) -> str:
    """The reason of every group but `shared`."""
    return "adapter" if group.startswith("adapter:") else group


@dataclass(frozen=True, slots=True)
class Charge:
    """Seconds of `victim`'s waiting for `reason`, charged to a holder."""

    victim: str
    reason: str
    kind: str
    holder: str
    seconds: float


@dataclass(slots=True)
class _Group:
    reason: str
    shares: Vector
    capacity_first: bool
    total: dict[str, Vector] = field(default_factory=dict)  # reason -> S
    clock: dict[str, float] = field(default_factory=dict)  # reason -> seconds, whoever held
    population: int = 0


@dataclass(slots=True)
class _Stand:
    """A victim's number in a group, and where the group's vectors were when it last changed."""

    count: int = 0
    total: dict[str, Vector] = field(default_factory=dict)
    clock: dict[str, float] = field(default_factory=dict)


class Interference:
    """Charges waiting to holders. Not thread-safe: the ledger holds the lock."""

    def __init__(self) -> None:
        self._index: dict[Holder, int] = {h: i for i, h in enumerate(_FIXED)}
        self._width = 16
        self._groups: dict[str, _Group] = {
            SHARED: self._new_group("budget"),
            STALL: self._new_group(STALL, capacity_first=False),
            **{r: self._new_group(r) for r in WAIT_REASONS if r != "adapter"},
        }
        self._stands: dict[tuple[str, str], _Stand] = {}  # (victim, group)
        self._charged: dict[tuple[str, str], Vector] = {}  # (victim, reason) -> over holders
        self._waited: dict[tuple[str, str], float] = {}  # (victim, reason)
        self._own: dict[str, float] = {}  # own prefill inside own stall, to be taken off
        self._own_rates: dict[str, float] = {}

    # -- populations

    def change(self, victim: str, group: str, by: int) -> None:
        """`by` more (or fewer) of the victim's requests stand in the group from now on."""
        if group not in self._groups:
            self._groups[group] = self._new_group(reason_of(group))
        stand = self._stands.setdefault((victim, group), _Stand())
        self._flush(victim, group, stand)
        stand.count += by
        self._groups[group].population += by
        if stand.count < 0:
            raise ValueError(f"{victim!r} has {stand.count} requests in group {group}")
        if not stand.count:
            del self._stands[(victim, group)]
            if group.startswith("adapter:") and not self._groups[group].population:
                del self._groups[group]

    def count(self, victim: str, group: str) -> int:
        stand = self._stands.get((victim, group))
        return stand.count if stand else 0

    def awaited_adapters(self) -> Iterator[str]:
        for name in self._groups:
            if name.startswith("adapter:"):
                yield name.removeprefix("adapter:")

    # -- holders

    def hold(
        self, group: str, shares: Mapping[Holder, float], *, reason: str | None = None
    ) -> None:
        """From now on a second in the group is charged by `shares`, which sum to 1."""
        entry = self._groups.get(group)
        if entry is None:
            return
        entry.shares = self._vector(shares)
        if reason is not None:
            entry.reason = reason

    def hold_stall(self, shares: Mapping[str, float]) -> None:
        """Shares of a step's second spent on each tenant's prefill; they need not sum to 1.

        A sequence is not stalled by its own prefill: each tenant's own part is counted for all
        its sequences but one, which is exact however many of them prefill.
        """
        self._groups[STALL].shares = self._vector({(TENANT, t): s for t, s in shares.items()})
        self._own_rates = dict(shares)

    def advance(self, table_s: float, capacity_s: float) -> None:
        """Let time pass: `table_s` charged by the shares, `capacity_s` to lost capacity."""
        for entry in self._groups.values():
            if not entry.population:
                continue
            total = entry.total.get(entry.reason)
            if total is None or len(total) < self._width:
                total = entry.total[entry.reason] = self._grown(total)
            if table_s:
                total[: len(entry.shares)] += table_s * entry.shares
            passed = table_s
            if entry.capacity_first:
                total[_CAPACITY_INDEX] += capacity_s
                passed += capacity_s
            entry.clock[entry.reason] = entry.clock.get(entry.reason, 0.0) + passed
        if table_s:
            for tenant, rate in self._own_rates.items():
                if self.count(tenant, STALL):
                    self._own[tenant] = self._own.get(tenant, 0.0) + table_s * rate

    # -- results

    def waits(self) -> dict[tuple[str, str], float]:
        """Seconds waited by (victim, reason) since the last `drain`. Without the stall."""
        self._flush_all()
        return {k: s for k, s in self._waited.items() if k[1] != STALL}

    def charges(self, top: int | None = TOP_HOLDERS) -> list[Charge]:
        """The matrix since the last `drain`: `top` tenants a (victim, reason), the rest in
        `others`; self, capacity and policy always. Rows of a (victim, reason) sum to its wait."""
        self._flush_all()
        names = {i: h for h, i in self._index.items()}
        out: list[Charge] = []
        for (victim, reason), charged in sorted(self._charged.items()):
            own = self._index.get((TENANT, victim))
            row = charged.copy()
            if own is not None and own < len(row):
                mine = row[own]
                if reason == STALL:
                    mine -= self._own.get(victim, 0.0)
                row[0] += mine
                row[own] = 0.0
            np.maximum(row, 0.0, out=row)  # differences of sums: no -1e-16 s in the books
            fixed = len(_FIXED)
            for i, (kind, _) in enumerate(_FIXED):
                if row[i]:
                    out.append(Charge(victim, reason, kind, "", float(row[i])))
            order = [i for i in np.argsort(-row[fixed:]) + fixed if row[i]]
            kept = order if top is None else order[:top]
            for i in kept:
                out.append(Charge(victim, reason, TENANT, names[int(i)][1], float(row[i])))
            rest = float(sum(row[i] for i in order[len(kept) :]))
            if rest:
                out.append(Charge(victim, reason, OTHERS, "", rest))
        return out

    def drain(self) -> None:
        """Begin a new bucket: counts stay, everything summed starts from zero, and holders who
        hold nothing any more lose their place in the vectors."""
        self._flush_all()
        self._charged.clear()
        self._waited.clear()
        self._own.clear()
        shares = {
            name: {
                h: float(g.shares[i])
                for h, i in self._index.items()
                if i < len(g.shares) and g.shares[i]
            }
            for name, g in self._groups.items()
        }
        self._index = {h: i for i, h in enumerate(_FIXED)}
        self._width = 16
        for name, group in self._groups.items():
            group.total.clear()
            group.clock.clear()
            group.shares = self._vector(shares[name])
        for stand in self._stands.values():
            stand.total.clear()
            stand.clock.clear()

    # -- inside

    def _new_group(self, reason: str, *, capacity_first: bool = True) -> _Group:
        return _Group(reason, np.zeros(0), capacity_first)

    def _vector(self, shares: Mapping[Holder, float]) -> Vector:
        for holder in shares:
            if holder not in self._index:
                self._index[holder] = len(self._index)
        while self._width < len(self._index):
            self._width *= 2
        vector = np.zeros(len(self._index))
        for holder, share in shares.items():
            vector[self._index[holder]] += share
        return vector

    def _grown(self, vector: Vector | None) -> Vector:
        grown = np.zeros(self._width)
        if vector is not None:
            grown[: len(vector)] = vector
        return grown

    def _flush_all(self) -> None:
        for (victim, group), stand in self._stands.items():
            self._flush(victim, group, stand)

    def _flush(self, victim: str, group: str, stand: _Stand) -> None:
        entry = self._groups[group]
        for reason, clock in entry.clock.items():
            passed = clock - stand.clock.get(reason, 0.0)
            if passed and stand.count:
                total = entry.total[reason]
                then = stand.total.get(reason)
                charged = self._charged.get((victim, reason))
                if charged is None or len(charged) < len(total):
                    charged = self._charged[(victim, reason)] = self._grown(charged)
                charged[: len(total)] += stand.count * total
                if then is not None:
                    charged[: len(then)] -= stand.count * then
                key = (victim, reason)
                self._waited[key] = self._waited.get(key, 0.0) + stand.count * passed
            stand.clock[reason] = clock
            stand.total[reason] = entry.total[reason].copy()
