"""Writes a draft when an incident closes. Owns what was written already; a look is one call.

Which incidents there are comes from the store's own events where its process judges alerts, else
from looking for them as `find` does. A draft that is there is never written over: people edit it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from postmortem.find import find_incidents
from postmortem.report.model import Report
from telemetry.alerts.incident import incident_id
from telemetry.alerts.state import recall
from telemetry.errors import StoreBusy, StoreUnreachable, TelemetryError
from telemetry.incidents import JOIN_BUCKETS
from telemetry.source import Source

BEFORE_S = 600.0  # an alert comes after the onset: the draft begins so long before it
AFTER_S = 120.0
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


@dataclass(frozen=True, slots=True)
class Closed:
    """An incident that is over, and the window that its draft is about."""

    id: str
    pool: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Draft:
    """What became of it: `path` None = it could not be made, `why` says so."""

    closed: Closed
    path: Path | None
    why: str = ""


def closed_since(
    source: Source, since: float, now: float, pool: str | None = None
) -> tuple[Closed, ...]:
    """Incidents that ended in [since, now], oldest first. Raises StoreError as reading does."""
    known = list(recall(source, now).incidents.values())
    if known:
        found = [
            Closed(i.id, i.pool, i.first_seen - BEFORE_S, i.resolved_at + AFTER_S)
            for i in known
            if i.resolved_at is not None and since <= i.resolved_at <= now
        ]
    else:
        first, heard = _told(source, since, now)
        found = [
            Closed(incident_id(c.pool, c.onset), c.pool, c.onset - side, c.end + side)
            for c in (find_incidents(source, first, heard, pool=pool) if first < heard else ())
            if not c.ongoing and c.end + JOIN_BUCKETS * c.bucket_s <= heard
            for side in (3 * c.bucket_s,)
        ]
    mine = [c for c in found if pool is None or c.pool == pool]
    return tuple(sorted(mine, key=lambda c: (c.start, c.id)))


def _told(source: Source, since: float, now: float) -> tuple[float, float]:
    """The part of [since, now] of which the store has rows: nothing is closed by what is not there
    yet, and looking through months without rows takes minutes."""
    span = source.span()
    return (since, now) if span is None else (max(since, span[0]), min(now, span[1]))


class Watch:
    """`make` makes the report on a closed incident, `render` its text."""

    def __init__(
        self,
        folder: Path,
        ending: str,
        make: Callable[[Source, Closed], Report],
        render: Callable[[Report], str],
        *,
        since: float,
        pool: str | None = None,
    ) -> None:
        self._folder, self._ending = folder, ending
        self._make, self._render = make, render
        self._since, self._pool = since, pool
        self._done: set[str] = set()

    def look(self, source: Source, now: float) -> list[Draft]:
        """Drafts of the incidents that closed since the last look. One that cannot be made is told
        once; the others are made all the same. Raises StoreError where the store cannot answer,
        OSError where the folder cannot be written."""
        out: list[Draft] = []
        for c in closed_since(source, self._since, now, self._pool):
            path = self._folder / f"{file_name(c)}.{self._ending}"
            if c.id in self._done or path.exists():
                continue
            try:
                made = self._make(source, c)
            except (StoreBusy, StoreUnreachable):
                raise  # of the store, not of this incident
            except TelemetryError as e:
                self._done.add(c.id)
                out.append(Draft(c, None, str(e)))
                continue
            _write(path, self._render(made))
            self._done.add(c.id)
            out.append(Draft(c, path))
        return out


def file_name(closed: Closed) -> str:
    """The incident's id, where that is a name for a file; rows are data, and may say anything."""
    return closed.id if _SAFE.fullmatch(closed.id) else incident_id(closed.pool, closed.start)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and never over another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        return  # somebody else watches too: theirs stands
    finally:
        draft.unlink(missing_ok=True)
