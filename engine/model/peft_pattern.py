"""Decides whether a regular expression out of an adapter's folder matches a module's name.

Python's own matcher may take exponential time over a hostile pattern, with the interpreter's lock
held: every tenant would wait. Here a set of positions moves through the pattern at once (Thompson,
"Regular expression search algorithm", 1968), as the bits of one int, and the steps are counted.
What a match is stays Python's: the pattern is parsed by `re`'s parser. Opens no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONGEST_PATTERN = 4096  # characters; nested deeper than Python recurses is refused as well
_PLAIN = re.compile(r"[A-Za-z0-9_.]+")
_MOST_NODES = 20_000
_MOST_STEPS = 5_000  # of one match, about 2 ms; a pattern of a real adapter takes some hundreds


class PatternError(ValueError):
    """The text is no regular expression, or uses what is not evaluated here; says which."""


# A node takes the positions where it may begin and gives those where it may end: bit i is the
# position before character i.
_Node = Callable[["_Name", int], int]


class _Name:
    """The text that is matched: which positions hold a character that passes a test."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.whole = (1 << (len(text) + 1)) - 1
        self._where: dict[int, int] = {}
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise PatternError(f"it takes more than {_MOST_STEPS} steps to match")

    def where(self, test: Callable[[str], bool]) -> int:
        found = self._where.get(id(test))
        if found is None:
            found = sum(1 << i for i, c in enumerate(self.text) if test(c))
            self._where[id(test)] = found
        return found


def is_plain(pattern: str) -> bool:
    """Nothing in it is special but the point: a name, or the end of one. Such patterns come by the
    hundred (one a module) and cost next to nothing."""
    return _PLAIN.fullmatch(pattern) is not None


def matches_end(pattern: str, name: str) -> bool:
    """As `re.match(rf"(.*\\.)?({pattern})$", name)`: how PEFT looks up `rank_pattern` and
    `alpha_pattern` (`peft.utils.other.get_pattern_key`). Raises PatternError."""
    if is_plain(pattern):
        before = len(name) - len(pattern)
        return (before == 0 or (before > 0 and name[before - 1] == ".")) and all(
            p in (c, ".") for p, c in zip(pattern, name[before:], strict=True)
        )
    return _ends(rf"(.*\.)?({pattern})$", name) != 0


def matches_whole(pattern: str, name: str) -> bool:
    """As `re.fullmatch(pattern, name)`: `target_modules` and `exclude_modules` that are one
    string. Raises PatternError."""
    return bool(_ends(pattern, name) >> len(name) & 1)


def matches_start(pattern: str, name: str) -> bool:
    """As `re.match(pattern, name)`. Raises PatternError."""
    return _ends(pattern, name) != 0


@lru_cache(maxsize=8192)  # an adapter that is read again asks the same again
def _ends(pattern: str, name: str) -> int:
    return _compiled(pattern)(_Name(name), 1)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Node:
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"it has {len(pattern)} characters; {LONGEST_PATTERN} is the most")
    try:
        tree = parser.parse(pattern)
        if tree.state.flags & ~re.UNICODE:
            raise PatternError("flags such as (?i) are not evaluated")
        if _size(tree) > _MOST_NODES:
            raise PatternError("it is too large")
        return _sequence(tree)
    except (re.error, OverflowError) as e:
        raise PatternError(f"it is no regular expression ({e})") from None
    except RecursionError:
        raise PatternError("it is nested too deeply") from None


def _size(tree: Any) -> int:
    return sum(1 + sum(_size(part) for part in _inner(op, argument)) for op, argument in tree)


def _inner(op: Any, argument: Any) -> list[Any]:
    if op is ops.BRANCH:
        return list(argument[1])
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        return [argument[2]]
    if op is ops.SUBPATTERN:
        return [argument[3]]
    return [argument[1]] if op in (ops.ASSERT, ops.ASSERT_NOT) else []


def _sequence(tree: Any) -> _Node:
    nodes = [_node(op, argument) for op, argument in tree]

    def run(name: _Name, at: int) -> int:
        for node in nodes:
            if not at:
                return 0
            name.step()
            at = node(name, at)
        return at

    return run


def _node(op: Any, argument: Any) -> _Node:
    if op in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN):
        return _character(op, argument)
    if op is ops.BRANCH:
        branches = [_sequence(b) for b in argument[1]]
        return lambda name, at: _union(branches, name, at)
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        return _repeat(*argument)
    if op is ops.SUBPATTERN:
        _, added, removed, body = argument
        if added or removed:
            raise PatternError("flags such as (?i:...) are not evaluated")
        return _sequence(body)
    if op is ops.AT:
        return _boundary(argument)
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return _look(argument[0], argument[1], wanted=op is ops.ASSERT)
    raise PatternError(f"{str(op).lower()} is not evaluated")


def _union(branches: list[_Node], name: _Name, at: int) -> int:
    found = 0
    for branch in branches:
        found |= branch(name, at)
    return found


def _repeat(least: int, most: int, body: Any) -> _Node:
    once = _sequence(body)

    def run(name: _Name, at: int) -> int:
        found = at if least == 0 else 0
        # After as many turns as there are positions only empty ones are left: nothing changes.
        for turn in range(1, min(int(most), int(least) + len(name.text) + 2) + 1):
            before, at = at, once(name, at)
            if turn >= least:
                found |= at
            if not at:
                break
            if at == before:
                return found | at
        return found

    return run


def _boundary(kind: Any) -> _Node:
    def places(name: _Name) -> int:
        end = len(name.text)
        if kind in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            return 1
        if kind is ops.AT_END_STRING:
            return 1 << end
        if kind is ops.AT_END:
            return 1 << end | (1 << end - 1 if name.text.endswith("\n") else 0)
        words = name.where(_is_word)
        edges = words ^ words << 1
        if kind is ops.AT_BOUNDARY:
            return edges
        # An empty text has no boundary of either kind before Python 3.14; names are never empty.
        return ~edges & name.whole

    return lambda name, at: at & places(name)


def _look(direction: int, body: Any, wanted: bool) -> _Node:
    inner = _sequence(body)
    least, most = body.getwidth()
    if direction < 0 and least != most:
        raise PatternError("it is no regular expression (look-behind requires fixed-width pattern)")

    def run(name: _Name, at: int) -> int:
        found = 0
        for i in range(len(name.text) + 1):
            if not at >> i & 1:
                continue
            if direction > 0:
                holds = inner(name, 1 << i) != 0
            else:
                holds = i >= least and bool(inner(name, 1 << (i - least)) >> i & 1)
            if holds == wanted:
                found |= 1 << i
        return found

    return run


def _character(op: Any, argument: Any) -> _Node:
    if op is ops.ANY:
        test: Callable[[str], bool] = _is_no_line_end
    elif op is ops.LITERAL:
        test = chr(argument).__eq__
    elif op is ops.NOT_LITERAL:
        test = chr(argument).__ne__
    else:
        test = _one_of(argument)
    return lambda name, at: (at & name.where(test)) << 1


def _one_of(items: Any) -> Callable[[str], bool]:
    negated = bool(items) and items[0][0] is ops.NEGATE
    tests = [_item(op, argument) for op, argument in items[negated:]]
    return lambda c: any(test(c) for test in tests) != negated


def _item(op: Any, argument: Any) -> Callable[[str], bool]:
    if op is ops.LITERAL:
        return chr(argument).__eq__
    if op is ops.RANGE:
        low, high = argument
        return lambda c: low <= ord(c) <= high
    return _CATEGORIES[argument]


def _is_no_line_end(c: str) -> bool:
    return c != "\n"


def _is_word(c: str) -> bool:
    return c.isalnum() or c == "_"


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    ops.CATEGORY_DIGIT: str.isdecimal,
    ops.CATEGORY_NOT_DIGIT: lambda c: not c.isdecimal(),
    ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    ops.CATEGORY_WORD: _is_word,
    ops.CATEGORY_NOT_WORD: lambda c: not _is_word(c),
}
