"""Books SLO misses in the minute a target is passed, even while the request still waits.

Owns the deadlines of live requests and their verdicts; knows no steps and no holders.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from telemetry.views import Targets


@dataclass(frozen=True, slots=True)
class Booking:
    """One thing to add to a tenant's minute."""

    tenant: str
    column: str
    amount: int = 1


@dataclass(slots=True)
class _Live:
    tenant: str
    targets: Targets
    scheduled: bool = False
    first_token: bool = False
    missed_ttft: bool = False
    missed_gap: bool = False

    @property
    def missed(self) -> bool:
        return self.missed_ttft or self.missed_gap


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request stands against its targets. met None = not eligible."""

    met: bool | None
    ttft: bool | None
    tpot: bool | None
    gap: bool | None


class SloBook:
    def __init__(self, targets: Mapping[str, Targets]) -> None:
        self._targets = dict(targets)
        self._live: dict[str, _Live] = {}
        self._due: list[tuple[float, str]] = []

    def watch(self, request_id: str, tenant: str, arrived_s: float) -> None:
        targets = self._targets.get(tenant, Targets())
        self._live[request_id] = _Live(tenant, targets)
        if targets.ttft_s is not None:
            heapq.heappush(self._due, (arrived_s + targets.ttft_s, request_id))

    def scheduled(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live:
            live.scheduled = True

    def first_token(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live:
            live.first_token = True

    def due(self, until_s: float) -> list[Booking]:
        """TTFT targets passed up to `until_s` by requests without a first token."""
        out: list[Booking] = []
        while self._due and self._due[0][0] < until_s:
            _, request_id = heapq.heappop(self._due)
            live = self._live.get(request_id)
            if live is None or live.first_token or live.missed_ttft:
                continue
            out += self._miss(live)
            live.missed_ttft = True
            out.append(Booking(live.tenant, "slo_missed_ttft"))
            if not live.scheduled:
                out.append(Booking(live.tenant, "missed_waiting"))
        return out

    def gap(self, request_id: str, gap_s: float) -> list[Booking]:
        """A gap between two tokens, so far."""
        live = self._live.get(request_id)
        if live is None or live.missed_gap or live.targets.max_gap_s is None:
            return []
        if gap_s <= live.targets.max_gap_s:
            return []
        out = self._miss(live)
        live.missed_gap = True
        return [*out, Booking(live.tenant, "slo_missed_gap")]

    def smallest_gap_s(self) -> float | None:
        gaps = [t.max_gap_s for t in self._targets.values() if t.max_gap_s is not None]
        return min(gaps, default=None)

    def end(
        self, request_id: str, outcome: str, tpot_s: float | None, output_tokens: int
    ) -> tuple[Verdict, list[Booking]]:
        """Close a request. Client aborts before any target passed are neither met nor missed."""
        live = self._live.pop(request_id, None)
        if live is None:
            return Verdict(None, None, None, None), []
        t = live.targets
        out: list[Booking] = []
        missed_tpot = t.tpot_s is not None and tpot_s is not None and tpot_s > t.tpot_s
        if missed_tpot:
            out += self._miss(live)
            out.append(Booking(live.tenant, "slo_missed_tpot"))
        missed = live.missed or missed_tpot
        if not missed and outcome in ("failed", "timed_out"):
            out += self._miss(live)
            missed = True
        if not missed and outcome == "finished":
            out += [Booking(live.tenant, "slo_eligible"), Booking(live.tenant, "slo_met")]
            out.append(Booking(live.tenant, "goodput_tokens", output_tokens))
        met = None if outcome == "aborted" and not missed else not missed
        verdict = Verdict(
            met,
            live.missed_ttft if t.ttft_s is not None else None,
            missed_tpot if t.tpot_s is not None and tpot_s is not None else None,
            live.missed_gap if t.max_gap_s is not None else None,
        )
        return verdict, out

    def _miss(self, live: _Live) -> list[Booking]:
        """The first miss of a request makes it eligible and missed, once."""
        if live.missed:
            return []
        return [Booking(live.tenant, "slo_eligible"), Booking(live.tenant, "slo_missed")]
