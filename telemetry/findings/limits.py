"""The numbers by which the last minutes of a pool are judged, each with its meaning.

Every one may be set in a store's `settings.toml`, table `[alerts]`, under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _number(default: float, meaning: str, *, above: float = 0.0, at_most: float = 1e9) -> Any:
    return field(default=default, metadata={"meaning": meaning, "above": above, "at_most": at_most})


@dataclass(frozen=True, slots=True)
class Limits:
    """Defaults for interactive serving. The burn factors are those of the SRE workbook (chapter 5,
    multi-window, multi-burn-rate): 2% of a 30-day budget in an hour, 5% in six."""

    objective: float = _number(0.99, "part of the judged requests that should meet", at_most=0.9999)
    burn_fast: float = _number(14.4, "times the budget, over 5 min and over 1 h: page", above=1.0)
    burn_fast_misses: float = _number(10, "misses in the hour before anybody is paged")
    burn_slow: float = _number(6.0, "times the budget, over 30 min and over 6 h: warn", above=1.0)
    burn_slow_misses: float = _number(30, "misses in the six hours before anybody is told")
    surge_fair: float = _number(3.0, "times its fair share of the service", above=1.0)
    surge_rise: float = _number(1.5, "times its own usual share", above=1.0)
    surge_waits: float = _number(2.0, "times the others' usual waiting", above=1.0)
    surge_waiting: float = _number(1.0, "others' requests waiting at once, on average, at least")
    surge_for_s: float = _number(60.0, "seconds a surge must last")
    thrash_reload_s: float = _number(60.0, "a load so soon after its own eviction is a reload")
    thrash_reloads: float = _number(0.5, "reloads a second, over 5 min")
    thrash_wait_share: float = _number(0.3, "of all waiting must be for adapters", at_most=1.0)
    thrash_for_s: float = _number(60.0, "seconds thrashing must last")
    stalled_s: float = _number(10.0, "seconds without a token while work waits: page")
    silent_s: float = _number(60.0, "seconds an engine is not heard: page")
    skew_s: float = _number(30.0, "seconds between an engine's clock and the store's")
    skew_for_s: float = _number(300.0, "seconds a skew must last")
    missing_s: float = _number(120.0, "seconds of the last hour in which nothing was observed")
    refused_s: float = _number(900.0, "seconds a refused point is news")


DEFAULT = Limits()
NAMES: tuple[str, ...] = tuple(f.name for f in fields(Limits))
