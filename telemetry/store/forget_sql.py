"""What is left of a table's rows without one tenant: row sources, as SQL text. Runs nothing.

The tenant's name is a row of the temporary table `forgotten`, texts rewritten without it are rows
of `rewritten`: no value enters the text.
"""

from __future__ import annotations

from telemetry.conventions import OTHERS, TENANT
from telemetry.store import sql
from telemetry.tables import Table

PREPARE = (
    'CREATE OR REPLACE TEMP TABLE forgotten ("name" VARCHAR, "quoted" VARCHAR)',
    'CREATE OR REPLACE TEMP TABLE rewritten ("was" VARCHAR, "now" VARCHAR)',
    'CREATE OR REPLACE TEMP TABLE owned ("adapter" VARCHAR)',
)
NAME = "INSERT INTO forgotten VALUES ($name, $quoted)"
REWRITE = "INSERT INTO rewritten VALUES ($was, $now)"
OWN = "INSERT INTO owned VALUES ($adapter)"
CLEAN_UP = tuple(f"DROP TABLE IF EXISTS temp.{t}" for t in ("forgotten", "rewritten", "owned"))

# Over the whole store, parameter name: the adapters that no other tenant ever asked for, by name,
# and the content hashes that go by no other name.
NAMES_OF = (
    'SELECT adapter FROM "request" WHERE adapter IS NOT NULL '
    "GROUP BY adapter HAVING bool_and(tenant = $name)"
)
HASHES_OF = (
    'SELECT adapter FROM "adapter" GROUP BY adapter HAVING bool_and(list_contains($names, name))'
)

_IT = "(SELECT name FROM temp.forgotten)"
_QUOTED = "(SELECT quoted FROM temp.forgotten)"
_OWNED = "(SELECT adapter FROM temp.owned)"
# The name as a word of its own in a sentence; \W is any non-ASCII character too: rather too often.
_IN_DETAIL = (
    "regexp_matches(detail, '(^|\\W)' || regexp_escape((SELECT name FROM temp.forgotten)) "
    "|| '(\\W|$)')"
)
# Whose row it is, where a table has one; the row goes.
_OWNER = {
    "tenant_minute": "tenant",
    "request": "tenant",
    "event": "tenant",
    "interference_minute": "victim",
}
# Whose attributes, JSON, may say the name: nobody knows which of others' attributes is a tenant.
_SAID_IN_JSON = frozenset({"foreign_metric", "series_state"})
# JSON in which tenants are named; the row stays, the name leaves the text.
TEXTS = {"policy": "parameters", "engine_run": "config"}


_CAUSED = f"coalesce(cause_tenant = {_IT}, false)"
_NAMES_OWN = f"coalesce(adapter IN {_OWNED}, false)"


def _goes(table: Table) -> str | None:
    """Whether a row is the tenant's; None for a table in which none is."""
    if table.name == "adapter":
        return f"name IN {_OWNED}"
    if table.name == "adapter_minute":
        return f"adapter IN {_OWNED}"
    if table.name in _SAID_IN_JSON:
        return f"contains(attributes, {_QUOTED})"
    owner = _OWNER.get(table.name)
    return None if owner is None else f'coalesce("{owner}" = {_IT}, false)'


def touched(table: Table, source: str) -> str | None:
    """Counts (rows that go, rows that stay and change); None where no tenant is named."""
    whole = sql.whole(table, source)
    if table.name in TEXTS:
        changes = f'"{TEXTS[table.name]}" IN (SELECT was FROM temp.rewritten)'
        return f"SELECT 0, count(*) FILTER (WHERE {changes}) FROM {whole}"
    goes = _goes(table)
    if goes is None:
        return None
    changes = {
        "interference_minute": f"holder_kind = '{TENANT}' AND holder = {_IT}",
        "event": f"{_CAUSED} OR coalesce({_IN_DETAIL}, false) OR {_NAMES_OWN}",
    }.get(table.name, "false")
    return (
        f"SELECT count(*) FILTER (WHERE {goes}), "
        f"count(*) FILTER (WHERE NOT {goes} AND ({changes})) FROM {whole}"
    )


def texts(table: Table, source: str) -> str:
    """The distinct texts of a table that name tenants."""
    column = TEXTS[table.name]
    return (
        f'SELECT DISTINCT "{column}" FROM {sql.whole(table, source)} WHERE "{column}" IS NOT NULL'
    )


def without(table: Table, source: str) -> str:
    """The table's rows without the tenant, as a row source of all stored columns."""
    whole = sql.whole(table, source)
    if table.name == "interference_minute":
        return _matrix(table, whole)
    if table.name == "event":
        blank = f"{_CAUSED} OR {_NAMES_OWN} OR coalesce({_IN_DETAIL}, false)"
        return (
            "(SELECT * REPLACE ("
            f"CASE WHEN {_CAUSED} THEN NULL ELSE cause_tenant END AS cause_tenant, "
            f"CASE WHEN {_NAMES_OWN} THEN NULL ELSE adapter END AS adapter, "
            f"CASE WHEN {blank} THEN NULL ELSE detail END AS detail) FROM {whole} "
            f"WHERE NOT {_goes(table)})"
        )
    if table.name in TEXTS:
        column = TEXTS[table.name]
        names = ", ".join(f'r."{n}"' for n in sql.stored_columns(table) if n != column)
        return (
            f'(SELECT {names}, coalesce(w."now", r."{column}") AS "{column}" FROM {whole} AS r '
            f'LEFT JOIN temp.rewritten AS w ON w."was" = r."{column}")'
        )
    goes = _goes(table)
    return whole if goes is None else f"(SELECT * FROM {whole} WHERE NOT {goes})"


def _matrix(table: Table, whole: str) -> str:
    """As a victim it is gone; what others waited behind it is charged to `others`, so that the sum
    of every other victim stays what it was."""
    held = f"(holder_kind = '{TENANT}' AND holder = {_IT})"
    keys = ", ".join(f'"{k}"' for k in table.key)
    adds = {"charged_s": "sum", "provisional": "bool_or"}  # of the marks the highest
    sums = ", ".join(
        f'{adds.get(n, "max")}("{n}") AS "{n}"'
        for n in sql.stored_columns(table)
        if n not in table.key
    )
    return (
        f"(SELECT {keys}, {sums} FROM (SELECT * REPLACE ("
        f"CASE WHEN {held} THEN '{OTHERS}' ELSE holder_kind END AS holder_kind, "
        f"CASE WHEN {held} THEN '' ELSE holder END AS holder) "
        f"FROM {whole} WHERE victim <> {_IT}) GROUP BY {keys})"
    )
