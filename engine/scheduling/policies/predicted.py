"""VTC that charges the output it expects at admission (Algorithm 3 of VTC).

Owns how far each tenant's charges run ahead of its tokens; the charges that are due are the
shadow counters'. A tenant's own counter is charges due + charges ahead + lifts of its own, where
ahead = Σ over its requests of wq·max(0, predicted − produced): the expected output at admission,
nothing a decode token until `produced` passes the prediction, and what was never produced given
back at the end. Source: Sheng et al., OSDI 2024, Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heappop, heappush

from engine.config import PolicyKnobs
from engine.scheduling.policies.base import ByMeasure
from engine.scheduling.policies.counters import WQ, Counters
from engine.scheduling.policies.predictors import MovingAverage, Predictor
from engine.scheduling.policies.queues import TenantQueue
from engine.scheduling.request import Request


class _Ahead(Counters):
    """Counters whose value is the shadow's charges and, on top, what is ahead of them."""

    def __init__(self, shadow: Counters, tiers: Mapping[str, int]) -> None:
        super().__init__({}, tiers, shadow.steps)
        self._shadow = shadow

    def weight(self, tenant: str) -> float:
        return self._shadow.weight(tenant)

    def value(self, tenant: str) -> float:
        return self._shadow.unlifted(tenant) + super().value(tenant)


class _Row:
    """A request admitted under this policy: `left` tokens of its prediction are not produced yet.
    `until`: the step in which a decoding row uses up the last of them; -1 = it is not decoding,
    or is past its prediction."""

    __slots__ = ("left", "since", "tenant", "until")

    def __init__(self, tenant: str, left: int) -> None:
        self.tenant = tenant
        self.left = left
        self.since = 0
        self.until = -1


class VtcPredicted(ByMeasure):
    """The waiting tenant with the smallest counter of its own kind goes next."""

    __slots__ = ("_ahead", "_calendar", "_predictor", "_rows")
    name = "vtc-predicted"

    def __init__(
        self,
        queues: Mapping[str, TenantQueue],
        counters: Counters,
        tiers: Mapping[str, int],
        knobs: PolicyKnobs,
        predictor: Predictor | None = None,
    ) -> None:
        super().__init__(queues, counters, tiers, knobs)
        self._predictor = predictor or MovingAverage(knobs.first_prediction_tokens)
        self._ahead = _Ahead(counters, tiers)
        self._rows: dict[int, _Row] = {}  # by `sequence`
        self._calendar: list[tuple[int, int]] = []  # (until, sequence); stale ones are skipped

    def begin(self) -> None:
        """Counters start as the shadow ones stand: nothing is ahead of a row admitted before."""
        self._ahead.follow(self.counters)
        for tenant in self.members:
            self._ahead.returns(tenant)
        super().begin()

    def measure(self, tenant: str) -> float:
        return self._ahead.value(tenant)

    def suppose(self, request: Request, supposed: float) -> float:
        if request.charged_prompt:
            return supposed
        expected = WQ * self._predictor.predict(request) / self.counters.weight(request.ask.tenant)
        return super().suppose(request, supposed) + expected

    def arrived(self, tenant: str) -> None:
        head = self.members[tenant].head()
        if head is not None and head.preemptions:
            self._ahead.returns(tenant)
        else:
            self._ahead.enters(tenant)
        self.stands(tenant)

    def emptied(self, tenant: str) -> None:
        self._ahead.left_queue(tenant)
        self._ahead.leaves(tenant)

    def changed(self, tenant: str) -> None:
        self._ahead.fell(tenant)
        super().changed(tenant)

    def elsewhere(self, active: Collection[str], fell: Collection[str]) -> None:
        """What other replicas have charged counts; what they expect ahead of it does not."""
        self._ahead.active_elsewhere(active)
        super().elsewhere(active, fell)

    def admitted(self, request: Request) -> None:
        """Charges the prediction. Not again after preemption, nor of one admitted by another
        policy: that one pays each token as it comes."""
        if request.preemptions:
            return
        tenant = request.ask.tenant
        expected = self._predictor.predict(request)
        self._ahead.charge_output(tenant, expected)
        self._rows[request.sequence] = _Row(tenant, expected)

    def produced_first(self, request: Request) -> None:
        row = self._rows.get(request.sequence)
        if row is not None and row.left > 0:
            row.left -= 1
            self._give_back(row.tenant, 1)

    def joined_decode(self, request: Request) -> None:
        row = self._rows.get(request.sequence)
        if row is not None and row.left > 0:
            row.since = self.counters.steps.now
            row.until = row.since + row.left
            self._ahead.decoding(row.tenant, -1)
            heappush(self._calendar, (row.until, request.sequence))

    def left_decode(self, request: Request) -> None:
        row = self._rows.get(request.sequence)
        if row is not None and row.until >= 0:
            self._stop(row)

    def stepped(self, steps: int) -> None:
        calendar, now = self._calendar, self.counters.steps.now
        while calendar and calendar[0][0] <= now:
            until, sequence = heappop(calendar)
            row = self._rows.get(sequence)
            if row is not None and row.until == until:
                self._stop(row)

    def ended(self, request: Request, finished: bool = True) -> None:
        row = self._rows.pop(request.sequence, None)
        if row is not None:
            if row.until >= 0:
                self._stop(row)
            if row.left > 0:
                self._give_back(row.tenant, row.left)
        if finished:
            self._predictor.learn(request)

    def _stop(self, row: _Row) -> None:
        """The row draws on its prediction no more. Steps beyond it were drawn by the rate too,
        if several steps passed at once: they are charged again."""
        steps = self.counters.steps.now - row.since
        self._ahead.decoding(row.tenant, 1)
        if steps > row.left:
            self._ahead.charge_output(row.tenant, steps - row.left)
        row.left = max(0, row.left - steps)
        row.until = -1

    def _give_back(self, tenant: str, tokens: int) -> None:
        self._ahead.charge_output(tenant, -tokens)
        if tenant in self.members:
            self.stands(tenant)
