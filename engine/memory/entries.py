"""What residency knows of one adapter, and the check that its lists agree. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.memory.host import HostCopies
from engine.memory.moves import LoadOrder, Place
from engine.memory.pool import PagePool


@dataclass(slots=True, eq=False)
class Entry:
    """One adapter that is known."""

    key: str
    pages_needed: int
    place: Place = Place.DISK
    stamp: int = 0  # when it went out of use, by the pool's count
    rested_s: float = 0.0  # and by the clock
    last_tenant: str | None = None
    pinned: bool = False  # fetched ahead for a head of the queue
    evicted_by: str | None = None
    evicted_s: float | None = None
    order: LoadOrder | None = None  # while it is loading
    ordered_s: float = 0.0
    broken: str | None = None
    broken_s: float = 0.0


def check_entries(
    entries: Mapping[str, Entry],
    loading: Mapping[str, Entry],
    pinned: Mapping[str, Entry],
    idle: Mapping[str, Entry],
    pool: PagePool,
    host: HostCopies,
) -> tuple[int, int]:
    """Evictable and pinned pages, counted afresh. Raises ValueError naming the first adapter whose
    state is not what the lists, the pool or the host copies say."""
    idle_pages = kept_pages = resident = 0
    for key, e in entries.items():
        there = e.place in (Place.LOADING, Place.DEVICE, Place.DRAINING)
        resident += there
        if there and len(pool.adapter_pages(key)) != e.pages_needed:
            raise ValueError(f"adapter {key} needs {e.pages_needed} pages and has others")
        if (e.order is not None) != (key in loading) or e.pinned != (key in pinned):
            raise ValueError(f"adapter {key}: its load or its pin is not what the lists say")
        if e.place is Place.LOADING and e.order is None:
            raise ValueError(f"adapter {key} is loading without an order")
        if e.place is Place.DRAINING and e.order is None and not pool.references(key):
            raise ValueError(f"adapter {key} drains, and nobody uses it")
        if e.place in (Place.HOST, Place.LOADING) and key not in host:
            raise ValueError(f"adapter {key} is said to be in host memory, and is not")
        if e.place is Place.DISK and key in host:
            raise ValueError(f"adapter {key} is said to be on disk only, and has a host copy")
        rests = e.place is Place.DEVICE and not pool.references(key)
        if (rests and not e.pinned) != (key in idle):
            raise ValueError(f"adapter {key} can be evicted, or is listed so, but not both")
        idle_pages += e.pages_needed if key in idle else 0
        kept_pages += e.pages_needed if e.pinned and (rests or e.place is Place.LOADING) else 0
    if resident != pool.resident_adapters:
        raise ValueError(f"{pool.resident_adapters} adapters hold pages, {resident} are there")
    listed = (("loading", loading), ("pinned", pinned), ("idle", idle), ("copied", host))
    for name, keys in listed:
        if strangers := set(keys) - entries.keys():
            raise ValueError(f"adapter {min(strangers)} is {name}, and not known")
    stamps = [e.stamp for e in idle.values()]
    if stamps != sorted(stamps):
        raise ValueError("adapters that can be evicted are out of order")
    return idle_pages, kept_pages
