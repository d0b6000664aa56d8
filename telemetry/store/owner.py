"""Who owns a store's folder, and where it answers. Owns LOCK and LIVE.json; reads no rows.

The lock is the kernel's and dies with its process, so a killed owner leaves nothing to clean up;
LIVE.json counts only while the lock is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import StoreBusy

LOCK, LIVE = "LOCK", "LIVE.json"
# A reader that asks for the owner holds the lock, shared, for microseconds.
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Live:
    """A store process that answers."""

    pid: int
    address: str


class Lock:
    """The right to write into one store folder. Held until `release`, or until the process ends."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreBusy naming the owner."""
        self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    pid = _read_pid(folder)
                    os.close(self._fd)
                    raise StoreBusy(busy_message(folder, pid)) from None
                time.sleep(0.02)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def busy_message(folder: Path, pid: int | None) -> str:
    who = f"process {pid}" if pid else "another process"
    return (
        f"the store {folder} is in use by {who}: stop that process (where it is a serve's, stop "
        "the serve: it would start it again), wait for it to end, or choose another folder"
    )


def _read_pid(folder: Path) -> int | None:
    try:
        return int((folder / LOCK).read_text().strip())
    except (OSError, ValueError):
        return None


def owned(folder: Path) -> bool:
    """Whether a live process holds the store."""
    try:
        fd = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def owner_pid(folder: Path) -> int | None:
    """Process id of the live owner; None when there is none, or it left no id."""
    return _read_pid(folder) if owned(folder) else None


def announce(folder: Path, address: str) -> None:
    """Say where this process, which holds the lock, answers. Atomic. Raises OSError."""
    draft = folder / f".{LIVE}.{os.getpid()}"
    try:
        draft.write_text(json.dumps({"pid": os.getpid(), "address": address}))
        draft.replace(folder / LIVE)
    finally:
        draft.unlink(missing_ok=True)


def withdraw(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        (folder / LIVE).unlink()


def find_live(folder: Path) -> Live | None:
    """The store process that answers for a folder, if there is one."""
    try:
        raw = json.loads((folder / LIVE).read_text())
        live = Live(int(raw["pid"]), str(raw["address"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return live if owner_pid(folder) == live.pid else None
