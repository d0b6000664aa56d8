"""A store's own settings: `settings.toml` in its folder, a table a room. Reads; does nothing.

Every room says what its table may hold (`read_section`); this page only finds the file and refuses
what no room knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from telemetry.alerts import settings as alert_settings
from telemetry.outbound import settings as outbound_settings
from telemetry.service.listen import Listen
from telemetry.service.listen import read_section as read_listens
from telemetry.settings import Reader, read_toml
from telemetry.store import retention

SETTINGS = retention.SETTINGS


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What the store process does beside keeping rows. The defaults reach out to nobody."""

    retention: retention.Retention = retention.DEFAULT
    listen: tuple[Listen, ...] = ()
    outgoing: outbound_settings.Outgoing = outbound_settings.NOTHING
    alerts: alert_settings.AlertSettings = alert_settings.DEFAULTS


def read(folder: Path, file: Path | None = None) -> StoreSettings:
    """The settings in `file`, or the folder's own, or the defaults. Raises SettingsError."""
    path = folder / SETTINGS if file is None else file
    if file is None and not path.exists():
        return StoreSettings()
    reader = Reader(str(path), read_toml(path))
    settings = StoreSettings(
        retention=retention.read_section(reader),
        listen=read_listens(reader),
        outgoing=outbound_settings.read_section(reader),
        alerts=alert_settings.read_section(reader),
    )
    reader.done()
    return settings
