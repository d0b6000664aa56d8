"""The operator's desk of a place that is looked at. Opens the doors; asks nothing through them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from console.act.desk import Desk
from console.act.find import addresses, why_closed
from console.act.hand import Door, DoorShut
from telemetry.source import live_addresses

VARIABLE = "TENANTSCOPE_ADMIN"


def open_desk(
    where: str,
    given: Sequence[str],
    *,
    recorded: bool,
    environ: Mapping[str, str] | None = None,
) -> Desk:
    """The desk at the engines whose addresses are given, else those that belong to a live place.
    `recorded`: what is looked at is a recording. Raises DoorShut for what is no address."""
    if recorded and given:
        raise DoorShut(f"--admin {given[0]}: a recording is looked at, it cannot be changed")
    live = not recorded and bool(live_addresses(where))
    known = (os.environ if environ is None else environ).get(VARIABLE)
    named = (*given, *((known,) if known and live and not given else ()))
    found = addresses(named, where, recorded)
    why = why_closed(where, recorded or not live)
    if not found and not live:
        return Desk(closed_why=why, store=where)
    from console.act.door import AdminDoor  # only here: it brings gRPC

    def again(known: Collection[str]) -> Sequence[Door]:
        return [AdminDoor(a) for a in addresses((), where, recorded) if a not in known]

    return Desk([AdminDoor(a) for a in found], closed_why=why, store=where,
                again=None if named else again)  # fmt: skip
