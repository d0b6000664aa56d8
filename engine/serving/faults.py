"""Faults on purpose: a slowed or a frozen engine, for demos and proofs. Owns no step's content.

A fault lengthens a step's execution, as a throttled or a hung device would; what the ledger makes
of it is what is being shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from engine.clock import Clock
from engine.errors import ConfigError
from engine.scheduling.plan import Runner, StepOutcome, StepPlan


@dataclass(frozen=True, slots=True)
class Faults:
    """Times count from the moment the worker is ready, in seconds.

    From `slow_from_s` to `slow_to_s` (None = to the end) a step takes `slow_factor` times as long;
    the first step planned after `freeze_at_s` hangs for `freeze_s`.
    """

    slow_factor: float = 1.0
    slow_from_s: float = 0.0
    slow_to_s: float | None = None
    freeze_at_s: float | None = None
    freeze_s: float = 5.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.slow_factor <= 100.0:
            raise ConfigError(f"slow_factor = {self.slow_factor!r}: expected 1 to 100")
        if not 0.0 <= self.freeze_s <= 600.0:
            raise ConfigError(f"freeze_s = {self.freeze_s!r}: expected 0 to 600 seconds")

    def extra_s(self, previous_s: float, began_s: float, ended_s: float) -> float:
        """Seconds to add to a step that ran from `began_s` to `ended_s`; the step before it began
        at `previous_s` (-inf for the first)."""
        extra = 0.0
        if self.slow_from_s <= began_s and (self.slow_to_s is None or began_s < self.slow_to_s):
            extra += (self.slow_factor - 1.0) * (ended_s - began_s)
        if self.freeze_at_s is not None and previous_s < self.freeze_at_s <= began_s:
            extra += self.freeze_s
        return extra

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Faults:
        return cls(**json.loads(text))


NO_FAULTS = Faults()


class FaultyRunner:
    """A runner whose steps take as long as `faults` say, from `arm` on. Same tokens."""

    def __init__(
        self, inner: Runner, faults: Faults, clock: Clock, sleep: Callable[[float], object]
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._clock = clock
        self._sleep = sleep
        self._armed_s: float | None = None
        self._previous_s = float("-inf")

    def arm(self) -> None:
        """Times count from here; the warm-up before it is left alone."""
        self._armed_s = self._clock.now()

    def execute(self, plan: StepPlan) -> StepOutcome:
        if self._armed_s is None:
            return self._inner.execute(plan)
        began_s = self._clock.now() - self._armed_s
        outcome = self._inner.execute(plan)
        ended_s = self._clock.now() - self._armed_s
        extra_s = self._faults.extra_s(self._previous_s, began_s, ended_s)
        self._previous_s = began_s
        if extra_s > 0:
            self._sleep(extra_s)
        return outcome
