"""A widget that shows lines of styled pieces and repaints only those that changed.

Owns the roles' looks (component classes, coloured by the stylesheet). Computes no line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.events import Resize
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from console.cells import width as cells_of
from console.lines import ROLES, Line

TINTS = ("hurt", "named", "head", "verdict", "cursor")

Draw = Callable[[int, int], Sequence[Line]]


class Lines(Widget):
    """Lines drawn by a function of (cells, lines), drawn again when it or the size changes.

    With height auto it is as high as the lines it has been given.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"lines--{role}" for role in ROLES),
        *(f"lines--on-{tint}" for tint in TINTS),
    }

    def __init__(self, draw: Draw, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._draw = draw
        self._lines: tuple[Line, ...] = ()

    @property
    def shown(self) -> tuple[Line, ...]:
        """The lines as they stand on the screen."""
        return self._lines

    def show(self, draw: Draw) -> None:
        """Draw from now on with `draw`; only the lines that differ are repainted."""
        self._draw = draw
        self.redraw()

    def redraw(self) -> None:
        size = self.size
        if size.width == 0:
            return
        before, self._lines = self._lines, tuple(self._draw(size.width, max(1, size.height)))
        if len(before) != len(self._lines):
            self.refresh(layout=self.styles.is_auto_height)
            return
        for y, (old, new) in enumerate(zip(before, self._lines, strict=True)):
            if old != new:
                self.refresh(Region(0, y, size.width, 1))

    def on_resize(self, event: Resize) -> None:
        self._lines = tuple(self._draw(self.size.width, max(1, self.size.height)))
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._draw(width, viewport.height))

    def render_line(self, y: int) -> Strip:
        cells = self.size.width
        base = self.rich_style
        if y >= len(self._lines):
            return Strip.blank(cells, base)
        line = self._lines[y]
        if line.tint:
            base += self.get_component_rich_style(f"lines--on-{line.tint}", partial=True)
        segments = [Segment(p.text, base + self._look(p.role), None) for p in line.pieces]
        length = sum(cells_of(p.text) for p in line.pieces)
        return Strip(segments, length).adjust_cell_length(cells, base)

    def _look(self, role: str) -> Style:
        return self.get_component_rich_style(f"lines--{role}", partial=True)
