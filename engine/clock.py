"""Engine time: wall time at start plus monotonic time since. It never goes back.

Inside the engine an instant is a float of seconds since the engine's start. It turns into unix
seconds only where a row leaves (`ClockBase.unix`). All processes of one `serve` inherit one base,
and CLOCK_MONOTONIC is the machine's, so their instants compare.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

WALL_JUMP_S = 2.0


class Clock(Protocol):
    """Anything that tells engine time: real, or turned by a simulator or a test."""

    @property
    def base(self) -> ClockBase: ...

    def now(self) -> float: ...


@dataclass(frozen=True, slots=True)
class ClockBase:
    """The pair of readings that ties engine time to UTC; passed to child processes as text."""

    wall_s: float
    monotonic_s: float

    def unix(self, engine_s: float) -> float:
        return self.wall_s + engine_s

    def engine(self, unix_s: float) -> float:
        return unix_s - self.wall_s

    def dump(self) -> str:
        return f"{self.wall_s!r},{self.monotonic_s!r}"

    @classmethod
    def load(cls, text: str) -> ClockBase:
        wall, mono = text.split(",")
        return cls(float(wall), float(mono))


class SystemClock:
    """Monotonic. The wall clock may jump under it; that is told, never followed."""

    def __init__(self, base: ClockBase | None = None) -> None:
        self.base = base or ClockBase(time.time(), time.monotonic())
        self._drift_s = 0.0

    def now(self) -> float:
        return time.monotonic() - self.base.monotonic_s

    def take_wall_jump_s(self, at_least_s: float) -> float:
        """How far the wall clock has moved away since last asked; 0 below `at_least_s`."""
        drift = time.time() - self.base.unix(self.now())
        jump = drift - self._drift_s
        if abs(jump) < at_least_s:
            return 0.0
        self._drift_s = drift
        return jump


class TurnedClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0, wall_s: float = 1_800_000_000.0) -> None:
        self.base = ClockBase(wall_s, 0.0)
        self._now = start_s

    def now(self) -> float:
        return self._now

    def turn(self, seconds: float) -> float:
        if seconds < 0:
            raise ValueError(f"a clock cannot be turned back: {seconds}")
        self._now += seconds
        return self._now

    def turn_to(self, engine_s: float) -> float:
        return self.turn(max(0.0, engine_s - self._now))
