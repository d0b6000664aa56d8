"""`tenantscope console --once`: one picture, or one page, on stdout, and an exit code for scripts.

Exit codes: 0 nobody is hurt, 1 an incident is open, 2 usage, 3 nobody can say: the source does not
answer, holds nothing, its figures are old, or a pool was not judged or fell silent while hurt. A
failure of any kind is never 1.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from console.account import Account
from console.detail import NOTHING, Detail
from console.gather import Asked
from console.handover.rows import Rows, matrix_rows, tenant_rows
from console.once import as_json, is_open, known, open_incidents
from console.panels import Level, ReadTime, Snapshot
from console.screens import Page, Place, Scene

if TYPE_CHECKING:
    from console.sight import Sight

LINES = 60
ALL_WELL, OPEN, NOBODY_CAN_SAY = 0, 1, 3
OVERVIEW = "overview"


class CannotSay(Exception):
    """A failure; the console cannot tell whether somebody is hurt."""

    exit_code = NOBODY_CAN_SAY


@contextmanager
def never_open() -> Iterator[None]:
    """What fails in here ends with 3, but for usage errors: 1 says that an incident is open."""
    from console.cli import USAGE, exit_code, sentence

    try:
        yield
    except (click.ClickException, click.Abort, KeyboardInterrupt, CannotSay):
        raise
    except Exception as e:
        if exit_code(e) == USAGE:
            raise
        bug = f"{type(e).__name__}: " if exit_code(e) is None else ""
        raise CannotSay(f"{bug}{sentence(e)}") from e


def code_of(s: Snapshot, incidents: tuple[str, ...]) -> int:
    """An incident that the store holds open is open, however old the figures are; without one old
    figures say nothing about now, nor does a picture about pools that nobody judged."""
    known = not s.stale and s.account is not None
    hurt = known and s.verdict.level is Level.HURT
    if incidents or hurt or any(o.is_hurt for o in s.others):
        return OPEN
    unjudged = len(s.pools) - 1 > len(s.others)
    fell_silent = any(o.stale and o.level is Level.HURT for o in s.others)
    return ALL_WELL if known and not unjudged and not fell_silent else NOBODY_CAN_SAY


def once(
    sight: Sight,
    opened: Callable[[], Asked],
    read_time: ReadTime,
    *,
    at: str | None = None,
    shape: bool = False,
    ascii_only: bool = False,
    page: str = OVERVIEW,
    tenant: str | None = None,
) -> int:
    """Print it; the exit code. `shape`: as JSON. `at`: as it was then, and no incidents are asked
    for. Raises UsageError, and CannotSay for every failure."""
    from console.pages import PAGES

    shown, place = PAGES[page], Place(tenant=tenant)
    with never_open():
        try:
            sight.show_columns(shown.every_column)
            picture = sight.whole()
            if at is not None:
                try:
                    picture = sight.at(read_time(at, picture))
                except ValueError as e:
                    raise click.UsageError(str(e)) from None
            asks = shown.wants(picture, place)
            detail = sight.detail(asks) if asks else NOTHING
        finally:
            sight.close()
        incidents: tuple[str, ...] = ()
        if at is None:
            source = opened()
            try:
                incidents = open_incidents(source, time.time())
            finally:
                source.close()
        code = code_of(picture, incidents)
        if shape:
            made = (
                as_json(picture, incidents)
                if page == OVERVIEW
                else page_json(page, picture, detail, incidents)
            )
            _print(json.dumps(made, allow_nan=False) + "\n")
        else:
            _print(_text(shown, picture, place, detail, ascii_only))
            from telemetry.plain import safe

            for name in incidents:
                click.echo(f"open: {safe(name)}", err=True)
    return code


def page_json(page: str, s: Snapshot, detail: Detail, incidents: tuple[str, ...]) -> dict[str, Any]:
    """A page's figures: its tables by name, each a list of rows. Instants are unix seconds, but for
    whole microseconds where a column is of the store's own tables; null is not known."""
    tables = {name: Rows(a.columns, tuple(a.rows)) for name, a in detail.answers.items()}
    if s.account is not None:
        tables |= _of_account(page, s.account)
    shaped: dict[str, Any] = {
        "page": page,
        "at": s.now,
        "pool": s.pool,
        "stale": s.stale,
        "incident_open": is_open(s, incidents),
        "incidents": list(incidents),
        "notes": [*s.lamps.notes, *(n for n in detail.notes if n not in s.lamps.notes)],
        "tables": {
            name: [dict(zip(t.columns, map(_plain, row), strict=True)) for row in t.rows]
            for name, t in tables.items()
        },
    }
    found: dict[str, Any] = known(shaped)
    return found


def _of_account(page: str, account: Account) -> dict[str, Rows]:
    if page == "table":
        return {"tenants": tenant_rows(account)}
    made = matrix_rows(account) if page == "matrix" else None
    return {} if made is None else {"matrix": made}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(page: Page, s: Snapshot, place: Place, detail: Detail, ascii_only: bool) -> str:
    from console.frame import screen_lines
    from console.lines import ASCII, glyphs_for
    from console.overview import Look, plain_text

    look = Look(glyphs=ASCII if ascii_only else glyphs_for(sys.stdout.encoding))
    cells = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    if page.name == OVERVIEW:
        return plain_text(s, cells, LINES, look)
    scene = Scene(s, place, cells, LINES, look, detail)
    lines = [line.plain.rstrip() for line in screen_lines(page, scene, detail.asks)]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n"


def _print(text: str) -> None:
    """To stdout, whole; a reader that has left (`| head`) changes nothing about the exit code."""
    encoding = sys.stdout.encoding or "utf-8"  # a name may hold what it cannot show
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
