"""Whether telemetry is in order: facts of a store, and the verdict on each with what to do.

`judge` is a pure function of the facts; `examine` gathers them and changes nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from telemetry import doctor_doors
from telemetry.errors import NotAllowed, QueryError, StoreError, TelemetryError
from telemetry.instants import DAY_S, day_of
from telemetry.plain import name, safe, span_s
from telemetry.service import listen, liveness
from telemetry.settings import SettingsError
from telemetry.store import migrations, owner, parts, quarantine, retention, sizes, upkeep

OK, WARN, BAD = "ok", "warn", "bad"
_LATE_BUCKETS, _LOST_BUCKETS = 3.0, 10.0
_SOON_DAYS, _NOW_DAYS = 14, 2
_LEAST_FREE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and what to do where it is not well."""

    what: str
    level: str
    says: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a store. None: could not be found out, or does not apply."""

    now_unix_s: float
    folder: str
    owner_pid: int | None = None
    answers: bool = False
    left_behind: bool = False  # the address of an owner that ended without taking it back
    problem: str | None = None  # why the store gave no answers
    pools: tuple[Mapping[str, Any], ...] = ()
    faults: tuple[Mapping[str, Any], ...] = ()
    refused_points: int | None = None
    last_ingest_unix_s: float | None = None
    disk: sizes.Forecast | None = None
    aside: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    settings_problem: str | None = None
    elsewhere: bool = False  # the store is on another machine: its disk cannot be seen from here
    listeners: tuple[Mapping[str, Any], ...] | None = None
    lost: tuple[Mapping[str, Any], ...] = ()
    exports: tuple[Mapping[str, Any], ...] | None = None


def examine(where: str, now_unix_s: float | None = None) -> Facts:
    """Look at the store in a folder, or at an address. Raises StoreError when it is neither."""
    from telemetry.service.client import StoreClient
    from telemetry.source import open_source

    now = time.time() if now_unix_s is None else now_unix_s
    is_folder = Path(where).is_dir()
    live = owner.find_live(Path(where)) if is_folder else owner.Live(0, upkeep.address_of(where))
    info = None
    found: dict[str, Any] = {}
    if live is not None:
        client = StoreClient(live.address, timeout_s=5.0)
        try:
            info = client.info()
            with suppress(QueryError):  # a store process of an older version tells nothing of them
                listeners = client.query(liveness.LISTENERS).dicts()
                found["listeners"] = tuple(_knock(one, client.host) for one in listeners)
                found["exports"] = tuple(client.query(liveness.EXPORTS).dicts())
        except StoreError:
            if not is_folder:
                raise
        finally:
            client.close()
    folder = Path(where if is_folder or info is None else info.path)
    elsewhere = not folder.is_dir()
    try:
        source = open_source(where)
        try:
            window = {"start": _last(source, now) - DAY_S, "end": now + 366 * DAY_S}
            found["pools"] = tuple(source.query("health", **window).dicts())
            found["faults"] = tuple(source.query("faults", **window).dicts())
            found["lost"] = tuple(source.query("lost", **window).dicts())
        finally:
            source.close()
        if not elsewhere:
            kept, found["settings_problem"] = _kept(folder)
            with suppress(NotAllowed):  # who may only look is not told what the files take
                found["disk"] = _disk(where, folder, now, kept)
    except TelemetryError as e:
        found["problem"] = str(e)
    return Facts(
        now,
        str(folder),
        owner_pid=info.pid if info is not None else owner.owner_pid(folder),
        answers=info is not None,
        left_behind=live is None and (folder / owner.LIVE).exists(),
        refused_points=info.refused_points if info is not None else None,
        last_ingest_unix_s=info.last_ingest_unix_s if info is not None else None,
        aside=() if elsewhere else tuple(a.sentence for a in quarantine.listed(folder)),
        missing=() if elsewhere else _missing(folder),
        elsewhere=elsewhere,
        **found,
    )


def _knock(one: Mapping[str, Any], host: str | None) -> Mapping[str, Any]:
    """A listener, and whether it takes a connection from here. `host` is the store's, as it was
    reached: an address on another machine is knocked at there."""
    address = str(one["address"])
    if host is not None and not listen.is_loopback(host):
        if address.startswith(listen.UNIX) or listen.Target(address).is_local:
            return {**one, "answers": True}  # meant for its own machine, which is not this one
        address = f"{host}:{listen.host_and_port(address)[1]}"
    return {**one, "answers": listen.answers(address)}


def _last(source: Any, now: float) -> float:
    """The newest bucket's end; the present where there is none or where it lies ahead."""
    span = source.span()
    return min(now, span[1]) if span is not None else now


def _kept(folder: Path) -> tuple[retention.Retention, str | None]:
    """How long rows are kept, and what is wrong with the settings."""
    try:
        return retention.read_settings(folder), None
    except SettingsError as e:
        return retention.DEFAULT, str(e)


def _disk(where: str, folder: Path, now: float, kept: retention.Retention) -> sizes.Forecast:
    free = shutil.disk_usage(folder).free
    measured = upkeep.perform(where, upkeep.SIZES)
    return sizes.forecast(measured, free, day_of(now), kept)


def _missing(folder: Path) -> tuple[str, ...]:
    """Tables that a closed day says it has, and has not; those in quarantine are told of there."""
    aside = {(a.part, a.table) for a in quarantine.listed(folder)}
    gone = []
    for part in parts.list_parts(folder):
        if part.folder is None:
            continue
        try:
            named = migrations.manifest_tables(part.folder)
        except StoreError:
            continue  # the store itself refuses it, with its reason
        gone += [
            f"{part.name}: {t}.parquet"
            for t in sorted(named)
            if not (part.folder / f"{t}.parquet").is_file() and (part.name, t) not in aside
        ]
    return tuple(gone)


def judge(facts: Facts) -> list[Check]:
    """One check a line, in the order a person would look."""
    checks: list[Check] = [_owner(facts)]
    if facts.problem is not None:
        checks.append(
            Check(
                "store", BAD, safe(facts.problem), "see what the store said above; then ask again"
            )
        )
    looks: tuple[Callable[[Facts], Check], ...] = (
        _lag, _gaps, _skew, _open, _refused, _loss, _space, _quarantine, _settings,
        _ports, _certificates, _senders, _exports,
    )  # fmt: skip
    return checks + [look(facts) for look in looks]


def worst(checks: list[Check]) -> str:
    levels = {c.level for c in checks}
    return next((level for level in (BAD, WARN) if level in levels), OK)


def _owner(f: Facts) -> Check:
    if f.answers:
        return Check("owner", OK, f"the store process {f.owner_pid} answers")
    if f.owner_pid is not None:
        return Check(
            "owner",
            BAD,
            f"process {f.owner_pid} has the store and does not answer",
            f"see whether it hangs or is stopped (ps -p {f.owner_pid}); `serve` starts a new one",
        )
    if f.left_behind:
        return Check(
            "owner",
            WARN,
            "the last store process was killed: nobody writes now",
            "start it again; nothing acknowledged is lost",
        )
    return Check("owner", OK, "nobody writes: a closed store")


def _lag(f: Facts) -> Check:
    if not f.pools:
        empty = "no minute of any engine is stored"
        do = "see that an engine is running and sends here" if f.answers else ""
        return Check("lag", WARN if f.answers else OK, empty, do)
    newest = max(f.pools, key=_end)
    says = f"last minute, of {_who(newest)}, ended {_ago(f, _end(newest))}"
    if not f.answers:
        return Check("lag", OK, f"{says}; nobody writes")
    late = (f.now_unix_s - _end(newest)) / newest["bucket_s"]
    if late > _LATE_BUCKETS:
        do = "see that the engine runs and reaches the store; its log counts what it could not send"
        return Check("lag", WARN if late <= _LOST_BUCKETS else BAD, says, do)
    silent = [p for p in f.pools if f.now_unix_s - _end(p) > _LOST_BUCKETS * p["bucket_s"]]
    if silent:
        said = ", ".join(f"{_who(p)} {_ago(f, _end(p))}" for p in silent)
        do = "if it was not stopped on purpose, see that it runs and reaches the store"
        return Check("lag", WARN, f"{says}; last heard of {said}", do)
    return Check("lag", OK, says)


def _gaps(f: Facts) -> Check:
    holes = [p for p in f.pools if p["gaps"]]
    if not holes:
        return Check("gaps", OK, "no minute is missing in the last day of rows")
    said = "; ".join(
        f"{_who(p)}: {p['gaps']} of {span_s(p['gap_s'])}, longest {span_s(p['longest_gap_s'])}"
        for p in holes
    )
    do = "those minutes are unknown, not idle: see whether the engine was down or could not send"
    return Check("gaps", WARN, said, do)


def _skew(f: Facts) -> Check:
    ahead = {_who(p): p["last_bucket_end"] - p["bucket_s"] - f.now_unix_s for p in f.pools}
    wrong = {who: s for who, s in ahead.items() if s > 2.0}
    if not wrong:
        return Check("skew", OK, "no engine's clock is ahead of this one's")
    said = ", ".join(f"{who} is {span_s(s)} ahead" for who, s in wrong.items())
    return Check("skew", BAD, said, "set both clocks by NTP; a recorded or simulated store may be")


def _open(f: Facts) -> Check:
    left = {_who(p): p["left_open"] for p in f.pools if p["left_open"]}
    if not left:
        return Check("open", OK, "every minute before the last is sealed")
    said = ", ".join(f"{n} of {who}" for who, n in left.items())
    do = "a worker ended in them: at most its last 10 s are missing from each"
    return Check("open", WARN, f"minutes left open: {said}", do)


def _refused(f: Facts) -> Check:
    if f.refused_points is None:
        return Check("refused", OK, "known only while a store process runs")
    if not f.refused_points:
        return Check("refused", OK, "no point was refused since the store started")
    do = "the store's log names column and value: a sender is of another version, or broken"
    return Check("refused", WARN, f"{f.refused_points} points refused since the start", do)


def _loss(f: Facts) -> Check:
    faults = [x for x in f.faults if x["kind"] == "fault"]
    if not faults:
        return Check("loss", OK, "no fault or loss was reported in the last day of rows")
    newest = faults[0]
    times = sum(x["times"] for x in faults)
    says = (
        f"{times} reported; the last by {name(newest['engine'])}: {safe(newest['detail'] or '?')}"
    )
    return Check("loss", WARN, says, "tenantscope query faults lists them")


def _space(f: Facts) -> Check:
    d = f.disk
    if f.elsewhere:
        return Check("disk", OK, "on another machine: ask there, with --store")
    if d is None and f.problem is None:
        return Check("disk", OK, "not measured: that takes a token of role operator")
    if d is None:
        return Check("disk", WARN, "could not be measured", "see the store's problem above")
    says = f"{d.free_bytes / 2**30:.1f} GiB free"
    if d.growth_bytes_a_day is not None:
        says += f", {d.growth_bytes_a_day / 2**20:.1f} MiB a day"
    left = None
    if d.fills_on is not None:
        left = (date.fromisoformat(d.fills_on) - date.fromisoformat(day_of(f.now_unix_s))).days
        says += f", full on {d.fills_on}"
    do = "shorten [retention] in the store's settings.toml, or give it a larger disk"
    if d.free_bytes < _LEAST_FREE_BYTES or (left is not None and left <= _NOW_DAYS):
        return Check("disk", BAD, says, do)
    if left is not None and left <= _SOON_DAYS:
        return Check("disk", WARN, says, do)
    return Check("disk", OK, says)


def _quarantine(f: Facts) -> Check:
    if f.elsewhere:
        return Check("quarantine", OK, "on another machine: ask there, with --store")
    lost = [*f.aside, *(f"{m} is missing" for m in f.missing)]
    if not lost:
        return Check("quarantine", OK, "no file is spoiled or missing")
    do = f"bring the file back from a backup, or remove it from {quarantine.FOLDER}/ to accept it"
    return Check("quarantine", BAD, "; ".join(lost), do)


def _settings(f: Facts) -> Check:
    if f.settings_problem is None:
        return Check("settings", OK, "retention is understood")
    return Check("settings", BAD, safe(f.settings_problem), "until then nothing is dropped")


def _ports(f: Facts) -> Check:
    return Check("ports", *doctor_doors.ports(f.listeners))


def _certificates(f: Facts) -> Check:
    return Check("certificates", *doctor_doors.certificates(f.listeners, f.now_unix_s))


def _senders(f: Facts) -> Check:
    return Check("senders", *doctor_doors.senders(f.lost))


def _exports(f: Facts) -> Check:
    return Check("exports", *doctor_doors.exports(f.exports, f.now_unix_s))


def _end(pool: Mapping[str, Any]) -> float:
    """The end of a pool's last sealed minute, or of its first one, while that is open."""
    return float(pool["last_sealed_end"] or pool["last_bucket_end"])


def _who(pool: Mapping[str, Any]) -> str:
    return f"{name(pool['engine'])}/{name(pool['pool'])}"


def _ago(f: Facts, at: float) -> str:
    return f"{span_s(max(0.0, f.now_unix_s - at))} ago"
