"""Data points as the bytes protobuf itself writes. Owns where things stand in them; no vocabulary.

An object a point costs more than all else that is done with one. Protobuf writes fields in the
order of their numbers, so a point of ours begins with its bounds and its value, and what follows
says whose it is: columns of one table differ in the eight bytes of each value, and in nothing else.
A point of another form is `None` here: its reader looks at the object.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.otlp import protobuf_bytes as pb

# A point: 11 start:8 19 end:8, then of a number 21 double:8 or 31 integer:8.
HEAD, VALUE, REST = 18, 19, 27
DOUBLE, WHOLE = 0x21, 0x31
BOUNDS_NS = struct.Struct("<xQxQ")
ONE_DOUBLE = struct.Struct("<d")
_POINTS, _START, _END, _COUNT = 0x0A, 0x11, 0x19, 0x21
_BUCKETS = len(LATENCY_BOUNDS_S) + 1
_OPENED = pb.opened(6, 8 * _BUCKETS)
_EXPLICIT_BOUNDS = pb.field(7, pb.packed("d", LATENCY_BOUNDS_S))
_COUNTS = struct.Struct(f"<{_BUCKETS}Q")
_INT64 = 1 << 63
_EIGHT = np.arange(8)

Span = tuple[int, int]


def length(raw: bytes, at: int) -> Span:
    """(a length, where what is that long begins) of the varint at `at`."""
    value = raw[at]
    if value < 0x80:
        return value, at + 1
    value, shift = value & 0x7F, 7
    while True:
        at += 1
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7


def spans(raw: bytes) -> list[Span]:
    """Where each point of a gauge, sum or histogram begins and ends."""
    found = []
    at, size = 0, len(raw)
    while at < size and raw[at] == _POINTS:
        value = raw[at + 1]
        if value < 0x80:
            begin = at + 2
        else:
            value, begin = length(raw, at + 1)
        at = begin + value
        found.append((begin, at))
    return found


def is_bounded(raw: bytes, begin: int, end: int) -> bool:
    """Whether the point begins with its bounds and something of nine bytes."""
    return end - begin >= REST and raw[begin] == _START and raw[begin + 9] == _END


class Counted(NamedTuple):
    counts: tuple[int, ...]
    rest: int  # where whose they are begins


def counted(raw: bytes, begin: int, end: int) -> Counted | None:
    """Counts over the vocabulary's bounds that add up to the point's own count."""
    if not is_bounded(raw, begin, end):
        return None
    at, count = begin + HEAD, 0
    if raw[at] == _COUNT:
        count = int.from_bytes(raw[at + 1 : at + 9], "little")
        at += 9
    if not raw.startswith(_OPENED, at, end):
        return None
    at += len(_OPENED)
    rest = at + _COUNTS.size + len(_EXPLICIT_BOUNDS)
    if rest > end or not raw.startswith(_EXPLICIT_BOUNDS, at + _COUNTS.size):
        return None
    counts = _COUNTS.unpack_from(raw, at)
    if sum(counts) != count or count >= _INT64:
        return None
    return Counted(counts, rest)


@dataclass(frozen=True, slots=True)
class Layout:
    """A metric's bytes without its values, and the row each of its points is of."""

    blank: bytes
    at: Any  # where each value stands: an array of integers
    rows: list[int]

    def fits(self, raw: bytes) -> bool:
        """Whether `raw`, as long as `blank`, is the same but for the values."""
        return without_values(raw, self.at) == self.blank


def without_values(raw: bytes, at: Any) -> bytes:
    emptied = np.frombuffer(raw, dtype=np.uint8).copy()
    emptied[at[:, None] + _EIGHT] = 0
    return emptied.tobytes()


def values_at(raw: bytes, at: Any, *, whole: bool) -> Any:
    """The values that stand there, as an array."""
    eights = np.frombuffer(raw, dtype=np.uint8)[at[:, None] + _EIGHT]
    return eights.view("<i8" if whole else "<f8")[:, 0]
