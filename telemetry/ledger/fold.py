"""One bucket's interference matrix, kept as stretches until somebody wants it, or never.

Owns the order of multiplying out: outside the ledger's lock, in whatever thread asks; when the
stretches noted take too much memory, where they are noted. A `Reading` is the matrix as it was at
an instant, however far others have gone since.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from telemetry.ledger.awaited import Charged
from telemetry.ledger.charges import Charge, Charges, Lines, closed_row, in_order, lines_of
from telemetry.ledger.cumulative import Chunk
from telemetry.ledger.matrix import Matrix
from telemetry.ledger.sums import compact
from telemetry.ledger.vectors import Vector

TOP_HOLDERS = 8
_LARGE_BYTES = 2 << 20  # a chunk above is made smaller at once, if that can be
_PENDING_BYTES = 64 << 20  # noted and not multiplied out: beyond it, it is, wherever we are


class Result(NamedTuple):
    """A bucket's matrix. `waits[reason][victim's index]` in seconds (an index past the end has
    none); charges of a (victim, reason) sum to it. `stall_s` is by index too."""

    charges: Charges
    waits: dict[str, Vector]
    stall_s: Vector


class Window:
    """The matrix of one bucket. `add` is called under the ledger's lock, the rest anywhere."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._added = 0
        self._folded = 0
        self._added_bytes = 0  # written by who adds, `_folded_bytes` by who folds
        self._folded_bytes = 0
        self._matrices: dict[str, Matrix] = {}
        self._lock = threading.Lock()
        self._readings: list[weakref.ref[Reading]] = []

    def add(self, chunks: Iterable[Chunk]) -> None:
        for closed in chunks:
            chunk = compact(closed) if closed.size_bytes > _LARGE_BYTES else closed
            self._chunks.append(chunk)
            self._added += 1
            self._added_bytes += chunk.size_bytes
        # Somebody who folds just now makes the room by himself.
        pending_bytes = self._added_bytes - self._folded_bytes
        if pending_bytes > _PENDING_BYTES and self._lock.acquire(blocking=False):
            try:
                self._fold(self._added)
            finally:
                self._lock.release()

    def reading(self, names: Sequence[str | None], own: Vector, awaited: Charged) -> Reading:
        """The matrix as it is now, to be worked out later."""
        reading = Reading(self, self._added, names, own, awaited)
        self._readings.append(weakref.ref(reading))
        return reading

    def result(self, reading: Reading, top: int | None) -> Result:
        with self._lock:
            return self._result(reading, top)

    def _result(self, reading: Reading, top: int | None) -> Result:
        if reading.done is None:
            self._fold(reading.upto)
            reading.done = _result(self._matrices, reading, top)
        return reading.done

    def _fold(self, upto: int) -> None:
        if upto <= self._folded:
            return
        # Earlier readings that are still wanted are worked out on the way past them.
        for reference in list(self._readings):  # in order of time
            reading = reference()
            if reading is not None and reading.done is None and reading.upto < upto:
                self._result(reading, TOP_HOLDERS)
        while self._folded < upto:
            chunk = self._chunks.popleft()
            self._folded_bytes += chunk.size_bytes
            self._folded += 1
            self._matrices.setdefault(chunk.reason, Matrix()).fold(chunk)


class Reading:
    """A window at an instant; see `Window.reading`."""

    __slots__ = ("__weakref__", "_window", "awaited", "done", "names", "own", "upto")

    def __init__(
        self,
        window: Window,
        upto: int,
        names: Sequence[str | None],
        own: Vector,
        awaited: Charged,
    ) -> None:
        self._window = window
        self.upto = upto
        self.names = names
        self.own = own
        self.awaited = awaited
        self.done: Result | None = None

    def result(self, top: int | None = TOP_HOLDERS) -> Result:
        """Charges with the `top` tenants a (victim, reason); self, capacity, policy always."""
        return self._window.result(self, top)


def _result(matrices: dict[str, Matrix], reading: Reading, top: int | None) -> Result:
    names = reading.names
    n = len(names)
    waits: dict[str, Vector] = {}
    stall_s = np.zeros(n)
    lines: list[Lines] = []
    sparse: list[Charge] = []
    awaited = dict(reading.awaited)
    for reason, matrix in matrices.items():
        stall = reason == "stall"
        cells, mine = matrix.closed(reading.own if stall else None)
        victims = matrix.victims
        if stall:
            stall_s[victims] = cells.sum(axis=1) + mine
        else:
            waited = waits[reason] = np.zeros(n)
            waited[victims] = matrix.waited[victims]
        if reason == "adapter" and awaited:
            for row, index in enumerate(victims):
                few = awaited.pop(names[index] or "", None)
                if few:
                    everybody = matrix.row(row, cells, mine, names)
                    for holder, seconds in few.items():
                        everybody[holder] = everybody.get(holder, 0.0) + seconds
                    sparse += closed_row(reason, names[index] or "", everybody, top)
                    cells[row] = mine[row] = 0.0  # told there
        lines.append(lines_of(reason, matrix, cells, mine, top))
    at = {name: i for i, name in enumerate(names) if name is not None}
    if reading.awaited:
        waited = waits.setdefault("adapter", np.zeros(n))
        for name, held in reading.awaited.items():
            waited[at[name]] += sum(held.values())
    for victim, left in awaited.items():
        sparse += closed_row("adapter", victim, left, top)
    return Result(in_order(lines, sparse, names), waits, stall_s)
