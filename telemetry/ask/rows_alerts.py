"""The rows of the queries that alerts ask, as types. Owns the declarations; runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AlertAdapters:
    """A row of `alert_adapters`."""

    loads: int | None
    reloads: int | None
    working_bytes: int | None
    room_bytes: float | None


@dataclass(frozen=True, slots=True)
class AlertEngines:
    """A row of `alert_engines`."""

    engine: str
    first_s: float | None
    last_s: float | None
    observed_s: float | None
    near_observed_s: float | None
    token_age_s: float | None
    bucket_s: float


@dataclass(frozen=True, slots=True)
class AlertEvents:
    """A row of `alert_events`."""

    at_s: float
    kind: str
    event_id: str
    pool: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class AlertPools:
    """A row of `alert_pools`."""

    engine: str
    pool: str
    last_s: float | None
    stopped_s: float | None


@dataclass(frozen=True, slots=True)
class AlertTenants:
    """A row of `alert_tenants`."""

    tenant: str
    missed: int | None
    eligible: int | None
    service: float | None
    waited_s: float | None
    adapter_s: float | None
    backlogged_s: float | None
    weight: float | None
    near_missed: int | None
    near_eligible: int | None
    near_service: float | None
    near_waited_s: float | None
    near_adapter_s: float | None
    near_backlogged_s: float | None
    near_weight: float | None
    near_there: bool | None


ALERT_ROWS: dict[str, type[Any]] = {
    "alert_adapters": AlertAdapters,
    "alert_engines": AlertEngines,
    "alert_events": AlertEvents,
    "alert_pools": AlertPools,
    "alert_tenants": AlertTenants,
}
