"""A request's own split of its time: waits by reason, before and after the first token.

Owns clocks and marks; knows no holders. Requests the scan did not reach share one cumulative
vector (their reason flips together), so a plan costs nothing for them. The ledger integrates the
same populations from the tenants' side; the two must agree, and a test says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from telemetry.conventions import WAIT_REASONS

SHARED, SCHEDULED = "shared", "scheduled"
_INDEX = {r: i for i, r in enumerate(WAIT_REASONS)}
_N = len(WAIT_REASONS)


@dataclass(slots=True)
class Waits:
    """Seconds by reason (in the order of WAIT_REASONS) and in prefill, up to the last change."""

    group: str = SHARED
    reason: str = ""
    since_s: float = 0.0
    mark: tuple[float, ...] = ()
    before: list[float] = field(default_factory=lambda: [0.0] * _N)
    after: list[float] = field(default_factory=lambda: [0.0] * _N)
    prefill_s: float = 0.0
    had_token: bool = False


class FirstWaits(NamedTuple):
    """What a request waited for until its first token, and how long it was computed, seconds."""

    slot: float
    budget: float
    kv: float
    adapter: float
    prefill: float

    @classmethod
    def of(cls, waits: Waits) -> FirstWaits:
        """Of a request that had its first token: these stand still from then on."""
        slot, budget, kv, adapter = waits.before
        return cls(slot, budget, kv, adapter, waits.prefill_s)


class WaitBook:
    """The clock of one scheduler's requests. Time is passed in and never goes back."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._reason = "budget"
        self._shared = [0.0] * _N

    def advance(self, now: float) -> None:
        self._shared[_INDEX[self._reason]] += now - self._now
        self._now = now

    def flip(self, reason: str) -> None:
        """From now on everyone in the shared group waits for `reason`."""
        self._reason = reason

    def join(self, waits: Waits, at: float) -> None:
        """A request has waited since `at`, which is not after now nor before the last plan."""
        mark = self._shared.copy()
        mark[_INDEX[self._reason]] -= self._now - at
        waits.group, waits.mark, waits.since_s = SHARED, tuple(mark), at

    def move(self, waits: Waits, group: str, reason: str = "") -> None:
        """The request stands in another group from now on (SHARED, SCHEDULED or a reason's)."""
        self.bring_up(waits)
        waits.group, waits.reason = group, reason

    def bring_up(self, waits: Waits) -> None:
        """Book what has passed since the last change."""
        side = waits.after if waits.had_token else waits.before
        if waits.group == SHARED:
            for i in range(_N):
                side[i] += self._shared[i] - waits.mark[i]
        elif waits.group == SCHEDULED:
            if not waits.had_token:
                waits.prefill_s += self._now - waits.since_s
        else:
            side[_INDEX[waits.reason]] += self._now - waits.since_s
        waits.since_s = self._now
        waits.mark = tuple(self._shared)
