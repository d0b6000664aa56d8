"""A store copied while it is written into, and brought back. Owns the backup's form and its check.

Writing stops only while the open parts, today and the runs, are copied: each as its file and
write-ahead log, as a kill would leave them. Closed parts never change in place, so they are held by
hard links and copied afterwards. `backup.json` is written last: without it a backup is none.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask.reading import Result
from telemetry.errors import StoreError
from telemetry.store import migrations, parts, sql
from telemetry.store.retention import SETTINGS

if TYPE_CHECKING:
    from telemetry.store.store import Store

INDEX = "backup.json"
_FORMAT = 1
_TARS = (".tar", ".tar.gz", ".tgz")
COLUMNS = ("part", "files", "bytes")


def back_up(store: Store, target: Path | str, now_unix_s: float) -> Result:
    """Copy the store into a new folder, or a tar file (`.tar`, `.tar.gz`): a row a part.

    Raises StoreError when the target is there already, or cannot be written: nothing stands under
    its name then.
    """
    target = Path(target)
    _check_target(target)
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as e:
        raise StoreError(f"cannot write beside {target}: {e.strerror}") from None
    held = Path(tempfile.mkdtemp(prefix=".", suffix=".backup", dir=store.folder))
    try:
        with store.still(f"{store.folder} cannot be backed up to {target}") as shelf:
            for part in shelf.parts.values():
                _hold(part, draft, held)
        settings = store.folder / SETTINGS
        if settings.exists():
            shutil.copyfile(settings, draft / SETTINGS)
        shutil.copytree(held, draft, dirs_exist_ok=True)
        index = _index(draft, now_unix_s)
        (draft / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        _finish(draft, target)
    except shutil.Error as e:  # of many files: one reason says it
        why = str(e.args[0][0][2]) if e.args and e.args[0] else str(e)
        raise StoreError(f"{store.folder} cannot be backed up to {target}: {why}") from e
    except OSError as e:
        raise StoreError(f"{store.folder} cannot be backed up to {target}: {e}") from e
    finally:
        shutil.rmtree(held, ignore_errors=True)
        shutil.rmtree(draft, ignore_errors=True)
    return _summary(index)


def restore(backup: Path | str, folder: Path | str) -> Result:
    """Bring a backup back as a store in a new folder: a row a part.

    Raises StoreError when the folder is not empty, when the backup is not whole, and when a file of
    it is not what was backed up: nothing is left in the folder then.
    """
    source, folder = Path(backup), Path(folder)
    parts.check_path(folder)
    parts.check_outside(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder} is not empty: restore into a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as e:
        raise StoreError(f"cannot write beside {folder}: {e.strerror}") from None
    try:
        with _unpacked(source, folder.parent) as unpacked:
            index = _read_index(unpacked, source)
            for name, said in index["files"].items():
                _bring(unpacked / name, draft / name, said, source)
        _sync_all(draft)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
        parts.sync(folder.parent)
    except (OSError, tarfile.TarError) as e:
        raise StoreError(f"{source} cannot be restored into {folder}: {e}") from e
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _summary(index)


def _check_target(target: Path) -> None:
    parts.check_outside(target)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StoreError(f"{target} is there already: back up to a new folder or tar file")
    if not target.parent.is_dir():
        raise StoreError(f"{target.parent} is not a folder: make it first")


def _hold(part: parts.Part, draft: Path, held: Path) -> None:
    """Have the part as it is now: an open one copied, a closed one by links to its files."""
    if part.file is not None:
        for file in (part.file, part.file.with_name(f"{part.file.name}.wal")):
            if file.exists():
                shutil.copyfile(file, draft / file.name)
        return
    assert part.folder is not None
    (held / part.name).mkdir()
    for file in (*part.folder.glob("*.parquet"), *part.folder.glob(migrations.MANIFEST)):
        try:
            os.link(file, held / part.name / file.name)
        except OSError:  # a file system without links
            shutil.copyfile(file, held / part.name / file.name)


def _index(draft: Path, now_unix_s: float) -> dict[str, Any]:
    files = sorted(p for p in draft.rglob("*") if p.is_file())
    return {
        "format": _FORMAT,
        "store_version": migrations.current(),
        "taken_unix_s": now_unix_s,
        "files": {
            str(p.relative_to(draft)): {"bytes": p.stat().st_size, "sha256": _hash(p)}
            for p in files
        },
    }


def _finish(draft: Path, target: Path) -> None:
    """Put the whole draft under the target's name, in one step."""
    if not target.name.endswith(_TARS):
        _sync_all(draft)
        draft.chmod(0o700)
        if target.exists():
            target.rmdir()
        draft.rename(target)
        parts.sync(target.parent)
        return
    packed = draft.with_name(f"{draft.name}.tar")
    try:
        plain = target.name.endswith(".tar")
        with tarfile.open(packed, "w") if plain else tarfile.open(packed, "w:gz") as tar:
            for path in sorted(draft.rglob("*")):
                tar.add(path, str(path.relative_to(draft)), recursive=False)
        packed.chmod(0o600)
        parts.sync(packed)
        packed.rename(target)
        parts.sync(target.parent)
    finally:
        packed.unlink(missing_ok=True)


@contextmanager
def _unpacked(source: Path, beside: Path) -> Iterator[Path]:
    """The backup as a folder. Of a tar only plain files below it are taken."""
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise StoreError(f"{source} is no backup: expected a folder or a tar file")
    with tempfile.TemporaryDirectory(prefix=".restore.", dir=beside) as folder:
        try:
            with tarfile.open(source) as tar:
                tar.extractall(folder, filter="data")
        except (tarfile.ReadError, EOFError, zlib.error, lzma.LZMAError) as e:
            said = str(e).splitlines()[0].rstrip(":")
            raise StoreError(
                f"{source} is no whole tar file ({said}): use another backup"
            ) from None
        yield Path(folder)


def _read_index(folder: Path, source: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        known = index["format"] == _FORMAT
        for name, said in index["files"].items():
            if not _is_name(name) or {"bytes", "sha256"} - set(said):
                raise StoreError(f"{source}: {name!r} in {INDEX} is no file of a store")
    except FileNotFoundError:
        raise StoreError(
            f"{source} has no {INDEX}: it is no backup, or one that was cut short"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise StoreError(f"{source}: {INDEX} cannot be understood: {e}") from None
    if not known or index.get("store_version", 0) > migrations.current():
        raise StoreError(f"{source} was written by a newer program: restore it with that one")
    return index


def _is_name(name: str) -> bool:
    """Whether a name of the index is a file that a store may have, below its folder."""
    first, *rest = name.split("/")
    if not rest:
        stem = first.removesuffix(".wal").removesuffix(".duckdb")
        return first == SETTINGS or (first != stem and sql.is_part(stem))
    is_file = rest[0] == migrations.MANIFEST or rest[0].removesuffix(".parquet").isidentifier()
    return len(rest) == 1 and sql.is_part(first) and is_file


def _bring(source: Path, target: Path, said: dict[str, Any], backup: Path) -> None:
    if not source.is_file():
        raise StoreError(f"{backup} lacks {source.name}: it is not whole; use another backup")
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    if target.stat().st_size != said["bytes"] or _hash(target) != said["sha256"]:
        raise StoreError(
            f"{backup}: {source.name} is not what was backed up (its hash differs): "
            "use another backup"
        )


def _summary(index: dict[str, Any]) -> Result:
    files: dict[str, list[int]] = defaultdict(list)
    for name, said in index["files"].items():
        part = name.split("/")[0].split(".")[0]
        files[part].append(said["bytes"])
    return Result(COLUMNS, tuple((p, len(b), sum(b)) for p, b in sorted(files.items())))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        parts.sync(path)
    parts.sync(folder)
