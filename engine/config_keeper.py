"""Keeps the settings in force: a bad file never replaces a good one. Owns no signal, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.config import Settings, read_settings
from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a file did not replace the settings in force, as one sentence."""

    sentence: str


class SettingsKeeper:
    """The settings in force. `settings` is always a set that was read, checked and found good."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def settings(self) -> Settings:
        return self._settings

    def try_replace(self, path: Path) -> Settings | Kept:
        """Read `path` and put it in force; or keep what is, and say why. Never raises for what
        stands in a file, nor for a file that cannot be read."""
        try:
            new = read_settings(path)
        except ConfigError as e:
            return Kept(f"{e}; the settings in force stay")
        why = lost(self._settings, new)
        if why:
            return Kept(f"{path}: {why}; the settings in force stay")
        self._settings = new
        return new


def lost(old: Settings, new: Settings) -> str:
    """A file cut short while it was written may read well and yet say nothing: nobody wants to
    lock everybody out, so a file that does is taken for an accident."""
    if old.tenants and not new.tenants:
        return f"it names no [[tenant]], and {len(old.tenants)} are served now"
    if any(t.key_sha256 for t in old.tenants) and not any(t.key_sha256 for t in new.tenants):
        return "no [[tenant]] has a key_sha256, so nobody could call any more"
    return ""
