"""What a worker is started with: an operator's changes are in force from its first request on.

Reads the overlay's file and changes nothing. Whatever it misses (pins, a settings file that was
read again) the worker is told as soon as it answers.
"""

from __future__ import annotations

from pathlib import Path

from engine.admin.errors import OverlayLost
from engine.admin.in_force import served
from engine.admin.overlay_file import OverlayFile
from engine.config import Settings


def with_changes(base: Settings, kept: str, now_unix_s: float) -> Settings:
    """`kept`: the overlay's file, "" for none. One that cannot be read is the front's to say."""
    if not kept:
        return base
    try:
        overlay = OverlayFile(Path(kept)).read().after_restart(now_unix_s)
    except OverlayLost:
        return base
    return served(overlay.expired(now_unix_s)[0].on(base))
