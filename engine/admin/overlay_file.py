"""The file that keeps an overlay over a restart. Owns its bytes; knows no change's meaning.

Written whole beside itself and put in place at once, so that a crash leaves the old one or the new
one. Only its owner may read it: it says who is limited and why.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.admin.errors import OverlayLost
from engine.admin.overlay import Overlay

NAME = "operator.json"
_LARGEST = 16 << 20


class OverlayFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Overlay:
        """An empty overlay when there is no file. Raises OverlayLost."""
        try:
            if self.path.stat().st_size > _LARGEST:
                raise OverlayLost(f"{self.path} is larger than {_LARGEST >> 20} MiB: {_WAY_OUT}")
            return Overlay.load(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Overlay()
        except OSError as e:
            raise OverlayLost(f"{self.path} cannot be read: {e.strerror}") from None
        except (ValueError, RecursionError) as e:
            raise OverlayLost(
                f"{self.path} holds no operator's changes ({e}): {_WAY_OUT}"
            ) from None

    def write(self, overlay: Overlay) -> None:
        """On the disk when this returns. Raises OverlayLost; the file is then what it was."""
        draft = self.path.with_name(self.path.name + ".draft")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(fd, "w", encoding="utf-8") as f:
                f.write(overlay.dump())
                f.flush()
                os.fsync(f.fileno())
            os.replace(draft, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as e:
            raise OverlayLost(
                f"{self.path} cannot be written ({e.strerror}), so a change would not outlive a "
                "restart: nothing was changed"
            ) from None

    def set_aside(self) -> Path:
        """Move a file that is no overlay out of the way; returns where it lies now."""
        aside = self.path.with_name(self.path.name + ".damaged")
        os.replace(self.path, aside)
        return aside


_WAY_OUT = "the changes in it are lost to this engine; move the file away, or mend it, and restart"
