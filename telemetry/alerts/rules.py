"""Which finding is which alert: its name, severity, and how long it must hold. Pure.

Names are those of `deploy/prometheus/rules.yml` and of the sections of `docs/runbook.md`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from telemetry.findings import dead_man, goodput_burn
from telemetry.findings.finding import Finding, Holds, missing
from telemetry.findings.lately import Lately
from telemetry.findings.limits import Limits
from telemetry.findings.share_surge import share_high, share_surge
from telemetry.findings.stalled import stalled
from telemetry.findings.thrashing import thrashing

log = logging.getLogger(__name__)

INFO, WARN, PAGE = "info", "warn", "page"
SEVERITIES = (INFO, WARN, PAGE)  # from the least on

Ask = Callable[[Lately, Limits], Finding]


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert. `for_s` names the limit that says how long it must hold; empty: at once.

    `tenants` says whom it concerns, where that is more than the finding's own tenant. Rules of one
    alert are asked in order; one that holds hides those after it.
    """

    alert: str
    severity: str
    ask: Ask
    for_s: str = ""
    tenants: Callable[[Lately, Limits], tuple[str, ...]] | None = None

    @property
    def key(self) -> str:
        return f"{self.alert}/{self.severity}"


def _burning(
    of: Callable[[Lately, Limits], tuple[goodput_burn.Burn, ...]],
) -> Callable[[Lately, Limits], tuple[str, ...]]:
    return lambda lately, limits: tuple(b.tenant for b in of(lately, limits))


RULES: tuple[Rule, ...] = (
    Rule("TenantscopeGoodputBurnFast", PAGE, goodput_burn.goodput_burn_fast,
         tenants=_burning(goodput_burn.fast)),
    Rule("TenantscopeEngineStalled", PAGE, stalled),
    Rule("TenantscopeEngineSilent", PAGE, dead_man.silent),
    Rule("TenantscopeGoodputBurnSlow", WARN, goodput_burn.goodput_burn_slow,
         tenants=_burning(goodput_burn.slow)),
    Rule("TenantscopeShareSurge", WARN, share_surge, "surge_for_s"),
    Rule("TenantscopeShareSurge", INFO, share_high, "surge_for_s"),
    Rule("TenantscopeAdapterThrash", WARN, thrashing, "thrash_for_s"),
    Rule("TenantscopeMinutesMissing", WARN, dead_man.minutes_missing),
    Rule("TenantscopeClockSkew", WARN, dead_man.clock_skew, "skew_for_s"),
    Rule("TenantscopeTelemetryRefused", WARN, dead_man.refused),
)  # fmt: skip
ALERTS: tuple[str, ...] = tuple(dict.fromkeys(r.alert for r in RULES))


@dataclass(frozen=True, slots=True)
class Condition:
    """What one rule says now. `tenants`: whom it concerns, worst first."""

    rule: Rule
    finding: Finding
    tenants: tuple[str, ...] = ()


def conditions(lately: Lately, limits: Limits, rules: tuple[Rule, ...] = RULES) -> list[Condition]:
    """Every rule asked. One that fails is logged and unknown; the others go on."""
    return [_ask(rule, lately, limits) for rule in rules]


def _ask(rule: Rule, lately: Lately, limits: Limits) -> Condition:
    try:
        finding = rule.ask(lately, limits)
        tenants = rule.tenants(lately, limits) if rule.tenants else ()
    except Exception:
        log.exception("%s could not be judged for pool %r", rule.alert, lately.pool)
        return Condition(rule, missing(rule.alert, "the finding failed; see the log"))
    if finding.holds is Holds.YES and not tenants and finding.tenant is not None:
        tenants = (finding.tenant,)
    return Condition(rule, finding, tenants)


def for_s(rule: Rule, limits: Limits) -> float:
    return float(getattr(limits, rule.for_s)) if rule.for_s else 0.0


def worst(severities: tuple[str, ...]) -> str:
    """The highest of them; info of none."""
    return max(severities, key=SEVERITIES.index, default=INFO)


def at_least(severity: str, floor: str) -> bool:
    return SEVERITIES.index(severity) >= SEVERITIES.index(floor)
