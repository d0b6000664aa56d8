"""The command `postmortem import`: options, progress and what a person reads. Reads no log itself.

stdout is the account (a table, or --json), stderr narration. Exit codes: 0 imported, 1 refused,
2 usage, 3 the store is held by another process, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath
from telemetry.plain import safe

if TYPE_CHECKING:
    from postmortem.importers.load import Imported

# As in postmortem/importers, which take too long to import for a page of help.
FORMATS = ("azure", "mooncake", "vtc", "vllm-bench", "csv", "jsonl", "parquet")
GENERIC = ("csv", "jsonl", "parquet")
REFUSED, USAGE, BUSY = 1, 2, 3
EVERY_S = 0.2

_HELP = """Read others' request logs into a store, for report, find, query and export.

What a log does not hold stays absent: findings that need it abstain, and a table at the end says
which. Nothing is made up; a log without tenants becomes one tenant, `unknown`.

\b
Examples:
  tenantscope postmortem import requests.csv --format csv --store logs \\
      --map tenant=user_id,arrived=ts,ttft_ms=first_token_ms --slo-ttft 2
  tenantscope postmortem import AzureLLMInferenceTrace_conv.csv --format azure --store azure
  tenantscope postmortem import trace.jsonl --format mooncake --store mc --from 2026-11-29T17:00Z
  tenantscope postmortem report --store logs

\b
Targets of --map (columns with usual names are found without it):
{targets}

\b
Bad lines end the import with file, line and value; --skip-bad counts them instead. A file that the
store has already is refused. An interrupted import of a new folder leaves none; one into a store
that was there is completed by giving the same command again.
"""


def _targets() -> str:
    from postmortem.importers.mapping import help_lines

    return help_lines()


@click.command("import", help=_HELP.format(targets=_targets()))
@click.argument("files", nargs=-1, required=True, metavar="FILE...",
                type=NamedPath(path_type=Path))  # fmt: skip
@click.option("--format", "form", required=True, type=click.Choice(FORMATS), help="How the files "
              "are written.")  # fmt: skip
@click.option("--store", required=True, metavar="DIR", type=NamedPath(path_type=Path),
              help="The store's folder; made where it is not there.")  # fmt: skip
@click.option("--map", "mapping", metavar="TARGET=COLUMN,...",
              help="Which column is what, for csv, jsonl and parquet.")  # fmt: skip
@click.option("--from", "begin", metavar="INSTANT",
              help="When the log begins (ISO), where its stamps count from 0.")  # fmt: skip
@click.option("--zone", metavar="NAME", help="Of stamps without a zone, like Europe/Berlin (UTC).")
@click.option("--time-unit", "unit", type=click.Choice(["s", "ms", "us", "ns"]),
              help="Of numbers; told from their size where it is left out.")  # fmt: skip
@click.option("--slo-ttft", "slo_ttft_s", type=Finite(min=0, min_open=True),
              metavar="SECONDS", help="What was promised to the first token; without it nobody "
              "can have missed anything.")  # fmt: skip
@click.option("--pool", default="imported", show_default=True, metavar="NAME",
              help="The pool the rows are put in.")  # fmt: skip
@click.option("--bucket", "bucket_s", type=Finite(1, 3600), default=60.0,
              show_default=True, metavar="SECONDS", help="Length of a minute row.")  # fmt: skip
@click.option("--skip-bad", is_flag=True, help="Count lines that cannot be read, and go on.")
@click.option("--json", "as_json", is_flag=True, help="The account as JSON on stdout.")
def import_log(
    files: tuple[Path, ...],
    form: str,
    store: Path,
    mapping: str | None,
    begin: str | None,
    zone: str | None,
    unit: str | None,
    slo_ttft_s: float | None,
    pool: str,
    bucket_s: float,
    skip_bad: bool,
    as_json: bool,
) -> None:
    from postmortem.importers.load import Importing, Options
    from postmortem.importers.logged import ImportProblem
    from postmortem.importers.mapping import read_map
    from telemetry.errors import StoreBusy, TelemetryError

    if mapping and form not in GENERIC:
        raise click.UsageError(f"--map goes with {', '.join(GENERIC)}; {form} has its own columns")
    if (zone or unit) and form not in GENERIC:
        raise click.UsageError(f"--zone and --time-unit go with {', '.join(GENERIC)}")
    if not pool.strip():
        raise click.UsageError("--pool is blank: give it a name")
    try:
        options = Options(
            form, read_map(mapping), pool, bucket_s, slo_ttft_s, _instant(begin), unit,
            _zone(zone), skip_bad,
        )  # fmt: skip
    except ImportProblem as e:
        raise click.UsageError(str(e)) from None
    done: list[Imported] = []
    bar = _Bar()
    added = False
    try:
        with Importing(store) as importing:
            added = not importing.fresh
            for path in files:
                done.append(importing.load(path, options, bar.told))
                bar.clear()
    except KeyboardInterrupt:
        bar.clear()
        left = (
            "what was read is in the store; the same command again completes it"
            if added
            else "nothing is left in the store's folder"
        )
        click.echo(f"import: {left}", err=True)
        raise
    except StoreBusy as e:
        raise _stop(BUSY, str(e)) from None
    except (ImportProblem, TelemetryError, OSError) as e:
        bar.clear()
        raise _stop(REFUSED, str(e)) from None
    _tell(done, store, as_json)


def _instant(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--from {text!r}: expected an instant like 2026-11-29T17:00Z"
        ) from None


def _zone(name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.UsageError(f"--zone {name!r} is no zone: expected like Europe/Berlin") from None


def _tell(done: list[Imported], store: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"files": [asdict(d) for d in done]}, indent=2, allow_nan=False))
        return
    from postmortem.importers.lacks import table

    for d in done:
        span = f"{_iso(d.first)} to {_iso(d.last)}"
        plural = "tenant" if d.tenants == 1 else "tenants"
        click.echo(
            f"{safe(d.path)}: {d.read:,} rows read, {d.kept:,} kept, {d.bad:,} bad; "
            f"{d.tenants:,} {plural}; {span}"
        )
        for line in (*d.notes, *d.examples):
            click.echo(f"  {safe(line)}")
        click.echo("")
        for line in table(d.lacks, d.kept):
            click.echo(f"  {line}")
        click.echo("")
    click.echo(
        f"explain it with: tenantscope postmortem report --store {safe(str(store))}", err=True
    )


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


class _Bar:
    """How far it is, on one line of stderr, when somebody looks."""

    def __init__(self) -> None:
        self._next = 0.0
        self._drawn = False
        self._began = time.monotonic()

    def told(self, path: str, rows: int) -> None:
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next, self._drawn = now + EVERY_S, True
        pace = rows / max(1e-9, now - self._began)
        line = f"{safe(Path(path).name)}: {rows:,} rows, {pace:,.0f} a second"
        click.echo(f"\r\x1b[K{line[:79]}", err=True, nl=False)

    def clear(self) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._drawn = False
        self._began = time.monotonic()


def _stop(code: int, message: str) -> SystemExit:
    click.echo(f"import: {safe(message)}", err=True)
    return SystemExit(code)
