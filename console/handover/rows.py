"""A page's figures as rows, and rows as CSV that no spreadsheet takes for a formula. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from console.account import Account
from console.matrix import matrix_of
from console.screens import Scene
from console.wide_columns import COLUMNS

# A text that begins with one of these is worked out by a spreadsheet, not shown.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Of a page that asks several questions the one whose rows are its list.
LISTS = {"heat": "cells", "tenant": "history", "adapters": "adapters"}
EVERY_TENANT = ("overview", "table")  # pages whose list is of all tenants, with all columns
EVERY = 100_000  # rows and columns of a matrix: all of them


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns and rows of plain values; None is not known."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def page_rows(page: str, scene: Scene) -> Rows | None:
    """What the page shows, whole: everything that matches and everything that is scrolled off. None
    where it has nothing yet."""
    account = scene.picture.account
    if page in EVERY_TENANT:
        return None if account is None else tenant_rows(account)
    if page == "matrix":
        return None if account is None else matrix_rows(account)
    answers = scene.detail.answers
    if not answers:
        return None
    name = LISTS.get(page) or max(answers, key=lambda n: len(answers[n].rows))
    answer = answers.get(name)
    return None if answer is None else Rows(answer.columns, tuple(answer.rows))


def tenant_rows(account: Account) -> Rows:
    """Every tenant with every column of the wide table: shares of 1, seconds, bytes, counts."""
    names = ("tenant", "mark", *COLUMNS)
    rows = tuple(
        (t.name, t.row.mark.name.lower(), *(c.value(t) for c in COLUMNS.values()))
        for t in account.hurt
    )
    return Rows(names, rows)


def matrix_rows(account: Account) -> Rows | None:
    """Cell by cell: victim, holder and seconds, charged and excess."""
    if account.cells is None:
        return None
    made = {b: matrix_of(account.cells, b, None, rows=EVERY, columns=EVERY)
            for b in ("excess", "charged")}  # fmt: skip
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for basis, m in made.items():
        for r in m.rows:
            for c, seconds in zip(m.columns, r.seconds, strict=True):
                if seconds:
                    found.setdefault((r.victim or "", c.kind, c.name), {})[basis] = seconds
    rows = tuple((*k, v.get("charged", 0.0), v.get("excess", 0.0)) for k, v in found.items())
    return Rows(("victim", "holder_kind", "holder", "charged_s", "excess_s"), rows)


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """RFC 4180, one line a row. Text that a spreadsheet would work out gets an apostrophe before
    it; numbers stay numbers, what is not known is empty, a list has spaces between its numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_cell(c) for c in columns])
    writer.writerows([_cell(v) for v in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    # Surrogates are no text that a file can hold; NUL ends a cell for some readers.
    text = str(value).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
    return f"'{text}" if text.startswith(FORMULA) else text
