"""What Prometheus shows: every family's name, type, labels and help. Values; shows nothing itself.

The families of columns follow from `telemetry.records`; the few that speak of the exposing process
itself are declared here, for no row has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from telemetry.conventions import (
    NAMESPACE,
    PROMETHEUS_PREFIX,
    Column,
    Kind,
    prometheus_name,
    prometheus_type,
)
from telemetry.tables import TABLES

LABELS: dict[str, tuple[str, ...]] = {
    "tenant_minute": ("engine", "pool", "tenant"),
    "engine_minute": ("engine", "pool"),
    "interference_minute": ("engine", "pool", "reason", "holder_kind", "holder"),
}
OTHER = "other"  # every tenant without a series of its own, together


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `name` has no `_total`; samples of counters do."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    column: Column | None = None

    @property
    def sample(self) -> str:
        """The name that a query uses."""
        return {"counter": f"{self.name}_total", "histogram": f"{self.name}_bucket"}.get(
            self.type, self.name
        )

    @property
    def unit(self) -> str:
        """The unit that OpenMetrics may state: the one the name ends with."""
        return next((u for u in ("seconds", "bytes") if self.name.endswith(f"_{u}")), "")


def _own(name: str, kind: str, help_text: str, *labels: str) -> Family:
    return Family(f"{NAMESPACE}_{name}", kind, help_text, labels)


HEARD = _own(
    "engine_heard_timestamp_seconds", "gauge",
    "When the pool's worker was last heard, by the store's clock.", "engine", "pool",
)  # fmt: skip
BUCKET_END = _own(
    "engine_observed_until_timestamp_seconds", "gauge",
    "Until when the pool was observed, by the engine's clock.", "engine", "pool",
)  # fmt: skip
STARTED = _own("store_start_timestamp_seconds", "gauge", "When the store process began to count.")
LAST_INGEST = _own(
    "store_last_ingest_timestamp_seconds", "gauge", "When the last delivery was committed."
)
BATCHES = _own("store_batches", "counter", "Deliveries committed.")
ROWS = _own("store_rows", "counter", "Rows committed.")
REFUSED = _own("store_refused_points", "counter", "Points and records refused: they fit no column.")
LATE = _own(
    "store_uncounted_rows", "counter",
    "Rows in the store that these totals leave out: for a time more than an hour away.",
)  # fmt: skip
NAMED = _own("store_named_tenants", "gauge", "Tenants that have series of their own.")
UNNAMED = _own(
    "store_unnamed_tenants", "gauge",
    "Tenants that were among the first of a bucket and found no free name: they are in 'other'.",
)  # fmt: skip
OWN: tuple[Family, ...] = (
    HEARD, BUCKET_END, STARTED, LAST_INGEST, BATCHES, ROWS, REFUSED, LATE, NAMED, UNNAMED,
)  # fmt: skip


@cache
def families_of(table: str) -> tuple[Family, ...]:
    """The families of a table's columns, in the columns' order."""
    found = []
    for column in TABLES[table].columns:
        name, kind = prometheus_name(table, column), prometheus_type(column.kind)
        if name is not None and kind is not None:
            found.append(Family(name, kind, help_of(column), LABELS[table], column))
    return tuple(found)


@cache
def families() -> tuple[Family, ...]:
    """All of them, those of the store process last."""
    return (*(f for table in PROMETHEUS_PREFIX for f in families_of(table)), *OWN)


def help_of(column: Column) -> str:
    """The meaning, as a sentence that says what kind of number it is."""
    tail = {
        Kind.AVG: " Average of the newest bucket.",
        Kind.MAX: " Maximum of the newest bucket.",
        Kind.LAST: " As last heard.",
    }.get(column.kind, "")
    return f"{column.meaning[:1].upper()}{column.meaning[1:]}.{tail}"
