"""Which parts a question can touch, and its text over those alone. Builds text; runs nothing.

A view over every day costs more to plan than the answer costs to compute. So a question that names
a window is asked of the parts of that window, and of each only for the columns its text names: the
tables stand before it as common table expressions. Nothing is kept in the database, so there is
nothing to renew when a day closes, opens again, is dropped or moved aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from telemetry.store import sql
from telemetry.store.parts import Part
from telemetry.tables import TABLES

BEFORE_S = 86_400.0  # what a question may look back before its window (reconcile: a bucket before)
# Questions that are known to read nothing before their window; rows of a table are such a question
# too. They are asked every few seconds, and yesterday is a second file to plan for.
IN_WINDOW = frozenset(
    {
        "adapters_found",
        "adapters_map",
        "alert_engines",
        "alert_events",
        "alert_pools",
        "alert_tenants",
        "console_glance",
        "console_matrix",
        "console_minutes",
        "console_minutes_all",
        "heat_minutes",
        "events_page",
        "policy_tenants",
        "policy_versions",
        "pool_minutes",
        "report_lives",
        "report_matrix",
        "report_minutes",
        "requests_page",
        "tenant_charged",
        "tenant_history",
        "tenant_series",
        "tenant_ttft",
        "tenants_now",
        "token_share",
        "token_totals",
        "top_tenants",
        "usage",
        "usage_of",
        "whatif_requests",
        *(f"read.{table}" for table in TABLES),
    }
)
_MOST_TEXTS = 256  # remembered: a question over a set of parts
_COMMENT = re.compile(r"--[^\n]*")
_WORD = re.compile(r"[a-z_][a-z_0-9]*")
_BEGINS = re.compile(r"(?:\s*--[^\n]*\n)*\s*(?P<with>WITH\s)?", re.IGNORECASE)

# Of one table: the parts that have it attached, and its Parquet files.
Held = tuple[str, tuple[str, ...], tuple[Path, ...]]


def names_window(parameters: dict[str, Any]) -> bool:
    """Whether a question says of which time it is."""
    return all(isinstance(parameters.get(p), int | float) for p in ("start", "end"))


def touched(listed: Iterable[Part], name: str, parameters: dict[str, Any]) -> list[Part]:
    """The parts that a question can have rows of; all of them when it names no window."""
    if not names_window(parameters):
        return list(listed)
    before_s = 0.0 if name in IN_WINDOW else BEFORE_S
    start, end = parameters["start"] - before_s, parameters["end"]
    return [p for p in listed if p.touches(start, end)]


def over(text: str, parts: Iterable[Part]) -> str:
    """The question over these parts alone. Open ones are attached, of today's layout."""
    here = list(parts)
    tables = [TABLES[name] for name in sorted(_words(text) & TABLES.keys())]
    held = []
    for table in tables:
        its = [p for p in here if table in sql.tables_of(p.name)]
        attached = tuple(p.name for p in its if p.file is not None)
        files = tuple(f for p in its if (f := p.parquet(table)) is not None)
        held.append((table.name, attached, files))
    return _text(text, tuple(held))


@lru_cache(_MOST_TEXTS)
def _text(text: str, held: tuple[Held, ...]) -> str:
    named = _words(text)
    tables = []
    for name, attached, files in held:
        table = TABLES[name]
        columns = [c for c in sql.stored_columns(table) if c in named]
        tables.append(sql.named_rows(table, columns, attached, files))
    if not tables:
        return text
    begins = _BEGINS.match(text)
    assert begins is not None  # it matches anything
    return f"WITH {', '.join(tables)}{', ' if begins['with'] else ' '}{text[begins.end() :]}"


@lru_cache(_MOST_TEXTS)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub("", text)))
