"""Makes the operator's room of a front out of what it was launched with. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.admin.base_file import BaseFile
from engine.admin.in_force import served
from engine.admin.listen import AdminListen
from engine.admin.member import Member
from engine.admin.overlay_file import OverlayFile
from engine.admin.reach import WorkerWire
from engine.admin.room import AdminRoom, read_overlay
from engine.config import Settings
from engine.serving.launch import AdminLaunch, Launch, WorkerPlace
from engine.serving.workers import names

_log = logging.getLogger(__name__)


def open_room(
    launch: Launch, admin: AdminLaunch, now: Callable[[], float]
) -> tuple[AdminRoom, Settings]:
    """The room, and the settings with what operators have changed on top: with these the front
    begins; the workers are told of them when they answer."""
    kept = OverlayFile(Path(admin.kept))
    overlay, over, trouble = read_overlay(kept, now())
    if trouble:
        _log.error("%s", trouble)
    where = AdminListen(admin.address, admin.tls_cert, admin.tls_key, admin.tokens)
    config = Path(admin.config) if admin.config else None
    room = AdminRoom(
        where,
        launch.settings,
        kept,
        overlay,
        members(launch.workers),
        now,
        config,
        launch.store_address,
        over,
        BaseFile(Path(admin.base)) if admin.base else None,
    )
    return room, served(overlay.on(launch.settings))


def members(places: Sequence[WorkerPlace]) -> tuple[Member, ...]:
    """Every worker with a wire to it."""
    return tuple(
        Member(place.pool, place.replica, WorkerWire(place.address, name))
        for place, name in zip(places, names(places), strict=True)
    )
