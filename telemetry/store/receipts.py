"""What a store says of what it took. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from telemetry.otlp.decode import Decoded


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one request: rows merged; points or records refused and why, kept apart as
    foreign, known already, or a baseline that later points are counted from. `committed` is what
    the store holds now that it did not before, as who follows it wants to hear it."""

    rows: int
    refused: int = 0
    reasons: tuple[str, ...] = ()
    accepted: int = 0
    kept: int = 0
    repeated: int = 0
    baselines: int = 0
    committed: Decoded = field(default_factory=Decoded)


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """Counts since the store was opened; `last_ingest_unix_s` is 0 before the first batch."""

    path: str
    pid: int
    batches: int
    rows: int
    refused_points: int
    last_ingest_unix_s: float
    unknown_points: int = 0
    repeated_points: int = 0
    baseline_points: int = 0
