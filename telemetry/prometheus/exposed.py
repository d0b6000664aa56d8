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
EXPORT_SENT = _own(
    "store_export_sent", "counter", "Points or spans that a third party took.", "endpoint", "signal"
)
EXPORT_WAITING = _own(
    "store_export_waiting", "gauge", "Points or spans not yet taken.", "endpoint", "signal"
)
EXPORT_RETRIES = _own(
    "store_export_retries", "counter", "Requests sent again.", "endpoint", "signal"
)
EXPORT_DROPPED = _own(
    "store_export_dropped", "counter",
    "Points or spans lost on the way out: no_room, refused, rejected (in part), too_old, shutdown, "
    "fault.", "endpoint", "signal", "reason",
)  # fmt: skip
TRACES_LEFT_OUT = _own(
    "store_traces_left_out", "counter",
    "Requests without a trace: not in the ratio, or beyond the rate, or beyond always_rate.",
    "reason",
)  # fmt: skip
EXPORT_OVERRUN = _own(
    "store_export_overrun_rows", "counter",
    "Rows not exported: they came too fast, or for a time more than an hour away.",
)  # fmt: skip
INCIDENTS = _own(
    "store_incidents_open", "gauge", "Open incidents, the silenced ones among them.", "severity"
)
SILENCED = _own("store_incidents_silenced", "gauge", "Open incidents that nobody is told of.")
LOOKS = _own("store_alert_looks", "counter", "Times the rules were looked at.")
LOOK_FAILURES = _own(
    "store_alert_look_failures", "counter", "Looks at a pool, or writes, that failed."
)
LOOK_TIME = _own("store_alert_last_look_seconds", "gauge", "How long the last look took.")
TOLD = _own(
    "store_notifications", "counter",
    "Notifications by what became of them: delivered, failed after all tries, dropped by a full "
    "queue.", "target", "kind", "outcome",
)  # fmt: skip
UNTOLD = _own(
    "store_notifications_waiting", "gauge", "Notifications not yet delivered.", "target", "kind"
)
ALERTS: tuple[Family, ...] = (
    INCIDENTS, SILENCED, LOOKS, LOOK_FAILURES, LOOK_TIME, TOLD, UNTOLD,
)  # fmt: skip
OWN: tuple[Family, ...] = (
    HEARD, BUCKET_END, STARTED, LAST_INGEST, BATCHES, ROWS, REFUSED, LATE, NAMED, UNNAMED,
    EXPORT_SENT, EXPORT_WAITING, EXPORT_RETRIES, EXPORT_DROPPED, TRACES_LEFT_OUT, EXPORT_OVERRUN,
    *ALERTS,
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
