"""Curves in a terminal: braille dots, a letter at each curve's end. Pure text; knows no terminal.

A cell is two dots wide and four high. Without braille (`plain`) a curve is drawn with its letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from telemetry.plain import name as fitted
from telemetry.plain import span_s

LETTERS = "ABCDEFGHIJ"  # as many curves as can be told apart
_COLOURS = (36, 33, 35, 32, 31, 34, 96, 93, 95, 92)
# Bits of a braille cell's dots: column, then row from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))

Curve = tuple[str, Sequence[float]]


def plot(
    at_s: Sequence[float],
    curves: Sequence[Curve],
    *,
    width: int = 72,
    height: int = 12,
    unit: str = "tokens",
    colour: bool = False,
    plain: bool = False,
) -> list[str]:
    """Lines of text, `width` cells at most. `curves` are (name, values at `at_s`); the first ten
    are drawn, at shared scales from 0. Nothing to draw gives no lines."""
    curves = curves[: len(LETTERS)]
    if len(at_s) < 2 or at_s[-1] <= at_s[0] or not curves:
        return []
    top = max(max(values) for _, values in curves)
    if top <= 0:
        return []
    label = f"{_short(top)} {unit}"
    columns = max(16, width - 10)
    grid = _Grid(columns, height)
    for number, (_, values) in enumerate(curves):
        grid.draw(number, at_s, values, top, letters=plain)
    ends = _ends([values[-1] / top for _, values in curves], height)
    lines = [label]
    for row in range(height):
        axis = "|" if plain else "│"
        letters = "".join(_painted(LETTERS[i], i, colour) for i in ends.get(row, ()))
        lines.append((axis + grid.line(row, colour) + letters).rstrip())
    lines.append(("+" + "-" * columns) if plain else ("└" + "─" * columns))
    left, right = span_s(at_s[0]), span_s(at_s[-1])
    lines.append(" " + left + " " * max(1, columns - len(left) - len(right)) + right)
    for number, (name, values) in enumerate(curves):
        letter = _painted(LETTERS[number], number, colour)
        lines.append(f"  {letter} {fitted(name, 40)}  {_short(values[-1])}")
    return lines


class _Grid:
    """Dots of all curves; in a shared cell the later curve's colour or letter stands."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._owner = [[-1] * columns for _ in range(rows)]
        self._letters = False

    def draw(
        self, number: int, at_s: Sequence[float], values: Sequence[float], top: float, letters: bool
    ) -> None:
        self._letters = letters
        wide, high = self._columns * 2, self._rows * 4
        start, span = at_s[0], at_s[-1] - at_s[0]
        last: int | None = None
        place = 0
        for x in range(wide):
            t = start + span * x / (wide - 1)
            while place + 1 < len(at_s) - 1 and at_s[place + 1] < t:
                place += 1
            apart = at_s[place + 1] - at_s[place]
            part = min(1.0, max(0.0, (t - at_s[place]) / apart)) if apart > 0 else 1.0
            value = values[place] + (values[place + 1] - values[place]) * part
            y = high - 1 - round(max(0.0, min(1.0, value / top)) * (high - 1))
            # A steep curve stays one line: the rows between are filled.
            before = y if last is None else last
            for dot in range(min(y, before), max(y, before) + 1):
                self._bits[dot // 4][x // 2] |= _DOTS[x % 2][dot % 4]
                self._owner[dot // 4][x // 2] = number
            last = y

    def line(self, row: int, colour: bool) -> str:
        out = []
        for bits, owner in zip(self._bits[row], self._owner[row], strict=True):
            if not bits:
                out.append(" ")
            else:
                mark = LETTERS[owner] if self._letters else chr(0x2800 + bits)
                out.append(_painted(mark, owner, colour))
        return "".join(out)


def _ends(parts: Sequence[float], height: int) -> dict[int, list[int]]:
    """Which letters stand behind which row, by the curves' last values (parts of the top)."""
    ends: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        row = (height * 4 - 1 - round(part * (height * 4 - 1))) // 4
        ends.setdefault(row, []).append(number)
    return ends


def _painted(text: str, number: int, colour: bool) -> str:
    return f"\x1b[{_COLOURS[number]}m{text}\x1b[0m" if colour else text


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
