"""Stretches of waiting, noted as events: who began and stopped to wait, who held, how time passed.

With S the cumulative vector over holders of one reason of one group,

    M[victim] = sum over changes (n_before - n_after) * S(then)  +  n_end * S(end).

While it lasts, a stretch of time only keeps notes: a change of a victim's number, a change of what
somebody holds, and one line an interval of time for each group that somebody stands in. It is
closed into `Chunk`s, values from which S and M may be worked out later (telemetry.ledger.matrix),
elsewhere, or never. Nothing here touches a vector while a step passes, nor what it adds up to: of
holders that are a dense vector of their own in each step (costs, bytes) a reference is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.ledger.costs import Costs
from telemetry.ledger.tenants import dense, grown
from telemetry.ledger.vectors import Vector

Indices = npt.NDArray[np.intp]

# Positions in a vector over holders: these, then 3 + the tenant's index.
CAPACITY_AT, POLICY_AT, FIRST_TENANT = 1, 2, 3
EXACT_HOLDERS = 1024  # up to so many holders in a stretch, each keeps its own column
CROWDED_HOLDERS = 256  # beyond, the heaviest do, the rest is summed


# How time passed from one row of a stretch to the next: seconds charged by the table of reasons and
# lost, the step's costs, how many sequences ran, the bytes held (None = nobody waits for those) and
# the pool's bytes that are capacity's and policy's. Plain: one is made whenever time passes.
Note = tuple[float, float, Costs, float, Vector | None, float, float]


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

    `passed` are the rows from which on time passed for somebody here, as `notes` (shared by the
    chunks of a stretch) say of each row. Victim `victims[i]` had `changes[i]` fewer waiting from
    row `at[i]` on, `standing` is what is left at the end, by index. `stalls` are (row after,
    holder, seconds) and replace `passed`.
    """

    reason: str
    rows: int
    notes: list[Note]
    passed: list[int]
    stalls: list[tuple[int, int, float]]
    slots: Slots
    victims: list[int]
    at: list[int]
    changes: list[int]
    standing: Vector
    size_bytes: int
    vectors: Cumulatives | None = None  # worked out already, then `notes` and `passed` are gone


class Group:
    """Requests (or rows) that are charged alike: a number by victim, notes of its changes."""

    __slots__ = (
        "_at",
        "_changes",
        "_passed",
        "_victims",
        "count",
        "counts",
        "name",
        "passed",
        "population",
        "reason",
        "stalls",
    )

    def __init__(self, name: str, reason: str, width: int) -> None:
        self.name = name
        self.count, self.counts = dense(width)
        self.population = 0
        self.reason = reason
        self.passed: list[int] = []  # rows, of the reason in force
        self._passed = {reason: self.passed}
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
            self.passed = self._passed.setdefault(reason, [])

    def close(self, notes: list[Note], rows: int, slots: Slots) -> list[Chunk]:
        """End the stretch here and begin a new one."""
        chunks: list[Chunk] = []
        if self.stalls or any(self._passed.values()):
            standing = self.counts.copy()
            size = standing.nbytes + slots.at_start.nbytes + 24 * len(self._victims)
            size += 24 * len(slots.rows) + 100 * len(self.stalls)
            for reason, passed in self._passed.items():
                if passed or self.stalls:
                    chunks.append(
                        Chunk(
                            reason,
                            rows,
                            notes,
                            passed,
                            self.stalls,
                            slots,
                            self._victims,
                            self._at,
                            self._changes,
                            standing,
                            size + 120 * len(passed) + _dense_bytes(reason, notes, passed),
                        )
                    )
        if chunks or self._victims:
            self._victims, self._at, self._changes = [], [], []
        if chunks:
            self.passed = []
            self.stalls = []
        if chunks or len(self._passed) > 1:
            self._passed = {self.reason: self.passed}
        return chunks

    def grow(self, width: int) -> None:
        self.count, self.counts = grown(self.count, width)


def _dense_bytes(reason: str, notes: list[Note], passed: list[int]) -> int:
    """Of the vectors that these rows refer to, each once."""
    if reason == "budget":
        costs = {notes[row][2] for row in passed}
        return sum(c.size_bytes for c in costs)
    if reason in ("kv", "adapter"):
        held = {id(notes[row][4]): notes[row][4] for row in passed}
        return sum(h.nbytes for h in held.values() if h is not None)
    return 0
