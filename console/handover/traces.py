"""A window's requests as a trace file: a track a tenant, a slice a part of a request's life.

Owns where the file goes; what is in it `telemetry.ask.perfetto` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from console.handover import files


@dataclass(frozen=True, slots=True)
class Traced:
    """What was written: how many requests, and what could not be read."""

    path: Path
    requests: int
    partial: tuple[str, ...]


def write_trace(where: str, folder: Path, name: str, start: float, end: float) -> Traced:
    """Write the requests, minutes and events of [start, end) (unix seconds). Raises StoreError and
    OSError, and leaves nothing then."""
    from telemetry.ask.export import PERFETTO, export
    from telemetry.source import open_source

    source = open_source(where)
    try:
        with files.placed(folder, name) as (draft, done):
            made = export(source, PERFETTO, draft, start=start, end=end)
    finally:
        source.close()
    return Traced(done[0], made.rows.get("request", 0), made.partial)
