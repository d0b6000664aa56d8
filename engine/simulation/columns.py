"""What became of every request, as columns of plain numbers: about a hundred bytes a request.

Owns the columns and the tenants' numbering; no row objects, no percentiles (engine/simulation/
results.py makes those at the end). NaN = never reached.
"""

from __future__ import annotations

import math
from array import array

from engine.scheduling.request import Outcome, Request

OUTCOMES = tuple(o.value for o in Outcome)
_OUTCOME = {o: i for i, o in enumerate(Outcome)}
REJECTS = ("rpm", "tpm", "concurrency", "queue", "impossible", "unserved")
_HIT = {None: -1, "device": 1, "draining": 1}  # of those that name an adapter: 1 = on the device
_NAN = math.nan


class TenantCounts:
    """What the door did with one tenant's requests; the door keeps it up to date."""

    __slots__ = ("admitted", "offered", "offered_tokens", "rejected")

    def __init__(self) -> None:
        self.offered = self.offered_tokens = self.admitted = 0
        self.rejected: dict[str, int] = {}


class Columns:
    """Tenants are numbered in the order of their first arrival."""

    def __init__(self) -> None:
        self.tenants: list[str] = []
        self.index: dict[str, int] = {}
        self.counts: list[TenantCounts] = []
        self.tenant = array("i")
        self.outcome = array("b")
        self.arrived_s = array("d")
        self.ttft_s = array("d")
        self.ended_s = array("d")
        self.prompt = array("q")  # tokens of the prompt
        self.computed = array("q")  # of those, computed for the first time
        self.cached = array("q")
        self.output = array("q")
        self.recomputed = array("q")
        self.tpot_s = array("d")
        self.max_gap_s = array("d")
        self.slot_s = array("d")
        self.budget_s = array("d")
        self.kv_s = array("d")
        self.adapter_s = array("d")
        self.preemptions = array("i")
        self.hit = array("b")

    def __len__(self) -> int:
        return len(self.tenant)

    def add(self, tenant: str, counts: TenantCounts) -> int:
        """The number of a tenant whose first request comes; the door goes on with `counts`."""
        number = self.index[tenant] = len(self.tenants)
        self.tenants.append(tenant)
        self.counts.append(counts)
        return number

    def ended(self, number: int, request: Request, outcome: Outcome, now: float) -> None:
        """A request that a core has ended; its own record stands still from now on."""
        ask, waits = request.ask, request.waits
        arrived, first, last = ask.arrived_s, request.first_token_s, request.last_token_s
        before, after = waits.before, waits.after
        prompt, produced, cached = len(ask.prompt), request.produced, request.cached
        self.tenant.append(number)
        self.outcome.append(_OUTCOME[outcome])
        self.arrived_s.append(arrived)
        self.ttft_s.append(_NAN if first is None else first - arrived)
        self.ended_s.append(now)
        self.prompt.append(prompt)
        self.computed.append(max(0, min(request.high_water, prompt) - cached))
        self.cached.append(cached)
        self.output.append(produced)
        self.recomputed.append(request.recomputed)
        self.tpot_s.append(
            (last - first) / (produced - 1)
            if produced > 1 and first is not None and last is not None
            else _NAN
        )
        gap = request.max_gap_s
        self.max_gap_s.append(_NAN if gap is None else gap)
        self.slot_s.append(before[0] + after[0])
        self.budget_s.append(before[1] + after[1])
        self.kv_s.append(before[2] + after[2])
        self.adapter_s.append(before[3] + after[3])
        self.preemptions.append(request.preemptions)
        self.hit.append(_HIT.get(request.adapter_state, 0))

    def lost(self, number: int, prompt: int, arrived_s: float, now: float) -> None:
        """A request that went with its replica: nobody can say how far it was."""
        self.tenant.append(number)
        self.outcome.append(_OUTCOME[Outcome.FAILED])
        self.arrived_s.append(arrived_s)
        self.ended_s.append(now)
        self.prompt.append(prompt)
        for column in (self.ttft_s, self.tpot_s, self.max_gap_s):
            column.append(_NAN)
        for counted in (self.computed, self.cached, self.output, self.recomputed):
            counted.append(0)
        for waited in (self.slot_s, self.budget_s, self.kv_s, self.adapter_s):
            waited.append(0.0)
        self.preemptions.append(0)
        self.hit.append(-1)
