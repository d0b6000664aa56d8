"""Acts of upkeep by name: on a store of this process, at a store process, or on a closed folder.

Owns the choosing of who does it; what is done is in retention, sizes, backup and forget.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask.reading import Result
from telemetry.errors import QueryError, StoreError, StoreUnreachable
from telemetry.instants import day_of
from telemetry.service import listen
from telemetry.store import owner, parts

if TYPE_CHECKING:
    from telemetry.store.store import Store

log = logging.getLogger(__name__)

SIZES, RETENTION, BACKUP, FORGET = "sizes", "retention", "backup", "forget"
ACKNOWLEDGE, NOTE, CLOSE = "acknowledge", "note", "close"
REMARK = "remark"
SILENCE, UNSILENCE = "silence", "unsilence"
_PATIENCE_S = 3_600.0  # a backup of many days takes its time


def act(store: Store, name: str, parameters: Mapping[str, Any]) -> Result:
    """Do it here. Raises QueryError for an unknown act or parameter, StoreError when it fails."""
    does = _ACTS.get(name)
    if does is None:
        raise QueryError(f"no upkeep {name!r}: there are {', '.join(_ACTS)}")
    wanted, do = does
    if set(parameters) != wanted:
        need, have = (", ".join(sorted(p)) or "none" for p in (wanted, parameters))
        raise QueryError(f"{name} takes the parameters {need}; given: {have}")
    return do(store, parameters)


def perform(where: Path | str, name: str, **parameters: Any) -> Result:
    """Have it done: by the store process that has the folder or answers at the address; without
    one, by this process, which owns the folder meanwhile.

    Raises StoreError where there is no store, StoreBusy when one that does not answer has it.
    """
    folder = Path(where)
    if not folder.is_dir():
        return _ask(address_of(str(where)), name, parameters)
    live = owner.find_live(folder)
    if live is not None:
        try:
            return _ask(live.address, name, parameters)
        except StoreUnreachable:
            if owner.owned(folder):
                raise
    parts.check_path(folder)
    if not parts.list_parts(folder):
        raise StoreError(f"{folder} has no days: it is no store, or an empty one")
    if name == SIZES:
        return sizes_of(folder)
    from telemetry.store.store import Store

    with Store.open(folder) as store:
        return act(store, name, parameters)


def turn_of_day(store: Store, now_unix_s: float, done_for: str | None) -> str | None:
    """What the owner does by itself: close days that have ended and, once a day, drop what is older
    than it is kept. Returns the day retention was last run for. Never raises: ingest goes on."""
    from telemetry.store import retention

    try:
        for day in store.close_old_days(now_unix_s):
            log.info("closed %s", day)
        today = day_of(now_unix_s)
        if today != done_for:
            retention.apply(store, now_unix_s)
            done_for = today
    except Exception:
        # The day stays as it is and is tried again at the next look.
        log.exception("a day could not be closed or dropped")
    return done_for


def sizes_of(folder: Path) -> Result:
    """Sizes of a folder that nobody owns, read only."""
    from telemetry.source import FileSource
    from telemetry.store import sizes

    with FileSource(folder).attached() as (con, listed):
        return sizes.measure(con, listed)


def _ask(address: str, name: str, parameters: Mapping[str, Any]) -> Result:
    from telemetry.service.client import StoreClient

    client = StoreClient(address)
    try:
        return client.maintain(name, _PATIENCE_S, **parameters)
    finally:
        client.close()


def address_of(text: str) -> str:
    """The address of a live store. Raises StoreError for text that is none."""
    if listen.is_address(text):
        return text
    raise StoreError(
        f"{text} is neither a store folder nor an address "
        "(unix:/path.sock, host:port, https://host:port)"
    )


def _sizes(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.store import sizes

    with store.alone(f"{store.folder} cannot be measured") as shelf:
        return sizes.measure(shelf.con, shelf.parts.values())


def _retention(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.store import retention

    return retention.apply(store, time.time(), dry_run=bool(parameters["dry_run"]))


def _backup(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.store import backup

    return backup.back_up(store, str(parameters["target"]), time.time())


def _forget(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.store import forget

    return forget.forget(store, str(parameters["tenant"]), dry_run=bool(parameters["dry_run"]))


def _incident_act(what: str) -> Callable[[Store, Mapping[str, Any]], Result]:
    def do(store: Store, parameters: Mapping[str, Any]) -> Result:
        from telemetry.alerts import people

        return people.act(store, what, parameters)

    return do


def _remark(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.alerts import people

    return people.remark(store, parameters)


def _silence(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.alerts import people

    return people.silence(store, parameters)


def _unsilence(store: Store, parameters: Mapping[str, Any]) -> Result:
    from telemetry.alerts import people

    return people.unsilence(store, parameters)


_ACTS: dict[str, tuple[set[str], Callable[[Store, Mapping[str, Any]], Result]]] = {
    SIZES: (set(), _sizes),
    RETENTION: ({"dry_run"}, _retention),
    BACKUP: ({"target"}, _backup),
    FORGET: ({"tenant", "dry_run"}, _forget),
    **{a: ({"incident", "who", "text"}, _incident_act(a)) for a in (ACKNOWLEDGE, NOTE, CLOSE)},
    REMARK: ({"pool", "who", "text"}, _remark),
    SILENCE: ({"alert", "pool", "tenant", "until", "reason", "who"}, _silence),
    UNSILENCE: ({"silence", "who"}, _unsilence),
}
