"""The tables, derived from the row dataclasses. Owns names, columns and DDL; runs no SQL."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from telemetry import records
from telemetry.conventions import Column, Emitter, Kind


@dataclass(frozen=True, slots=True)
class Table:
    """One stored table. `key` names the columns that identify a row; `log` rows never merge by
    column, a re-delivered one replaces itself."""

    name: str
    row: type[Any]
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    log: bool

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def ddl(self) -> str:
        """CREATE TABLE, with the delivery marks that ingest keeps beside the minute tables."""
        parts = [f'"{c.name}" {c.sql}' for c in self.columns]
        if not self.log:
            parts += [f'"{e.value}_mark" BIGINT' for e in (Emitter.FRONT, Emitter.WORKER)]
            parts.append('"provisional" BOOLEAN')
        return f'CREATE TABLE IF NOT EXISTS "{self.name}" ({", ".join(parts)})'


def _columns(row: type[Any]) -> tuple[Column, ...]:
    return tuple(
        Column(
            f.name,
            f.metadata["sql"],
            f.metadata["kind"],
            f.metadata["unit"],
            f.metadata["meaning"],
            f.metadata["emitter"],
        )
        for f in fields(row)
    )


def _minute(name: str, row: type[Any]) -> Table:
    columns = _columns(row)
    return Table(name, row, tuple(c.name for c in columns if c.kind is Kind.KEY), columns, False)


def _log(name: str, row: type[Any], *own_key: str) -> Table:
    return Table(name, row, ("engine", "run_id", "pool", *own_key), _columns(row), True)


TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        _minute("tenant_minute", records.TenantMinute),
        _minute("interference_minute", records.InterferenceMinute),
        _minute("adapter_minute", records.AdapterMinute),
        _minute("engine_minute", records.EngineMinute),
        _log("request", records.RequestRecord, "request_id"),
        _log("event", records.EventRecord, "event_id"),
        _log("policy", records.PolicyRecord, "version"),
        _log("step_sample", records.StepSample, "step"),
        _log("engine_run", records.EngineRun),
        _log("adapter", records.AdapterRecord, "adapter", "name"),
        _log("foreign_metric", records.ForeignMetric, "at", "metric", "attributes"),
        _log("series_state", records.SeriesState, "metric", "attributes", "start_ns"),
    )
}

TABLE_OF: dict[type[Any], Table] = {t.row: t for t in TABLES.values()}
