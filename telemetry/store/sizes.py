"""How big a store is, a table and day, and when the disk fills at that rate. Changes nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.ask.reading import Result
from telemetry.store import sql
from telemetry.store.parts import Part
from telemetry.store.retention import Retention

if TYPE_CHECKING:
    import duckdb

COLUMNS = ("day", "table", "rows", "bytes", "open")
_BLOCK_BYTES = 1 << 18
_LAST_DAYS = 7
_FAR_DAYS = 3_650


def measure(con: duckdb.DuckDBPyConnection, listed: Iterable[Part]) -> Result:
    """Rows and bytes of every table and part on a connection that has the open ones attached.

    A Parquet file is a table's own. An open part's file is shared: its bytes are given to its
    tables by the blocks they fill, the rest (write-ahead log, free blocks) by their rows.
    """
    rows: list[tuple[object, ...]] = []
    for part in listed:
        sized = _open(con, part) if part.file is not None else _closed(con, part)
        rows += [(part.name, t, n, b, part.file is not None) for t, n, b in sized if n]
    return Result(COLUMNS, tuple(rows))


def _closed(con: duckdb.DuckDBPyConnection, part: Part) -> list[tuple[str, int, int]]:
    sized = []
    for table in sql.tables_of(part.name):
        file = part.parquet(table)
        if file is not None:
            [(rows,)] = con.execute(sql.count(sql.parquet(file))).fetchall()
            sized.append((table.name, int(rows), file.stat().st_size))
    return sized


def _open(con: duckdb.DuckDBPyConnection, part: Part) -> list[tuple[str, int, int]]:
    assert part.file is not None
    wal = part.file.with_name(f"{part.file.name}.wal")
    whole = sum(f.stat().st_size for f in (part.file, wal) if f.exists())
    rows: dict[str, int] = {}
    uses: dict[int, dict[str, int]] = defaultdict(dict)
    for table in sql.tables_of(part.name):
        if table.name in part.without:
            continue
        [(n,)] = con.execute(sql.count(sql.in_part(part.name, table.name))).fetchall()
        rows[table.name] = int(n)
        for block, times in con.execute(sql.blocks(part.name, table)).fetchall():
            uses[block][table.name] = times
    own = dict.fromkeys(rows, 0.0)
    for tables in uses.values():
        for name, times in tables.items():
            own[name] += _BLOCK_BYTES * times / sum(tables.values())
    rest, total = max(0.0, whole - sum(own.values())), sum(rows.values()) or 1
    return [(t, n, round(own[t] + rest * n / total)) for t, n in rows.items()]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the last days say about the next ones. Growth is None with under two whole days."""

    days: int
    growth_bytes_a_day: float | None
    steady_bytes: float | None  # where retention holds it at that rate; None: it grows for ever
    fills_on: str | None  # the first day the disk has no room; None: none in ten years, or unknown
    free_bytes: int


def forecast(size: Result, free_bytes: int, today: str, retention: Retention) -> Forecast:
    """When the disk fills if days go on as the last seven whole ones did, retention running."""
    by_day: dict[str, dict[str, int]] = defaultdict(dict)
    for day, table, _, stored, _ in size.rows:
        if day != sql.RUNS_PART and day < today:
            by_day[day][table] = stored
    days = sorted(by_day)
    if len(days) < 2:
        return Forecast(len(days), None, None, None, free_bytes)
    last = date.fromisoformat(days[-1])
    first = max(date.fromisoformat(days[0]), last - timedelta(days=_LAST_DAYS - 1))
    span = (last - first).days + 1
    recent = [d for d in days if date.fromisoformat(d) >= first]
    growth = {
        table: sum(by_day[d].get(table, 0) for d in recent) / span for table in retention.days
    }
    kept = {t: math.inf if n is None else float(n) for t, n in retention.days.items()}
    steady = sum(g * kept[t] for t, g in growth.items() if g)
    now = date.fromisoformat(today)
    fills = None
    need = 0.0
    for ahead in range(1, _FAR_DAYS):
        day = now + timedelta(days=ahead)
        need += sum(growth.values())
        for table, n in retention.days.items():
            if n is not None:  # what leaves on that day gives its bytes back
                gone = day - timedelta(days=n + 1)
                past = by_day.get(gone.isoformat(), {}).get(table, 0)
                need -= growth[table] if gone >= now else past
        if need > free_bytes:
            fills = day.isoformat()
            break
    return Forecast(
        len(recent),
        sum(growth.values()),
        None if math.isinf(steady) else steady,
        fills,
        free_bytes,
    )


def extra_bytes(folder: Path) -> int:
    """Bytes in the folder that are no part's: what stands in quarantine."""
    aside = folder / "quarantine"
    return sum(p.stat().st_size for p in aside.glob("*")) if aside.is_dir() else 0
