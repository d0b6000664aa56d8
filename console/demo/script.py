"""What a demo is to do, and what came of it. Values; starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.demo.result import Act
from engine.simulation.workload import Arrival, Workload

if TYPE_CHECKING:
    from engine.serving.faults import Faults

FLOOD_TOKENS = 800  # everyday prompts are shorter
REFUSED = 429
SCENARIOS = ("fanout", "quiet", "slow", "freeze")


@dataclass(frozen=True, slots=True)
class Script:
    """What is to happen. `policies` are the acts; the first also sees the calm."""

    workload: Workload
    policies: tuple[str, ...]
    scenario: str
    scale: float  # of all times in the workload
    model: str
    store: Path
    port: int

    @property
    def calm_s(self) -> float:
        return self.workload.calm_s * self.scale

    @property
    def end_s(self) -> float:
        return (self.workload.calm_s + self.workload.incident_s) * self.scale

    def arrivals(self, pace: float = 1.0) -> list[Arrival]:
        """All of them, in the script's own time; without the flood where it plays no part.
        `pace` multiplies the rates, so that a slower or faster machine is loaded as much."""
        w = self.workload
        drawn = w.arrivals(0, w.calm_s + w.incident_s, pace)
        if self.scenario != "fanout":
            drawn = [
                a for a in drawn if not (a.tenant == w.suspect and a.prompt_tokens > FLOOD_TOKENS)
            ]
        return [replace(a, at_s=a.at_s * self.scale) for a in drawn]

    def faults(self) -> Faults:
        from engine.serving.faults import Faults

        if self.scenario == "slow":
            return Faults(slow_factor=3.0, slow_from_s=self.calm_s)
        if self.scenario == "freeze":
            return Faults(freeze_at_s=self.calm_s + 5, freeze_s=5.0)
        return Faults()


@dataclass(slots=True)
class Played:
    """What came of it."""

    acts: list[Act] = field(default_factory=list)
    incident: tuple[float, float] | None = None  # unix seconds of the first act's incident
    errors: list[str] = field(default_factory=list)
    refused: int = 0  # 429s: the demo has no limits but those that are set while it plays
    complete: bool = False

    def note(self, tenant: str, status: int, error: str | None) -> None:
        """What became of one request. A refusal is no error: somebody set a limit at the screen."""
        if status == REFUSED:
            self.refused += 1
        elif error:
            self.errors.append(f"{tenant}: {error}")
