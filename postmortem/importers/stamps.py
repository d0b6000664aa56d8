"""Instants as logs write them, to unix seconds: ISO with or without a zone, and s, ms, us, ns.

Owns what a number's unit is taken for, and says what it took. Reads no file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import UTC, datetime, tzinfo

from postmortem.importers.logged import BadLine

UNITS: dict[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
# A count since 1970 tells its own unit: seconds are below 1e11 until the year 5138, and above 1e8
# since 1973; each finer unit lies a thousandfold higher.
_FROM_S, _TO_S = 1e8, 1e11
_FRACTION = re.compile(r"(\.\d{6})\d+")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
LATEST = 9e9  # March 2255: a store takes no later one


class Stamps:
    """Turns a log's stamps into unix seconds and counts what they looked like.

    `unit` None = told from each number's size. `zone` is of stamps that name none. `origin` is
    the instant that numbers too small to be instants count from.
    """

    def __init__(self, unit: str | None, zone: tzinfo | None, origin: float) -> None:
        self._unit = unit
        self._zone = zone or UTC
        self._zone_named = zone is not None
        self._origin = origin
        self.seen: Counter[str] = Counter()

    def read(self, value: object, where: str) -> float:
        """Unix seconds. Raises BadLine naming the value."""
        if isinstance(value, bool) or value is None or value == "":
            raise BadLine(f"{where}: instant {value!r}: expected a time")
        if isinstance(value, datetime):
            return self._dated(value, where)
        text = str(value).strip()
        if not isinstance(value, int | float) and not _NUMBER.fullmatch(text):
            return self._iso(text, where)
        # A whole number of nanoseconds has 19 digits; a float keeps 16.
        whole = int(text) if re.fullmatch(r"[+-]?\d{1,400}", text) else None
        number = float(text)
        if not math.isfinite(number):
            raise BadLine(f"{where}: instant {text[:60]!r}: expected a finite number")
        return self._number(number, whole, text, where)

    def _number(self, number: float, whole: int | None, text: str, where: str) -> float:
        unit = self._unit or _unit_of(number)
        relative = unit is None or abs(number) / UNITS[unit] < _FROM_S
        unit = unit or "s"
        per_s = UNITS[unit]
        at = number / per_s if whole is None else whole // int(per_s) + whole % int(per_s) / per_s
        if relative:
            self.seen[f"{unit} from a beginning"] += 1
            at += self._origin
        else:
            self.seen[f"{unit} since 1970"] += 1
        if not 0 <= at <= LATEST:
            raise BadLine(
                f"{where}: instant {text[:60]}: {at:.6g} s lies before 1970 or after March 2255"
            )
        return at

    def _iso(self, text: str, where: str) -> float:
        # Python reads six digits of a second; a log may write nine.
        try:
            at = datetime.fromisoformat(_FRACTION.sub(r"\1", text.replace(",", ".", 1)))
        except ValueError:
            raise BadLine(
                f"{where}: instant {text[:60]!r}: expected ISO (2026-11-29T17:00:00Z), or a number "
                "of s, ms, us or ns"
            ) from None
        return self._dated(at, where)

    def _dated(self, at: datetime, where: str) -> float:
        if at.tzinfo is None:
            self.seen["ISO without a zone"] += 1
            at = at.replace(tzinfo=self._zone)
        else:
            self.seen["ISO with a zone"] += 1
        unix_s = at.timestamp()
        if not 0 <= unix_s <= LATEST:
            raise BadLine(f"{where}: instant {at.isoformat()} lies before 1970 or after March 2255")
        return unix_s

    @property
    def relative(self) -> int:
        """Stamps that counted from a beginning instead of naming an instant."""
        return sum(n for kind, n in self.seen.items() if kind.endswith("from a beginning"))

    def notes(self) -> list[str]:
        """What was taken for what."""
        out = []
        if len(self.seen) > 1:
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.seen.most_common())
            out.append(f"the stamps are of several kinds: {kinds}")
        if self.seen["ISO without a zone"] and not self._zone_named:
            out.append("stamps without a zone were read as UTC (--zone says another)")
        if self.relative:
            began = datetime.fromtimestamp(self._origin, UTC).isoformat()
            out.append(f"stamps that count from 0 were put after {began} (--from says another)")
        return out


def _unit_of(number: float) -> str | None:
    """The unit a count since 1970 is in, by its size; None where it is too small for one."""
    for unit, per_s in UNITS.items():
        if _FROM_S * per_s <= abs(number) < _TO_S * per_s:
            return unit
    return None
