"""The operator's desk of a place that is looked at. Opens the doors; asks nothing through them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from console.act.desk import Desk
from console.act.find import addresses, why_closed
from console.act.hand import DoorShut
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
    if not found:
        return Desk(closed_why=why_closed(where, recorded or not live), store=where)
    from console.act.door import AdminDoor  # only here: it brings gRPC

    return Desk([AdminDoor(a) for a in found], store=where)
