"""The boards as Grafana's JSON; the texts are the vocabulary's. Writes no file.

`docs/make_metrics.py` writes them to deploy/grafana.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from telemetry.conventions import LATENCY_BOUNDS_S, NAMESPACE
from telemetry.prometheus import exposed
from telemetry.prometheus.boards import BOARDS, Panel

SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NAME = re.compile(rf"{NAMESPACE}_\w+")


def dashboards() -> dict[str, str]:
    """Name -> JSON text."""
    return {
        name: json.dumps(_board(name, title, panels), indent=1) + "\n"
        for name, (title, panels) in BOARDS.items()
    }


def queries() -> list[str]:
    """Every query of every board."""
    return [q for _, panels in BOARDS.values() for p in panels for q, _ in p.queries]


def _board(name: str, title: str, panels: Sequence[Panel]) -> dict[str, Any]:
    placed, x, y = [], 0, 0
    for number, panel in enumerate(panels, 1):
        width = 24 if panel.wide else 12
        if x + width > 24:
            x, y = 0, y + 8
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": 8}))
        x += width
    return {
        "uid": f"{NAMESPACE}-{name}",
        "title": title,
        "tags": [NAMESPACE],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [_datasource(), *map(_variable, ("engine", "pool", "tenant"))]},
        "links": [
            {"type": "dashboards", "tags": [NAMESPACE], "title": "Tenantscope", "keepTime": True,
             "includeVars": True, "asDropdown": False}
        ],
        "panels": placed,
    }  # fmt: skip


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 20 if panel.stack else 0}
    if panel.stack:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": _text(panel),
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                **({} if panel.below_zero else {"min": 0}),
                "custom": custom,
            },
            "overrides": [],
        },
        "options": {
            "legend": {
                "displayMode": "table",
                "placement": "right",
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": query,
             "legendFormat": legend, "exemplar": "_bucket" in query}
            for i, (query, legend) in enumerate(panel.queries)
        ],
    }  # fmt: skip


def _text(panel: Panel) -> str:
    """What the panel is for, then what its metrics are, in the vocabulary's words."""
    by_sample = {f.sample: f for f in exposed.families()}
    names = dict.fromkeys(n for query, _ in panel.queries for n in _NAME.findall(query))
    meanings = [f"`{n}`: {by_sample[n].help}" for n in names]
    if any(n.endswith("_bucket") for n in names):
        meanings.append(f"Nothing above {LATENCY_BOUNDS_S[-1]:g} s can be told apart.")
    return "\n\n".join(filter(None, [panel.about, *meanings]))


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def _variable(label: str) -> dict[str, Any]:
    metric = f"{NAMESPACE}_tenant_service_total"
    within = "" if label == "engine" else '{engine=~"$engine"}'
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({metric}{within}, {label})", "refId": label},
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": ["All"], "value": ["$__all"]},
        "allValue": ".*",
    }
