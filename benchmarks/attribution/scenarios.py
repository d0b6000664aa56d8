"""Random incidents as values: a setup, calm arrivals, what was added to them, and the window asked.

Owns what is drawn; runs nothing. What is added to a tenant's calm arrivals is kept apart (`excess`
of a player): taking it away again *is* the tenant at its own rate before the onset. A player is
whatever can be taken away: a tenant's excess, the fault of an engine, or a change of policy.
Everything hangs on the seed: kind and policy go round, so that any span of seeds holds them evenly.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.attribution.shapes import (
    CALM,
    SHAPES,
    Mix,
    Pool,
    make_pool,
    poisson,
    wave_times,
)
from engine.config import Tenant
from engine.simulation.setup import Setup
from engine.simulation.workload import AdapterSpec, Arrival, Change, Fault, Retry

POLICIES = ("fcfs", "vtc", "round-robin")
# What one tenant's flood is made of; `two` and `decoy` take two, the others are no flood.
FLOODS = ("burst", "long-context", "long-prefill", "adapter-churn", "fan-out")
KINDS = (
    *FLOODS, "two-culprits", "decoy", "bystander-flood", "flood-slow", "new-culprit",
    "policy-change", "self-inflicted", "everyone-grew", "slow", "frozen", "lost",
    "quiet", "quiet-bystander", "bystander-slow", "harmless-rise", "quiet-newcomer",
)  # fmt: skip
PERTURBED = ("lost-minutes", "lost-engine", "clock-step", "newcomer", "gone")
PERTURBED_PART = 0.4  # of the incidents have one of these beside
CAPACITY, CHANGE = "capacity", "change"
MOST_REQUESTS = 5000  # of an incident; of a larger one every arrival is as likely to stay


@dataclass(frozen=True, slots=True)
class Player:
    """What can be taken away. `kind`: tenant, capacity (faults) or change; `tenant` whose."""

    kind: str
    tenant: str = ""

    @property
    def name(self) -> str:
        return self.tenant if self.kind == "tenant" else self.kind


@dataclass(frozen=True, slots=True)
class Scenario:
    """One incident. Seconds are the simulation's; `asked` is the window somebody asks about.

    `dropped_s`: minutes whose rows are lost; `step`: (from when on, how far) a clock jumps ahead.
    """

    seed: int
    kind: str
    perturbed: str
    setup: Setup
    calm: tuple[Arrival, ...]
    excess: dict[Player, tuple[Arrival, ...]]
    players: tuple[Player, ...]
    onset_s: float
    over_s: float
    end_s: float
    asked_s: tuple[float, float]
    dropped_s: tuple[float, ...] = ()
    step: tuple[float, float] | None = None

    @property
    def policy(self) -> str:
        return self.setup.policy

    def arrivals(self, present: Collection[Player]) -> Iterator[Arrival]:
        """Of the calm and of the players that are there, in order of time."""
        streams = [self.calm, *(self.excess[p] for p in self.players if p in present)]
        return heapq.merge(*streams, key=lambda a: a.at_s)

    def setup_of(self, present: Collection[Player]) -> Setup:
        kinds = {p.kind for p in present}
        setup = self.setup
        if setup.faults and CAPACITY not in kinds:
            setup = replace(setup, faults=())
        if setup.changes and CHANGE not in kinds:
            setup = replace(setup, changes=())
        return setup

    @property
    def requests(self) -> int:
        return len(self.calm) + sum(len(x) for x in self.excess.values())


def make(seed: int) -> Scenario:
    """The incident of a seed. Seeds 2n and 2n+1 are of one kind and policy: alike halves."""
    return Draw(seed, kind_of(seed), policy_of(seed)).scenario()


def policy_of(seed: int) -> str:
    turn = seed // 2
    return POLICIES[(turn // len(KINDS) + turn) % len(POLICIES)]


def kind_of(seed: int) -> str:
    return KINDS[seed // 2 % len(KINDS)]


class Draw:
    """Draws one scenario, step by step; thrown away when it is made. `bulk`: how many times a
    shape's own number of requests a flood may have; `rank`: of everybody's own adapter."""

    bulk, rank = 1, 16

    def __init__(self, seed: int, kind: str, policy: str) -> None:
        self.seed, self.kind, self.policy = seed, kind, policy
        self.rng = rng = random.Random(f"attribution {seed}")
        self._sizes(rng)
        self.calm: list[Arrival] = []
        self.excess: dict[Player, tuple[Arrival, ...]] = {}
        self.players: list[Player] = []
        self.adapters = [
            AdapterSpec(f"{n}-a", self.rank, i) for i, n in enumerate(sorted(self.names))
        ]
        self.faults: list[Fault] = []
        self.changes: list[Change] = []
        self.retries: list[Retry] = []
        self.limits: dict[str, dict[str, Any]] = {}  # keys of a tenant's settings

    def _sizes(self, rng: random.Random) -> None:
        """When, how long, how many, how large a pool and how full."""
        kind = self.kind
        self.perturbed = rng.choice(PERTURBED) if rng.random() < PERTURBED_PART else ""
        self.onset_s = 60.0 * rng.randint(13, 20) + rng.uniform(0, 60)
        self.length_s = rng.uniform(90, 300)
        self.over_s = self.onset_s + self.length_s
        self.end_s = self.over_s + 60.0 * rng.randint(6, 9)
        self.names = [f"t{i:02d}" for i in range(rng.randint(4, 13))]
        rng.shuffle(self.names)
        # A fault of an engine hurts nobody while the pool is nearly idle.
        busy = kind in ("slow", "lost", "bystander-slow", "everyone-grew", "frozen")
        self.load = rng.uniform(0.45, 0.7) if busy else rng.uniform(0.15, 0.5)
        replicas = 2 if kind == "lost" or self.perturbed == "lost-engine" else 1
        self.pool: Pool = make_pool(rng, kind, self.load, replicas)

    def scenario(self) -> Scenario:
        culprit = self.names[0]
        self._everyday(culprit)
        getattr(self, "_" + self.kind.replace("-", "_"), self._flood_alone)(culprit)
        dropped, step = self._perturb()
        self._thin()
        rng = self.rng
        begins = self.onset_s - 60.0 * rng.uniform(1, 6)
        ends = min(self.end_s, self.over_s + 60.0 * rng.uniform(2, 7))
        setup = Setup(
            f"{self.kind} {self.seed}", self.pool.machine, (self.pool.spec,), self._tenants(),
            tuple(self.adapters), self.policy, self.seed, 60.0, faults=tuple(self.faults),
            retries=tuple(self.retries), changes=tuple(self.changes),
        )  # fmt: skip
        return Scenario(
            self.seed, self.kind, self.perturbed, setup,
            tuple(sorted(self.calm, key=lambda a: a.at_s)), self.excess, tuple(self.players),
            self.onset_s, self.over_s, self.end_s, (begins, ends), dropped, step,
        )  # fmt: skip

    def _thin(self) -> None:
        """Draws from a generator of its own: what the incident hangs on else stays as it is."""
        whole = len(self.calm) + sum(map(len, self.excess.values()))
        if whole <= MOST_REQUESTS:
            return
        streams: list[tuple[Player | None, Sequence[Arrival]]] = [(None, self.calm)]
        streams += self.excess.items()
        numbered = [(who, i) for who, arrivals in streams for i in range(len(arrivals))]
        stay = set(random.Random(f"thinned {self.seed}").sample(numbered, MOST_REQUESTS))
        for who, arrivals in streams:
            left = [a for i, a in enumerate(arrivals) if (who, i) in stay]
            if who is None:
                self.calm = left
            else:
                self.excess[who] = tuple(left)

    def _tenants(self) -> tuple[Tenant, ...]:
        rng, made = self.rng, []
        for name in sorted(self.names):
            weight = rng.choice((1.0, 1.0, 1.0, 2.0, 4.0))
            made.append(Tenant(name, weight=weight, slo=self.pool.slo, **self.limits.get(name, {})))
        return tuple(made)

    # -- the calm

    def _everyday(self, culprit: str) -> None:
        """Everybody's own steady traffic; a bystander has as much as all the others together."""
        rng, rates = self.rng, {}
        even = self.kind == "everyone-grew"
        for name in self.names:
            rates[name] = rng.uniform(0.8, 1.2) if even else rng.uniform(0.5, 2.0)
        if self.kind.startswith(("bystander", "quiet-bystander")):
            rates[self.names[1]] = sum(rates.values()) * rng.uniform(0.7, 1.3)
        if self.kind == "new-culprit":
            rates[culprit] = 0.0
        whole = sum(rates.values())
        begins = dict.fromkeys(self.names, 0.0)
        ends = dict.fromkeys(self.names, self.end_s)
        other = self.names[-1]
        if self.perturbed == "newcomer" or self.kind == "quiet-newcomer":
            begins[other] = self.onset_s - 60.0 * rng.uniform(3, 8)
        if self.perturbed == "gone":
            ends[other] = self.onset_s - rng.uniform(-60, 240)
        heavy = self.names[1] if "bystander" in self.kind else None
        self.rates = {n: self.pool.rate_per_s * r / whole for n, r in rates.items()}
        for name in self.names:
            mix = CALM.longer(rng.uniform(1.0, 2.5)) if name == heavy else CALM
            rate = self.rates[name] * CALM.weight / mix.weight
            self.calm += self._drawn(name, mix, rate, begins[name], ends[name], f"{name}-a")

    def _drawn(
        self, tenant: str, mix: Mix, rate: float, start: float, end: float, adapter: str | None
    ) -> list[Arrival]:
        times = poisson(self.rng, rate, start, end)
        return [mix.arrival(self.rng, at, tenant, adapter) for at in times]

    # -- what is added

    def _flood(self, tenant: str, shape: str, start: float, end: float, pressure: float) -> Player:
        """`pressure`: what comes in all, as a part of what the pool can do."""
        rng, pace = self.rng, SHAPES[shape]
        mix = pace.mix.varied(rng)
        rate = max(0.05, pressure - self.load) * self.pool.most_per_s(mix)
        times = (
            wave_times(rng, rate, start, end) if pace.waves else poisson(rng, rate, start, end)
        )[: pace.most * self.bulk]
        names = [f"{tenant}-a"]
        if pace.adapters:
            names = [f"{tenant}-x{i}" for i in range(pace.adapters)]
            self.adapters += [AdapterSpec(n, pace.rank, 100 + i) for i, n in enumerate(names)]
        made = [mix.arrival(rng, at, tenant, names[i % len(names)]) for i, at in enumerate(times)]
        player = Player("tenant", tenant)
        self.excess[player] = tuple(made)
        self.players.append(player)
        return player

    def _pressure(self) -> float:
        return self.rng.uniform(1.3, 2.6)

    def _flood_alone(self, culprit: str) -> None:
        shape = self.kind if self.kind in SHAPES else self.rng.choice(FLOODS[:3])
        self._flood(culprit, shape, self.onset_s, self.over_s, self._pressure())

    def _two_culprits(self, culprit: str) -> None:
        rng, second = self.rng, self.names[1]
        shapes = rng.sample(("burst", "long-context", "fan-out"), 2)
        late = rng.uniform(0, 0.3) * self.length_s
        self._flood(culprit, shapes[0], self.onset_s, self.over_s, rng.uniform(0.9, 1.5))
        self._flood(second, shapes[1], self.onset_s + late, self.over_s, rng.uniform(0.9, 1.5))

    def _decoy(self, culprit: str) -> None:
        self._flood(culprit, "long-context", self.onset_s, self.over_s, self._pressure())
        self._flood(self.names[1], "decoy", self.onset_s, self.over_s, 10.0)

    def _flood_slow(self, culprit: str) -> None:
        self._flood_alone(culprit)
        at = self.onset_s + self.rng.uniform(0, 0.5) * self.length_s
        self._fault("slow", at, self.rng.uniform(60, 180), self.rng.uniform(1.3, 1.8))

    def _policy_change(self, culprit: str) -> None:
        """A cap is lifted under a tenant that has long asked for more than it lets through."""
        rng = self.rng
        self.limits[culprit] = {"concurrency": 1}
        mix = SHAPES["burst"].mix.varied(rng)
        rate = (self._pressure() - self.load) * self.pool.most_per_s(mix)
        start = 60.0 * rng.randint(1, 4)
        begun = self._drawn(culprit, mix, rate, start, self.over_s, f"{culprit}-a")
        self.calm += begun
        self.changes.append(
            Change(self.onset_s, tenant=culprit, limits=(("concurrency", None),), who="ops")
        )
        self._player(Player(CHANGE, culprit))

    def _self_inflicted(self, culprit: str) -> None:
        """It floods, and goes behind everybody else: only it waits."""
        self.limits[culprit] = {"tier": 1}
        self._flood(culprit, "burst", self.onset_s, self.over_s, self.rng.uniform(1.1, 1.7))

    def _everyone_grew(self, culprit: str) -> None:
        factor = self.rng.uniform(2.0, 3.0)
        for name in self.names:
            more = self.rates[name] * (factor * self.rng.uniform(0.85, 1.15) - 1.0)
            self.calm += self._drawn(name, CALM, more, self.onset_s, self.over_s, f"{name}-a")

    def _slow(self, culprit: str) -> None:
        self._fault("slow", self.onset_s, self.length_s, self.rng.uniform(1.4, 2.5))

    def _frozen(self, culprit: str) -> None:
        self._fault("freeze", self.onset_s, self.rng.uniform(10, 60), 1.0)

    def _lost(self, culprit: str) -> None:
        self._fault("lost", self.onset_s, self.length_s, 1.0, replica=1)

    def _bystander_slow(self, culprit: str) -> None:
        self._slow(culprit)

    def _quiet(self, culprit: str) -> None:
        """Nothing happens."""

    _quiet_bystander = _quiet_newcomer = _quiet

    def _harmless_rise(self, culprit: str) -> None:
        """It asks for several times its usual, and the pool bears it."""
        mix = CALM.varied(self.rng)
        room = max(0.05, 0.7 - self.load)
        rate = min(room * self.pool.most_per_s(mix), self.rates[culprit] * 6)
        made = self._drawn(culprit, mix, rate, self.onset_s, self.over_s, f"{culprit}-a")
        player = Player("tenant", culprit)
        self.excess[player] = tuple(made)
        self.players.append(player)

    def _fault(self, kind: str, at: float, length: float, factor: float, replica: int = 0) -> None:
        self.faults.append(Fault(kind, at, length, factor, replica=replica))
        self._player(Player(CAPACITY))

    def _player(self, player: Player) -> None:
        if player not in self.players:
            self.players.append(player)
            self.excess[player] = ()

    # -- what goes wrong with the telling

    def _perturb(self) -> tuple[tuple[float, ...], tuple[float, float] | None]:
        rng = self.rng
        dropped: tuple[float, ...] = ()
        step = None
        if self.perturbed == "lost-minutes":
            first, last = int(self.onset_s // 60), int(self.over_s // 60)
            calm = rng.sample(range(2, first), rng.randint(1, 5))
            during = rng.sample(range(first, last + 1), 1)
            dropped = tuple(60.0 * m for m in sorted([*calm, *during]))
        if self.perturbed == "lost-engine" and self.kind != "lost":
            at = self.onset_s + rng.uniform(0, 0.6) * self.length_s
            self._fault("lost", at, rng.uniform(45, 120), 1.0, replica=1)
        if self.perturbed == "clock-step":
            at = rng.uniform(0.3 * self.onset_s, self.over_s)
            step = (at, rng.choice((5.0, 37.0, 60.0, 95.0)))
        return dropped, step
