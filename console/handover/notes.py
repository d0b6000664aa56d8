"""An operator's note onto the timeline: beside the pool's open incident, else on the pool itself.

Owns which store is asked and how long it may take; what becomes of a note the store says.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from console.handover.hand import Place
from console.once import newest_incident
from telemetry.alerts.incident import LONGEST_NOTE
from telemetry.errors import StoreError

PATIENCE_S = 10.0


def checked(text: str) -> str:
    """Raises ValueError for what is no note."""
    said = " ".join(text.split())
    if not said:
        raise ValueError("an empty note says nothing: write it, or leave with esc")
    if len(said) > LONGEST_NOTE:
        raise ValueError(f"a note of {len(said)} characters: {LONGEST_NOTE} are kept at most")
    return said


def write_note(place: Place | None, pool: str, who: str, text: str) -> str:
    """Have it written; a sentence that says where. Raises StoreError with what to do."""
    from telemetry.source import open_source
    from telemetry.store import upkeep

    if place is None or place.recorded:
        raise StoreError("what is shown is a record: a note needs a store that is written to")
    where = store_of(place.where)
    check_closed(where, place.write_notes)
    source = open_source(where)
    try:
        incident = newest_incident(source, time.time(), pool)
    finally:
        source.close()
    given: dict[str, Any] = {"who": who, "text": text}
    if incident is not None:
        _perform(where, upkeep.NOTE, incident=incident, **given)
        return f"noted on {incident}"
    _perform(where, upkeep.REMARK, pool=pool, **given)
    return f"noted on pool {pool or '(without a name)'}: no incident is open"


def store_of(where: str) -> str:
    """Where the store itself answers. Raises StoreError where only an engine's memory does."""
    from telemetry.source import STORE_SOCKET, WORKER_SOCKET, live_addresses

    live = live_addresses(where)
    if not live:
        if where.endswith(WORKER_SOCKET):
            raise StoreError("a worker's memory takes no notes: look at its store (--store)")
        return where
    stores = [a for a in live if not a.endswith(WORKER_SOCKET)]
    if not stores:
        raise StoreError(f"no store answers there ({STORE_SOCKET}): a note needs one")
    return stores[0]


def check_closed(where: str, write_notes: bool) -> None:
    """Raises StoreError for files that were only to be looked at: a note would change them."""
    from telemetry.service import listen

    if listen.is_address(where):
        return
    import sample_incidents

    samples = Path(sample_incidents.__file__).resolve().parent
    if samples in Path(os.path.realpath(where)).parents:
        raise StoreError(
            f"{where} is a sample that ships: it takes no notes. Copy it elsewhere to write into it"
        )
    if not write_notes:
        raise StoreError(
            f"{where} is closed, no process answers for it: a note would be written into its "
            "files. Start the console with --write-notes to have it so"
        )


def _perform(where: str, act: str, **parameters: Any) -> None:
    """As `upkeep.perform`, but a store that hangs is not waited for for an hour."""
    from telemetry.service import listen
    from telemetry.service.client import StoreClient
    from telemetry.store import upkeep

    if not listen.is_address(where):
        upkeep.perform(where, act, **parameters)
        return
    client = StoreClient(where)
    try:
        client.maintain(act, PATIENCE_S, **parameters)
    finally:
        client.close()
