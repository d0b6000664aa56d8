"""Takes one tenant out of everything a store has. Owns the order in which files are replaced.

Files are written anew, so that not even freed blocks keep a row. Each file is replaced in one step:
a kill leaves some parts done and none half done, and forgetting again finishes. An open part is
closed without the tenant; the next row opens it again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from telemetry.ask.reading import Result
from telemetry.errors import QueryError
from telemetry.store import forget_sql, parts, quarantine, sql
from telemetry.tables import TABLES, Table

if TYPE_CHECKING:
    from telemetry.store.parts import Part
    from telemetry.store.shelf import Shelf
    from telemetry.store.store import Store

COLUMNS = ("part", "table", "dropped", "changed")


def forget(store: Store, tenant: str, *, dry_run: bool = False) -> Result:
    """Drop the tenant's rows and its name: one row a part and table (rows dropped, rows changed).

    With it go the adapters that no other tenant ever asked for. Of others' rows: a matrix row it
    held is added to `others`, an event it caused keeps no cause and no text, its name leaves
    policies' and runs' settings. Sums over a whole pool fall by what it had. What stands in
    quarantine, in backups, and what a running engine still sends stays.
    Raises QueryError for no name, StoreError when a file cannot be written.
    """
    if not tenant:
        raise QueryError("which tenant is to be forgotten? The name is empty")
    found: list[tuple[Any, ...]] = []
    with store.alone(f"{store.folder}: not all of the tenant is forgotten; try again") as shelf:
        # The runs first: who asked for which adapter is known as long as there are requests.
        listed = sorted(shelf.parts, key=lambda part: part != sql.RUNS_PART)
        names = [a for (a,) in shelf.con.execute(forget_sql.NAMES_OF, {"name": tenant}).fetchall()]
        hashes = shelf.con.execute(forget_sql.HASHES_OF, {"names": names}).fetchall()
        gone = _Gone(tenant, frozenset(names), frozenset(a for (a,) in hashes))
    for name in listed:
        # A part at a time: rows that arrive meanwhile wait for one part, not for all.
        with store.alone(f"{name}: not all of the tenant is forgotten; try again") as shelf:
            part = shelf.parts.get(name)
            if part is not None:
                found += _forget_in(shelf, part, gone, dry_run)
    if not dry_run and found:
        with store.alone("the event of it is not written") as shelf:
            dropped, changed = (sum(row[i] for row in found) for i in (2, 3))
            shelf.tell(
                "forget", f"a tenant was forgotten: {dropped} rows dropped, {changed} changed"
            )
    return Result(COLUMNS, tuple(sorted(found)), quarantine.partial(store.folder, *_ALL))


_ALL = (float("-inf"), float("inf"))


@dataclass(frozen=True, slots=True)
class _Gone:
    """What is to be forgotten: the tenant and the adapters, names and hashes, that were its own."""

    tenant: str
    adapters: frozenset[str]
    hashes: frozenset[str]


def _forget_in(shelf: Shelf, part: Part, gone: _Gone, dry_run: bool) -> list[tuple[Any, ...]]:
    con = shelf.con
    sources: dict[Table, str] = {}
    for table in sql.tables_of(part.name):
        file = part.parquet(table)
        if part.file is not None:
            sources[table] = sql.in_part(part.name, table.name)
        elif file is not None:
            sources[table] = sql.parquet(file)
    try:
        for statement in forget_sql.PREPARE:
            con.execute(statement).fetchall()
        # As `telemetry.otlp.foreign` writes attributes.
        quoted = json.dumps(gone.tenant, ensure_ascii=False)
        con.execute(forget_sql.NAME, {"name": gone.tenant, "quoted": quoted}).fetchall()
        for adapter in sorted(gone.adapters | gone.hashes):
            con.execute(forget_sql.OWN, {"adapter": adapter}).fetchall()
        for table, source in sources.items():
            _rewrite_texts(con, table, source, gone)
        touched: dict[str, tuple[int, int]] = {}
        for table, source in sources.items():
            question = forget_sql.touched(table, source)
            if question is not None:
                [(dropped, changed)] = con.execute(question).fetchall()
                if dropped or changed:
                    touched[table.name] = (int(dropped), int(changed))
        if touched and not dry_run:
            _replace(shelf, part, sources, list(touched))
    finally:
        for statement in forget_sql.CLEAN_UP:
            con.execute(statement).fetchall()
    return [(part.name, table, *counts) for table, counts in touched.items()]


def _rewrite_texts(con: Any, table: Table, source: str, gone: _Gone) -> None:
    if table.name not in forget_sql.TEXTS:
        return
    for (text,) in con.execute(forget_sql.texts(table, source)).fetchall():
        now = text
        for name in (gone.tenant, *sorted(gone.adapters)):
            now = scrubbed(now, name)
        if now != text:
            con.execute(forget_sql.REWRITE, {"was": text, "now": now}).fetchall()


def _replace(shelf: Shelf, part: Part, sources: dict[Table, str], touched: list[str]) -> None:
    if part.file is not None:
        shelf.close_part(part.name, forget_sql.without)
        return
    assert part.folder is not None
    empty = []
    for name in touched:
        table = TABLES[name]
        draft = part.folder / f".{name}.parquet.draft"
        left = forget_sql.without(table, sources[table])
        if parts.write_table(shelf.con, left, table, draft):
            draft.replace(part.folder / f"{name}.parquet")
        else:
            empty.append(name)
    parts.drop_tables(part.folder, empty)
    parts.sync(part.folder if part.folder.exists() else shelf.folder)
    if not part.folder.exists():
        del shelf.parts[part.name]
    shelf.refresh()


def scrubbed(text: str, tenant: str) -> str:
    """JSON without what is the tenant's: keys, texts, and objects that it is the name of. Text that
    is no JSON and names it is blanked."""
    if tenant not in text and json.dumps(tenant)[1:-1] not in text:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    left = _without(value, tenant)
    return text if left == value else json.dumps({} if left is _GONE else left)


_GONE = object()


def _without(value: Any, tenant: str) -> Any:
    if isinstance(value, str):
        return _GONE if value == tenant else value
    if isinstance(value, list):
        return [left for v in value if (left := _without(v, tenant)) is not _GONE]
    if isinstance(value, dict):
        if value.get("name") == tenant or value.get("tenant") == tenant:
            return _GONE
        return {
            k: left
            for k, v in value.items()
            if k != tenant and (left := _without(v, tenant)) is not _GONE
        }
    return value
