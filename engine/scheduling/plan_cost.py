"""What the planned step should take, and whose rows it is due to. Pure.

The same numbers as `CostModel.of` reads off a plan's segments, from the cohort's arrays and the
step's few prefill parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.costs import CostModel
from engine.scheduling.cohort import Cohort
from engine.scheduling.parts import Part
from telemetry.ledger.vectors import Vector


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Seconds. `decode_s` by the tenants' index; `prefill_s` by tenant, `prefill_sum_s` in all."""

    predicted_s: float
    base_s: float
    decode_s: Vector
    prefill_s: Mapping[str, float]
    prefill_sum_s: float


def plan_cost(
    costs: CostModel, cohort: Cohort, parts: Sequence[Part], beside: Mapping[str, int]
) -> PlanCost:
    """`beside`: the prefill parts by adapter. Writes each part's own cost on it."""
    prefill: dict[str, float] = {}
    total = 0.0
    prefill_tokens = context_tokens = 0
    adapters = len(cohort.adapters)
    adapters += sum(1 for key in beside if key not in cohort.adapters)
    for part in parts:
        context = part.context_tokens
        cost = costs.prefill_token_s * part.count + costs.context_token_s * context
        adapter = part.request.ask.adapter
        if adapter is not None:
            cost += costs.adapter_s / (beside[adapter] + cohort.adapters.get(adapter, 0))
        part.cost_s = cost
        tenant = part.request.tenant
        prefill[tenant] = prefill.get(tenant, 0.0) + cost
        total += cost
        prefill_tokens += part.count
        context_tokens += context
    decode = cohort.decode_cost_s(
        costs.decode_row_s, costs.context_token_s, costs.adapter_s, beside
    )
    predicted = costs.totals(prefill_tokens, len(cohort), context_tokens + cohort.context, adapters)
    return PlanCost(predicted, costs.base_s, decode, prefill, total)
