"""What every postmortem command shares: which store, which span, how it ends. Owns no report.

stdout is data, stderr is narration. Exit codes: 0 ok, 1 nothing found or failed, 2 usage, 3 the
store is busy or does not answer (trying again can help).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from telemetry.source import Source

OK, NOTHING, USAGE, BUSY = 0, 1, 2, 3
DEFAULT_STORE = "tenantscope-store"
_DAY_S = 86_400.0

F = TypeVar("F", bound=Callable[..., Any])

FROM_HELP = (
    "When the window begins: 17:00 (the last one so far), 2026-11-29T17:00, 17:00Z, unix "
    "seconds, 30m ago, 'last 30m' (before --to), or start of the store."
)
TO_HELP = "When it ends; same forms. A time of day is the next one after --from."


@dataclass(frozen=True, slots=True)
class Where:
    """A store's folder, or the address of a live one (`live`)."""

    place: str
    live: bool


def where_options(command: F) -> F:
    """`--store DIR` or `--connect ADDR`."""
    command = click.option(
        "--connect", "address", default=None, metavar="ADDR",
        help="The address of a live store, instead of --store.",
    )(command)  # fmt: skip
    return click.option(
        "--store", "folder", default=None, envvar="TENANTSCOPE_STORE", metavar="DIR|ADDR",
        help=f"A store's folder, or the address of a live one.  [default: {DEFAULT_STORE}]",
    )(command)  # fmt: skip


def span_options(command: F) -> F:
    """`--from` and `--to`."""
    command = click.option("--to", "end", default="end", show_default=True, help=TO_HELP)(command)
    return click.option("--from", "begin", default="start", show_default=True, help=FROM_HELP)(
        command
    )


def pool_option(command: F) -> F:
    return click.option("--pool", default=None, help="Which pool, where the store holds several.")(
        command
    )


def where(folder: str | None, address: str | None) -> Where:
    """Which store is meant. Ends with a usage error where both are given, or nothing is."""
    from telemetry.service.listen import is_address

    if address is not None:
        if folder is not None and not _from_environment("folder"):
            raise stop(USAGE, "give --store DIR or --connect ADDR, one of them")
        if not address.strip():
            raise stop(USAGE, "--connect is empty: give an address like 127.0.0.1:7420")
        return Where(address, True)
    place = DEFAULT_STORE if folder is None else folder
    if not place.strip():
        raise stop(USAGE, "--store is empty: give a store's folder or a live one's address")
    return Where(place, not Path(place).is_dir() and is_address(place))


def _from_environment(parameter: str) -> bool:
    from click.core import ParameterSource

    context = click.get_current_context(silent=True)
    found = None if context is None else context.get_parameter_source(parameter)
    return found is ParameterSource.ENVIRONMENT


@contextmanager
def asked(where: Where) -> Iterator[Source]:
    """The store, open; its errors end the command in a sentence, with the exit code that fits."""
    from telemetry.errors import StoreBusy, StoreUnreachable, TelemetryError
    from telemetry.source import open_source

    try:
        source = open_source(where.place)
        try:
            yield source
        finally:
            source.close()
    except (StoreBusy, StoreUnreachable) as e:
        raise stop(BUSY, str(e)) from None
    except TelemetryError as e:
        hint = "" if where.live or Path(where.place).is_dir() else " (--store)"
        raise stop(NOTHING, f"{e}{hint}") from None


def span_of(source: Source, where: Where) -> tuple[float, float]:
    """What the store covers. Ends the command where that is nothing."""
    span = source.span()
    if span is None:
        said = f"the store {where.place} holds no telemetry yet; is it the right folder?"
        raise stop(NOTHING, said)
    return span


def bounds_of(
    begin: str, end: str, span: tuple[float, float], *, what: str = "window"
) -> tuple[float, float]:
    """`--from` and `--to` as unix seconds, told on stderr with their zone. Ends the command where
    they cannot be read, or lie outside the store. Of a store that ended days ago a time of day is
    that of its last day."""
    from postmortem.times import TimeError, outside, read_bounds
    from telemetry.verdict import when

    now = time.time()
    if span[1] < now - _DAY_S:
        now = span[1]
    try:
        bounds = read_bounds(begin, end, now=now, span=span, zone=None)
    except TimeError as e:
        raise stop(USAGE, str(e)) from None
    empty = outside(bounds, span, None)
    if empty is not None:
        raise stop(NOTHING, empty)
    click.echo(f"{what}: {when(bounds[0])} to {when(bounds[1])} (local time)", err=True)
    return bounds


def say(text: str) -> None:
    """To stdout, whatever its encoding can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False)


def narrate(text: str) -> None:
    from telemetry.plain import safe

    click.echo(safe(text), err=True)


def stop(code: int, message: str) -> SystemExit:
    from telemetry.plain import safe

    click.echo(f"postmortem: {safe(message)}", err=True)
    return SystemExit(code)


def width() -> int:
    """Of the terminal that is written to; 80 where it is none."""
    import shutil

    wide = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size((80, 24)).columns if wide else 80
