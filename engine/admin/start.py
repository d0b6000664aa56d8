"""Makes the operator's room of a front out of what it was launched with. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from engine.admin.listen import AdminListen
from engine.admin.overlay import served
from engine.admin.overlay_file import OverlayFile
from engine.admin.room import AdminRoom, read_overlay
from engine.config import Settings
from engine.serving.launch import AdminLaunch, Launch

_log = logging.getLogger(__name__)


def open_room(
    launch: Launch, admin: AdminLaunch, now: Callable[[], float]
) -> tuple[AdminRoom, Settings]:
    """The room, and the settings with what operators have changed on top: with these the front
    begins; the worker is told of them when it answers."""
    kept = OverlayFile(Path(admin.kept))
    overlay, trouble = read_overlay(kept, now())
    if trouble:
        _log.error("%s", trouble)
    where = AdminListen(admin.address, admin.tls_cert, admin.tls_key, admin.tokens)
    config = Path(admin.config) if admin.config else None
    room = AdminRoom(
        where,
        launch.settings,
        kept,
        overlay,
        launch.worker_address,
        now,
        config,
        launch.store_address,
    )
    return room, served(overlay.on(launch.settings))
