"""What a batch is handed to, and what is counted of those that were. A protocol and values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from telemetry.records import Batch


@dataclass(frozen=True, slots=True)
class ExporterStats:
    """Requests and bytes since the start. `lost` were given up (bound reached, or could never be
    encoded or accepted), `superseded` were open buckets that a newer state replaced."""

    sent: int = 0
    sent_bytes: int = 0
    lost: int = 0
    superseded: int = 0
    refused_points: int = 0
    retries: int = 0
    queued: int = 0
    queued_bytes: int = 0
    last_ack_unix_s: float | None = None
    last_error: str = ""


class Outlet(Protocol):
    """What the ledger and the front hand their batches to."""

    def submit(self, batch: Batch) -> None: ...
