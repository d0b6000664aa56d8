"""Who is charged what, as values: the matrix's top holders and the lines that close the sums.

Pure functions of a matrix and names. Rows of a (victim, reason) sum to its wait. There may be forty
thousand of them: they stay columns, and become objects only for who asks for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT
from telemetry.ledger.awaited import Holder
from telemetry.ledger.cumulative import CAPACITY_AT, FIRST_TENANT, POLICY_AT, Indices
from telemetry.ledger.matrix import OTHERS_AT, Matrix
from telemetry.ledger.vectors import Vector

DUST_S = 1e-12  # what rounding leaves: no row
NOBODY = -1
_KINDS = (TENANT, SELF, CAPACITY, POLICY, OTHERS)


class Charge(NamedTuple):
    """Seconds of `victim`'s waiting for `reason`, charged to a holder."""

    victim: str
    reason: str
    kind: str
    holder: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Charges:
    """Charges by column, in order of victim and reason."""

    victims: list[str]
    reasons: list[str]
    kinds: list[str]
    holders: list[str]
    seconds: list[float]

    def __len__(self) -> int:
        return len(self.victims)

    def __iter__(self) -> Iterator[Charge]:
        columns = (self.victims, self.reasons, self.kinds, self.holders, self.seconds)
        return map(Charge, *columns)


class Lines(NamedTuple):
    """Charges of one reason, a line each: victims and holders by index (NOBODY = none)."""

    reason: str
    victims: Indices
    kinds: Indices  # in _KINDS
    holders: Indices
    seconds: Vector


def lines_of(
    reason: str,
    matrix: Matrix,
    cells: npt.NDArray[np.float64],
    mine: Vector,
    top: int | None,
) -> Lines:
    """The matrix's cells, as `Matrix.closed` gives them, with the `top` holders of each victim in
    order of weight and the others summed."""
    tenants = cells[:, FIRST_TENANT:]
    most = tenants.shape[1] if top is None else min(top, tenants.shape[1])
    best, seconds = _heaviest(tenants, most)
    rest = np.maximum(tenants.sum(axis=1) - seconds.sum(axis=1), 0.0)
    if most == tenants.shape[1]:
        rest[:] = 0.0  # nothing was left out but the rounding
    rest += cells[:, OTHERS_AT]
    lost, policy = cells[:, CAPACITY_AT], cells[:, POLICY_AT]
    charged = np.column_stack([mine, lost, policy, seconds, rest])
    holders = np.full(charged.shape, NOBODY, dtype=np.intp)
    positions = np.array(matrix.positions[FIRST_TENANT:], dtype=np.intp) - FIRST_TENANT
    holders[:, 3:-1] = positions[best]
    kinds = np.array([1, 2, 3, *[0] * most, 4], dtype=np.intp)
    row, column = np.nonzero(charged > DUST_S)
    victims = np.array(matrix.victims, dtype=np.intp)[row]
    return Lines(reason, victims, kinds[column], holders[row, column], charged[row, column])


def _heaviest(tenants: npt.NDArray[np.float64], most: int) -> tuple[Indices, Vector]:
    """(columns, values) of each row's `most` largest, in order."""
    if most == tenants.shape[1]:
        order = np.argsort(-tenants, axis=1, kind="stable")
        return order, np.take_along_axis(tenants, order, 1)
    left = tenants.copy()
    rows = np.arange(len(left))
    best = np.empty((len(left), most), dtype=np.intp)
    seconds = np.empty((len(left), most))
    for n in range(most):  # of a few, looking for one after another is faster than any sorting
        column = left.argmax(axis=1)
        best[:, n], seconds[:, n] = column, left[rows, column]
        left[rows, column] = -1.0
    return best, seconds


def in_order(
    lines: Sequence[Lines], sparse: Iterable[Charge], names: Sequence[str | None]
) -> Charges:
    """All charges by column; `sparse` are those kept by name."""
    known: list[str] = [name or "" for name in names]
    at = {name: i for i, name in enumerate(names) if name is not None}
    several = [*lines, *_by_index(sparse, known, at)]
    if not several:
        return Charges([], [], [], [], [])
    rank = np.empty(len(known), dtype=np.intp)
    rank[sorted(range(len(known)), key=known.__getitem__)] = np.arange(len(known))
    reasons = sorted({some.reason for some in several})
    of_reason = np.concatenate(
        [np.full(len(some.victims), reasons.index(some.reason)) for some in several]
    )
    victims = np.concatenate([some.victims for some in several])
    order = np.lexsort((of_reason, rank[victims]))  # stable: a victim's lines keep their order
    known.append("")  # where NOBODY points
    kinds = np.concatenate([some.kinds for some in several])
    holders = np.concatenate([some.holders for some in several])
    seconds = np.concatenate([some.seconds for some in several])
    return Charges(
        [known[i] for i in victims[order].tolist()],
        [reasons[i] for i in of_reason[order].tolist()],
        [_KINDS[i] for i in kinds[order].tolist()],
        [known[i] for i in holders[order].tolist()],
        seconds[order].tolist(),
    )


def _by_index(sparse: Iterable[Charge], known: list[str], at: dict[str, int]) -> Iterator[Lines]:
    """A line a charge. Holders that have no place in the ledger any more get one in `known`."""
    for c in sparse:
        places = []
        for name in (c.victim, c.holder):
            if name and name not in at:
                at[name] = len(known)
                known.append(name)
            places.append(at[name] if name else NOBODY)
        victim, holder = (np.array([place], dtype=np.intp) for place in places)
        kind = np.array([_KINDS.index(c.kind)], dtype=np.intp)
        yield Lines(c.reason, victim, kind, holder, np.array([c.seconds]))


def closed_row(reason: str, victim: str, row: dict[Holder, float], top: int | None) -> list[Charge]:
    """The same for one row kept as a dictionary."""
    row = dict(row)
    own = row.pop((TENANT, victim), 0.0) + row.pop((SELF, ""), 0.0)
    rest = row.pop((OTHERS, ""), 0.0)
    out = [Charge(victim, reason, SELF, "", own)] if own > DUST_S else []
    for kind in (CAPACITY, POLICY):
        seconds = row.pop((kind, ""), 0.0)
        if seconds > DUST_S:
            out.append(Charge(victim, reason, kind, "", seconds))
    held = sorted(row.items(), key=lambda item: -item[1])
    kept = held if top is None else held[:top]
    out += [Charge(victim, reason, kind, name, s) for (kind, name), s in kept if s > DUST_S]
    rest += sum(s for _, s in held[len(kept) :])
    if rest > DUST_S:
        out.append(Charge(victim, reason, OTHERS, "", rest))
    return out
