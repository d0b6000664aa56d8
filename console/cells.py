"""Text as terminal cells: measured, cut and padded as the screen does. Obeys no markup."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def width(text: str) -> int:
    return cell_len(text)


def clip(text: str, cells: int, ellipsis: str = "…") -> str:
    """At most `cells` wide; what is cut is marked."""
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return ""
    # set_cell_size pads where a wide character straddles the edge; the pad is not content.
    return set_cell_size(text, cells - 1).rstrip() + ellipsis


def fit(text: str, cells: int, align: str = "left") -> str:
    """Exactly `cells` wide: clipped or padded. `align` is left, right or center."""
    text = clip(text, cells)
    room = cells - cell_len(text)
    if align == "right":
        return " " * room + text
    if align == "center":
        return " " * (room // 2) + text + " " * (room - room // 2)
    return text + " " * room
