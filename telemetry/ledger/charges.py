"""Who is charged what, as values: the matrix's top holders and the lines that close the sums.

Pure functions of a matrix and names. Rows of a (victim, reason) sum to its wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT
from telemetry.ledger.awaited import Holder
from telemetry.ledger.cumulative import CAPACITY_AT, FIRST_TENANT, POLICY_AT
from telemetry.ledger.matrix import OTHERS_AT, Matrix
from telemetry.ledger.vectors import Vector

DUST_S = 1e-12  # what rounding leaves: no row


class Charge(NamedTuple):
    """Seconds of `victim`'s waiting for `reason`, charged to a holder."""

    victim: str
    reason: str
    kind: str
    holder: str
    seconds: float


def charges_of(
    reason: str,
    matrix: Matrix,
    cells: npt.NDArray[np.float64],
    mine: Vector,
    names: Sequence[str | None],
    top: int | None,
    merged: dict[int, dict[Holder, float]],
) -> list[Charge]:
    tenants = cells[:, FIRST_TENANT:]
    most = tenants.shape[1] if top is None else min(top, tenants.shape[1])
    if most < tenants.shape[1]:
        best = np.argpartition(-tenants, most - 1, axis=1)[:, :most]
    else:
        best = np.tile(np.arange(most), (len(cells), 1))
    seconds = np.take_along_axis(tenants, best, axis=1)
    order = np.argsort(-seconds, axis=1, kind="stable")
    best, seconds = np.take_along_axis(best, order, 1), np.take_along_axis(seconds, order, 1)
    rest = np.maximum(tenants.sum(axis=1) - seconds.sum(axis=1), 0.0)
    if most == tenants.shape[1]:
        rest[:] = 0.0  # nothing was left out but the rounding
    rest += cells[:, OTHERS_AT]
    lines = zip(
        matrix.victims,
        mine.tolist(),
        cells[:, CAPACITY_AT].tolist(),
        cells[:, POLICY_AT].tolist(),
        rest.tolist(),
        best.tolist(),
        seconds.tolist(),
        strict=True,
    )
    out: list[Charge] = []
    holders = [names[p - FIRST_TENANT] or "" for p in matrix.positions[FIRST_TENANT:]]
    for row, (index, own, lost, policy, others, columns, charged) in enumerate(lines):
        victim = names[index] or ""
        if row in merged:
            every = {(TENANT, holders[i]): s for i, s in enumerate(tenants[row].tolist()) if s}
            every |= {(SELF, ""): own, (CAPACITY, ""): lost, (POLICY, ""): policy}
            every[(OTHERS, "")] = float(cells[row, OTHERS_AT])
            for holder, s in merged[row].items():
                every[holder] = every.get(holder, 0.0) + s
            out += closed_row(reason, victim, every, top)
            continue
        if own > DUST_S:
            out.append(Charge(victim, reason, SELF, "", own))
        if lost > DUST_S:
            out.append(Charge(victim, reason, CAPACITY, "", lost))
        if policy > DUST_S:
            out.append(Charge(victim, reason, POLICY, "", policy))
        for column, s in zip(columns, charged, strict=True):
            if s <= DUST_S:
                break
            out.append(Charge(victim, reason, TENANT, holders[column], s))
        if others > DUST_S:
            out.append(Charge(victim, reason, OTHERS, "", others))
    return out


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
