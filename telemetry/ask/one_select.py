"""What a person's SQL may be: one SELECT over the stored tables. Owns the refusal; runs no rows.

DuckDB's own parser reads the text, and every node of what it understood has to be on a list here:
so what this does not know is refused, not let through. The transaction's being read only is not
enough (`commit; drop table ...` leaves it), and a table function can read any file of the machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from telemetry.errors import QueryError
from telemetry.plain import name as shown
from telemetry.tables import TABLES

if TYPE_CHECKING:
    import duckdb

_MOST_DEEP = 600  # lists and objects in one another; a walk takes a frame for each
MOST_CHARACTERS = 100_000

_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_SOURCES = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EMPTY_FROM", "EXPRESSION_LIST", "TABLE_FUNCTION"}
)
# Only a source of rows has a sample: that tells it from an expression, whose types are many.
_MARK_OF_SOURCE = "sample"
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
# They reach out of the query (settings, files, sequences, other queries' plans), wait, or make one
# value so large in one go that no time limit and no memory limit is looked at meanwhile.
_FUNCTIONS = frozenset(
    {"current_setting", "getvariable", "nextval", "currval", "setval", "setseed", "write_log",
     "sleep_ms", "json_serialize_plan", "json_deserialize_sql", "json_serialize_sql", "getenv",
     "parse_duckdb_log_message", "repeat", "lpad", "rpad", "bar", "list_resize", "array_resize",
     "range", "generate_series", "format", "printf"}
)  # fmt: skip
_FUNCTION_FAMILIES = ("pg_", "inet_", "read_", "duckdb_", "pragma_", "has_")

# What DuckDB calls statements that a person knows by another name.
_SPOKEN = {"LOAD": "INSTALL or LOAD", "MULTI": "PIVOT", "TRANSACTION": "BEGIN, COMMIT or ROLLBACK",
           "MERGE_INTO": "MERGE", "VARIABLE_SET": "SET"}  # fmt: skip


def check(con: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raises QueryError, in a sentence, for anything but exactly one SELECT over the tables."""
    import duckdb

    if len(text) > MOST_CHARACTERS:
        raise QueryError(f"{len(text)} characters of SQL: a question may have {MOST_CHARACTERS}")
    if "\0" in text:
        raise QueryError("the SQL has a NUL character in it: leave it out")
    try:
        text.encode()
        statements = con.extract_statements(text)
    except UnicodeEncodeError:
        raise QueryError("the SQL is not valid UTF-8") from None
    except duckdb.Error as e:
        raise QueryError(f"this is not SQL that DuckDB understands: {first_lines(e)}") from None
    kinds = [s.type.name for s in statements]
    if not kinds:
        raise QueryError("there is no SQL in it: give one SELECT")
    if len(kinds) > 1:
        raise QueryError(
            f"{len(kinds)} statements ({', '.join(kinds)}): exactly one SELECT is answered, "
            "and nothing of this was run"
        )
    if kinds != ["SELECT"]:
        kind = _SPOKEN.get(kinds[0], kinds[0])
        raise QueryError(f"{kind} is refused: stores are only read here; give one SELECT")
    [(tree,)] = con.execute("SELECT json_serialize_sql($text)", {"text": text}).fetchall()
    try:
        parsed = json.loads(tree)
        if parsed.get("error"):
            said = parsed.get("error_message", "it has no tree")
            raise QueryError(f"this SELECT is refused: {said}")
        if _depth(parsed) > _MOST_DEEP:
            raise RecursionError
        _walk(parsed["statements"], frozenset())
    except RecursionError:
        raise QueryError("the SELECT is nested too deep to be looked through: flatten it") from None


def first_lines(error: Exception) -> str:
    """What DuckDB says of a mistake, without the picture of the line it draws below."""
    said = str(error).partition("\n\nLINE ")[0].partition("\n\nPossible solutions")[0]
    return " ".join(said.split())


def _depth(tree: Any) -> int:
    """How many lists and objects stand inside one another, counted without recursion."""
    level, depth = [tree], 0
    while level := [node for node in level if isinstance(node, list | dict)]:
        depth += 1
        level = [
            below for node in level for below in (node.values() if isinstance(node, dict) else node)
        ]
    return depth


def _walk(node: Any, ctes: frozenset[str]) -> None:
    """Check a node and all below it; `ctes` are the names that WITH has given where it stands."""
    if isinstance(node, list):
        for item in node:
            _walk(item, ctes)
        return
    if not isinstance(node, dict):
        return
    kind = str(node.get("type", ""))
    if "cte_map" in node:
        if kind not in _NODES:
            raise QueryError(
                f"{kind.removesuffix('_QUERY_NODE').removesuffix('_NODE')} inside a SELECT is "
                "refused: stores are only read here"
            )
        ctes = _walk_ctes(node, ctes)
        node = {k: v for k, v in node.items() if k != "cte_map"}
    elif _MARK_OF_SOURCE in node:
        _check_source(kind, node, ctes)
    elif node.get("class") == "PARAMETER":
        raise QueryError("there is a parameter ($x or ?) in the SQL: write the value in its place")
    if kind == "TABLE_FUNCTION":
        _walk(node["function"].get("arguments", []), ctes)
        return
    if node.get("class") in ("FUNCTION", "WINDOW") and "function_name" in node:
        _check_function(str(node["function_name"]).lower())
    for below in node.values():
        _walk(below, ctes)


def _walk_ctes(node: dict[str, Any], ctes: frozenset[str]) -> frozenset[str]:
    """A name is known to what comes after it, and to itself where it is recursive."""
    for entry in node["cte_map"]["map"]:
        own = str(entry["key"]).lower()
        recursive = entry["value"]["query_node"].get("type") == "RECURSIVE_CTE_NODE"
        _walk(entry["value"], ctes | {own} if recursive else ctes)
        ctes |= {own}
    if "cte_name" in node:
        ctes |= {str(node["cte_name"]).lower()}
    return ctes


def _check_source(kind: str, node: dict[str, Any], ctes: frozenset[str]) -> None:
    if kind == "SHOW_REF":
        raise QueryError("DESCRIBE, SHOW and SUMMARIZE are refused: `tenantscope sql --schema`")
    if kind not in _SOURCES:
        raise QueryError(f"{kind} after FROM is refused: name tables of the store")
    if kind == "TABLE_FUNCTION":
        function = str(node["function"]["function_name"]).lower()
        if function not in _TABLE_FUNCTIONS:
            raise QueryError(
                f"{shown(function)}() after FROM is refused: only the store's tables are read here "
                f"(and {', '.join(sorted(_TABLE_FUNCTIONS))})"
            )
    elif kind == "BASE_TABLE":
        table = str(node["table_name"]).lower()
        if node.get("catalog_name") or node.get("schema_name"):
            raise QueryError(f"{shown(table)} has a schema before it: name the table alone")
        if table not in ctes and table not in TABLES:
            raise QueryError(f"no table {shown(table, 60)}: there are {', '.join(TABLES)}")


def _check_function(function: str) -> None:
    if function in _FUNCTIONS or function.startswith(_FUNCTION_FAMILIES):
        hint = ": use it after FROM" if function in _TABLE_FUNCTIONS else ""
        raise QueryError(f"the function {shown(function)}() is refused here{hint}")
