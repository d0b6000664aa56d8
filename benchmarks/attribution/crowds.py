"""Incidents among crowds: 100, 300 and 1,000 tenants of Zipf-like loads, as values.

Owns what is drawn differently where many share a pool; what a flood, a fault and a scenario are is
`scenarios`'. Three kinds have a culprit (one tenant floods; one never seen before does; three small
ones do at once), three have none (everyone grew; lost capacity; nothing). Most of a crowd is asking
for so little that a calm quarter of an hour has not seen it yet.
"""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.attribution.scenarios import POLICIES, Draw, Scenario
from benchmarks.attribution.shapes import FASTEST, PRESET, Mix, Pool, most_per_s, poisson
from engine.config import PoolSpec, Slo
from engine.simulation.setup import machine_of
from engine.simulation.workload import Arrival

SIZES = (100, 300, 1000)
CROWD_KINDS = (
    "crowd-flood", "crowd-grew", "crowd-allied", "crowd-capacity", "crowd-new", "crowd-quiet",
)  # fmt: skip
FLOODED = ("burst", "long-context", "fan-out")
ALLIED = 3
RATES_PER_S = {100: 2.0, 300: 3.0, 1000: 4.5}  # of the calm: several requests a minute for the head
SLOWEST = 6.0  # times the preset's own steps
SHORT = Mix((30, 210), (4, 16))  # a crowd's calm request: half of `CALM`
PERTURBED, PERTURBED_PART = ("lost-minutes", "clock-step"), 0.25


def make_crowd(seed: int) -> Scenario:
    """The incident of a seed. Kinds, sizes and policies go round; even seeds are for tuning."""
    return _CrowdDraw(seed, crowd_kind_of(seed), crowd_policy_of(seed)).scenario()


def crowd_policy_of(seed: int) -> str:
    turn = seed // 2
    around = turn // len(CROWD_KINDS)
    return POLICIES[(turn + around + around // len(SIZES)) % len(POLICIES)]


def crowd_kind_of(seed: int) -> str:
    return CROWD_KINDS[seed // 2 % len(CROWD_KINDS)]


def size_of(seed: int) -> int:
    """How many tenants the crowd of a seed has."""
    return SIZES[seed // 2 // len(CROWD_KINDS) % len(SIZES)]


class _CrowdDraw(Draw):
    """A crowd's incident: a few minutes of calm, one or three of harm, and what follows."""

    bulk, rank = 4, 8

    def _sizes(self, rng: random.Random) -> None:
        kind = self.kind
        self.perturbed = rng.choice(PERTURBED) if rng.random() < PERTURBED_PART else ""
        self.onset_s = 60.0 * rng.randint(8, 10) + rng.uniform(0, 60)
        self.length_s = rng.uniform(80, 160)
        self.over_s = self.onset_s + self.length_s
        self.end_s = self.over_s + 60.0 * rng.randint(3, 4)
        size = size_of(self.seed)
        self.names = [f"t{i:04d}" for i in range(size)]
        rng.shuffle(self.names)
        # Where nobody floods, only a busy pool has anything to be wrong about.
        busy = kind in ("crowd-grew", "crowd-capacity", "crowd-quiet")
        self.load = rng.uniform(0.5, 0.8) if busy else rng.uniform(0.3, 0.6)
        self.lost = kind == "crowd-capacity" and rng.random() < 0.5
        self.pool = _crowd_pool(rng, self.load, RATES_PER_S[size], 2 if self.lost else 1)

    def _everyday(self, culprit: str) -> None:
        """The k-th tenant asks for 1/k^a of the first one's; whoever floods stands anywhere, but
        allies among the smaller half."""
        rng = self.rng
        exponent = rng.uniform(0.8, 1.2)
        small = set(self._culprits()) if self.kind == "crowd-allied" else set()
        ranked = [n for n in self.names if n not in small]
        rng.shuffle(ranked)
        for name in sorted(small):
            ranked.insert(rng.randint(len(ranked) // 2, len(ranked)), name)
        rates = {n: (k + 1) ** -exponent for k, n in enumerate(ranked)}
        if self.kind == "crowd-new":
            rates[culprit] = 0.0
        whole = sum(rates.values())
        self.rates = {n: self.pool.rate_per_s * r / whole for n, r in rates.items()}
        self.calm += self._crowd(1.0, 0.0, self.end_s)

    def _crowd(self, factor: float, start: float, end: float) -> list[Arrival]:
        """Everybody's requests at `factor` times their own rates."""
        out: list[Arrival] = []
        for name, rate in self.rates.items():
            times = poisson(self.rng, factor * rate, start, end)
            out += [SHORT.arrival(self.rng, at, name, f"{name}-a") for at in times]
        return out

    def _culprits(self) -> list[str]:
        return self.names[: ALLIED if self.kind == "crowd-allied" else 1]

    def _pressure(self) -> float:
        return self.rng.uniform(1.1, 2.2)

    def _crowd_flood(self, culprit: str) -> None:
        self._flood(culprit, self.rng.choice(FLOODED), self.onset_s, self.over_s, self._pressure())

    _crowd_new = _crowd_flood

    def _crowd_allied(self, culprit: str) -> None:
        """Three together do what one alone would be named for."""
        each = (self._pressure() - self.load) / ALLIED
        for name in self._culprits():
            begins = self.onset_s + self.rng.uniform(0, 0.2) * self.length_s
            self._flood(name, self.rng.choice(FLOODED[:2]), begins, self.over_s, self.load + each)

    def _crowd_grew(self, culprit: str) -> None:
        """1.8 to 2.8 times as much, of everybody."""
        self.calm += self._crowd(self.rng.uniform(0.8, 1.8), self.onset_s, self.over_s)

    def _crowd_capacity(self, culprit: str) -> None:
        if self.lost:
            self._fault("lost", self.onset_s, self.length_s, 1.0, replica=1)
        else:
            self._fault("slow", self.onset_s, self.length_s, self.rng.uniform(1.6, 2.5))

    def _crowd_quiet(self, culprit: str) -> None:
        """Nothing happens."""


def _crowd_pool(rng: random.Random, load: float, rate: float, replicas: int) -> Pool:
    """A pool on which so many requests a second are `load` of what it could do."""
    limits = replace(
        PRESET.limits,
        slots=rng.choice((32, 48, 64)),
        step_tokens=rng.choice((512, 1024)),
        pool_bytes=rng.choice((16_000, 24_000)) // 16 * PRESET.page_bytes,
        prefix_cache=False,
        adapters_per_step=64,
    )
    spec = PoolSpec("main", replicas, limits)
    machine = machine_of(PRESET)
    scale = load * most_per_s(machine.costs, spec, SHORT) / rate
    scale = min(SLOWEST, max(FASTEST, scale))
    rate = load * most_per_s(machine.costs, spec, SHORT) / scale
    machine = replace(machine, costs=replace(machine.costs.scaled(scale), version=1))
    slo = Slo(ttft_s=rng.choice((0.5, 0.7, 1.0)) * max(2.0, scale), max_gap_s=max(2.0, scale))
    return Pool(machine, spec, slo, min(rate, 1.2 * RATES_PER_S[1000]))
