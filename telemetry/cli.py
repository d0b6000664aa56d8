"""The commands `store` and `query`: a store asked from the shell. stdout is data, stderr narration.

Exit codes: 0 answered, 1 could not be answered, 2 usage, 3 busy or not there (trying
again can help).
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from telemetry.named_path import NamedPlace

if TYPE_CHECKING:
    from telemetry.ask.reading import Result

_WIDEST, _LONGEST = 48, 500
_INSTANTS = (
    "bucket_start", "first_bucket_start", "last_bucket_end", "last_sealed_end", "arrived",
    "first_instant", "last_instant", "last_at",
)  # fmt: skip


class _StoreGroup(click.Group):
    """Its commands of upkeep are imported when one is called."""

    _UPKEEP = ("size", "retention", "backup", "restore", "forget")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._UPKEEP]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._UPKEEP:
            return super().get_command(ctx, cmd_name)
        from telemetry.commands import store as store_cli

        command: click.Command = getattr(store_cli, cmd_name)
        return command


@click.group(cls=_StoreGroup)
def store() -> None:
    """Look into a store of telemetry, and keep it in order.

    \b
    For example:
      tenantscope store size telemetry-store
      tenantscope store backup nightly.tar --store telemetry-store
    """


@contextmanager
def spoken() -> Iterator[None]:
    """Turn refusals into one line on stderr and an exit code."""
    from telemetry.errors import QueryError, StoreBusy, StoreUnreachable, TelemetryError
    from telemetry.narration import one_line

    try:
        yield
    except QueryError as e:
        click.echo(f"query: {one_line(e)}", err=True)
        sys.exit(2)
    except (StoreBusy, StoreUnreachable) as e:
        click.echo(f"store: {one_line(e)}", err=True)
        sys.exit(3)
    except TelemetryError as e:
        click.echo(f"store: {one_line(e)}", err=True)
        sys.exit(1)


@store.command("info")
@click.argument("where", type=NamedPlace())
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def info(where: str, as_json: bool) -> None:
    """What a store (a folder, or the address of a live one) holds."""
    with spoken():
        facts = _facts(where)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        click.echo(f"{name:<20} {safe(_cell(name, value))}")


def _facts(where: str) -> dict[str, Any]:
    from telemetry.source import open_source
    from telemetry.tables import TABLES

    source = open_source(where)
    try:
        span = source.span()
        counts = dict(source.query("row_counts").rows)
    finally:
        source.close()
    return {
        "store": where,
        "first": _instant(span[0]) if span else None,
        "last": _instant(span[1]) if span else None,
        **{name: counts[name] for name in TABLES},
    }


@click.command("query")
@click.argument("name", required=False)
@click.option("--store", "folder", metavar="DIR", help="The store's folder.")
@click.option("--connect", "address", metavar="ADDR", help="The address of a live store.")
@click.option(
    "--from", "start", metavar="TIME", help="First instant: ISO 8601 (UTC) or unix seconds."
)
@click.option("--to", "end", metavar="TIME", help="Last instant, exclusive.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of objects.")
def query(
    name: str | None,
    folder: str | None,
    address: str | None,
    start: str | None,
    end: str | None,
    as_json: bool,
) -> None:
    """Ask a store a named query. Without a name: list them."""
    from telemetry.ask.reading import queries
    from telemetry.source import open_source

    if name is None:
        for known in queries().values():
            click.echo(f"{known.name:<22} {known.about}")
        return
    where = folder or address
    if not where or (folder and address):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    window = {
        "start": instant(start, "--from", float("-inf")),
        "end": instant(end, "--to", float("inf")),
    }
    wanted = queries()[name].parameters if name in queries() else frozenset(window)
    with spoken():
        source = open_source(where)
        try:
            result = source.query(name, **{k: v for k, v in window.items() if k in wanted})
        finally:
            source.close()
    click.echo(json.dumps(result.dicts()) if as_json else table(result))
    say_partial(result)


def say_partial(result: Result) -> None:
    """What an answer lacks, on stderr."""
    for lacks in result.partial:
        click.echo(f"partial: {safe(lacks)}", err=True)


def instant(text: str | None, option: str, default: float) -> float:
    """Unix seconds of ISO 8601 text (UTC unless it says otherwise) or of a number.

    Raises click.BadParameter naming the option and the value.
    """
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{option} = {text!r}: expected 2026-11-28T17:00 (UTC) or unix seconds"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def table(result: Result, *, instants: bool = True) -> str:
    """The answer as aligned text: numbers to the right, absent values as a dash. With `instants`,
    columns of that name are unix seconds and shown as times."""
    named = result.columns if instants else ("",) * len(result.columns)
    cells = [[_shown(c, v) for c, v in zip(named, row, strict=True)] for row in result.rows]
    numeric = [
        all(isinstance(row[i], int | float | None) for row in result.rows)
        for i in range(len(result.columns))
    ]
    widths = [
        max((_width(line[i]) for line in (result.columns, *cells)), default=0)
        for i in range(len(result.columns))
    ]
    lines = [_line(result.columns, widths, numeric), *(_line(c, widths, numeric) for c in cells)]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        " " * (w - _width(c)) + c if right else c + " " * (w - _width(c))
        for c, w, right in zip(cells, widths, numeric, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _shown(column: str, value: Any) -> str:
    """A cell of the table: safe to print, and cut where one name would push all else away."""
    text = _cell(column, value)
    if len(text) > _LONGEST:  # marks that take no room aside, no cell shows more of it
        text = text[:_LONGEST]
    text = safe(text)
    if _width(text) <= _WIDEST:
        return text
    while _width(text) >= _WIDEST:
        text = text[:-1]
    return text + "…"


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column in _INSTANTS and isinstance(value, int | float):
        return _instant(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _instant(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def safe(text: str) -> str:
    """Text that a terminal prints and does not obey: what is not printable is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(text: str) -> int:
    """Columns a terminal gives the text."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
