"""The commands `watch` and `events`: the tenants now, and what happens, from the shell.

Owns options and output. stdout is data, stderr is narration. Exit codes: 0 answered, 1 failed,
2 usage, 3 worth trying again, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from telemetry.cli import instant, safe, table

if TYPE_CHECKING:
    from telemetry.watch.frame import Asked, Frame, Row

_SHOWN = (
    "service", "share", "fair_share", "output_tokens", "waiting_avg", "wait_slot_s",
    "wait_budget_s", "wait_kv_s", "wait_adapter_s", "slo_missed", "ttft_n", "ttft_p99_s",
)  # fmt: skip
_PATIENCE_S = 3.0  # with a store, where there is a worker to ask
_OF_MACHINES = ("incident_state",)  # kinds whose detail is no sentence: only with --json or --kind
_CLEAR = "\x1b[H\x1b[2J"


@click.command("watch")
@click.option(
    "--store", "folder", metavar="DIR", help="A store's folder, or a serve's runtime one."
)
@click.option("--connect", "address", metavar="ADDR", help="A live store process, or a worker.")
@click.option("--sort", default="service", show_default=True, metavar="COLUMN",
              help="Rank by this column; --columns lists them.")  # fmt: skip
@click.option("--ascending", is_flag=True, help="The smallest first.")
@click.option("--filter", "pattern", default="", metavar="REGEX",
              help="Only tenants whose name it is found in; !REGEX: only the others.")  # fmt: skip
@click.option("-n", "n", default=20, show_default=True, metavar="N", help="Rows.")
@click.option("--every-s", default=1.0, show_default=True, help="Seconds between frames.")
@click.option("--window-s", default=60.0, show_default=True, help="Seconds that sums are over.")
@click.option("--once", is_flag=True, help="One frame, then end.")
@click.option("--columns", "list_columns", is_flag=True, help="List the columns and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a frame, a line each.")
def watch(
    folder: str | None,
    address: str | None,
    sort: str,
    ascending: bool,
    pattern: str,
    n: int,
    every_s: float,
    window_s: float,
    once: bool,
    list_columns: bool,
    as_json: bool,
) -> None:
    """The tenants now, ranked: who holds, who waits, for what.

    Below the ranked rows stands what all others add up to. A closed store gives one frame, of its
    last minutes.

    \b
    Examples:
      tenantscope watch --store store --sort wait_kv_s
      tenantscope watch --connect https://collector:4317 --filter '^team-a/' -n 50
      tenantscope watch --store store --once --json | jq '.rows[0].tenant'
    """
    from telemetry.errors import QueryError
    from telemetry.watch.frame import COLUMNS, Asked

    if list_columns:
        _print_columns(COLUMNS, as_json)
        return
    try:
        asked = Asked(sort, not ascending, pattern, n, every_s, window_s)
    except QueryError as e:
        raise click.UsageError(str(e)) from None
    drawn = not as_json and not once and sys.stdout.isatty()
    with closing(_frames(_where(folder, address), asked, once)) as frames:
        for one in frames:
            if as_json:
                click.echo(json.dumps(as_dict(one), allow_nan=False))
            else:
                click.echo((_CLEAR if drawn else "") + "\n".join(lines(one)))
            for lack in one.partial:
                click.echo(f"PARTIAL: {safe(lack)}", err=True)


def _frames(where: str, asked: Asked, once: bool) -> Generator[Frame, None, None]:
    """From a live process by its stream; from anything else one frame of its rows."""
    from telemetry.errors import StoreUnreachable
    from telemetry.source import live_addresses, open_source
    from telemetry.watch.client import WatchClient
    from telemetry.watch.once import watch_once

    *others, last = live_addresses(where) or (None,)
    for address in others:
        try:
            with closing(WatchClient(address, _PATIENCE_S)) as client:
                first = client.watch_once(asked)
        except StoreUnreachable as e:
            click.echo(f"{safe(str(e))}: asking the worker", err=True)
            continue
        last = address
        if once:
            yield first
            return
        break
    if last is not None:
        with closing(WatchClient(last)) as client:
            yield from (client.watch_once(asked),) if once else client.watch(asked)
        return
    if not once:
        click.echo("nobody writes into this store: one frame, of its last minutes", err=True)
    with closing(open_source(where)) as source:
        yield watch_once(source, asked)


def _where(folder: str | None, address: str | None) -> str:
    where = folder or address
    if not where or (folder and address):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    return where


def _print_columns(columns: Iterable[Any], as_json: bool) -> None:
    from telemetry.ask.reading import Result

    rows = tuple((c.name, c.unit, c.kind, c.meaning) for c in columns)
    names = ("column", "unit", "kind", "meaning")
    if as_json:
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    short = table(Result(names[:-1], tuple(row[:-1] for row in rows))).splitlines()
    width = max(map(len, short))
    for line, meaning in zip(short, (names[-1], *(row[-1] for row in rows)), strict=True):
        click.echo(f"{line:<{width}}  {meaning}")


def lines(frame: Frame) -> list[str]:
    """A frame as text: a line a pool, the ranked rows, and what all others add up to."""
    from telemetry.ask.reading import Result
    from telemetry.watch.frame import POOL_COLUMNS

    head = f"{_at(frame.at)}  {frame.tenants} tenants, {frame.matched} match"
    head += ", provisional" if frame.provisional else ""
    head += f", {frame.dropped} frames missed" if frame.dropped else ""
    out = [head]
    for p in frame.pools:
        now = dict(zip((c.name for c in POOL_COLUMNS), p.values, strict=True))
        said = [f"heard {p.heard_age_s:.1f}s ago", f"{p.observed_s:.0f}s seen"]
        said += [
            f"{label} {value:.3g}{unit}"
            for label, name, unit in (
                ("running", "running_avg", ""),
                ("waiting", "waiting_avg", ""),
                ("last token", "last_token_age_s", "s ago"),
            )
            if (value := now[name]) is not None
        ]
        said += _split(now)
        said += [] if p.counted else ["NOT COUNTED"]
        out.append(f"{safe(p.engine)}/{safe(p.pool)}: {', '.join(said)}")
    names = _columns(frame)
    rows = [(safe(r.tenant), *(_rounded(r[c]) for c in names)) for r in frame.rows]
    if frame.others_tenants:
        others = (_rounded(frame.others[c]) for c in names)
        rows.append((f"({frame.others_tenants} others)", *others))
    out.append(table(Result(("tenant", *names), tuple(rows))))
    return out


def _rounded(value: float | None) -> float | None:
    """Three figures, and all of what stands before the point: a part of a bucket in the window
    makes fractions of counts, and nobody reads those."""
    if value is None or abs(value) >= 100:
        return value if value is None else round(value)
    return float(f"{value:.3g}")


def _columns(frame: Frame) -> list[str]:
    """The usual ones, and whatever else has a number to show in what was ranked first."""
    return [c for c in _SHOWN if any(r[c] is not None for r in (*frame.rows, frame.others))]


def _split(now: dict[str, float | None]) -> list[str]:
    whole = now["pool_bytes"]
    if not whole:
        return []
    parts = ("kv", "adapter", "cached", "free")
    held = [(p, now[f"{p}_bytes_avg"]) for p in parts]
    return [f"{p} {v / whole:.0%}" for p, v in held if v is not None]


def as_dict(frame: Frame) -> dict[str, Any]:
    """A frame as JSON has it: absent values are null, instants unix seconds."""
    from telemetry.watch.frame import POOL_COLUMNS

    names = [c.name for c in frame.columns]

    def row(one: Row) -> dict[str, Any]:
        return dict(zip(names, one.values, strict=True))

    return {
        "at": frame.at,
        "from": frame.start,
        "to": frame.end,
        "tenants": frame.tenants,
        "matched": frame.matched,
        "provisional": frame.provisional,
        "dropped": frame.dropped,
        "partial": list(frame.partial),
        "rows": [{"tenant": r.tenant, **row(r)} for r in frame.rows],
        "others": {"tenants": frame.others_tenants, **row(frame.others)},
        "pools": [
            {
                "engine": p.engine,
                "pool": p.pool,
                "heard_age_s": p.heard_age_s,
                "observed_s": p.observed_s,
                "counted": p.counted,
                "provisional": p.provisional,
                "tenants": p.tenants,
                **dict(zip((c.name for c in POOL_COLUMNS), p.values, strict=True)),
            }
            for p in frame.pools
        ],
    }


# ---------------------------------------------------------------- events


@click.command("events")
@click.option("--store", "folder", metavar="DIR", help="A store's folder, live or closed.")
@click.option("--connect", "address", metavar="ADDR", help="The address of a live store process.")
@click.option("--from", "start", metavar="TIME",
              help="From this instant on: ISO 8601 (UTC) or unix seconds.")  # fmt: skip
@click.option("--kind", "kinds", multiple=True, metavar="KIND",
              help="Only this kind, e.g. preempt, evict, policy; may be given again.")  # fmt: skip
@click.option("--tenant", "tenants", multiple=True, metavar="NAME",
              help="Only what concerns this tenant, or was caused by it.")  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Then go on, as they are committed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row, a line each.")
def events(
    folder: str | None,
    address: str | None,
    start: str | None,
    kinds: tuple[str, ...],
    tenants: tuple[str, ...],
    follow: bool,
    as_json: bool,
) -> None:
    """What happened: preemptions, evictions, faults, policy changes.

    Without --from: all there is; with --follow only what comes from now on.

    \b
    Examples:
      tenantscope events --store store --kind policy
      tenantscope events --store store --follow --tenant acme
      tenantscope events --connect unix:/run/ts/store.sock --from 2026-11-28T17:00 -f --json
    """
    where = _where(folder, address)
    since = instant(start, "--from", float("-inf")) if start or not follow else None
    for item in _tailed(where, since, kinds, tenants, follow):
        if as_json or kinds or getattr(item, "kind", "") not in _OF_MACHINES:
            click.echo(_event_json(item) if as_json else _event_line(item))


def _tailed(
    where: str, since: float | None, kinds: tuple[str, ...], tenants: tuple[str, ...], follow: bool
) -> Iterator[Any]:
    from telemetry.errors import StoreError
    from telemetry.source import live_addresses, open_source
    from telemetry.watch import tail_events
    from telemetry.watch.client import WatchClient

    if not follow:
        with closing(open_source(where)) as source:
            since = float("-inf") if since is None else since
            yield from tail_events.stored(source, tail_events.wanted(kinds, tenants), since)
        return
    addresses = live_addresses(where)
    if not addresses:
        raise StoreError(f"nobody writes into {where}: there is nothing to follow; leave out -f")
    with closing(WatchClient(addresses[0])) as client:
        yield from client.tail(kinds, tenants, since)


def _event_json(item: Any) -> str:
    from dataclasses import asdict

    from telemetry.tables import TABLE_OF
    from telemetry.watch.wire import Dropped

    if isinstance(item, Dropped):
        return json.dumps({"table": None, "dropped": item.count})
    return json.dumps({"table": TABLE_OF[type(item)].name, **asdict(item)})


def _event_line(item: Any) -> str:
    from telemetry.records import PolicyRecord
    from telemetry.watch.wire import Dropped

    if isinstance(item, Dropped):
        return f"... {item.count} rows were dropped: this reader is too slow"
    if isinstance(item, PolicyRecord):
        said = [f"policy {item.policy} v{item.version}"]
        said += [f"was {item.previous}"] if item.previous else []
        said += [f"by {item.who}"] if item.who else []
        said += [item.why] if item.why else []
    else:
        said = [item.kind]
        for label in ("tenant", "cause_tenant", "adapter", "request_id", "detail"):
            value = getattr(item, label)
            if value is not None:
                said.append(value if label == "detail" else f"{label}={value}")
        if item.value is not None:
            said.append(f"({item.value:.6g})")
    return f"{_at(item.at)}  {safe(item.engine)}/{safe(item.pool)}  {safe('  '.join(said))}"


def _at(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
