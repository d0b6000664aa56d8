"""What `tenantscope admin` prints: results, tables, JSON. Names are data: they are escaped.

Owns the words and the exit code of an act that several engines were asked for; opens channels,
keeps none.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from engine.admin.client import AdminClient
from engine.admin.edits import TIERS
from engine.admin.listen import find
from engine.errors import EngineError
from engine.worker_names import WorkerNames
from telemetry.plain import cells, clip, safe
from telemetry.proto import tenantscope_pb2 as pb

TENANT_COLUMNS = (
    "tenant", "pool", "rpm", "tpm", "concurrency", "weight", "tier", "rpm_left", "tpm_left",
    "under_way", "running", "waiting", "state",
)  # fmt: skip
ADAPTER_COLUMNS = ("adapter", "worker", "hash", "pages", "place", "requests", "pinned")
WORKER_COLUMNS = ("worker", "running", "waiting", "state")  # policy_version: of one run, JSON
CHANGE_COLUMNS = ("number", "at", "until", "who", "what", "why", "state")
_WIDEST = 60
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(span: str) -> float:
    """`90s`, `30m`, `4h`, `2d`. Raises UsageError."""
    found = _SPAN.fullmatch(span)
    if found is None or float(found[1]) == 0:
        raise click.UsageError(f"--ttl {span!r}: write 90s, 30m, 4h or 2d")
    return float(found[1]) * _UNIT_S[found[2]]


def whoever() -> str:
    """The user at this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def addresses(given: Sequence[str]) -> tuple[str, ...]:
    """Raises NoDoor when none is given and none, or several, are found."""
    return tuple(dict.fromkeys(given)) or (find(),)


def look(address: str) -> pb.AdminShowReply:
    """What an engine says of itself. Raises EngineError."""
    with AdminClient(address) as client:
        return client.show()


@dataclass(frozen=True, slots=True)
class Target:
    """Which engines, and what is said with every act."""

    given: tuple[str, ...]
    said: pb.Act
    as_json: bool

    def act(self, method: str, request: Any) -> None:
        """Have every engine do it, print what became of it, and leave with the worst code. One
        that fails does not keep the others from it."""
        results: list[dict[str, Any]] = []
        worst = 0
        for address in addresses(self.given):
            try:
                with AdminClient(address) as client:
                    reply = client.act(method, request)
            except EngineError as e:
                worst = max(worst, getattr(e, "exit_code", 1))
                results.append({"address": address, "ok": False, "detail": str(e)})
                continue
            for r in reply.results:
                worst = max(worst, 0 if r.ok else 1)
                results.append(
                    {
                        "address": address,
                        "engine": r.engine,
                        "pool": r.pool,
                        "ok": r.ok,
                        "detail": r.detail,
                        "effect": reply.effect,
                        "until": _iso(reply.until_unix_s),
                        "version": reply.version,
                        "workers": [_said(w) for w in reply.workers],
                    }
                )
        if self.as_json:
            _json({"dry_run": self.said.dry_run, "results": results})
        else:
            for result in results:
                _say(result, self.said.dry_run)
        if worst:
            raise SystemExit(worst)


def _say(result: dict[str, Any], dry_run: bool) -> None:
    if "engine" not in result:
        click.echo(f"tenantscope: {safe(result['detail'])}", err=True)
        return
    where = safe(f"{result['engine']}/{result['pool']}")
    if not result["ok"]:
        click.echo(f"{where}: refused: {safe(result['detail'])}", err=True)
        return
    click.echo(f"{where}: {'would: ' if dry_run else ''}{safe(result['effect'])}")
    workers = result["workers"]
    if len(workers) > 1:
        names = WorkerNames((w["pool"], w["replica"]) for w in workers)
        for w in workers:
            state = "" if w["ok"] else "told when it is back: " if w["owed"] else "not done: "
            name = names.label(w["pool"], w["replica"])
            click.echo(f"  worker {safe(name)}: {state}{safe(w['detail'])}")
    else:
        click.echo(f"  {safe(result['detail'])}")
    if result["until"] is not None:
        click.echo(f"  until {result['until']}, then it reverts by itself")
    if not dry_run:
        click.echo(f"  version {result['version']}")


def _said(w: pb.WorkerResult) -> dict[str, Any]:
    return {
        "pool": w.pool,
        "replica": w.replica,
        "ok": w.ok,
        "detail": w.detail,
        "owed": w.owed,
    }


# -- rows


def tenant(state: pb.AdminShowReply, t: pb.AdminTenant) -> dict[str, Any]:
    def given(key: str) -> Any:
        return getattr(t, key) if t.HasField(key) else None

    limits = ("rpm", "tpm", "concurrency", "rpm_left", "tpm_left")
    return {
        "engine": state.engine,
        "pool": t.pool,
        "tenant": t.tenant,
        **{key: given(key) for key in limits},
        "weight": t.weight,
        "tier": t.tier,
        "under_way": t.under_way,
        "running": t.running,
        "waiting": t.waiting,
        "draining": t.draining,
        "overridden": list(t.overridden),
        "adapters": list(t.adapters),
        "version": state.version,
    }


def adapter(state: pb.AdminShowReply, a: pb.AdapterNow) -> dict[str, Any]:
    return {
        "engine": state.engine,
        "pool": a.pool,
        "replica": a.replica,
        "worker": _worker(state, a.pool, a.replica),
        "adapter": a.name,
        "hash": a.hash,
        "pages": a.pages,
        "place": a.place,
        "requests": a.requests,
        "pinned": a.pinned,
        "version": state.version,
    }


def change(state: pb.AdminShowReply, c: pb.AdminChange) -> dict[str, Any]:
    return {
        "engine": state.engine,
        "number": c.number,
        "at": _iso(c.at_unix_s),
        "until": _iso(c.until_unix_s),
        "who": c.who,
        "why": c.why,
        "what": c.what,
        "state": c.state,
        "ended": _iso(c.ended_unix_s),
        "ended_by": c.ended_by,
        "ended_why": c.ended_why,
        "version": state.version,
    }


def worker(state: pb.AdminShowReply, w: pb.WorkerNow) -> dict[str, Any]:
    return {
        "engine": state.engine,
        "pool": w.pool,
        "replica": w.replica,
        "worker": _worker(state, w.pool, w.replica),
        "running": w.running,
        "waiting": w.waiting,
        "policy_version": w.policy_version,
        "owed": w.owed,
        "trouble": w.trouble,
        "version": state.version,
    }


def _worker(state: pb.AdminShowReply, pool: str, replica: int) -> str:
    return WorkerNames((w.pool, w.replica) for w in state.workers).label(pool, replica)


def unknown(name: str, state: pb.AdminShowReply) -> str:
    near = [t.tenant for t in state.tenants][:5]
    return f"tenant {name!r} is not served here; there are {', '.join(map(repr, near)) or 'none'}"


def narrate(state: pb.AdminShowReply) -> None:
    """What a table has no column for, on stderr."""
    policy = f"policy {state.policy}, version {state.version}"
    click.echo(safe(f"{state.engine}/{state.pool}: {policy}"), err=True)
    if state.worker:
        some = any(not w.trouble for w in state.workers)
        how = "known in part" if some else "not known"
        click.echo(safe(f"what runs and waits is {how}: {state.worker}"), err=True)


def out_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """A table, or JSON of the whole rows."""
    if as_json:
        _json(list(rows))
        return
    lines = [columns, *([_cell(row, c) for c in columns] for row in rows)]
    widths = [max(cells(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = (text + " " * (w - cells(text)) for text, w in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "state":
        return clip(safe(_state(row)), _WIDEST)
    value = row[column]
    if column == "hash":
        return str(value)[:12]
    if column == "tier":
        return next((word for word, number in TIERS.items() if number == value), str(value))
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return clip(safe(str(value)), _WIDEST)


def _state(row: dict[str, Any]) -> str:
    if "trouble" in row:
        owed = "not told yet what is in force" if row["owed"] else ""
        return row["trouble"] or owed or "answers"
    if "ended" in row:
        by = f" by {row['ended_by']}" if row["ended_by"] else ""
        return f"{row['state']} {row['ended']}{by}" if row["ended"] else str(row["state"])
    words = ["drains"] if row["draining"] else []
    keys = [k for k in row["overridden"] if not (row["draining"] and k == "concurrency")]
    if keys:
        words.append(f"changed: {', '.join(keys)}")
    return "; ".join(words) or "as in the settings"


def _iso(unix_s: float) -> str | None:
    if not unix_s:
        return None
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: object) -> None:
    json.dump(value, sys.stdout, ensure_ascii=True, indent=2)
    sys.stdout.write("\n")
