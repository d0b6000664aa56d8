"""The commands `sql`, `export`, `explain` and `usage`: what a person asks a store.

Owns options and output; the answers are other files'. stdout is data, stderr is narration. Exit
codes: 0 answered, 1 not found or failed, 2 usage, 3 worth trying again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from telemetry.ask.printing import narrate_partial, print_csv, print_json
from telemetry.cli import instant, safe, table
from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from telemetry.ask.export import Exported
    from telemetry.ask.reading import Result
    from telemetry.source import Source

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT_ROWS, _DEFAULT_TIMEOUT_S = 1000, 10.0


def _where(command: F) -> F:
    command = click.option(
        "--connect", "address", metavar="ADDR", help="The address of a live store process."
    )(command)
    return click.option(
        "--store", "folder", metavar="DIR", help="A store's folder, live or closed; or an export."
    )(command)


def _window(command: F) -> F:
    command = click.option("--to", "end", metavar="TIME", help="Last instant, exclusive.")(command)
    return click.option(
        "--from", "start", metavar="TIME", help="First instant: ISO 8601 (UTC) or unix seconds."
    )(command)


@contextmanager
def _asked(folder: str | None, address: str | None) -> Iterator[Source]:
    from telemetry.source import open_source

    where = folder or address
    if not where or (folder and address):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    source = open_source(where)
    try:
        yield source
    finally:
        source.close()


def _bounds(start: str | None, end: str | None) -> tuple[float, float]:
    low = instant(start, "--from", float("-inf"))
    high = instant(end, "--to", float("inf"))
    if not low < high:
        said = " ".join(
            f"{option} {safe(text)}"
            for option, text in (("--from", start), ("--to", end))
            if text is not None
        )
        raise click.UsageError(
            f"the window {said} is empty: expected --from before --to, each ISO 8601 (UTC) or unix "
            "seconds"
        )
    return low, high


# ---------------------------------------------------------------- sql


@click.command("sql")
@click.argument("text", metavar="[SELECT]", required=False)
@_where
@click.option("--format", "form", type=click.Choice(("table", "json", "csv")), default="table")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--limit", type=click.IntRange(1, 999_999), default=_DEFAULT_ROWS, show_default=True,
              help="Rows at most; more are cut off, and stderr says so.")  # fmt: skip
@click.option("--timeout-s", type=Finite(0, 600, min_open=True),
              default=_DEFAULT_TIMEOUT_S, show_default=True, help="Seconds at most.")  # fmt: skip
@click.option("--schema", is_flag=True, help="List tables and columns, their units and meanings.")
def ask_sql(
    text: str | None,
    folder: str | None,
    address: str | None,
    form: str,
    as_json: bool,
    limit: int,
    timeout_s: float,
    schema: bool,
) -> None:
    """Ask a store one SELECT of your own, over all its days.

    Read only: anything but exactly one SELECT over the store's tables is refused. The SQL is
    DuckDB's; instants are UTC. `-` reads it from stdin.

    \b
    Examples:
      tenantscope sql --schema
      tenantscope sql --store store "SELECT tenant, sum(wait_kv_s) AS waited
          FROM tenant_minute GROUP BY tenant ORDER BY waited DESC"
      tenantscope sql --store store --format csv "FROM request WHERE NOT slo_met" > missed.csv
    """
    form = "json" if as_json else form
    if schema:
        _print_schema(form)
        return
    if text is None:
        raise click.UsageError('give one SELECT, or --schema: tenantscope sql "SELECT ..."')
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    with _asked(folder, address) as source:
        result = source.query("sql", text=text, most_rows=limit + 1, timeout_s=timeout_s)
    rows = result.rows[:limit]
    if form == "table":
        click.echo(table(type(result)(tuple(map(safe, result.columns)), rows), instants=False))
    elif form == "csv":
        print_csv(result.columns, rows)
    else:
        print_json([dict(zip(result.columns, row, strict=True)) for row in rows])
    narrate_partial(result.partial)
    if len(result.rows) > limit:
        click.echo(f"cut off after {limit} rows: give a larger --limit for more", err=True)


def _print_schema(form: str) -> None:
    from telemetry.ask.reading import Result
    from telemetry.tables import TABLES

    rows: list[tuple[str, ...]] = [
        (t.name, c.name, c.sql, c.unit, c.kind.value, c.meaning)
        for t in TABLES.values()
        for c in t.columns
    ]
    columns = ("table", "column", "type", "unit", "kind", "meaning")
    if form == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif form == "csv":
        print_csv(columns, rows)
    else:
        for t in TABLES.values():
            click.echo(f"{t.name}: {(t.row.__doc__ or '').splitlines()[0]}")
            own = tuple(row[1:] for row in rows if row[0] == t.name)
            click.echo("\n".join(f"  {line}" for line in _wide(Result(columns[1:], own))))
            click.echo()
        click.echo("Sums (kind sum, hist) add over rows; averages weigh by observed_seconds. An "
                   "absent value is NULL,\nand not zero.", err=True)  # fmt: skip


def _wide(result: Result) -> list[str]:
    """Aligned, with the last column (the meaning) at its full length."""
    last = [str(row[-1]) for row in result.rows]
    short = type(result)(result.columns[:-1], tuple(row[:-1] for row in result.rows))
    head, *body = table(short).splitlines()
    width = max(map(len, (head, *body)))
    return [f"{head:<{width}}  {result.columns[-1]}"] + [
        f"{line:<{width}}  {meaning}" for line, meaning in zip(body, last, strict=True)
    ]


# ---------------------------------------------------------------- export


@click.command("export")
@_where
@_window
@click.option("--format", "form", type=click.Choice(("parquet", "csv", "perfetto")), required=True)
@click.option("--table", "tables", multiple=True, metavar="NAME",
              help="Only this table; may be given again. One alone makes one file.")  # fmt: skip
@click.option("-o", "--output", "target", required=True, metavar="PATH",
              type=NamedPath(path_type=Path), help="The file, or the folder.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace what an export has left at PATH.")
@click.option("--json", "as_json", is_flag=True, help="What was written as a JSON object.")
def export(
    folder: str | None,
    address: str | None,
    start: str | None,
    end: str | None,
    form: str,
    tables: tuple[str, ...],
    target: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Write a window of a store as Parquet, CSV, or a trace for Perfetto.

    Whole or not at all: the files take their places when all is written. An exported folder of
    Parquet can be asked like a store. A trace shows each tenant's requests by phase (front, slot,
    budget, kv, adapter, prefill, decode), what waited and what was held, and the events: open it
    in ui.perfetto.dev.

    \b
    Examples:
      tenantscope export --store store --format parquet -o incident \\
          --from 2026-11-28T17:00 --to 2026-11-28T17:30
      tenantscope export --store store --format csv --table request -o requests.csv
      tenantscope export --store store --format perfetto -o incident.json
    """
    from telemetry.tables import TABLES

    for name in tables:
        if name not in TABLES:
            raise click.BadParameter(f"no table {name!r}: there are {', '.join(TABLES)}")
    if form == "perfetto" and tables:
        raise click.UsageError("a trace is made of requests, minutes and events: leave out --table")
    low, high = _bounds(start, end)
    window = {"start": low, "end": high, "tables": tables, "force": force}
    done = _export(folder, address, form, target, window)
    rows = sum(done.rows.values())
    if as_json:
        print_json({"path": str(done.path), "rows": done.rows, "bytes": done.bytes})
    else:
        for name, count in done.rows.items():
            if count:
                click.echo(f"{name:<20} {count:>12,} rows")
        click.echo(f"{safe(str(done.path))}: {rows:,} rows, {done.bytes:,} bytes")
    if not rows:
        click.echo("the store has no rows in that window", err=True)
    narrate_partial(done.partial)


def _export(
    folder: str | None, address: str | None, form: str, target: Path, window: dict[str, Any]
) -> Exported:
    """By a live process at an address the files are made over there; else here."""
    from telemetry.ask.export import export as write

    if address is not None and not folder:
        from telemetry.watch.client import NotThere, WatchClient

        with closing(WatchClient(address)) as client:
            try:
                return client.export_window(form, target, **window)
            except NotThere:
                pass  # a worker, or an older store: it can be read
    with _asked(folder, address) as source:
        return write(source, form, target, **window)


# ---------------------------------------------------------------- explain


@click.command("explain")
@click.argument("request_id")
@_where
@click.option("--run", "run_id", metavar="RUN_ID", help="Which run's, where ids came twice.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def explain(
    request_id: str, folder: str | None, address: str | None, run_id: str | None, as_json: bool
) -> None:
    """One request's life: what it waited for, and who held that meanwhile.

    The id is the one of the response (`id`), of the request's log line, or of `tenantscope sql`.

    \b
    Examples:
      tenantscope explain cmpl-0123456789ab --store store
      tenantscope explain q17 --store store --json | jq '.held'
    """
    from telemetry.ask.explain import explain as life_of
    from telemetry.ask.explain_text import lines

    with _asked(folder, address) as source:
        life = life_of(source, request_id, run_id)
    if as_json:
        print_json(life.as_json())
    else:
        for line in lines(life):
            click.echo(line)


# ---------------------------------------------------------------- usage


@click.command("usage")
@_where
@_window
@click.option("--by", type=click.Choice(("day", "month")), default="day", show_default=True,
              help="UTC days or months.")  # fmt: skip
@click.option("--tenant", metavar="NAME", help="Only this tenant's rows.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="A row a tenant and period.")
def usage(
    folder: str | None,
    address: str | None,
    start: str | None,
    end: str | None,
    by: str,
    tenant: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Tokens, requests and engine-seconds a tenant, held against the engines' time.

    Below each period stands where the engines' time went: the bills, and what is billed to nobody.

    \b
    Examples:
      tenantscope usage --store store
      tenantscope usage --store store --by month --from 2026-11-01 --csv > november.csv
      tenantscope usage --store store --tenant acme --json
    """
    from telemetry.ask import usage_text
    from telemetry.ask.usage import usage as of

    if as_json and as_csv:
        raise click.UsageError("--json or --csv, one of them")
    low, high = _bounds(start, end)
    with _asked(folder, address) as source:
        found = of(source, by, start=low, end=high, tenant=tenant)
    if as_json:
        print_json(found.as_json())
    elif as_csv:
        print_csv(usage_text.CSV_COLUMNS, usage_text.csv_rows(found))
        narrate_partial(found.partial)
    else:
        for line in usage_text.lines(found):
            click.echo(line)
    if not found.periods:
        click.echo("the store has no minutes in that window", err=True)
