"""The policies by name. `make_policy` makes one for a scheduler, from its present queues."""

from __future__ import annotations

from collections.abc import Mapping

from engine.config import PolicyKnobs
from engine.errors import EngineError
from engine.scheduling.policies.base import Policy
from engine.scheduling.policies.baselines import Fcfs
from engine.scheduling.policies.counters import Counters
from engine.scheduling.policies.predicted import VtcPredicted
from engine.scheduling.policies.predictors import Predictor
from engine.scheduling.policies.queues import TenantQueue
from engine.scheduling.policies.rounds import DeficitRoundRobin, RoundRobin
from engine.scheduling.policies.vtc import Lcf, Vtc

POLICIES: dict[str, type[Policy]] = {
    p.name: p for p in (Vtc, VtcPredicted, Fcfs, RoundRobin, Lcf, DeficitRoundRobin)
}


def make_policy(
    name: str,
    queues: Mapping[str, TenantQueue],
    counters: Counters,
    tiers: Mapping[str, int],
    knobs: PolicyKnobs | None = None,
    predictor: Predictor | None = None,
) -> Policy:
    """A policy for the scheduler whose queues and counters these are; O(waiting tenants).

    `tiers`: tenant -> tier, 0 if absent. `predictor` is for vtc-predicted; None = a moving average
    of the tenant's answers. Rows that decode already are told of by `joined_decode`, which a
    policy may also not be told: they are then charged token by token. Raises EngineError.
    """
    kind = POLICIES.get(name)
    if kind is None:
        raise EngineError(f"policy {name!r} is not known; there are {', '.join(POLICIES)}")
    knobs = knobs or PolicyKnobs()
    if kind is VtcPredicted:
        policy: Policy = VtcPredicted(queues, counters, tiers, knobs, predictor)
    else:
        policy = kind(queues, counters, tiers, knobs)
    policy.begin()
    return policy
