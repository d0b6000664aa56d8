"""Ranked: the causes that the findings come to, with shares that close. Asks no question itself."""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.case import Case
from telemetry.findings.causes import ENGINE, shares
from telemetry.findings.finding import Finding, Holds

# What the excess was waited for -> the finding that says so; they carry the shares.
_BY_REASON = {
    ENGINE: "engine",
    "kv": "kv_pressure",
    "slot": "slot_queueing",
    "budget": "budget_queueing",
    "adapter": "adapter_thrash",
    "stall": "long_prefill",
}
# Findings that say what set it off, or what it did; they carry no share of their own.
_BESIDE = (
    "change", "lost_engine", "frozen", "preemption_storm", "own_growth", "own_limits",
    "retry_storm", "fixed_window", "rpm_gaming", "everyone", "outside",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that caused the harm, or went with it. `name` is the finding's where one holds,
    else the reason's. `share` is of the victims' excess: those with one come first, greatest first,
    and close to 1; None = set it off, or follows from it, and holds no part of its own."""

    name: str
    share: float | None
    holds: Holds
    sentence: str


def ranked(case: Case, findings: dict[str, Finding]) -> tuple[Cause, ...]:
    """Every part of the excess, ranked; then what else holds, in the order it is asked."""
    parts = sorted(shares(case).items(), key=lambda p: -p[1])
    out = [
        Cause(f.name, part, f.holds, f.sentence)
        for reason, part in parts
        if part and (f := findings[_BY_REASON[reason]])
    ]
    out += [
        Cause(n, None, f.holds, f.sentence)
        for n in _BESIDE
        if (f := findings[n]).holds is Holds.YES
    ]
    return tuple(out)
