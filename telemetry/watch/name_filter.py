"""A person's regular expression over names, that cannot hang. Owns the bounds; knows no rows.

Python's matcher backtracks: `(a+)+$` takes for ever on thirty letters. So a pattern is measured
before it is used: how many ways it may try a name, from how its parts may stretch. What could try
too many is refused with the reason; what is left is matched against a clock as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from telemetry.errors import QueryError

LONGEST_PATTERN = 200
LONGEST_NAME = 256  # characters of a name that are looked at
MOST_WAYS = 70_000  # two stretches of any length, one after the other
MOST_SECONDS = 0.5  # for the names of one frame that were not met before
_MOST_REMEMBERED = 100_000
_ATOMS = frozenset(
    {sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.CATEGORY, sre.RANGE, sre.AT, sre.NEGATE}
)


class NameFilter:
    """`text` is searched for in each name; a leading `!` keeps the names without it. Not shared
    between threads."""

    def __init__(self, text: str, clock: Callable[[], float]) -> None:
        """`clock` counts seconds. Raises QueryError naming the pattern and what is wrong."""
        self.text = text
        self._wanted = not text.startswith("!")
        self._clock = clock
        self._known: dict[str, bool] = {}
        self._pattern = _compile(text.removeprefix("!"))

    def keeps(self, names: Sequence[str]) -> list[bool]:
        """For each name whether it stays. Raises QueryError when that takes too long."""
        known = self._known
        if len(known) > _MOST_REMEMBERED:
            known.clear()
        started = self._clock()
        found = []
        for name in names:
            kept = known.get(name)
            if kept is None:
                hit = self._pattern.search(name[:LONGEST_NAME]) is not None
                kept = known[name] = hit is self._wanted
                if self._clock() - started > MOST_SECONDS:
                    raise QueryError(
                        f"filter {self.text!r} takes longer than {MOST_SECONDS:g} s over the "
                        "tenants' names: use a simpler one"
                    )
            found.append(kept)
        return found


def _compile(text: str) -> re.Pattern[str]:
    if len(text) > LONGEST_PATTERN:
        raise QueryError(
            f"filter {text[:40]!r}...: {len(text)} characters, {LONGEST_PATTERN} at most"
        )
    try:
        ways = _ways(parser.parse(text))
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as e:
        raise QueryError(
            f"filter {text!r} is no regular expression ({e}); names are data: escape with \\"
        ) from None
    if ways > MOST_WAYS:
        raise QueryError(
            f"filter {text!r} may try a name in too many ways: use no repeat inside a repeat, at "
            "most two of * and +, no back-reference and no look-around"
        )
    return pattern


def _ways(pattern: Any) -> float:
    """At most how many ways a sequence may be matched from one place of a name."""
    ways = 1.0
    for op, argument in pattern:
        ways *= _ways_of(op, argument)
    return ways


def _ways_of(op: Any, argument: Any) -> float:
    if op in _ATOMS:
        return 1.0
    if op is sre.SUBPATTERN:
        return _ways(argument[-1])
    if op is sre.BRANCH:
        return sum(_ways(branch) for branch in argument[1])
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, body = argument
        most = min(int(high), LONGEST_NAME)
        inside = _ways(body)
        if inside > 1.0:
            # Each round may go another way: two ways, seventeen times over, are too many already.
            return min(inside, MOST_WAYS + 1.0) ** min(most, 17)
        return float(most - min(int(low), most) + 1)
    return float("inf")  # back-references, look-around, conditions: not measured, not taken
