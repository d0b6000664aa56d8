"""The file that has the settings as they were read again last, for workers that are started later.

It lies in the runtime folder for the life of one `serve`; without a reload there is none. No digest
of a key is in it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from engine.config import Settings, load_settings
from engine.errors import ConfigError

NAME = "settings.json"


class BaseFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, settings: Settings) -> None:
        """Whole or not at all. Raises ConfigError; there is no file then, rather than an old one:
        who starts without one is told as soon as it answers."""
        draft = self.path.with_name(self.path.name + ".draft")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
                f.write(settings.without_keys().dump())
            os.replace(draft, self.path)
        except OSError as e:
            self.forget()
            raise ConfigError(f"{self.path} cannot be written ({e.strerror})") from None

    def read(self) -> Settings | None:
        """None where nothing was read again."""
        try:
            return load_settings(self.path.read_text())
        except OSError:
            return None

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
