"""The row by which a sender tells what it gave up: kind "lost", its value the batches. Pure."""

from __future__ import annotations

from dataclasses import replace

from telemetry.otlp.encode import encode
from telemetry.plain import safe
from telemetry.records import Batch, EventRecord

_LONGEST_REASON = 200


def told(who: Batch, sender: str, before: int, count: int, why: str, at: float) -> bytes | None:
    """The encoded row of a sender whose newest batch is `who`: after `before` batches that it told
    of already, it gave up `count`. `sender` tells one process's rows from another's. Raises what
    encoding raises, for an identity that cannot be encoded."""
    emitter = who.emitter.value
    row = EventRecord(
        engine=who.engine,
        run_id=who.run_id,
        pool=who.pool,
        event_id=f"lost-{emitter}-{sender}-{before}",
        at=at,
        kind="lost",
        detail=safe(f"the {emitter} gave up {count} batches: {why[:_LONGEST_REASON]}"),
        value=float(count),
    )
    _, data = encode(replace(who, sealed=True, minutes=(), logs=(row,)))
    return data
