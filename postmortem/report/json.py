"""The report as JSON: the same numbers, names whole, instants in unix seconds and in ISO UTC."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from postmortem.report.model import Report

VERSION = 2
INSTANTS = frozenset(
    ("start", "end", "onset", "at", "judged_start", "judged_end", "baseline_start", "baseline_end")
)


def render(report: Report) -> str:
    """One JSON object; `format` counts its versions."""
    body = {"format": VERSION, **plain(report)}
    body["verdict"]["culprit"] = report.verdict.culprit
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Dataclasses as objects, sets as sorted lists, instants with their ISO form beside them;
    a number that is not finite is null."""
    if is_dataclass(value):
        out: dict[str, Any] = {}
        for f in fields(value):
            item = getattr(value, f.name)
            out[f.name] = plain(item)
            if f.name in INSTANTS and isinstance(item, float) and math.isfinite(item):
                out[f"{f.name}_utc"] = datetime.fromtimestamp(item, UTC).isoformat()
        return out
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(plain(v) for v in value)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
