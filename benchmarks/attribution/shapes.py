"""What requests of a flood and of the calm look like, and how much of them a pool can do.

Values and arithmetic; draws lengths and instants from the generator it is given.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from engine.config import PoolSpec, Slo
from engine.costs import CostModel
from engine.simulation.hardware import PRESETS
from engine.simulation.setup import Machine, machine_of
from engine.simulation.workload import Arrival

PRESET = PRESETS["a10g-llama2-7b"]
SLOWEST, FASTEST = 16.0, 1.0  # times the preset's own steps


@dataclass(frozen=True, slots=True)
class Mix:
    """Requests alike: each whole number of tokens between the two is as likely."""

    prompt: tuple[int, int]
    output: tuple[int, int]

    @property
    def prompt_mean(self) -> float:
        return sum(self.prompt) / 2

    @property
    def output_mean(self) -> float:
        return sum(self.output) / 2

    @property
    def weight(self) -> float:
        """Service of a request, on average: VTC's 1 and 2."""
        return self.prompt_mean + 2 * self.output_mean

    def arrival(self, rng: random.Random, at: float, tenant: str, adapter: str | None) -> Arrival:
        prompt, output = rng.randint(*self.prompt), rng.randint(*self.output)
        return Arrival(at, tenant, adapter, prompt, output, rng.getrandbits(32))

    def longer(self, factor: float) -> Mix:
        a, b = self.prompt
        c, d = self.output
        return Mix((int(a * factor), int(b * factor)), (int(c * factor), int(d * factor)))

    def varied(self, rng: random.Random) -> Mix:
        """The same kind, up to a fifth shorter."""
        return self.longer(rng.uniform(0.8, 1.0))


@dataclass(frozen=True, slots=True)
class Pace:
    """How a flood comes: `waves` = many at one instant, again and again; `most` requests.

    `adapters` of rank `rank` in turn, 0 = the tenant's own one.
    """

    mix: Mix
    waves: bool = False
    most: int = 1000
    adapters: int = 0
    rank: int = 16


CALM = Mix((60, 420), (6, 24))
SHAPES: dict[str, Pace] = {
    "burst": Pace(Mix((200, 500), (8, 32)), most=400),
    "long-context": Pace(Mix((1300, 2400), (20, 60)), most=160),
    "long-prefill": Pace(Mix((2600, 3800), (1, 4)), most=120),
    "adapter-churn": Pace(Mix((60, 240), (2, 8)), most=400, adapters=14, rank=64),
    "fan-out": Pace(Mix((400, 1200), (8, 32)), waves=True, most=250),
    "decoy": Pace(Mix((4, 16), (1, 2)), most=800),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool, the machine under it, what is promised, and the calm's requests a second."""

    machine: Machine
    spec: PoolSpec
    slo: Slo
    rate_per_s: float

    def most_per_s(self, mix: Mix) -> float:
        return most_per_s(self.machine.costs, self.spec, mix)


def most_per_s(costs: CostModel, spec: PoolSpec, mix: Mix) -> float:
    """Requests a second that the pool could do at most were they all alike, roughly: as many at
    once as slots and pages bear, each step a token of each and its part of the prompts."""
    limits = spec.limits
    tokens = limits.pool_bytes // PRESET.page_bytes * limits.page_tokens * 0.85
    context = mix.prompt_mean + mix.output_mean / 2
    prefill_s = mix.prompt_mean * costs.prefill_token_s + costs.context_token_s * (
        mix.prompt_mean**2 / 2
    )
    at_once = max(1.0, min(limits.slots, tokens / (mix.prompt_mean + mix.output_mean)))
    row_s = costs.decode_row_s + costs.context_token_s * context
    outputs = mix.output_mean
    chunks = mix.prompt_mean / limits.step_tokens
    step_s = costs.base_s + at_once * row_s
    each_s = prefill_s + chunks * costs.base_s + outputs * step_s / at_once
    return spec.replicas / each_s


def make_pool(rng: random.Random, kind: str, load: float, replicas: int) -> Pool:
    """A pool on which the calm is `load` of what it could do."""
    tokens = rng.choice((6_000, 8_000, 10_000, 14_000))
    whole = kind == "long-prefill" and rng.random() < 0.5  # a prompt in one step: others stall
    limits = replace(
        PRESET.limits,
        slots=rng.choice((8, 16, 32)),
        step_tokens=4096 if whole else rng.choice((256, 512)),
        pool_bytes=tokens // 16 * PRESET.page_bytes,
        prefix_cache=False,
        host_adapters=4 if kind == "adapter-churn" else 64,
    )
    spec = PoolSpec("main", replicas, limits)
    machine = machine_of(PRESET)
    rate = rng.uniform(0.3, 0.6)
    scale = load * most_per_s(machine.costs, spec, CALM) / rate
    scale = min(SLOWEST, max(FASTEST, scale))
    rate = load * most_per_s(machine.costs, spec, CALM) / scale
    machine = replace(machine, costs=replace(machine.costs.scaled(scale), version=1))
    slo = Slo(ttft_s=rng.choice((0.5, 0.7, 1.0)) * max(2.0, scale), max_gap_s=max(2.0, scale))
    return Pool(machine, spec, slo, min(rate, 0.9))


def poisson(rng: random.Random, rate: float, start: float, end: float) -> list[float]:
    times: list[float] = []
    at = start
    while rate > 0 and (at := at + rng.expovariate(rate)) < end:
        times.append(at)
    return times


def wave_times(rng: random.Random, rate: float, start: float, end: float) -> list[float]:
    """At `rate` on average, but everything of 15 to 40 s within one second."""
    times: list[float] = []
    at = start + rng.uniform(0, 2)
    while at < end:
        gap = rng.uniform(15, 40)
        times += sorted(at + rng.random() for _ in range(max(1, round(rate * gap))))
        at += gap
    return sorted(times)
