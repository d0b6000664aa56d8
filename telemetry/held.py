"""Who held what: seconds charged beyond usual, by victim, holder and reason, over some buckets.

Adds matrices up in arrays and makes lines of them when they are asked for; judges nothing, and
hands nothing on (`telemetry.handed_on` does).
excess(victim, holder) = max(0, charged - usual rate x observed seconds x growth). A victim's excess
is the sum over its holders, so that its shares always close to 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from telemetry.baseline import Baseline
from telemetry.charged import Catalogue, Charges, Floats, Ints, catalogue_of
from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT
from telemetry.window import Bucket, engine_total, observed_s

CANDIDATE_SHARE = 0.1  # of the raw excess: such a tenant's growth is not the pool's


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Who held: a tenant by name, or self, capacity, policy, others (then `name` is empty)."""

    kind: str
    name: str = ""

    @property
    def is_tenant(self) -> bool:
        return self.kind == TENANT


SELF_HELD = Holder(SELF)
CAPACITY_HELD = Holder(CAPACITY)
POLICY_HELD = Holder(POLICY)
OTHERS_HELD = Holder(OTHERS)
NOT_TENANTS = (SELF_HELD, CAPACITY_HELD, POLICY_HELD, OTHERS_HELD)


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of one victim (or of all) behind one holder. `share` is of the excess.

    `reasons` splits `excess_s` by reason and closes to it. `handed_s` of the excess is charged to
    others that only stood in the same line, and was handed on to this one.
    """

    holder: Holder
    charged_s: float
    excess_s: float
    share: float
    reasons: tuple[tuple[str, float], ...]
    handed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of some victims. Three codes, seconds charged and of excess, and the part of the excess
    that was handed on; `victims`, `reasons` and `holders` say what the codes stand for. A cell may
    stand there twice: its seconds add."""

    victim: Ints
    reason: Ints
    holder: Ints
    charged: Floats
    excess: Floats
    handed: Floats
    victims: Sequence[str]
    reasons: Sequence[str]
    holders: Sequence[Holder]


class Lines(Protocol):
    """Whatever says behind whom: as charged (`Held`), or handed on (`HandedOn`)."""

    def lines(self, victims: Collection[str]) -> tuple[Line, ...]: ...

    def share(self, victim: str, holder: Holder) -> float: ...

    def top(self, victim: str) -> Line | None: ...


class Held:
    """Charged and excess seconds of every cell of a catalogue. Made once, by `of`; then read."""

    def __init__(self, catalogue: Catalogue, charged: Floats, usual: Floats) -> None:
        self._catalogue = catalogue
        self._codes = codes = catalogue.codes()
        self._charged = charged
        self._victims = [str(v) for v in catalogue.listed("victim")]
        self._holders = catalogue.holders()
        self._held_by = [Holder(kind, name) for kind, name in self._holders]
        self._reasons = [str(r) for r in catalogue.listed("reason")]
        pairs = catalogue.count("pair")
        over = np.maximum(0.0, charged - usual)
        pair_charged = np.bincount(codes.pair, weights=charged, minlength=pairs)
        pair_usual = np.bincount(codes.pair, weights=usual, minlength=pairs)
        pair_over = np.bincount(codes.pair, weights=over, minlength=pairs)
        pair_excess = np.maximum(0.0, pair_charged - pair_usual)
        part = np.where(pair_over > 0, pair_excess / np.where(pair_over > 0, pair_over, 1.0), 0.0)
        self._excess = over * part[codes.pair]
        # Cells with a charge, victim by victim, and where each victim's begin.
        there = np.flatnonzero(charged)
        self._cells = there[np.argsort(codes.victim[there], kind="stable")]
        self._starts = np.searchsorted(
            codes.victim[self._cells], np.arange(len(self._victims) + 1)
        ).tolist()
        self._shares: dict[Holder, Mapping[str, float]] = {}

    @classmethod
    def of(
        cls,
        buckets: Sequence[Bucket],
        baseline: Baseline,
        usual_pace: float,
        reasons: Sequence[str],
        growth: float,
    ) -> Held:
        """Add up the buckets' matrices, for these reasons, against the baseline's rates."""
        catalogue = catalogue_of([*(b.matrix for b in buckets), baseline.matrix])
        encoded = [catalogue.encode(b.matrix) for b in buckets]
        rates = catalogue.encode(baseline.matrix)
        codes = catalogue.codes()
        charged = np.zeros(len(catalogue.cells))
        for b, e in zip(buckets, encoded, strict=True):
            charged += with_usual_pace(b, e, usual_pace).summed()
        usual = rates.summed() * observed_s(buckets) * growth
        wanted = np.array([r in reasons for r in catalogue.listed("reason")], dtype=bool)
        away = ~wanted[codes.reason] if len(codes.reason) else np.zeros(0, dtype=bool)
        charged[away] = usual[away] = 0.0
        return cls(catalogue, charged, usual)

    def by_victim(self) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds charged, and of excess, of every victim that was charged anything."""
        names = self._victims
        charged = np.bincount(self._codes.victim, weights=self._charged, minlength=len(names))
        excess = np.bincount(self._codes.victim, weights=self._excess, minlength=len(names))
        there = np.flatnonzero(charged).tolist()
        return (
            {names[i]: float(charged[i]) for i in there},
            {names[i]: float(excess[i]) for i in there},
        )

    def candidates(self) -> set[str]:
        """Tenants that hold a tenth of all excess, their own waiting behind themselves included."""
        codes, whole = self._codes, float(self._excess.sum())
        held: dict[str, float] = {}
        behind = np.bincount(codes.holder, weights=self._excess, minlength=len(self._holders))
        for i in np.flatnonzero(behind).tolist():
            kind, name = self._holders[i]
            if kind == TENANT:
                held[name] = float(behind[i])
        code = self._catalogue.code("holder", (SELF, ""))
        own = self._excess * (codes.holder == (-1 if code is None else code))
        itself = np.bincount(codes.victim, weights=own, minlength=len(self._victims))
        for i in np.flatnonzero(itself).tolist():
            who = self._victims[i]
            held[who] = held.get(who, 0.0) + float(itself[i])
        return {t for t, s in held.items() if s >= CANDIDATE_SHARE * whole}

    def share(self, victim: str, holder: Holder) -> float:
        """The holder's part of one victim's excess."""
        return self.shares(holder).get(victim, 0.0)

    def shares(self, holder: Holder) -> Mapping[str, float]:
        """The holder's part of every victim's excess, where there is any."""
        if holder in self._shares:
            return self._shares[holder]
        names = self._victims
        code = self._catalogue.code("holder", (holder.kind, holder.name))
        excess = np.bincount(self._codes.victim, weights=self._excess, minlength=len(names))
        mine = self._excess * (self._codes.holder == (-1 if code is None else code))
        own = np.bincount(self._codes.victim, weights=mine, minlength=len(names))
        made = {names[i]: float(own[i] / excess[i]) for i in np.flatnonzero(excess).tolist()}
        self._shares[holder] = made
        return made

    def top(self, victim: str) -> Line | None:
        """The line of one victim with the largest excess; None where it has none."""
        at = self._catalogue.code("victim", victim)
        if at is None:
            return None
        cells = self._cells[self._starts[at] : self._starts[at + 1]]
        holders, place = np.unique(self._codes.holder[cells], return_inverse=True)
        excess = np.bincount(place, weights=self._excess[cells], minlength=len(holders))
        whole = float(excess.sum())
        if not whole:
            return None
        best = int(np.argmax(excess))
        mine = cells[place == best]
        by = sorted(
            (
                (self._reasons[r], float(s))
                for r, s in zip(
                    self._codes.reason[mine].tolist(), self._excess[mine].tolist(), strict=True
                )
                if s > 0
            ),
            key=lambda p: -p[1],
        )
        kind, name = self._holders[int(holders[best])]
        seconds = float(excess[best])
        charged = float(self._charged[mine].sum())
        return Line(Holder(kind, name), charged, seconds, seconds / whole, tuple(by))

    @property
    def victims(self) -> Sequence[str]:
        """Everybody that was charged for anything, then or usually."""
        return self._victims

    def cells(self, victims: Collection[str]) -> Cells:
        """What these victims were charged for."""
        codes = self._codes
        at = {c for v in victims if (c := self._catalogue.code("victim", v)) is not None}
        slices = [self._cells[self._starts[c] : self._starts[c + 1]] for c in sorted(at)]
        cells = np.concatenate([*slices, np.zeros(0, dtype=np.intp)])
        return Cells(
            codes.victim[cells],
            codes.reason[cells],
            codes.holder[cells],
            self._charged[cells],
            self._excess[cells],
            np.zeros(len(cells)),
            self._victims,
            self._reasons,
            self._held_by,
        )

    def lines(self, victims: Collection[str]) -> tuple[Line, ...]:
        """What these victims waited, by holder; see `lines_of`."""
        return lines_of(self.cells(victims))


def lines_of(cells: Cells) -> tuple[Line, ...]:
    """By holder: tenants by excess, then self, capacity, policy and others, present even at 0.
    Shares are of all the excess."""
    width = max(1, len(cells.reasons))
    found, holder = np.unique(cells.holder, return_inverse=True)
    charged = np.bincount(holder, weights=cells.charged, minlength=len(found))
    handed = np.bincount(holder, weights=cells.handed, minlength=len(found))
    excess = np.bincount(
        holder * width + cells.reason, weights=cells.excess, minlength=len(found) * width
    ).reshape(-1, width)
    rows: dict[Holder, _Row] = dict.fromkeys(NOT_TENANTS, (0.0, 0.0, 0.0, ()))
    for code, total, moved, seconds in zip(
        found.tolist(), charged.tolist(), handed.tolist(), excess.tolist(), strict=True
    ):
        by = [(cells.reasons[r], s) for r, s in enumerate(seconds) if s > 0]
        by.sort(key=lambda p: -p[1])
        rows[cells.holders[code]] = total, sum(s for _, s in by), moved, tuple(by)
    whole = sum(e for _, e, _, _ in rows.values())
    return tuple(
        Line(h, c, e, e / whole if whole else 0.0, by, moved)
        for h, (c, e, moved, by) in sorted(rows.items(), key=_place)
    )


# Charged, excess, handed on, and the excess by reason.
_Row = tuple[float, float, float, tuple[tuple[str, float], ...]]


def _place(row: tuple[Holder, _Row]) -> tuple[float, float, float, str]:
    holder, (charged, excess, _, _) = row
    if holder.is_tenant:
        return 0.0, -excess, -charged, holder.name
    return 1.0, float(NOT_TENANTS.index(holder)), 0.0, ""


def with_usual_pace(bucket: Bucket, charges: Charges, usual_pace: float) -> Charges:
    """The bucket's charges with the usual slowness given back to the holders.

    A model that reads low by the same factor on calm buckets is a mis-scaled model, no slow
    engine: of what was booked as lost capacity only the part beyond `usual_pace` x predicted
    stays; the rest goes to the holders of the same wait in proportion. They still sum to it.
    """
    busy, predicted = engine_total([bucket], "busy_s"), engine_total([bucket], "predicted_s")
    if usual_pace <= 1.0 or busy is None or not predicted or busy <= predicted:
        return charges
    beyond = max(0.0, busy - usual_pace * predicted) / (busy - predicted)
    catalogue, codes = charges.catalogue, charges.catalogue.codes()
    at, seconds = charges.places, charges.seconds
    wait = codes.wait[at]
    code = catalogue.code("holder", (CAPACITY, ""))
    lost = codes.holder[at] == (-1 if code is None else code)
    waits = catalogue.count("wait")
    capacity = np.bincount(wait, weights=seconds * lost, minlength=waits)
    others = np.bincount(wait, weights=seconds * ~lost, minlength=waits)
    # Pages that are free are capacity too, and no matter of pace.
    kv = catalogue.code("reason", "kv")
    paced = (others[wait] > 0) & (codes.reason[at] != (-1 if kv is None else kv))
    given = capacity[wait] * (1 - beyond) / np.where(others[wait] > 0, others[wait], 1.0)
    out = np.where(lost, seconds * beyond, seconds * (1 + given))
    return Charges(catalogue, at, np.where(paced, out, seconds))
