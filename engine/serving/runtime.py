"""The runtime folder of one `serve`: made, and cleared away. Owns no process.

Sockets and launch files lie there; only its owner may enter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from engine.admin import base_file
from engine.serving.process import ServeError

LONGEST_SOCKET_PATH = 100  # the kernel's own limit is 107 bytes
_LONGEST_NAME = len(os.fsencode("/worker.sock"))


def make_runtime_dir(given: Path | None) -> Path:
    """A folder only its owner may enter, with a path short enough for unix sockets. Raises
    ServeError for a given one that is too long."""
    if given is not None:
        given.mkdir(mode=0o700, parents=True, exist_ok=True)
        given.chmod(0o700)
        folder = Path(os.path.realpath(given))
    else:
        parent = tempfile.gettempdir()
        made = len(os.fsencode(parent)) + len("/tenantscope-12345678") + _LONGEST_NAME
        if made > LONGEST_SOCKET_PATH:
            parent = "/tmp"
        folder = Path(tempfile.mkdtemp(prefix="tenantscope-", dir=parent))
    if len(os.fsencode(folder)) + _LONGEST_NAME > LONGEST_SOCKET_PATH:
        raise ServeError(
            f"the runtime folder {folder} is too long for unix sockets "
            f"({LONGEST_SOCKET_PATH - _LONGEST_NAME} bytes at most): choose a shorter one"
        )
    return folder


def clear(folder: Path, *, whole: bool) -> None:
    """Remove what a `serve` left there, and the folder itself where it is `whole` its own."""
    if whole:
        shutil.rmtree(folder, ignore_errors=True)
        return
    files = ("launch*.json", f"{base_file.NAME}*")
    for pattern in (*files, "worker.sock", "w[0-9]*.sock", "store.sock", "admin.sock"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
