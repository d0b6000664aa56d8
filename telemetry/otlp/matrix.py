"""The interference matrix on the wire: a point a victim and reason, its cells in two attributes.

The point's value is the sum of its cells, so that any OTLP consumer reads something sensible.
`tenantscope.holders` lists who held, `tenantscope.holders_s` the seconds of each, in that order. A
tenant is written `tenant:NAME`, the others by their bare kind (`self`, `capacity`, `policy`,
`others`): a tenant of such a name meets none of them. Cells that do not fit that form go as points
of their own (`attributes` of all the keys), as all did once. Pure; both directions are here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from telemetry.conventions import HOLDER_KINDS, NAMESPACE, TENANT, Column
from telemetry.otlp import points
from telemetry.otlp import protobuf_bytes as pb
from telemetry.otlp.charges import Cell, Cells, Group
from telemetry.otlp.read import LONGEST_NAME, Refused, bounded, number, shown
from telemetry.records import InterferenceMinute

VICTIM, REASON = f"{NAMESPACE}.victim", f"{NAMESPACE}.reason"
HOLDERS, HOLDERS_S = f"{NAMESPACE}.holders", f"{NAMESPACE}.holders_s"
ROUNDING = 1e-9  # a difference of sums may be that far below zero, or (relative) from the total
_PREFIX = f"{TENANT}:"
_OTHER_KINDS = frozenset(HOLDER_KINDS) - {TENANT}
_GROUP = attrgetter("bucket_start", "victim", "reason")
_CELL, _SECONDS = attrgetter("holder_kind", "holder"), attrgetter("charged_s")
# Field numbers of NumberDataPoint, KeyValue, AnyValue and ArrayValue.
_POINT_ATTRIBUTES, _KEY, _VALUE, _STRING, _DOUBLE, _ARRAY, _VALUES = 7, 1, 2, 1, 4, 5, 1
_ONE_DOUBLE = pb.opened(_VALUES, 9) + pb.fixed64_tag(_DOUBLE)
# What the attributes of a point begin with, as bytes; an attribute of a number's point is 3A.
_ATTRIBUTE, _ELEMENT, _TEXT_VALUE, _ARRAY_VALUE = 0x3A, 0x0A, 0x0A, 0x2A
_LISTED = {name: pb.text(_KEY, name) + b"\x12" for name in (HOLDERS, HOLDERS_S)}
_DOUBLE_BYTES = len(_ONE_DOUBLE) + 8
_OF_TAGS = range(len(_ONE_DOUBLE))


def gather(rows: Iterable[InterferenceMinute]) -> dict[Group, Cells]:
    """The cells of each victim and reason; of one key twice the later."""
    groups: dict[Group, Cells] = {}
    for key, run in groupby(rows, _GROUP):
        some = list(run)
        cells = dict(zip(map(_CELL, some), map(_SECONDS, some), strict=True))
        if None in cells.values():
            cells = {_CELL(r): r.charged_s for r in some if r.charged_s is not None}
        if cells:
            groups.setdefault(key, {}).update(cells)
    return groups


class Writer:
    """Makes the attributes of points; remembers how a holder is written. For one request."""

    def __init__(self) -> None:
        self._holders: dict[Cell, bytes] = {}
        self._texts: dict[tuple[str, str], bytes] = {}

    def whole(self, victim: str, reason: str, cells: Cells) -> tuple[bytes, float] | None:
        """(attributes, value) of one point for all `cells`; None when they do not fit one."""
        known = self._holders
        try:
            holders = b"".join(map(known.__getitem__, cells))
        except KeyError:
            new = {cell: _written(*cell) for cell in cells if cell not in known}
            known.update({cell: one for cell, one in new.items() if one is not None})
            if None in new.values():
                return None
            holders = b"".join(map(known.__getitem__, cells))
        seconds = list(cells.values())
        if min(seconds) < 0:
            seconds = [0.0 if -ROUNDING < s < 0 else s for s in seconds]
        total = sum(seconds)
        if not isfinite(total) or min(seconds) < 0:
            return None
        tagged: list[Any] = [_ONE_DOUBLE] * (2 * len(seconds))
        tagged[1::2] = seconds
        parts = _tagged(len(seconds)).pack(*tagged)
        return (
            self._text(VICTIM, victim)
            + self._text(REASON, reason)
            + _array_begun(HOLDERS, len(holders))
            + holders
            + _array_begun(HOLDERS_S, len(parts))
            + parts,
            total,
        )

    def _text(self, name: str, value: str) -> bytes:
        made = self._texts.get((name, value))
        if made is None:
            made = self._texts[name, value] = text_attribute(name, value)
        return made


def text_attribute(name: str, value: str) -> bytes:
    """An attribute of a number's data point."""
    return pb.field(
        _POINT_ATTRIBUTES, pb.text(_KEY, name) + pb.field(_VALUE, pb.text(_STRING, value))
    )


@lru_cache(256)
def _tagged(count: int) -> struct.Struct:
    """So many elements of a list, each of its tag and the double."""
    return struct.Struct("<" + f"{len(_ONE_DOUBLE)}sd" * count)


@lru_cache(4096)  # lengths: of a few holders, mostly of like names
def _array_begun(name: str, length: int) -> bytes:
    """The beginning of a list's attribute, whose elements, of `length` bytes, follow."""
    array = pb.opened(_ARRAY, length)
    value = pb.opened(_VALUE, len(array) + length) + array
    key = pb.text(_KEY, name)
    return pb.opened(_POINT_ATTRIBUTES, len(key) + len(value) + length) + key + value


def _written(kind: str, holder: str) -> bytes | None:
    if kind == TENANT:
        return pb.field(_VALUES, pb.text(_STRING, _PREFIX + holder))
    if kind in _OTHER_KINDS and not holder:
        return pb.field(_VALUES, pb.text(_STRING, kind))
    return None


class Reader:
    """Reads points back; remembers the names it met. For one request."""

    def __init__(self) -> None:
        self._holders: dict[str, Cell] = {}
        self._written: dict[bytes, Cell] = {}
        self._texts: dict[bytes, tuple[str, str] | None] = {}

    def read(self, point: Any, column: Column) -> tuple[str, str, Cells] | None:
        """(victim, reason, cells) of a point; None for one that is a single cell.

        Raises Refused when the arrays are of different lengths, a second is no finite number from
        zero up, a holder is unknown or stands there twice, or the sum is not the point's value.
        """
        attributes = point.attributes
        found = {a.key: a.value for a in attributes}
        if HOLDERS not in found and HOLDERS_S not in found:
            return None
        if len(found) < len(attributes):
            raise Refused("a point with an attribute that stands there twice")
        victim, reason = _text(found, VICTIM), _text(found, REASON)
        known = self._holders
        texts = _array(found, HOLDERS, "string_value")
        cells = [known.get(text) or self._cell(text) for text in texts]
        seconds = _array(found, HOLDERS_S, "double_value")
        if len(cells) != len(seconds) or not cells:
            raise Refused(f"{len(cells)} holders and {len(seconds)} seconds: expected as many")
        total = sum(seconds)
        if not isfinite(total):
            raise Refused(f"seconds that add up to {total!r}: expected finite numbers")
        if min(seconds) < 0:
            raise Refused(f"{min(seconds)!r}: seconds cannot be negative")
        value = number(point, column)
        if abs(total - value) > ROUNDING * max(1.0, total):
            raise Refused(f"seconds add up to {total!r}, the value says {value!r}")
        read = dict(zip(cells, map(abs, seconds), strict=True))  # -0.0 is zero
        if len(read) < len(cells):
            raise Refused("a point with a holder that stands there twice")
        return victim, reason, read

    def read_bytes(self, raw: bytes, begin: int, end: int) -> tuple[str, str, Cells] | None:
        """What `read` makes of the point there; None unless it is right and in the form and order
        that a `Writer` gives it."""
        if not points.is_bounded(raw, begin, end) or raw[begin + points.HEAD] != points.DOUBLE:
            return None
        spans = []
        at = begin + points.REST
        while at < end and raw[at] == _ATTRIBUTE:
            size, at = points.length(raw, at + 1)
            spans.append((at, at + size))
            at += size
        if at != end or len(spans) != 4:
            return None
        victim = self._named(raw[slice(*spans[0])], VICTIM)
        reason = self._named(raw[slice(*spans[1])], REASON)
        cells = self._listed(_values(raw, *spans[2], HOLDERS))
        seconds = _doubles(_values(raw, *spans[3], HOLDERS_S))
        if victim is None or reason is None or not cells or len(cells) != len(seconds):
            return None
        total = sum(seconds)
        (value,) = points.ONE_DOUBLE.unpack_from(raw, begin + points.VALUE)
        if not isfinite(total) or min(seconds) < 0:
            return None
        if not abs(total - value) <= ROUNDING * max(1.0, total):  # nor of a NaN
            return None
        read = dict(zip(cells, map(abs, seconds), strict=True))  # -0.0 is zero
        return (victim, reason, read) if len(read) == len(cells) else None

    def _named(self, pair: bytes, name: str) -> str | None:
        """The text of an attribute of that name; None for another one, or one that is too long."""
        if pair not in self._texts:
            read = KeyValue.FromString(pair)
            text = read.value.string_value
            fits = read.value.WhichOneof("value") == "string_value" and len(text) <= LONGEST_NAME
            self._texts[pair] = (read.key, text) if fits else None
        named = self._texts[pair]
        return named[1] if named is not None and named[0] == name else None

    def _listed(self, values: bytes) -> list[Cell]:
        """The cells of the bytes of an array; empty when one is not as a `Writer` gives it."""
        known = self._written
        cells = []
        at, size = 0, len(values)
        while at < size:
            if values[at] != _ELEMENT:
                return []
            length = values[at + 1]
            if length < 0x80:
                after = at + 2 + length
            else:
                length, after = points.length(values, at + 1)
                after += length
            one = values[at:after]
            cell = known.get(one)
            if cell is None:
                cell = self._cell_of(one)
                if cell is None:
                    return []
                known[one] = cell
            cells.append(cell)
            at = after
        return cells

    def _cell_of(self, value: bytes) -> Cell | None:
        """The cell of one element of an array, all its bytes."""
        _, at = points.length(value, 1)
        if at >= len(value) or value[at] != _TEXT_VALUE:
            return None
        size, at = points.length(value, at + 1)
        if at + size != len(value):
            return None
        try:
            return self._cell(value[at:].decode())
        except Refused:
            return None  # `read` says why

    def _cell(self, text: str) -> Cell:
        if text.startswith(_PREFIX):
            cell = TENANT, bounded(text[len(_PREFIX) :])
        elif text in _OTHER_KINDS:
            cell = text, ""
        else:
            raise Refused(f"holder {shown(text)}: expected {_PREFIX}NAME, self, capacity, ...")
        self._holders[text] = cell
        return cell


def _values(raw: bytes, begin: int, end: int, name: str) -> bytes:
    """The elements, as bytes, of an attribute of that name that is an array; empty for another."""
    opened = _LISTED[name]
    if not raw.startswith(opened, begin, end):
        return b""
    size, at = points.length(raw, begin + len(opened))
    if at + size != end or not size or raw[at] != _ARRAY_VALUE:
        return b""
    size, at = points.length(raw, at + 1)
    return raw[at:end] if at + size == end else b""


def _doubles(values: bytes) -> tuple[float, ...]:
    """The numbers of the elements of an array; empty unless all are doubles."""
    count, rest = divmod(len(values), _DOUBLE_BYTES)
    form, *tags = _numbers(count)
    if rest or [values[i::_DOUBLE_BYTES] for i in _OF_TAGS] != tags:
        return ()
    return form.unpack(values)  # type: ignore[no-any-return]


@lru_cache(64)
def _numbers(count: int) -> tuple[Any, ...]:
    """How to read so many doubles, and what stands before them, byte by byte."""
    tags = (bytes([byte]) * count for byte in _ONE_DOUBLE)
    return struct.Struct("<" + f"{len(_ONE_DOUBLE)}xd" * count), *tags


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if value is None or value.WhichOneof("value") != "string_value":
        raise Refused(f"a point without {name}")
    return bounded(value.string_value)


def _array(found: dict[str, Any], name: str, kind: str) -> list[Any]:
    value = found.get(name)
    if value is None or value.WhichOneof("value") != "array_value":
        raise Refused(f"a point without {name}, a list")
    values = list(value.array_value.values)
    if kind == "double_value":
        read: list[Any] = [v.double_value for v in values]
    else:
        read = [v.string_value for v in values]
    # What is of another kind reads as nothing: only such values need a second look.
    for one, v in zip(read, values, strict=True):
        if not one and v.WhichOneof("value") != kind:
            raise Refused(f"{name} holds something else than {kind.partition('_')[0]}s")
    return read
