"""A store's own settings: `settings.toml` in its folder, a table a room. Reads; does nothing.

Every room says what its table may hold (`read_section`); this page only finds the file and refuses
what no room knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from telemetry import retention
from telemetry.settings import Reader, read_toml

SETTINGS = retention.SETTINGS


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What the store process does beside keeping rows. The defaults reach out to nobody."""

    retention: retention.Retention = retention.DEFAULT


def read(folder: Path, file: Path | None = None) -> StoreSettings:
    """The settings in `file`, or the folder's own, or the defaults. Raises SettingsError."""
    path = folder / SETTINGS if file is None else file
    if file is None and not path.exists():
        return StoreSettings()
    reader = Reader(str(path), read_toml(path))
    settings = StoreSettings(
        retention=retention.read_section(reader),
    )
    reader.done()
    return settings
