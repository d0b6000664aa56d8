"""Stretches of waiting, noted as events: who began and stopped to wait, who held, how time passed.

With S the cumulative vector over holders of one reason of one group,

    M[victim] = sum over changes (n_before - n_after) * S(then)  +  n_end * S(end).

While it lasts, a stretch of time only keeps notes: a change of a victim's number, a change of what
somebody holds, and one line an interval of time for each group that somebody stands in. It is
closed into `Chunk`s, values from which S and M may be worked out later (telemetry.ledger.matrix),
elsewhere, or never. Nothing here touches a vector while a step passes, but where holders are a
dense vector of their own in each step (costs, bytes): of those a reference is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.ledger.tenants import dense, grown
from telemetry.ledger.vectors import Vector

Indices = npt.NDArray[np.intp]

# Positions in a vector over holders: these, then 3 + the tenant's index.
CAPACITY_AT, POLICY_AT, FIRST_TENANT = 1, 2, 3
EXACT_HOLDERS = 1024  # up to so many holders in a stretch, each keeps its own column
CROWDED_HOLDERS = 256  # beyond, the heaviest do, the rest is summed


class Interval(NamedTuple):
    """Row `row` to the next of one cumulative: tenants are charged `part` seconds a unit of what
    they hold: of `held`, or, when it is None, of the running sequences."""

    row: int
    part: float
    capacity_s: float
    policy_s: float
    seconds: float  # whoever held
    held: Vector | None


class Cumulatives(NamedTuple):
    """S at each row: `sums` (rows, columns) of the holders' positions in `columns`, ascending,
    `rest` of all holders without a column (None = there are none), `clocks` whoever held."""

    columns: Indices
    sums: npt.NDArray[np.float64]
    rest: Vector | None
    clocks: Vector


class Slots:
    """The running sequences over a stretch: at its start, and each change with its row."""

    __slots__ = ("at_start", "changes", "holders", "rows")

    def __init__(self, at_start: Vector) -> None:
        self.at_start = at_start
        self.rows: list[int] = []
        self.holders: list[int] = []
        self.changes: list[float] = []


class Chunk(NamedTuple):
    """A stretch of one reason of one group, closed. There are `rows` rows; row 0 is its start.

    Victim `victims[i]` had `changes[i]` fewer waiting from row `at[i]` on, `standing` is what is
    left at the end, by index. `stalls` are (row after, holder, seconds) and replace `intervals`.
    """

    reason: str
    rows: int
    intervals: list[Interval]
    stalls: list[tuple[int, int, float]]
    slots: Slots
    victims: list[int]
    at: list[int]
    changes: list[int]
    standing: Vector
    size_bytes: int
    vectors: Cumulatives | None = None  # worked out already, then `intervals` are gone


class Group:
    """Requests (or rows) that are charged alike: a number by victim, notes of its changes."""

    __slots__ = (
        "_at",
        "_changes",
        "_intervals",
        "_victims",
        "count",
        "counts",
        "intervals",
        "name",
        "population",
        "reason",
        "stalls",
    )

    def __init__(self, name: str, reason: str, width: int) -> None:
        self.name = name
        self.count, self.counts = dense(width)
        self.population = 0
        self.reason = reason
        self.intervals: list[Interval] = []  # of the reason in force
        self._intervals = {reason: self.intervals}
        self.stalls: list[tuple[int, int, float]] = []
        self._victims: list[int] = []
        self._at: list[int] = []
        self._changes: list[int] = []

    def change(self, victim: int, by: int, row: int) -> None:
        """`by` more of the victim's stand here from `row` of the stretch on."""
        count = self.count[victim] + by
        if count < 0:
            raise ValueError(f"{count:.0f} requests in group {self.name}")
        self.count[victim] = count
        self.population += by
        if row:  # at the start S is zero
            self._victims.append(victim)
            self._at.append(row)
            self._changes.append(-by)

    def flip(self, reason: str) -> None:
        """Whoever stands here waits for `reason` from now on."""
        if reason != self.reason:
            self.reason = reason
            self.intervals = self._intervals.setdefault(reason, [])

    def close(self, rows: int, slots: Slots) -> list[Chunk]:
        """End the stretch here and begin a new one."""
        chunks: list[Chunk] = []
        standing = self.counts.copy() if self.stalls or any(self._intervals.values()) else None
        if standing is not None:
            size = standing.nbytes + slots.at_start.nbytes + 24 * len(self._victims)
            size += 24 * len(slots.rows)
            for reason, intervals in self._intervals.items():
                if intervals or self.stalls:
                    dense_ids = {id(i.held): i.held.nbytes for i in intervals if i.held is not None}
                    chunks.append(
                        Chunk(
                            reason,
                            rows,
                            intervals,
                            self.stalls,
                            slots,
                            self._victims,
                            self._at,
                            self._changes,
                            standing,
                            size
                            + 120 * len(intervals)
                            + 100 * len(self.stalls)
                            + sum(dense_ids.values()),
                        )
                    )
        self.intervals = []
        self._intervals = {self.reason: self.intervals}
        self.stalls = []
        self._victims, self._at, self._changes = [], [], []
        return chunks

    def grow(self, width: int) -> None:
        self.count, self.counts = grown(self.count, width)
