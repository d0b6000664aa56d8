"""From a condition to an alert that fires: it must hold for a while, and be clear for a while.

Pure. Time comes as seconds of a clock that nobody sets; what is unknown moves nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from telemetry.findings.finding import Holds


class Phase(enum.StrEnum):
    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """`held_s`: how long it has held (pending); `clear_s`: how long it has been clear (firing),
    None where it holds."""

    phase: Phase = Phase.QUIET
    held_s: float = 0.0
    clear_s: float | None = None

    @property
    def firing(self) -> bool:
        return self.phase is Phase.FIRING


START = Hysteresis()


def step(was: Hysteresis, holds: Holds, dt_s: float, *, for_s: float, clear_s: float) -> Hysteresis:
    """One look, `dt_s` after the last one. The first look at which a condition holds (or no longer
    does) begins the count: what lay between two looks is not taken for granted."""
    if holds is Holds.UNKNOWN:
        return was
    if holds is Holds.YES:
        if was.phase is Phase.FIRING:
            return replace(was, clear_s=None)
        held = was.held_s + dt_s if was.phase is Phase.PENDING else 0.0
        return Hysteresis(Phase.FIRING if held >= for_s else Phase.PENDING, held)
    if was.phase is not Phase.FIRING:
        return START
    clear = 0.0 if was.clear_s is None else was.clear_s + dt_s
    return START if clear >= clear_s else replace(was, clear_s=clear)
