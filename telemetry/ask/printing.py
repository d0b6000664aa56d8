"""Values on stdout as JSON or CSV, and words on stderr. Owns the two forms; knows no question."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from telemetry.cli import safe


def narrate_partial(lacks: Iterable[str]) -> None:
    for lack in lacks:
        click.echo(f"PARTIAL: {safe(lack)}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they go out as their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Names as they are, for a file or a pipe; escaped where they would reach a terminal."""
    clean = safe if sys.stdout.isatty() else str
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([clean(c) for c in columns])
    for row in rows:
        writer.writerow([_csv_cell(v, clean) for v in row])
    click.echo(out.getvalue(), nl=False)


def _csv_cell(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, tuple):
        return json.dumps(list(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
