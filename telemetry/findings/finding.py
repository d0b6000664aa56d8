"""What a finding is: a claim about a case that holds, does not hold, or lacks its evidence.

A finding is a pure function `(case) -> Finding`, one a file beside this one. It always carries
its numbers, and its sentence says the claim or excludes it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Strength(enum.StrEnum):
    """How a claim is backed: X rose while Y waited; Y's wait was charged to X; without X's excess
    Y would not have waited (only a replay can say that)."""

    ASSOCIATED = "associated"
    CHARGED = "charged"
    COUNTERFACTUAL = "counterfactual"


class Holds(enum.StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"  # evidence is missing; never read as "no"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number behind a finding; None = missing. `unit` is UCUM-like (s, 1, token/s)."""

    name: str
    value: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class Finding:
    """`sentence` is for a person: plain text, names clipped, no markup. `tenant` is whom it is
    about, where it is about one."""

    name: str
    holds: Holds
    sentence: str
    strength: Strength | None = None
    tenant: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def value(self, name: str) -> float | None:
        return next((e.value for e in self.evidence if e.name == name), None)


def missing(name: str, what: str) -> Finding:
    """The finding `name` cannot be judged: `what` is not in the rows."""
    return Finding(name, Holds.UNKNOWN, f"UNKNOWN {name.replace('_', ' ')}: {what}")
