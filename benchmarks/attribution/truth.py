"""What is true of an incident: the same run again without each player, and Shapley over those.

Owns the replays and their arithmetic; judges nothing. A run is the same simulation (same seed, same
arrivals) with some players taken away; a value is what one tenant's requests waited in it, in all.
A player's part is its mean marginal contribution over every order of taking players away (Shapley,
1953): for one player simply the run minus the run without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from benchmarks.attribution.scenarios import CAPACITY, Player, Scenario
from engine.simulation.columns import Columns
from engine.simulation.simulate import simulate
from telemetry.tables import TABLE_OF

WAIT, LATENCY = "wait", "latency"
FLOOR_S = 10.0  # less excess than that, and shares of it say nothing
HARM_S = 2.0  # less than that is nobody's doing
MIN_MISSES = 3  # more than without the players: harm
GUILTY, INNOCENT = 0.5, 0.25  # of the excess: from here on one is a culprit; up to here none
PAIR, PAIR_FIRST = 0.6, 0.3  # of two together, and of the first of them
NEAR = 0.1  # of the excess: two so close are both first
SELF, OTHERS = "self", "others"


@dataclass(frozen=True, slots=True)
class Lived:
    """One tenant in one run: seconds its requests waited, and were under way; targets missed."""

    wait_s: float
    latency_s: float
    missed: int

    def of(self, measure: str) -> float:
        return self.wait_s if measure == WAIT else self.latency_s


Runs = Mapping[frozenset[Player], Mapping[str, Lived]]
NOTHING = Lived(0.0, 0.0, 0)


class Rows:
    """The rows of a run, by table."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {}

    def submit(self, batch: Any) -> None:
        for row in (*batch.minutes, *batch.logs):
            self.tables.setdefault(TABLE_OF[type(row)].name, []).append(row)


def play(scenario: Scenario) -> tuple[Rows, Runs]:
    """The incident with its rows, and every run without some of its players (2 to the power of
    their number, the first one included)."""
    rows = Rows()
    everyone = frozenset(scenario.players)
    runs = {everyone: _run(scenario, everyone, rows)}
    for size in range(len(everyone)):
        for present in combinations(scenario.players, size):
            runs[frozenset(present)] = _run(scenario, frozenset(present), None)
    return rows, runs


def _run(scenario: Scenario, present: frozenset[Player], rows: Rows | None) -> Mapping[str, Lived]:
    made = simulate(scenario.arrivals(present), scenario.setup_of(present), rows=rows)
    return lived(made.columns, scenario)


def lived(columns: Columns, scenario: Scenario) -> dict[str, Lived]:
    slos = {t.name: t.slo for t in scenario.setup.tenants}
    waits, spans, missed = ([0.0] * len(columns.tenants) for _ in range(3))
    for i, number in enumerate(columns.tenant):
        slo = slos[columns.tenants[number]]
        waits[number] += (
            columns.slot_s[i] + columns.budget_s[i] + columns.kv_s[i] + columns.adapter_s[i]
        )
        spans[number] += columns.ended_s[i] - columns.arrived_s[i]
        # One that never came, NaN, is missed too.
        late = not columns.ttft_s[i] <= (slo.ttft_s or math.inf)
        missed[number] += late or columns.max_gap_s[i] > (slo.max_gap_s or math.inf)
    return {t: Lived(waits[n], spans[n], int(missed[n])) for n, t in enumerate(columns.tenants)}


def _whole(runs: Runs) -> frozenset[Player]:
    """The run that everybody was in."""
    return max(runs, key=lambda present: len(present))


def parts(runs: Runs, tenants: Collection[str], measure: str) -> dict[Player, dict[str, float]]:
    """Each player's Shapley value of each tenant's seconds: player, then tenant."""
    players = sorted(_whole(runs), key=lambda p: p.name)
    n = len(players)
    out: dict[Player, dict[str, float]] = {}
    for player in players:
        rest = [p for p in players if p != player]
        mine = dict.fromkeys(tenants, 0.0)
        for size in range(n):
            weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for others in combinations(rest, size):
                without = runs[frozenset(others)]
                with_it = runs[frozenset((*others, player))]
                for t in tenants:
                    more = with_it.get(t, NOTHING).of(measure) - without.get(t, NOTHING).of(measure)
                    mine[t] += weight * more
        out[player] = mine
    return out


@dataclass(frozen=True, slots=True)
class Truth:
    """Of some tenants' excess: who made how much. `shares` by tenant, self and capacity close to
    1, empty where the excess is below the floor."""

    excess_s: float
    shares: Mapping[str, float]


def truth_for(
    runs: Runs, tenants: Collection[str], measure: str = WAIT, floor_s: float = FLOOR_S
) -> Truth:
    """A tenant that made its own waiting longer stands as `self`. Parts below 0 count as none."""
    sums: dict[str, float] = {}
    for player, values in parts(runs, tenants, measure).items():
        for tenant, seconds in values.items():
            who = SELF if player.tenant == tenant else player.tenant or CAPACITY
            sums[who] = sums.get(who, 0.0) + seconds
    kept = {who: max(0.0, s) for who, s in sums.items()}
    whole = sum(kept.values())
    shares = {who: s / whole for who, s in kept.items() if s} if whole >= floor_s else {}
    return Truth(whole, shares)


CULPRIT, NONE, UNCLEAR = "culprit", "none", "unclear"


@dataclass(frozen=True, slots=True)
class Facts:
    """What an incident is. `kind`: culprit (tenants made most of others' excess), none, or unclear
    (in between). `victims` missed targets that they would have kept without the players; `shares`
    are of their excess; `missed` so many more in all; `seconds` is which of the two measures."""

    kind: str
    victims: tuple[str, ...]
    missed: int
    excess_s: float
    shares: Mapping[str, float]
    measure: str

    @property
    def first(self) -> tuple[str, ...]:
        """The tenant that made most, and whoever is within NEAR of it."""
        return leaders(self.shares)


def leaders(shares: Mapping[str, float]) -> tuple[str, ...]:
    tenants = {t: s for t, s in shares.items() if t not in (SELF, OTHERS, CAPACITY)}
    most = max(tenants.values(), default=0.0)
    return tuple(sorted(t for t, s in tenants.items() if s >= most - NEAR and s > 0))


def facts(runs: Runs) -> Facts:
    """Victims are looked for among all but those whose own excess or limit is a player's."""
    whole = _whole(runs)
    accused = {p.tenant for p in whole}
    with_all, with_none = runs[whole], runs[frozenset()]
    more = {
        t: lived.missed - with_none.get(t, NOTHING).missed
        for t, lived in with_all.items()
        if t not in accused
    }
    victims = tuple(sorted(t for t, m in more.items() if m >= MIN_MISSES))
    found, measure = truth_for(runs, victims), WAIT
    if not found.shares:
        # Who misses without waiting is stalled: its requests take longer.
        found, measure = truth_for(runs, victims, LATENCY), LATENCY
    blamed = sorted((found.shares.get(t, 0.0) for t in leaders(found.shares)), reverse=True)
    tenants = sum(s for t, s in found.shares.items() if t not in (SELF, CAPACITY))
    kind = UNCLEAR
    if not victims or tenants <= INNOCENT:
        kind = NONE
    elif blamed[0] >= GUILTY or (tenants >= PAIR and blamed[0] >= PAIR_FIRST):
        kind = CULPRIT
    return Facts(
        kind, victims, sum(more[v] for v in victims), found.excess_s, found.shares, measure
    )
