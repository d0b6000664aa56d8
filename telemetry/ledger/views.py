"""What the engine tells the ledger: a step, work done, an end. Values only; no rule, no state.

Dense vectors are by the ledger's index of tenants (`Ledger.index`), float64. A view's is handed
over with it: nobody changes it again. Others belong to the caller: whoever keeps one copies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the front handles views too, and needs no numpy
    from telemetry.ledger.vectors import Vector


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run of which engine the rows belong to."""

    engine: str
    run_id: str
    pool: str


class StepView(NamedTuple):
    """What a step is made of, from this plan to the next one. A tuple: one is made a step.

    `predicted_s` is the cost model's expectation; None = no step is under way. `shared_reason` is
    why the requests nobody examined wait. Costs are the parts of `predicted_s` due to each
    tenant's rows, decode by index and prefill by name; what is missing to `predicted_s` is the
    step's fixed cost. `blame` says for each awaited adapter whom its wait is charged to (None =
    the waiter itself); an adapter that is not in it keeps the blame it had.
    """

    step: int
    predicted_s: float | None = None
    shared_reason: str = "budget"
    decode_cost_s: Vector | None = None
    prefill_cost_s: Mapping[str, float] = MappingProxyType({})
    cached_bytes: float = 0.0
    free_bytes: float = 0.0
    pinned_bytes: float = 0.0
    blame: Mapping[str, Mapping[str | None, float]] = MappingProxyType({})
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


class Ended(NamedTuple):
    """The end of a request, as far as the books need it. A tuple: one is made a request."""

    request_id: str
    tenant: str
    outcome: str
    tpot_s: float | None
    max_gap_s: float | None
    output_tokens: int


class Verdict(NamedTuple):
    """How a request stands against its targets. met None = not eligible."""

    met: bool | None
    ttft: bool | None
    tpot: bool | None
    gap: bool | None
