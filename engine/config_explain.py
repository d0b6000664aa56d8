"""Explains every settings key: type, default, what is allowed, what it means. Reads no file.

Made from the declarations beside the dataclass fields; docs/config.md is made here too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from itertools import groupby
from typing import Any

from engine.config_keys import Declared, declared, without_none
from engine.config_pools import PoolSpec
from engine.config_values import AdapterFolder, Settings, Tenant
from engine.errors import ConfigError

_WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    tuple[int, ...]: "list of whole numbers",
}
# What the [[...]] tables are read as; the other tables are fields of their own type.
_ROWS: dict[str, type] = {"pools": PoolSpec, "tenants": Tenant, "adapters": AdapterFolder}
_TOP = "(top of the file)"


@dataclass(frozen=True, slots=True)
class Explained:
    """One key. `key` is its dotted name, `table` where it is written, `default` as TOML writes it
    ("" = it must be given), `absent` what leaving it out means where that is no value."""

    key: str
    table: str
    type: str
    default: str
    absent: str
    allowed: str
    meaning: str

    @property
    def otherwise(self) -> str:
        """What holds when the key is left out."""
        return self.default or self.absent or "must be given"


def explained() -> tuple[Explained, ...]:
    """Every key of a settings file, in the order a person would write them."""
    return tuple(_walk(Settings, "", _TOP))


def explain(key: str) -> tuple[Explained, ...]:
    """The keys that `key` names: one, a whole table, or the last part of a name. Raises
    ConfigError with the nearest names."""
    every = explained()
    wanted = key.strip().strip("[]")
    found = tuple(e for e in every if e.key == wanted or e.key.startswith(wanted + "."))
    found = found or tuple(e for e in every if e.key.rpartition(".")[2] == wanted)
    if found and wanted:
        return found
    # A person may mistype the whole name, or only the last part of it.
    names = {n: e.key for e in every for n in (e.key, e.key.rpartition(".")[2])}
    near = {names[n]: None for n in difflib.get_close_matches(wanted, names, n=3)}
    hint = f"did you mean {', '.join(near)}?" if near else "all: tenantscope config explain"
    raise ConfigError(f"{key!r} is no settings key; {hint}")


def as_text(entries: Sequence[Explained]) -> str:
    """For a terminal: a table a paragraph, a key two lines."""
    lines: list[str] = []
    for table, keys in groupby(entries, key=lambda e: e.table):
        lines += ["", table]
        for e in keys:
            name = e.key.rpartition(".")[2]
            left_out = f"{name} = {e.default}" if e.default else f"{name}: {e.otherwise}"
            lines.append(f"  {left_out}   ({e.type}{_comma(e.allowed)})")
            lines.append(f"      {e.meaning}")
    return "\n".join(lines[1:])


def as_plain(entries: Sequence[Explained]) -> list[dict[str, Any]]:
    return [asdict(e) for e in entries]


def as_markdown() -> str:
    """docs/config.md."""
    lines = [
        "# The settings file",
        "",
        "<!-- Generated: tenantscope config explain --markdown > docs/config.md -->",
        "",
        "One TOML file. A limit that is left out is no limit; 0 means blocked, never unlimited.",
        "Unknown keys, blanks and values out of range are refused with file, table, key and value;",
        "`tenantscope config check FILE` says whether a file is good, and what it was understood",
        "to say.",
    ]
    for table, keys in groupby(explained(), key=lambda e: e.table):
        lines += ["", f"## {table if table == _TOP else f'`{table}`'}", ""]
        lines += ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        for e in keys:
            default = f"`{e.default}`" if e.default else e.otherwise
            cells = (f"`{e.key.rpartition('.')[2]}`", e.type, default, e.allowed, e.meaning)
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


def _walk(cls: type, prefix: str, table: str) -> Iterator[Explained]:
    """Plain keys first, then the tables inside: as a file has to be written."""
    inner: list[tuple[type, Declared]] = []
    for d in declared(cls):
        kind = _ROWS.get(d.name) if cls is Settings else None
        kind = kind or without_none(d.type)
        if isinstance(kind, type) and is_dataclass(kind):
            inner.append((kind, d))
        else:
            yield _explained(d, prefix, table, kind)
    for kind, d in inner:
        keys = _walk(kind, d.key.table.strip("[]") + ".", d.key.table)
        if d.key.absent and kind is not _ROWS.get(d.name):  # a table that inherits
            keys = (replace(e, default="", absent=d.key.absent) for e in keys)
        yield from keys


def _explained(d: Declared, prefix: str, table: str, kind: Any) -> Explained:
    said = d.default is None or (d.default == () and d.key.absent)
    default = "" if d.required or said else _toml(d.default)
    return Explained(
        key=prefix + d.name,
        table=table,
        type=_WORDS.get(kind, "list of texts"),
        default=default,
        absent="" if d.required or default else (d.key.absent or "nothing"),
        allowed=_allowed(d),
        meaning=d.key.meaning,
    )


def _allowed(d: Declared) -> str:
    rule = d.key
    if rule.choices:
        return ", ".join(rule.choices)
    if rule.is_name:
        return "printable, up to 200 characters"
    low = f">= {rule.at_least:g}" if rule.at_least is not None else ""
    low = f"> {rule.above:g}" if rule.above is not None else low
    high = f"<= {rule.at_most:.0f}" if rule.at_most is not None else ""
    return f"{low}{' and ' if low and high else ''}{high}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return "[]" if value == () else f"{value}"


def _comma(text: str) -> str:
    return f", {text}" if text else ""
