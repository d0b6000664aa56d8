"""What the engine tells the ledger about a step: who holds what, who ran what. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run of which engine the rows belong to."""

    engine: str
    run_id: str
    pool: str


@dataclass(frozen=True, slots=True)
class StepView:
    """Who holds what from this plan to the next one.

    `predicted_s` is the cost model's expectation; None = no step is under way. `shared_reason` is
    why the requests nobody examined wait. Costs are the parts of `predicted_s` due to each
    tenant's rows; what is missing to `predicted_s` is the step's fixed cost. `blame` says for
    each awaited adapter whom its wait is charged to (None = the waiter itself); an awaited
    adapter that is not in it is short of pages, and its wait is charged as a wait for KV is.
    """

    step: int
    predicted_s: float | None = None
    shared_reason: str = "budget"
    running: Mapping[str, int] = field(default_factory=dict)
    in_step: Mapping[str, int] = field(default_factory=dict)
    prefill_cost_s: Mapping[str, float] = field(default_factory=dict)
    decode_cost_s: Mapping[str, float] = field(default_factory=dict)
    kv_bytes: Mapping[str, int] = field(default_factory=dict)
    adapter_bytes: Mapping[str, float] = field(default_factory=dict)
    cached_bytes: float = 0.0
    free_bytes: float = 0.0
    pinned_bytes: float = 0.0
    blame: Mapping[str, Mapping[str | None, float]] = field(default_factory=dict)
    oldest_since_s: Mapping[str, float] = field(default_factory=dict)
    prefill_tokens: int = 0
    decode_rows: int = 0
    context_tokens: int = 0
    adapters: int = 0
    cost_version: int = 0


@dataclass(slots=True)
class TenantWork:
    """Tokens of one tenant in one step. `prompt` are computed for the first time."""

    prompt: int = 0
    cached: int = 0
    recomputed: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Targets:
    """A tenant's SLO as the ledger books it; None = no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    max_gap_s: float | None = None
