"""Books SLO misses in the minute a target is passed, even while the request still waits.

Owns the deadlines of live requests and their verdicts; knows no steps and no holders. Requests of
tenants without targets cost nothing until they end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from telemetry.ledger.views import Ended, Targets, Verdict

_MET = Verdict(True, None, None, None)
_MISSED = Verdict(False, None, None, None)
_NEITHER = Verdict(None, None, None, None)

Book = Callable[[str, str, float], None]  # tenant, column, amount


class _Live:
    __slots__ = ("first_token", "missed_gap", "missed_ttft", "scheduled", "targets", "tenant")

    def __init__(self, tenant: str, targets: Targets) -> None:
        self.tenant = tenant
        self.targets = targets
        self.scheduled = False
        self.first_token = False
        self.missed_ttft = False
        self.missed_gap = False


class SloBook:
    """`book(tenant, column, amount)` is called for every miss that goes into a minute."""

    def __init__(self, targets: Mapping[str, Targets], book: Book) -> None:
        self._targets = {t: s for t, s in targets.items() if s != Targets()}
        self._book = book
        self._live: dict[str, _Live] = {}
        self._due: list[tuple[float, str]] = []
        gaps = [t.max_gap_s for t in self._targets.values() if t.max_gap_s is not None]
        self.smallest_gap_s: float | None = min(gaps, default=None)
        self.next_due_s = float("inf")  # no TTFT target can be passed before this instant

    def promise(self, tenant: str, targets: Targets) -> None:
        """Requests that come from now on are judged by these, those under way by what they came
        with."""
        if targets == Targets():
            self._targets.pop(tenant, None)
            return
        self._targets[tenant] = targets
        gap = targets.max_gap_s
        if gap is not None:  # it may only fall: who came with a smaller one is still here
            smallest = self.smallest_gap_s
            self.smallest_gap_s = gap if smallest is None else min(smallest, gap)

    def watch(self, request_id: str, tenant: str, arrived_s: float) -> None:
        targets = self._targets.get(tenant)
        if targets is None:
            return
        self._live[request_id] = _Live(tenant, targets)
        if targets.ttft_s is not None:
            heapq.heappush(self._due, (arrived_s + targets.ttft_s, request_id))
            self.next_due_s = self._due[0][0]

    def scheduled(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live is not None:
            live.scheduled = True

    def first_token(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live is not None:
            live.first_token = True

    def due(self, until_s: float) -> None:
        """Book the TTFT targets passed up to `until_s` by requests without a first token."""
        heap = self._due
        while heap and heap[0][0] < until_s:
            _, request_id = heapq.heappop(heap)
            live = self._live.get(request_id)
            if live is None or live.first_token or live.missed_ttft:
                continue
            self._miss(live)
            live.missed_ttft = True
            self._book(live.tenant, "slo_missed_ttft", 1)
            if not live.scheduled:
                self._book(live.tenant, "missed_waiting", 1)
        self.next_due_s = heap[0][0] if heap else float("inf")

    def gap(self, request_id: str, gap_s: float) -> None:
        """A gap between two tokens, so far; the target passed is booked at once."""
        live = self._live.get(request_id)
        if live is None or live.missed_gap or live.targets.max_gap_s is None:
            return
        if gap_s > live.targets.max_gap_s:
            self._miss(live)
            live.missed_gap = True
            self._book(live.tenant, "slo_missed_gap", 1)

    def end(self, end: Ended) -> Verdict:
        """Close a request. Client aborts before any target passed are neither met nor missed.

        Misses are booked here; what was met is left to the caller, who has the tokens at hand.
        """
        live = self._live.pop(end.request_id, None)
        tenant, outcome = end.tenant, end.outcome
        if live is None:
            if outcome == "finished":
                return _MET
            if outcome == "aborted":
                return _NEITHER
            self._book(tenant, "slo_eligible", 1)
            self._book(tenant, "slo_missed", 1)
            return _MISSED
        t = live.targets
        judged_tpot = t.tpot_s is not None and end.tpot_s is not None
        missed_tpot = t.tpot_s is not None and end.tpot_s is not None and end.tpot_s > t.tpot_s
        missed = live.missed_ttft or live.missed_gap
        if missed_tpot:
            self._miss(live)
            self._book(tenant, "slo_missed_tpot", 1)
            missed = True
        if not missed and outcome in ("failed", "timed_out"):
            self._miss(live)
            missed = True
        return Verdict(
            None if outcome == "aborted" and not missed else not missed,
            live.missed_ttft if t.ttft_s is not None else None,
            missed_tpot if judged_tpot else None,
            live.missed_gap if t.max_gap_s is not None else None,
        )

    def _miss(self, live: _Live) -> None:
        """The first miss of a request makes it eligible and missed, once."""
        if not (live.missed_ttft or live.missed_gap):
            self._book(live.tenant, "slo_eligible", 1)
            self._book(live.tenant, "slo_missed", 1)
