"""Findings: one pure function `(case) -> Finding` a file, and the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from telemetry.case import Case
from telemetry.findings.adapter_thrash import adapter_thrash
from telemetry.findings.change import change
from telemetry.findings.engine import engine
from telemetry.findings.everyone import everyone
from telemetry.findings.finding import Finding
from telemetry.findings.frozen import frozen
from telemetry.findings.holder import holder
from telemetry.findings.hurt import hurt

ORDER: tuple[Callable[[Case], Finding], ...] = (
    change,
    hurt,
    holder,
    engine,
    frozen,
    adapter_thrash,
    everyone,
)


def examine(case: Case) -> dict[str, Finding]:
    """Every finding of a case by name; a change is tested first."""
    return {f.name: f for f in (ask(case) for ask in ORDER)}
