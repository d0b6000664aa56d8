"""Reads `workload.toml` and draws the arrivals it describes. Pure: a seed, no clock.

A workload names tenants (with limits and SLOs), synthetic adapters, the pool's limits and streams
of traffic. Arrivals are open-loop: they come when the file says, whatever the engine does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from engine.config import Limits, Tenant, read_limits, read_name, read_tenant
from engine.costs import CostModel, StepFeatures
from engine.errors import WorkloadError
from telemetry.settings import Reader, SettingsError, read_toml


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """A synthetic adapter to make."""

    name: str
    rank: int
    seed: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """One stream: a tenant's requests between two instants of the workload's time.

    `rate_per_s` with Poisson or evenly spaced arrivals. Lengths are drawn evenly from (low, high).
    """

    tenant: str
    adapters: tuple[str, ...]
    start_s: float
    end_s: float
    rate_per_s: float
    spacing: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when, whose, with which adapter, how long. `seed` makes its prompt."""

    at_s: float
    tenant: str
    adapter: str | None
    prompt_tokens: int
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    seed: int
    calm_s: float  # before the incident
    incident_s: float  # length of the incident's arrivals, calm excluded
    suspect: str | None  # the tenant that floods, for the demo's own words
    bucket_s: float
    reference_step_s: float  # a full step of prefill on the machine it was sized for
    limits: Limits
    tenants: tuple[Tenant, ...]
    adapters: tuple[AdapterSpec, ...]
    traffic: tuple[Traffic, ...]

    def arrivals(self, start_s: float, end_s: float, pace: float = 1.0) -> list[Arrival]:
        """All arrivals in [start_s, end_s), in order, at `pace` times the rates. Each stream has
        a seed of its own: the same span gives the same arrivals whatever else is drawn."""
        out: list[Arrival] = []
        for index, t in enumerate(self.traffic):
            rng = random.Random(f"{self.seed}/{index}/{t.tenant}")
            at = t.start_s
            while True:
                rate = t.rate_per_s * pace
                at += 1 / rate if t.spacing == "even" else rng.expovariate(rate)
                if at >= t.end_s:
                    break
                arrival = Arrival(
                    at,
                    t.tenant,
                    rng.choice(t.adapters) if t.adapters else None,
                    rng.randint(*t.prompt_tokens),
                    rng.randint(*t.output_tokens),
                    rng.randrange(2**31),
                )
                if start_s <= at < end_s:
                    out.append(arrival)
        return sorted(out, key=lambda a: a.at_s)

    def pace(self, costs: CostModel) -> float:
        """This machine against the one the workload was sized for, by a worker's cost model:
        1 = as fast. Never above 1: more load would show nothing new."""
        chunk = self.limits.step_tokens
        # A busy step: a full chunk deep in a context, beside six decoding rows, three adapters.
        step_s = costs.predict(StepFeatures(chunk, 6, chunk * 600 + 6 * 300, 3))
        return max(0.1, min(1.0, round(self.reference_step_s / step_s, 2)))


def read_workload(path: Path) -> Workload:
    """Read and check. Raises WorkloadError naming file, key and value."""
    try:
        return _workload(Reader(str(path), read_toml(path)))
    except SettingsError as e:
        raise WorkloadError(str(e)) from None


def _workload(r: Reader) -> Workload:
    adapters = tuple(_adapter(a) for a in r.tables("adapter"))
    tenants = tuple(read_tenant(t) for t in r.tables("tenant"))
    names = {t.name for t in tenants}
    traffic = tuple(_traffic(t, names, {a.name for a in adapters}) for t in r.tables("traffic"))
    workload = Workload(
        name=r.text("name"),
        title=r.text("title"),
        seed=r.integer("seed", 0),
        calm_s=r.number("calm_s", above=0),
        incident_s=r.number("incident_s", above=0),
        suspect=r.text("suspect", None, choices=names),
        bucket_s=r.number("bucket_s", 60.0, above=0),
        reference_step_s=r.number("reference_step_s", 0.2, above=0),
        limits=read_limits(r.table("limits")),
        tenants=tenants,
        adapters=adapters,
        traffic=traffic,
    )
    r.done()
    return workload


def _adapter(r: Reader) -> AdapterSpec:
    adapter = AdapterSpec(read_name(r), r.integer("rank", at_least=1), r.integer("seed", 0))
    r.done()
    return adapter


def _traffic(r: Reader, tenants: set[str], adapters: set[str]) -> Traffic:
    named = r.texts("adapters")
    for name in named:
        if name not in adapters:
            raise r.fail("adapters", f"no [[adapter]] is named {name!r}")
    traffic = Traffic(
        tenant=r.text("tenant", choices=tenants),
        adapters=named,
        start_s=r.number("start_s", at_least=0),
        end_s=r.number("end_s", above=0),
        rate_per_s=r.number("rate_per_s", above=0),
        spacing=r.text("spacing", "poisson", choices=("poisson", "even")),
        prompt_tokens=_span(r, "prompt_tokens"),
        output_tokens=_span(r, "output_tokens"),
    )
    if traffic.end_s <= traffic.start_s:
        raise r.fail("end_s", f"expected more than start_s = {traffic.start_s:g}")
    r.done()
    return traffic


def _span(r: Reader, key: str) -> tuple[int, int]:
    low, high = r.numbers(key, length=2)
    if low < 1 or high < low or low != int(low) or high != int(high):
        raise r.fail(key, "expected two whole numbers, 1 <= low <= high")
    return int(low), int(high)
