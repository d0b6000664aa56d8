"""How an adapter's blocks lie in pages. Pure arithmetic; owns no memory.

A *block* is one layer x module x {A, B^T}: `rows` = true rank, each row `row_bytes` long (padded
to 128 B), rank-major and contiguous. A block is split, at row boundaries, only when it is larger
than a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROW_ALIGN_BYTES = 128


def padded_row_bytes(width: int, itemsize: int) -> int:
    """Bytes of a row of `width` elements, rounded up to the row alignment."""
    raw = width * itemsize
    return -(-raw // ROW_ALIGN_BYTES) * ROW_ALIGN_BYTES


@dataclass(frozen=True, slots=True)
class Span:
    """Rows first_row .. first_row+rows of a block, at `offset` bytes in the page-th page."""

    block: int
    first_row: int
    rows: int
    page: int
    offset: int


@dataclass(frozen=True, slots=True)
class Layout:
    spans: tuple[Span, ...]
    pages: int


def lay_out(blocks: Sequence[tuple[int, int]], page_bytes: int) -> Layout:
    """Place blocks of (rows, row_bytes) in order. Raises ValueError when a row exceeds a page."""
    spans: list[Span] = []
    page, used = 0, 0
    for index, (rows, row_bytes) in enumerate(blocks):
        if row_bytes > page_bytes:
            raise ValueError(
                f"a row of {row_bytes} bytes does not fit a page of {page_bytes} bytes: "
                "use larger pages (more tokens a page)"
            )
        size = rows * row_bytes
        if size <= page_bytes:
            if used + size > page_bytes:
                page, used = page + 1, 0
            if rows:
                spans.append(Span(index, 0, rows, page, used))
            used += size
            continue
        first = 0
        while first < rows:
            fit = min(rows - first, (page_bytes - used) // row_bytes)
            if fit == 0:
                page, used = page + 1, 0
                continue
            spans.append(Span(index, first, fit, page, used))
            first, used = first + fit, used + fit * row_bytes
    return Layout(tuple(spans), page + 1 if (used or page) else 0)
