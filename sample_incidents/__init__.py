"""Where the recorded incidents lie: one folder each, with a workload, a page and a store."""

from __future__ import annotations

from pathlib import Path

MARK = "workload.toml"  # what makes a folder an incident


class IncidentError(Exception):
    """No incident has that name; lists those there are."""


def list_incidents() -> tuple[str, ...]:
    """Names of the incidents that ship, in order."""
    home = Path(__file__).parent
    return tuple(sorted(p.name for p in home.iterdir() if (p / MARK).is_file()))


def incident_path(name: str) -> Path:
    """The folder of one incident. Raises IncidentError for an unknown name."""
    known = list_incidents()
    if name not in known:
        there = ", ".join(known) if known else "none"
        raise IncidentError(f"no incident is called {name!r} (there are: {there})")
    return Path(__file__).parent / name
