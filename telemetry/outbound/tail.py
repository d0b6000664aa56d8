"""Which requests leave as traces: decided when a request is over, and what was left out counted.

Who was hurt, refused or preempted, and whoever the client marked, is always kept, up to a high
rate; of the others a part, chosen by a hash of the trace id: every store chooses alike. Pure of
clocks; nothing is stored, and no table is built from traces.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from telemetry.records import RequestRecord

SLO, OUTCOME, PREEMPTED, CLIENT, RATIO = "slo", "outcome", "preempted", "client", "ratio"
# Why a request was left out: not chosen; chosen beyond the rate; always kept, beyond its rate.
NOT_CHOSEN, CAPPED, ALWAYS_CAPPED = "ratio", "rate", "always_rate"
LEFT_OUT: tuple[str, ...] = (NOT_CHOSEN, CAPPED, ALWAYS_CAPPED)
_OUTCOMES = ("rejected", "failed", "timed_out")


@dataclass(frozen=True, slots=True)
class Rates:
    """`ratio` of the ordinary requests, at most `most_per_s` of them a second; of those always
    kept at most `always_most_per_s`."""

    ratio: float = 0.05
    most_per_s: float = 20.0
    always_most_per_s: float = 200.0


DEFAULT_RATES = Rates()


@dataclass(slots=True)
class _Allowance:
    """So many a second, and no more than two seconds' worth at once."""

    per_s: float
    left: float = field(init=False)
    at: float | None = None

    def __post_init__(self) -> None:
        self.left = self._most

    @property
    def _most(self) -> float:
        return max(1.0, 2 * self.per_s)

    def take(self, now: float) -> bool:
        if self.at is not None and now > self.at:
            self.left = min(self._most, self.left + (now - self.at) * self.per_s)
        self.at = now if self.at is None else max(now, self.at)
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class Tail:
    """The choice of one store process. Not thread-safe."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._some = _Allowance(rates.most_per_s)
        self._always = _Allowance(rates.always_most_per_s)
        self._left_out: Counter[str] = Counter()

    def keep(self, row: RequestRecord, trace_id: str, now: float) -> str | None:
        """Why the request is kept; None when it is left out. `now` is unix seconds."""
        always = always_kept(row)
        if always is not None:
            return self._within(self._always, now, always, ALWAYS_CAPPED)
        if not chosen(trace_id, self._rates.ratio):
            self._left_out[NOT_CHOSEN] += 1
            return None
        return self._within(self._some, now, RATIO, CAPPED)

    def left_out(self) -> dict[str, int]:
        """Requests without a trace since the start, by why."""
        return {why: self._left_out[why] for why in LEFT_OUT}

    def _within(self, allowance: _Allowance, now: float, reason: str, beyond: str) -> str | None:
        if allowance.take(now):
            return reason
        self._left_out[beyond] += 1
        return None


def always_kept(row: RequestRecord) -> str | None:
    """Why a request is always kept; None for an ordinary one."""
    if row.slo_met is False or row.missed_ttft or row.missed_tpot or row.missed_gap:
        return SLO
    if row.outcome in _OUTCOMES:
        return OUTCOME
    if row.preemptions:
        return PREEMPTED
    return CLIENT if row.trace_sampled else None


def chosen(trace_id: str, ratio: float) -> bool:
    """Whether a trace is among the `ratio` of all: the same answer everywhere, and who is chosen
    at a ratio is chosen at every higher one."""
    digest = blake2b(trace_id.encode(), digest_size=7, person=b"tenantscope.tail").digest()
    return int.from_bytes(digest, "big") < ratio * (1 << 56)
