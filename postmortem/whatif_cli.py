"""The command `postmortem whatif`: reads arguments, prints the answer. Replays nothing itself.

stdout is data, stderr is narration. Exit codes: 0 a remedy, 1 none or no conclusion, 2 usage,
3 the store is busy or does not answer, 130 interrupted.
"""

from __future__ import annotations

import difflib
import sys
import time
from typing import TYPE_CHECKING

import click

from telemetry.finite_option import Finite

if TYPE_CHECKING:
    from postmortem.whatif.model import Counterfactual, WhatIf
    from postmortem.whatif.run import Told
    from telemetry.source import Source

REMEDY, NONE, USAGE, BUSY = 0, 1, 2, 3
DEFAULT_STORE = "tenantscope-store"
_EVERY_S = 0.2


@click.command()
@click.option("--from", "begin", default="start", show_default=True, help=(
    "When the window begins: 17:00, 2026-11-29T17:00, 17:00Z, unix seconds, 30m ago, 'last 30m' "
    "(before --to), or start of the store."
))  # fmt: skip
@click.option("--to", "end", default="end", show_default=True, help="When it ends; same forms.")
@click.option("--store", "where", default=DEFAULT_STORE, show_default=True,
              envvar="TENANTSCOPE_STORE", metavar="DIR|ADDR",
              help="A store's folder, or the address of a live one.")  # fmt: skip
@click.option("--pool", default=None, help="Which pool, where the store holds several.")
@click.option("--policy", "policies", multiple=True, metavar="NAME",
              help="Only this remedy; may be given again. 'all' lists them.")  # fmt: skip
@click.option("--tenant", "culprits", multiple=True, metavar="TENANT",
              help="Aim at this tenant instead of the one the verdict names.")  # fmt: skip
@click.option("--victim", "victims", multiple=True, metavar="TENANT",
              help="Judge by this tenant instead of those found hurt.")  # fmt: skip
@click.option("--without", default=None, metavar="TENANT",
              help="No remedy: how it would have been without this tenant's excess.")  # fmt: skip
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1, 100),
              help="Runs of each; all but the first move the arrivals a little.")  # fmt: skip
@click.option("--budget-s", default=120.0, show_default=True,
              type=Finite(0, min_open=True),
              help="Wall time; what does not fit is told.")  # fmt: skip
@click.option("--retries", default="both", show_default=True,
              type=click.Choice(["kept", "dropped", "both"]),
              help="Whether recorded retries come again.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def whatif(
    begin: str,
    end: str,
    where: str,
    pool: str | None,
    policies: tuple[str, ...],
    culprits: tuple[str, ...],
    victims: tuple[str, ...],
    without: str | None,
    seeds: int,
    budget_s: float,
    retries: str,
    as_json: bool,
) -> None:
    """What would have prevented it: the incident replayed under other policies.

    First what happened is replayed; only where that looks like what was recorded is anything
    concluded. Then each remedy, and the cheapest that keeps the SLOs of those hurt is named, with
    the settings that apply it.

    \b
    Examples:
      tenantscope postmortem whatif --store demo-store --from 17:00 --to 17:30
      tenantscope postmortem whatif --store demo-store --policy vtc --policy cap --seeds 1
      tenantscope postmortem whatif --store demo-store --without acme
      tenantscope postmortem whatif --store demo-store --json | jq .remedy
    """
    from postmortem.whatif import Options, what_if, without_excess
    from postmortem.whatif.model import CONCLUDED
    from postmortem.whatif.options import Budget
    from telemetry.errors import StoreBusy, StoreUnreachable, TelemetryError
    from telemetry.source import open_source
    from telemetry.window import PoolChoice

    chosen = _policies(policies)
    if not where.strip():
        raise _stop(USAGE, "--store is empty: give a store's folder or a live one's address")
    options, budget = Options(chosen, seeds, budget_s, retries), Budget(budget_s)
    try:
        source = open_source(where)
        try:
            bounds = _bounds(source, begin, end, where)
            with _Line() as line:
                if without is not None:
                    claim = without_excess(
                        source, *bounds, without, pool=pool,
                        victims=victims or None, options=options, budget=budget,
                    )  # fmt: skip
                    _say_claim(claim, as_json)
                    raise SystemExit(REMEDY if claim.holds else NONE)
                found = what_if(
                    source, *bounds, pool=pool, victims=victims or None,
                    culprits=culprits or None, options=options, hear=line.told, budget=budget,
                )  # fmt: skip
        finally:
            source.close()
    except (StoreBusy, StoreUnreachable) as e:
        raise _stop(BUSY, str(e)) from None
    except PoolChoice as e:
        raise _stop(USAGE, f"{e} (--pool)") from None
    except TelemetryError as e:
        raise _stop(NONE, str(e)) from None
    _say(found, as_json)
    raise SystemExit(REMEDY if found.conclusion == CONCLUDED else NONE)


def _policies(given: tuple[str, ...]) -> tuple[str, ...] | None:
    """None = all that apply. `all` alone lists them and ends."""
    from postmortem.whatif.policies import NAMES

    if given == ("all",):
        for name in NAMES:
            click.echo(name)
        raise SystemExit(REMEDY)
    for name in given:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _stop(USAGE, f"--policy {name!r}: expected one of {', '.join(NAMES)}{hint}")
    return given or None


def _bounds(source: Source, begin: str, end: str, where: str) -> tuple[float, float]:
    from postmortem.times import TimeError, outside, read_bounds
    from telemetry.verdict import when

    span = source.span()
    if span is None:
        raise _stop(NONE, f"the store {where} holds no telemetry yet; is it the right folder?")
    try:
        bounds = read_bounds(begin, end, now=time.time(), span=span, zone=None)
    except TimeError as e:
        raise _stop(USAGE, str(e)) from None
    empty = outside(bounds, span, None)
    if empty is not None:
        raise _stop(NONE, empty)
    click.echo(f"window: {when(bounds[0])} to {when(bounds[1])} (local time)", err=True)
    return bounds


def _say(found: WhatIf, as_json: bool) -> None:
    from postmortem.whatif import table

    if as_json:
        click.echo(table.as_json(found), nl=False)
        return
    for line in table.lines(found):
        _echo(line)


def _say_claim(claim: Counterfactual, as_json: bool) -> None:
    from postmortem.whatif import table

    if as_json:
        click.echo(table.as_json(claim), nl=False)
    else:
        _echo(claim.sentence + (" (counterfactual)" if claim.holds else ""))


def _echo(line: str) -> None:
    """To stdout, whatever its encoding can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(line.encode(encoding, "backslashreplace").decode(encoding))


class _Line:
    """A line on stderr that tells how far it is, when somebody looks. Erased at the end."""

    def __init__(self) -> None:
        self._next = 0.0
        self._drawn = False
        self._looked_at = sys.stderr.isatty()

    def told(self, told: Told) -> None:
        now = time.monotonic()
        if not self._looked_at or now < self._next:
            return
        self._next, self._drawn = now + _EVERY_S, True
        under_way = ", ".join(f"{name} {100 * part:.0f}%" for name, part in told.under_way)
        click.echo(f"\r\x1b[K{told.done}/{told.of}  {under_way}"[:100], err=True, nl=False)

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", err=True, nl=False)


def _stop(code: int, message: str) -> SystemExit:
    from telemetry.plain import safe

    click.echo(f"postmortem whatif: {safe(message)}", err=True)
    return SystemExit(code)
