"""A settings file that is read again: what of it can be in force now, or why it must not be.

Reads the file; puts nothing in force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from engine.admin.diff import differences, lifted, live_part
from engine.admin.errors import ChangeRefused
from engine.config import Settings, read_settings
from engine.config_keeper import lost
from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Reread:
    """The settings as far as they can take effect now, and the words for it."""

    settings: Settings
    what: str
    is_same: bool


def read_again(config: Path | None, old: Settings, allow_lifts: bool) -> Reread:
    """A limit that the file leaves out is taken for an accident unless `allow_lifts`. Raises
    ChangeRefused."""
    if config is None:
        raise ChangeRefused("this engine was started without a settings file to read again")
    try:
        new = read_settings(config)
    except ConfigError as e:
        raise ChangeRefused(f"{e}; the settings in force stay") from None
    # The model, and into how many ranks it is cut, may have been said on the command line.
    new, waits = live_part(old, replace(new, model=old.model).cut_as(old))
    why_not = lost(old, new)
    gone = lifted(old, new)
    if not why_not and gone and not allow_lifts:
        why_not = (
            f"it leaves out {', '.join(gone)}, and a limit that is left out is no limit: write it, "
            "or say --allow-lifts if that is meant"
        )
    if why_not:
        raise ChangeRefused(f"{config}: {why_not}; the settings in force stay")
    lines = differences(old, new)
    what = f"settings read again: {'; '.join(lines) or 'nothing is different'}"
    if waits:
        what += f"; only a restart will change {', '.join(waits)}"
    return Reread(new, what, not lines)
