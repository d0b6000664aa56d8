"""Findings: one pure function `(case) -> Finding` a file, and the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from telemetry.case import Case
from telemetry.findings.adapter_thrash import adapter_thrash
from telemetry.findings.change import change
from telemetry.findings.engine import engine
from telemetry.findings.everyone import everyone
from telemetry.findings.finding import Finding
from telemetry.findings.fixed_window import fixed_window
from telemetry.findings.frozen import frozen
from telemetry.findings.holder import holder
from telemetry.findings.hurt import hurt
from telemetry.findings.kv_pressure import kv_pressure
from telemetry.findings.long_prefill import long_prefill
from telemetry.findings.lost_engine import lost_engine
from telemetry.findings.outside import outside
from telemetry.findings.own_growth import own_growth
from telemetry.findings.own_limits import own_limits
from telemetry.findings.preemption_storm import preemption_storm
from telemetry.findings.queueing import budget_queueing, slot_queueing
from telemetry.findings.retry_storm import retry_storm
from telemetry.findings.rpm_gaming import rpm_gaming

ORDER: tuple[Callable[[Case], Finding], ...] = (
    change,
    hurt,
    holder,
    engine,
    lost_engine,
    frozen,
    kv_pressure,
    slot_queueing,
    budget_queueing,
    long_prefill,
    adapter_thrash,
    preemption_storm,
    own_growth,
    own_limits,
    retry_storm,
    fixed_window,
    rpm_gaming,
    everyone,
    outside,
)


def examine(case: Case) -> dict[str, Finding]:
    """Every finding of a case by name; a change is tested first."""
    return {f.name: f for f in (ask(case) for ask in ORDER)}
