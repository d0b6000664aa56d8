"""Keeps Python's cycle collector out of the way of steps. Owns its settings for that long only.

A request's objects are freed when it ends, by their reference counts; the collector finds next to
nothing and still walks over everything that is under way, again and again. While a run lasts it
leaves alone what was there before, and looks a hundred times less often at what came since: what
does stand in a cycle is freed all the same.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 100_000  # objects made, less those freed, before the youngest are looked at


@contextmanager
def few_collections() -> Iterator[None]:
    """Undone at the end, as it was found; what others have frozen stays so."""
    before = gc.get_threshold()
    frozen = gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    if gc.isenabled() and before[0]:
        gc.set_threshold(max(YOUNG, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
