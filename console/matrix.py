"""Victims by holders: seconds of waiting, as charged or as excess. Pure; draws nothing.

The sums are the overview's own (`Account.cells`), so they close to the same totals: what has no
line or column of its own is in "others" and "more", and nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from console.account import CHARGED
from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT
from telemetry.held import Cells

NOT_TENANTS = (SELF, CAPACITY, POLICY, OTHERS)
MORE = "more"  # kind of the column of the holders that have none of their own
REST = "rest"  # kind of the last column where not even those that are no tenants fit
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A column: a tenant, one of self, capacity, policy and others, `more` tenants together, or
    the `rest` of all of these."""

    kind: str
    name: str = ""
    tenants: int = 1


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A victim, None = `tenants` others together; seconds a column, and all of them."""

    victim: str | None
    tenants: int
    seconds: tuple[float, ...]
    total_s: float


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows and columns largest first; the last row is the others where there are more. `totals` are
    of the columns and close, as those of the rows do, to `total_s`."""

    columns: tuple[HeldBy, ...]
    rows: tuple[MatrixRow, ...]
    totals: tuple[float, ...]
    total_s: float

    def narrowed(self, most: int) -> Matrix:
        """At most `most` columns (at least one): the last are added up in one, so that a narrow
        screen cuts off no figure and every row still adds up."""
        own = max(0, most - 1)
        if len(self.columns) <= max(1, most):
            return self

        def folded(values: tuple[float, ...]) -> tuple[float, ...]:
            return (*values[:own], sum(values[own:]))

        rows = tuple(replace(r, seconds=folded(r.seconds)) for r in self.rows)
        return Matrix((*self.columns[:own], HeldBy(REST)), rows, folded(self.totals), self.total_s)


def matrix_of(
    cells: Cells,
    basis: str,
    reason: str | None,
    *,
    rows: int,
    columns: int,
    first: int = 0,
) -> Matrix:
    """At most `rows` rows, from the victim that is `first` on, and about `columns` columns: one
    tenant at least has one of its own, and each kind that is no tenant and held anything. `reason`
    None: all of them."""
    seconds = np.array(cells.charged if basis == CHARGED else cells.excess, dtype=np.float64)
    if reason is not None:
        wanted = np.array([r == reason for r in cells.reasons], dtype=bool)
        seconds = np.where(wanted[cells.reason], seconds, 0.0) if len(cells.reason) else seconds
    by_victim = _sums(cells.victim, seconds, len(cells.victims))
    by_holder = _sums(cells.holder, seconds, len(cells.holders))
    held_by, column_of = _columns(cells, by_holder, columns)
    names = [str(v) for v in cells.victims]
    order = sorted(np.flatnonzero(by_victim > 0).tolist(), key=lambda i: (-by_victim[i], names[i]))
    kept = order[first : first + (rows if len(order) <= rows else max(0, rows - 1))]
    row_of = np.full(len(names), len(kept), dtype=np.intp)
    for place, victim in enumerate(kept):
        row_of[victim] = place
    width = len(held_by)
    flat: Floats = np.zeros((len(kept) + 1, width), dtype=np.float64)
    if len(seconds) and width:
        at = row_of[cells.victim] * width + column_of[cells.holder]
        flat = _sums(at, seconds, (len(kept) + 1) * width).reshape(-1, width)
    made = [
        MatrixRow(names[v], 1, tuple(flat[i].tolist()), float(by_victim[v]))
        for i, v in enumerate(kept)
    ]
    if len(order) > len(kept):
        rest = tuple(flat[len(kept)].tolist())
        made.append(MatrixRow(None, len(order) - len(kept), rest, sum(rest)))
    totals = tuple(float(t) for t in flat.sum(axis=0))
    return Matrix(held_by, tuple(made), totals, float(seconds.sum()))


def _sums(codes: npt.NDArray[np.intp], seconds: Floats, length: int) -> Floats:
    summed: Floats = np.bincount(codes, weights=seconds, minlength=length).astype(np.float64)
    return summed


def victims_of(cells: Cells, basis: str, reason: str | None) -> list[str]:
    """Every victim that has a row, in the order of the rows."""
    whole = matrix_of(cells, basis, reason, rows=len(cells.victims) + 1, columns=0)
    return [r.victim for r in whole.rows if r.victim is not None]


def _columns(
    cells: Cells, by_holder: Floats, most: int
) -> tuple[tuple[HeldBy, ...], npt.NDArray[np.intp]]:
    """The columns, and which one each holder is in."""
    # A kind that is unknown here is nobody's by name, and still in the sum.
    kinds = [h.kind if h.kind in (TENANT, *NOT_TENANTS) else OTHERS for h in cells.holders]
    apart = {kind for i, kind in enumerate(kinds) if kind != TENANT and by_holder[i] > 0}
    most = max(1, most - len(apart) - 1)
    tenants = [i for i, kind in enumerate(kinds) if kind == TENANT and by_holder[i] > 0]
    tenants.sort(key=lambda i: (-by_holder[i], cells.holders[i].name))
    # A column for one alone says more than "more (1)" does.
    kept = tenants if len(tenants) <= most + 1 else tenants[:most]
    rest = tenants[len(kept) :]
    out = [HeldBy(TENANT, cells.holders[i].name) for i in kept]
    place: dict[int, int] = {i: n for n, i in enumerate(kept)}
    if rest:
        place |= dict.fromkeys(rest, len(out))
        out.append(HeldBy(MORE, "", len(rest)))
    for kind in NOT_TENANTS:
        mine = [i for i, own in enumerate(kinds) if own == kind and by_holder[i] > 0]
        if mine:
            place |= dict.fromkeys(mine, len(out))
            out.append(HeldBy(kind))
    # Holders of nothing stand nowhere: their zeros may go to the first column.
    return tuple(out), np.array([place.get(i, 0) for i in range(len(cells.holders))], dtype=np.intp)
