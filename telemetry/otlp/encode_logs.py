"""Log rows as the bytes of log records. Pure; opens no socket and no file.

A request's row has sixty attributes, and an object for each costs more than all else that is done
with it. Bytes stand in the order of the fields' numbers, as the official classes write them.
"""

from __future__ import annotations

import struct
from functools import cache
from operator import attrgetter
from typing import Any

from telemetry.conventions import NAMESPACE, metric_name
from telemetry.instants import INSTANT_OF_LOG, micros
from telemetry.otlp import protobuf_bytes as pb
from telemetry.records import LogRow
from telemetry.tables import TABLE_OF, Table

# Field numbers of LogRecord, KeyValue and AnyValue.
_TIME, _ATTRIBUTES, _EVENT_NAME, _KEY, _VALUE = 1, 6, 12, 1, 2
_STRING, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4
_RECORDS = 2  # of ScopeLogs
_DOUBLE_BYTES = 9
_SHORT = 64  # bytes of a value: how such an attribute begins is remembered
_ONE = struct.Struct("<d")
_SIGNED, _UNSIGNED = 1 << 63, 1 << 64


def log_record(row: LogRow, left_out: frozenset[str]) -> bytes:
    """The row as a field `log_records`; columns in `left_out` and absent values are not in it.

    Raises ValueError for text that UTF-8 cannot carry and for whole numbers beyond 64 bits.
    """
    table = TABLE_OF[type(row)]
    values_of, begun, event_name = _layout(table, left_out)
    parts = []
    if table.name in INSTANT_OF_LOG:
        at_ns = micros(getattr(row, INSTANT_OF_LOG[table.name])) * 1000
        if at_ns:
            parts.append(pb.fixed64(_TIME, at_ns))
    for (sql, key, double, heads), value in zip(begun, values_of(row), strict=True):
        if value is None:
            continue
        if sql == "DOUBLE":
            parts.append(double)
            parts.append(_ONE.pack(value))
        else:
            content = _content(micros(value) if sql == "TIMESTAMP" else value)
            size = len(content)
            head = heads.get(size)
            if head is None:
                head = _head(key, size)
                if size < _SHORT:
                    heads[size] = head
            parts.append(head)
            parts.append(content)
    parts.append(event_name)
    return pb.field(_RECORDS, b"".join(parts))


def _head(key: bytes, size: int) -> bytes:
    """The beginning of an attribute whose value, of `size` bytes, follows."""
    value = pb.opened(_VALUE, size)
    return pb.opened(_ATTRIBUTES, len(key) + len(value) + size) + key + value


def _content(value: Any) -> bytes:
    """An AnyValue."""
    if isinstance(value, bool):
        return pb.whole(_BOOL, int(value))
    if isinstance(value, int):
        if not -_SIGNED <= value < _SIGNED:
            raise ValueError(f"{value} does not fit 64 bits")
        return pb.whole(_INT, value if value >= 0 else value + _UNSIGNED)
    if isinstance(value, float):
        return pb.fixed64_tag(_DOUBLE) + _ONE.pack(value)
    return pb.text(_STRING, value)


@cache
def _layout(table: Table, left_out: frozenset[str]) -> tuple[Any, Any, bytes]:
    """What reads the columns of a row, how each attribute begins, and the event's name."""
    columns = [c for c in table.columns if c.name not in left_out]
    begun = []
    for column in columns:
        key = pb.text(_KEY, metric_name(table.name, column.name))
        double = _head(key, _DOUBLE_BYTES) + pb.fixed64_tag(_DOUBLE)
        heads: dict[int, bytes] = {}
        begun.append((column.sql, key, double, heads))
    event_name = pb.text(_EVENT_NAME, f"{NAMESPACE}.{table.name}")
    return attrgetter(*(c.name for c in columns)), begun, event_name
