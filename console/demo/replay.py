"""`tenantscope demo --replay`: a recorded run in the console. No torch, no model, no engine."""

from __future__ import annotations

from pathlib import Path

INCIDENT = "five-pm-fanout"


def play_recording(store: Path | None, speed: float, interactive: bool) -> None:
    """Play the shipped incident, or any store, as if it were live. Raises StoreError where there
    is no store."""
    from console.command import opening
    from console.demo import watch
    from console.sight import ReplayEdge

    if store is None:
        from sample_incidents import incident_path

        store = incident_path(INCIDENT) / "store"
    opened = opening(str(store))
    opened().close()  # a folder that is none is said at once
    feed = watch.sight(opened, ReplayEdge(speed))
    if not interactive:
        watch.play_lines(feed, speed)
        return
    from console.act.desk import Desk

    closed = Desk(closed_why="read-only: a recorded run cannot be changed")
    watch.watch_screen(watch.screen(feed, None, closed))
