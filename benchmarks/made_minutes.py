"""Tenant-minutes made by DuckDB, many millions in seconds. Owns how they look; measures nothing.

Numbers hang together as a ledger's do (service is of tokens, waits of requests) and have the
spread of measured ones: seconds with all their digits, histograms with a few buckets filled.
"""

from __future__ import annotations

from telemetry.conventions import LATENCY_BOUNDS_S, Kind
from telemetry.instants import day_start
from telemetry.store import sql
from telemetry.tables import TABLES

ENGINE = {"engine": "bench", "run_id": "r1", "pool": "main"}
MINUTE_S = 60.0
BUCKETS = len(LATENCY_BOUNDS_S) + 1
SPREAD = 8  # neighbouring buckets that a histogram's first one lies in


def tenant_name(number: int) -> str:
    return f"tenant-{number:05}"


def chance(salt: int) -> str:
    """A double in [0, 1) of the row, with all its digits."""
    return f"((hash(minute * 1000003 + tenant_number + {salt} * 7919) % 1000003) / 1000003.0)"


def histogram(salt: int) -> str:
    """`r` observations in two neighbouring buckets. A list of cells: a lambda over a list takes
    ten times as long."""
    first = f"CAST(3 + floor({SPREAD} * {chance(salt)}) AS BIGINT)"
    cells = [
        f"CASE WHEN {first} = {i} THEN r - r // 3 WHEN {first} = {i - 1} THEN r // 3 ELSE 0 END"
        if 3 <= i <= 3 + SPREAD
        else "CAST(0 AS BIGINT)"
        for i in range(BUCKETS)
    ]
    return f"[{', '.join(cells)}]"


PROMPT, OUTPUT = "(r * 400 + hash(minute, tenant_number) % 200)", "(r * 120 + minute % 90)"
SAID = {
    "offered_requests": "r", "admitted_requests": "r", "finished": "r", "adapter_lookups": "r",
    "slo_eligible": "r", "found_device": "r - r // 5", "found_host": "r // 5",
    "slo_met": "r - r // 9", "slo_missed": "r // 9", "slo_missed_ttft": "r // 9",
    "offered_tokens": "r * 800", "admitted_tokens": "r * 800",
    "prompt_tokens": PROMPT, "output_tokens": OUTPUT, "goodput_tokens": f"{OUTPUT} // 2",
    "cached_tokens": "r * 60", "service": f"CAST({PROMPT} + 2 * {OUTPUT} AS DOUBLE)",
    "observed_seconds": "60.0", "weight": "1.0", "policy_version": "1.0",
    "quota_rpm_level": "60.0 - r", "concurrency_in_use": "CAST(r % 4 AS DOUBLE)",
}  # fmt: skip


def insert_tenants(
    day: str, tenants: int, minutes: int, requests_a_minute: float | None, first: int = 0
) -> str:
    """Fill a day's tenant_minute, from its minute `first` to before `minutes`. `requests_a_minute`
    of the pool are spread over its tenants as Zipf has it, and who has none in a minute has no row;
    None: everybody has some in every one."""
    if requests_a_minute is None:
        requests = f"CAST(1 + floor(20 * {chance(1)}) AS BIGINT)"
    else:
        harmonic = sum(1.0 / k for k in range(1, tenants + 1))
        mean = f"({requests_a_minute / harmonic} / (tenant_number + 1))"
        requests = f"CAST(floor({mean} + {chance(1)}) AS BIGINT)"
    table = TABLES["tenant_minute"]
    columns = []
    for salt, column in enumerate(table.columns, 2):
        if column.kind is not Kind.KEY:
            columns.append(
                f'{_value(column.name, column.kind, column.sql, salt)} AS "{column.name}"'
            )
    names = " || ".join(["'tenant-'", "lpad(CAST(tenant_number AS VARCHAR), 5, '0')"])
    return f"""
        INSERT INTO {sql.in_part(day, table.name)} BY NAME
        SELECT {_keys(day)}, {names} AS tenant, {", ".join(columns)}, {_marks()}
        FROM (SELECT minute, tenant_number, {requests} AS r
              FROM range({first}, {minutes}) AS a(minute), range({tenants}) AS b(tenant_number))
        WHERE r > 0 ORDER BY minute, tenant_number"""


def insert_engine(day: str, minutes: int, first: int = 0) -> str:
    return f"""
        INSERT INTO {sql.in_part(day, "engine_minute")} BY NAME
        SELECT {_keys(day)}, 1500 AS steps, 50.0 AS busy_s, 60.0 AS observed_seconds, {_marks()}
        FROM range({first}, {minutes}) AS a(minute)"""


def copy_day(source: str, days: int, target: str) -> str:
    """The closed day `source`, so many days earlier, as another file."""
    return (
        f"COPY (SELECT * REPLACE (bucket_start - to_days({days}) AS bucket_start) "
        f"FROM {source}) TO {target} (FORMAT parquet, COMPRESSION zstd)"
    )


def _value(name: str, kind: Kind, type_: str, salt: int) -> str:
    if name in SAID:
        return SAID[name]
    if kind is Kind.HIST:
        return histogram(salt)
    if kind is Kind.SUM and type_ == "BIGINT":
        return "CAST(0 AS BIGINT)"  # what seldom happens: rejected, aborted, evicted
    return f"r * {chance(salt)}"


def _keys(day: str) -> str:
    start_us = int(day_start(day) * 1e6)
    said = ", ".join(f"'{value}' AS {name}" for name, value in ENGINE.items())
    return (
        f"make_timestamp({start_us} + minute * 60000000) AS bucket_start, "
        f"{MINUTE_S} AS bucket_s, {said}"
    )


def _marks() -> str:
    return (
        f"CAST({sql.SEALED_MARK} AS BIGINT) + minute AS front_mark, "
        f"CAST({sql.SEALED_MARK} AS BIGINT) + minute AS worker_mark, false AS provisional"
    )
