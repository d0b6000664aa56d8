"""The cache folder: where it is, and files in it that are whole or not there. Downloads nothing."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.errors import ModelError

_READ_BYTES = 1 << 20


def cache_folder(cache_dir: Path | None = None) -> Path:
    """`cache_dir`, else $TENANTSCOPE_CACHE, else $XDG_CACHE_HOME/tenantscope, else ~/.cache/…
    Raises ModelError for a user without a home."""
    if cache_dir is not None:
        return cache_dir
    if own := os.environ.get("TENANTSCOPE_CACHE"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "tenantscope"
    try:
        return Path.home() / ".cache" / "tenantscope"
    except RuntimeError:  # HOME is not set, and the system does not know this user
        raise ModelError(
            "this user has no home folder to keep a model in: set TENANTSCOPE_CACHE to a folder "
            "that may be written"
        ) from None


def make_folder(folder: Path) -> Path:
    """Create it. Raises ModelError naming the folder and the variable that moves it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ModelError(
            f"cannot create the cache folder {folder} ({e.strerror}); "
            "set TENANTSCOPE_CACHE to a folder that can be written"
        ) from None
    return folder


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while chunk := f.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def locked(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock; the system releases it when a holder dies. `on_wait` tells why.

    None is held of a folder that may only be read: who cannot write has nothing to keep others
    from, and what others write comes whole."""
    try:
        opened = (folder / ".lock").open("w")
    except OSError as e:
        if e.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        yield
        return
    with opened as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers see all or none."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_sealed(path: Path, write: Callable[[Path], None]) -> None:
    """`write_atomic`, with a digest beside the file, so that a damaged one is noticed."""

    def sealed(temporary: Path) -> None:
        write(temporary)
        digest = sha256_of(temporary)
        write_atomic(_seal(path), lambda seal: void(seal.write_text(digest)))

    write_atomic(path, sealed)


def is_whole(path: Path) -> bool:
    """Whether a sealed file is there and matches its digest."""
    try:
        return _seal(path).read_text().strip() == sha256_of(path)
    except OSError:
        return False


def void(_: object) -> None:
    """Drop a result where a callable must return nothing."""


def _seal(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
