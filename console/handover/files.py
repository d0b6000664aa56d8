"""Files that a console leaves behind: private, never over another one, whole or not at all.

Owns their names and how they come to be; knows nothing of what is in them. Errors are OSErrors that
name the file.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from pathlib import Path

MOST_POOL = 40  # characters of a pool's name in a file's
MOST_TRIES = 1000
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def file_name(what: str, pool: str | None, at: float, form: str, tz: tzinfo | None = None) -> str:
    """tenantscope-main-heat-20261129-170641.csv: of which pool, what, and of when (`at`, unix
    seconds). A pool's name is data: of it letters, digits, dots and dashes are left."""
    said = _PLAIN.sub("_", pool or "")[:MOST_POOL].strip("._") or "pool"
    when = datetime.fromtimestamp(at, tz).strftime("%Y%m%d-%H%M%S")
    return f"tenantscope-{said}-{what}-{when}.{form}"


@contextmanager
def placed(folder: Path, name: str) -> Iterator[tuple[Path, list[Path]]]:
    """A path to write to, in a folder that only this user can look into; and a list to which the
    file's place is added once it is whole. What is there already is never replaced: the file is
    then called -2, -3 and so on. Where something is raised nothing is left."""
    private = Path(tempfile.mkdtemp(prefix=".tenantscope-", dir=folder))  # 0700
    try:
        done: list[Path] = []
        draft = private / name
        yield draft, done
        os.chmod(draft, 0o600)
        done.append(_linked(draft, folder, name))
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _linked(draft: Path, folder: Path, name: str) -> Path:
    stem, dot, form = name.rpartition(".")
    for n in range(1, MOST_TRIES):
        target = folder / (name if n == 1 else f"{stem}-{n}{dot}{form}")
        try:
            os.link(draft, target)
        except FileExistsError:
            continue
        return target
    raise OSError(errno.EEXIST, f"{MOST_TRIES} files of this name are there", str(folder / name))


def write(folder: Path, name: str, text: str) -> Path:
    """Write text (UTF-8) to a new file; returns its place. Raises OSError, and leaves nothing."""
    with placed(folder, name) as (draft, done):
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    return done[0]


def why(error: OSError, folder: Path) -> str:
    """A sentence: what could not be written, why, what to do."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = "make room, or start the console in another folder"
    else:
        fix = "start the console in a folder that you can write to"
    return f"nothing was written to {folder}: {reason}; {fix}"
