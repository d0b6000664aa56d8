"""Files of a store that cannot be read: moved aside, and told of until a person takes them away.

Owns the folder `quarantine/` inside a store; decides nothing about what is corrupt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from telemetry.store.parts import Part

FOLDER = "quarantine"
EVERYTHING = "all tables"
_ASIDE = re.compile(
    r"(?P<part>\d{4}-\d{2}-\d{2}|runs)\.(?P<kind>duckdb|(?P<table>\w+)\.parquet)\.\d+"
)


@dataclass(frozen=True, slots=True)
class Aside:
    """One file moved aside: a table's, or (None) a day file, of which `lacks` says what is lost."""

    part: str
    table: str | None
    path: Path
    lacks: str

    @property
    def sentence(self) -> str:
        return f"{self.part}: {self.lacks} before the damage (moved to {FOLDER}/{self.path.name})"


def move(
    folder: Path, path: Path, part: str, table: str | None, lacks: str, error: Exception
) -> Aside:
    """Move a file of the part aside, its write-ahead log with it; beside it is left what is lost
    with it, and the reason."""
    where = folder / FOLDER
    where.mkdir(exist_ok=True)
    stem = f"{part}.duckdb" if table is None else f"{part}.{table}.parquet"
    number = 1
    while (aside := where / f"{stem}.{number}").exists():
        number += 1
    path.rename(aside)
    wal = path.with_name(f"{path.name}.wal")
    if wal.exists():
        wal.rename(where / f"{aside.name}.wal")
    _why(aside).write_text(f"{lacks}\n{error}\n", encoding="utf-8")
    return Aside(part, table, aside, lacks)


def listed(folder: Path) -> list[Aside]:
    """What stands aside in a store's folder, by name."""
    try:
        names = sorted(path.name for path in (folder / FOLDER).iterdir())
    except OSError:
        return []
    found = [(name, _ASIDE.fullmatch(name)) for name in names]
    return [_aside(m, folder / FOLDER / n) for n, m in found if m is not None]


def _aside(name: re.Match[str], path: Path) -> Aside:
    if name["table"] is not None:
        return Aside(name["part"], name["table"], path, name["table"])
    try:
        lacks = _why(path).read_text(encoding="utf-8").splitlines()[0]
    except (OSError, ValueError, IndexError):
        lacks = EVERYTHING
    return Aside(name["part"], None, path, lacks)


def _why(aside: Path) -> Path:
    return aside.with_name(f"{aside.name}.why.txt")


def partial(folder: Path, start: float, end: float) -> tuple[str, ...]:
    """What an answer about [start, end) lacks, a sentence a file."""
    return tuple(a.sentence for a in listed(folder) if Part(a.part).touches(start, end))
