"""How long each table is kept, and the pass that drops what is older. Never today's rows.

A store carries its own settings: `settings.toml` in its folder, table `[retention]`, days a table
or "forever". Whole days are dropped: a day file is closed first, then its Parquet file removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask.reading import Result
from telemetry.errors import StoreError
from telemetry.instants import day_of
from telemetry.settings import Reader, SettingsError
from telemetry.store import parts, sql
from telemetry.store.parts import Part
from telemetry.tables import TABLES

if TYPE_CHECKING:
    from telemetry.store.store import Store

log = logging.getLogger(__name__)

SETTINGS = "settings.toml"
FOREVER = "forever"
_MOST_DAYS = 36_500
# Minutes bill and baseline a year; requests and matrices explain a quarter; steps fit a cost model.
DEFAULT_DAYS: Mapping[str, int] = {
    "tenant_minute": 400,
    "interference_minute": 90,
    "adapter_minute": 90,
    "engine_minute": 400,
    "request": 90,
    "event": 400,
    "policy": 400,
    "step_sample": 30,
    "foreign_metric": 7,
    "series_state": 7,
}


@dataclass(frozen=True, slots=True)
class Retention:
    """Days each table is kept after the day its rows are of; None: for ever. Runs always stay."""

    days: Mapping[str, int | None]


DEFAULT = Retention(DEFAULT_DAYS)


def read_settings(folder: Path) -> Retention:
    """The store's own settings; the defaults where it has none. Raises SettingsError."""
    from telemetry.store import settings as store_settings

    return store_settings.read(folder).retention


def read_section(reader: Reader) -> Retention:
    """Table [retention] of a store's settings. Raises SettingsError."""
    section = reader.table("retention")
    days: dict[str, int | None] = {}
    for table, default in DEFAULT_DAYS.items():
        if section.is_text(table, FOREVER):
            days[table] = None
        else:
            days[table] = section.integer(table, default, at_least=1, at_most=_MOST_DAYS)
    section.done()
    return Retention(days)


def expired(listed: Iterable[Part], retention: Retention, today: str) -> list[tuple[str, str]]:
    """(day, table) of all that is older than it is kept. A day in the future is never that."""
    now = date.fromisoformat(today)
    return [
        (part.name, table)
        for part in listed
        if part.name != sql.RUNS_PART
        for table, kept in retention.days.items()
        if kept is not None and (now - date.fromisoformat(part.name)).days > kept
    ]


def apply(store: Store, now_unix_s: float, *, dry_run: bool = False) -> Result:
    """Drop what is older than it is kept: one row a day and table (day, table, rows, bytes).

    An open day loses its file's bytes only when closed, so with `dry_run` its tables come without
    bytes. Raises StoreError; nothing is dropped under settings that cannot be understood.
    """
    try:
        retention = read_settings(store.folder)
    except SettingsError as e:
        raise StoreError(f"nothing is dropped: {e}") from None
    today = day_of(now_unix_s)
    by_day: dict[str, list[str]] = {}
    with store.still(f"the parts of {store.folder} cannot be listed") as shelf:
        for day, table in expired(shelf.parts.values(), retention, today):
            by_day.setdefault(day, []).append(table)
    dropped: list[tuple[Any, ...]] = []
    for day, tables in by_day.items():
        dropped += _drop(store, day, tables, dry_run)
    return Result(("day", "table", "rows", "bytes"), tuple(dropped))


def _drop(store: Store, day: str, tables: list[str], dry_run: bool) -> list[tuple[Any, ...]]:
    with store.alone(f"{day} in {store.folder} cannot be dropped") as shelf:
        part = shelf.parts.get(day)
        if part is None:
            return []
        found = []
        for table in tables:
            spec = TABLES[table]
            file = part.parquet(spec)
            source = sql.in_part(day, table) if part.file else (sql.parquet(file) if file else None)
            if source is None:
                continue
            [(rows,)] = shelf.con.execute(sql.count(source)).fetchall()
            if rows:
                found.append((day, table, int(rows), file.stat().st_size if file else None))
        if dry_run or not found:
            return found
        if part.file is not None:
            shelf.close_part(day)
            part = shelf.parts[day]
            found = [(d, t, n, _bytes(part, t)) for d, t, n, _ in found]
        assert part.folder is not None
        parts.drop_tables(part.folder, [t for _, t, _, _ in found])
        if not part.folder.exists():
            del shelf.parts[day]
        shelf.refresh()
        what = ", ".join(f"{table} ({rows} rows)" for _, table, rows, _ in found)
        log.info("retention: dropped of %s: %s", day, what)
        shelf.tell("retention", f"dropped of {day}: {what}", float(sum(n for _, _, n, _ in found)))
        return found


def _bytes(part: Part, table: str) -> int:
    file = part.parquet(TABLES[table])
    return file.stat().st_size if file is not None else 0
