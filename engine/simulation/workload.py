"""A workload: who sends what when, on which pools, and what goes wrong. Values; draws on request.

A workload names tenants (with limits and SLOs), synthetic adapters, the pools' limits, streams of
traffic, incidents and faults. Arrivals are open-loop: they come when the file says, whatever the
engine does. `read_workload` (engine/simulation/workload_read.py does it) makes one from TOML.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.config import Limits, PolicyKnobs, PoolSpec, Tenant
from engine.costs import CostModel, StepFeatures
from engine.simulation.arrivals import Arrivals
from engine.simulation.lengths import Lengths

FAULTS = ("slow", "freeze", "lost")
INCIDENTS = ("fan-out",)
ADAPTERS_BY = ("request", "tenant")
CHANGED_LIMITS = ("rpm", "tpm", "concurrency", "queue")  # what a [[change]] may change
# A machine, against the one that a workload was sized for. Of a still faster one the clients, which
# are one process beside it, would be the bottleneck.
SLOWEST, FASTEST = 0.1, 8.0


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """A synthetic adapter to make, on all projections or on attention's alone (`targets`)."""

    name: str
    rank: int
    seed: int
    targets: str = "all"


@dataclass(frozen=True, slots=True)
class Traffic:
    """One stream of requests between two instants of the workload's time.

    Each request's tenant is drawn from `tenants`, its adapter from `adapters` (none = the base
    model), most popular first, with Zipf exponents (0 = evenly). `adapters_by` "tenant": the
    i-th tenant always uses adapter i modulo their number. What a stream draws hangs on the
    workload's seed and its own `name`, on nothing else.
    """

    name: str
    tenants: tuple[str, ...]
    adapters: tuple[str, ...]
    start_s: float
    end_s: float
    arrivals: Arrivals
    prompt_tokens: Lengths
    output_tokens: Lengths
    tenant_zipf: float = 0.0
    adapter_zipf: float = 0.0
    adapters_by: str = "request"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when, whose, with which adapter, how long. `seed` makes its prompt; `prefix`
    names the blocks its prompt begins with, where a trace says which prompts share them."""

    at_s: float
    tenant: str
    adapter: str | None
    prompt_tokens: int
    max_tokens: int
    seed: int
    prefix: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """What a workload does to its pool on purpose. Its requests are a stream of `traffic`."""

    kind: str
    tenant: str
    at_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Fault:
    """An engine in trouble from `at_s` on: `slow`, every step `factor` times as long for
    `duration_s`; `freeze`, one step longer by `duration_s`; `lost`, gone for `duration_s`
    (infinite = for good). `pool` None = the first; `replica` counts from 0."""

    kind: str
    at_s: float
    duration_s: float
    factor: float = 1.0
    pool: str | None = None
    replica: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """What a tenant's clients do when they are turned away (429), or time out where `timeouts`:
    the same again after `after_s`, `factor` times longer each time, at most `most` times. A
    client's wait is drawn between (1 - spread) and (1 + spread) of that."""

    tenant: str
    after_s: float
    most: int
    factor: float = 1.0
    spread: float = 0.5
    timeouts: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """Somebody changes what decides, at an instant: the policy, or limits of a tenant. `limits`
    are (key, new value), None = lifted."""

    at_s: float
    policy: str | None = None
    tenant: str | None = None
    limits: tuple[tuple[str, int | None], ...] = ()
    who: str = "operator"
    why: str = ""

    def apply(self, tenant: Tenant) -> Tenant:
        """The tenant with its new limits; itself where it is not the one."""
        if tenant.name != self.tenant:
            return tenant
        limits: dict[str, Any] = dict(self.limits)
        return replace(tenant, **limits)


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
    pools: tuple[PoolSpec, ...] = ()  # none named = one, with `limits`
    policy: str = "vtc"
    knobs: PolicyKnobs = field(default_factory=PolicyKnobs)
    hardware: str | None = None  # a preset of engine/simulation/hardware.py
    incidents: tuple[Incident, ...] = ()
    faults: tuple[Fault, ...] = ()
    retries: tuple[Retry, ...] = ()
    changes: tuple[Change, ...] = ()
    starts_unix_s: float | None = None  # when its second 0 is; None = as every simulation

    @property
    def end_s(self) -> float:
        """When the last stream of traffic ends."""
        return max((t.end_s for t in self.traffic), default=0.0)

    def stream(
        self, start_s: float = 0.0, end_s: float = float("inf"), pace: float = 1.0
    ) -> Iterator[Arrival]:
        """The arrivals in [start_s, end_s), in order of time (at equal instants in the file's
        order of streams), at `pace` times the rates. Drawn as they are asked for, block by block:
        memory does not grow with their number. The same span gives the same arrivals whatever
        else is drawn, and however they are taken."""
        from engine.simulation.workload_stream import stream

        return stream(self.traffic, self.seed, start_s, end_s, pace)

    def arrivals(self, start_s: float, end_s: float, pace: float = 1.0) -> list[Arrival]:
        """What `stream` gives, as a list."""
        return list(self.stream(start_s, end_s, pace))

    def pace(self, costs: CostModel) -> float:
        """This machine against the one the workload was sized for, by a worker's cost model:
        1 = as fast. A faster one gets more: what does not fill it hurts nobody."""
        chunk = self.limits.step_tokens
        # A busy step: a full chunk deep in a context, beside six decoding rows, three adapters.
        step_s = costs.predict(StepFeatures(chunk, 6, chunk * 600 + 6 * 300, 3))
        return max(SLOWEST, min(FASTEST, round(self.reference_step_s / step_s, 2)))


def read_workload(path: Path) -> Workload:
    """Read and check. Raises WorkloadError naming file, key and value."""
    from engine.simulation.workload_read import read

    return read(path)
