"""The interference matrix on the wire: a point a victim and reason, its cells in two attributes.

The point's value is the sum of its cells, so that any OTLP consumer reads something sensible.
`tenantscope.holders` lists who held, `tenantscope.holders_s` the seconds of each, in that order. A
tenant is written `tenant:NAME`, the others by their bare kind (`self`, `capacity`, `policy`,
`others`): a tenant of such a name meets none of them. Cells that do not fit that form go as points
of their own (`attributes` of all the keys), as all did once. Pure; both directions are here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite
from operator import attrgetter
from typing import Any

from telemetry.conventions import HOLDER_KINDS, NAMESPACE, TENANT, Column
from telemetry.otlp import protobuf_bytes as pb
from telemetry.otlp.read import LONGEST_NAME, Refused, number, shown
from telemetry.records import InterferenceMinute

VICTIM, REASON = f"{NAMESPACE}.victim", f"{NAMESPACE}.reason"
HOLDERS, HOLDERS_S = f"{NAMESPACE}.holders", f"{NAMESPACE}.holders_s"
ROUNDING = 1e-9  # a difference of sums may be that far below zero, or (relative) from the total
_PREFIX = f"{TENANT}:"
_OTHER_KINDS = frozenset(HOLDER_KINDS) - {TENANT}
_CELL = attrgetter("bucket_start", "victim", "reason", "holder_kind", "holder", "charged_s")
# Field numbers of NumberDataPoint, KeyValue, AnyValue and ArrayValue.
_POINT_ATTRIBUTES, _KEY, _VALUE, _STRING, _DOUBLE, _ARRAY, _VALUES = 7, 1, 2, 1, 4, 5, 1
_ONE_DOUBLE = pb.opened(_VALUES, 9) + pb.fixed64_tag(_DOUBLE)

Cell = tuple[str, str]  # kind, holder
Cells = dict[Cell, float]
Group = tuple[float, str, str]  # bucket_start, victim, reason


def gather(rows: Iterable[InterferenceMinute]) -> dict[Group, Cells]:
    """The cells of each victim and reason; of one key twice the later."""
    groups: dict[Group, Cells] = {}
    for start, victim, reason, kind, holder, seconds in map(_CELL, rows):
        if seconds is None:
            continue
        key = (start, victim, reason)
        cells = groups.get(key)
        if cells is None:
            cells = groups[key] = {}
        cells[kind, holder] = seconds
    return groups


class Writer:
    """Makes the attributes of points; remembers how a holder is written. For one request."""

    def __init__(self) -> None:
        self._holders: dict[Cell, bytes | None] = {}
        self._texts: dict[tuple[str, str], bytes] = {}

    def whole(self, victim: str, reason: str, cells: Cells) -> tuple[bytes, float] | None:
        """(attributes, value) of one point for all `cells`; None when they do not fit one."""
        known = self._holders
        holders = []
        for cell in cells:
            one = known.get(cell)
            if one is None:
                one = known[cell] = _written(*cell)
                if one is None:
                    return None
            holders.append(one)
        seconds = list(cells.values())
        if min(seconds) < 0:
            seconds = [0.0 if -ROUNDING < s < 0 else s for s in seconds]
        total = sum(seconds)
        if not isfinite(total) or min(seconds) < 0:
            return None
        parts = _ONE_DOUBLE + _ONE_DOUBLE.join(pb.eights("d", seconds))
        return (
            self._text(VICTIM, victim)
            + self._text(REASON, reason)
            + _array_attribute(HOLDERS, b"".join(holders))
            + _array_attribute(HOLDERS_S, parts),
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


def _array_attribute(name: str, values: bytes) -> bytes:
    array = pb.field(_VALUE, pb.field(_ARRAY, values))
    return pb.field(_POINT_ATTRIBUTES, pb.text(_KEY, name) + array)


def _written(kind: str, holder: str) -> bytes | None:
    if kind == TENANT:
        return pb.field(_VALUES, pb.text(_STRING, _PREFIX + holder))
    if kind in _OTHER_KINDS and not holder:
        return pb.field(_VALUES, pb.text(_STRING, kind))
    return None


class Reader:
    """Reads points back; remembers the holders it met. For one request."""

    def __init__(self) -> None:
        self._holders: dict[str, Cell] = {}

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

    def _cell(self, text: str) -> Cell:
        if text.startswith(_PREFIX):
            cell = TENANT, _bounded(text[len(_PREFIX) :])
        elif text in _OTHER_KINDS:
            cell = text, ""
        else:
            raise Refused(f"holder {shown(text)}: expected {_PREFIX}NAME, self, capacity, ...")
        self._holders[text] = cell
        return cell


def rows_of(groups: dict[Group, Cells], keys: dict[str, Any]) -> Iterator[InterferenceMinute]:
    """A row a cell. `keys` are those of the delivery: bucket_s, engine, run_id, pool."""
    for (start, victim, reason), cells in groups.items():
        for (kind, holder), seconds in cells.items():
            yield InterferenceMinute(
                bucket_start=start,
                victim=victim,
                reason=reason,
                holder_kind=kind,
                holder=holder,
                charged_s=seconds,
                **keys,
            )


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if value is None or value.WhichOneof("value") != "string_value":
        raise Refused(f"a point without {name}")
    return _bounded(value.string_value)


def _bounded(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise Refused(f"a name of {len(name)} characters: expected at most {LONGEST_NAME}")
    return name


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
