"""The rows of a run as somebody gets to see them: minutes lost, a clock that jumped. A window.

Owns what goes wrong between engine and reader; simulates nothing and judges nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.attribution.scenarios import Scenario
from benchmarks.attribution.truth import Rows
from telemetry.window import Window, window_of

_INSTANTS = ("bucket_start", "arrived", "at", "started")


def window(scenario: Scenario, rows: Rows) -> Window:
    """What is asked about, with everything before it."""
    told = {name: _told(scenario, found) for name, found in rows.tables.items()}
    base = scenario.setup.start_unix_s
    start, end = (base + _on_clock(scenario, s) for s in scenario.asked_s)
    before = [r for r in told.get("request", ()) if r.arrived < end]
    return window_of(
        scenario.setup.pools[0].name,
        start,
        end,
        engine_rows=told.get("engine_minute", ()),
        tenant_rows=told.get("tenant_minute", ()),
        matrix_rows=told.get("interference_minute", ()),
        requests=before,
        events=told.get("event", ()),
        policies=told.get("policy", ()),
        runs=told.get("engine_run", ()),
    )


def _on_clock(scenario: Scenario, at_s: float) -> float:
    if scenario.step is None or at_s < scenario.step[0]:
        return at_s
    return at_s + scenario.step[1]


def _told(scenario: Scenario, rows: list[Any]) -> list[Any]:
    base = scenario.setup.start_unix_s
    lost = {base + s for s in scenario.dropped_s}
    out = [r for r in rows if getattr(r, "bucket_start", None) not in lost]
    if scenario.step is None:
        return out
    since, ahead = base + scenario.step[0], scenario.step[1]
    return [_moved(r, since, ahead) for r in out]


def _moved(row: Any, since: float, ahead_s: float) -> Any:
    moved = {
        name: getattr(row, name) + ahead_s
        for name in _INSTANTS
        if (at := getattr(row, name, None)) is not None and at >= since
    }
    return replace(row, **moved) if moved else row
