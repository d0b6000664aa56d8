"""A plan as index arrays: one ragged batch of all segments' tokens. Built once a step; no math.

Rows are ordered so that the rooms after it need only slices: segments of one token (decode rows)
by falling context, then prefill segments with an adapter by rising length, then base prefill.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.scheduling.plan import Segment
from kernels.backend import PagedRows, Rows


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """tokens: int64 [T]; last: int64 [segments], each segment's last row, in the order of
    `segments`; lora: tiles the rows that may carry adapters."""

    segments: tuple[Segment, ...]
    tokens: torch.Tensor
    rows: PagedRows
    last: torch.Tensor
    lora: tuple[Rows, ...]


def build_batch(segments: Sequence[Segment], page_tokens: int) -> StepBatch:
    """Index arrays of a step. The segments must fit the arena (`TorchRunner` checks)."""
    single = sorted((s for s in segments if len(s.tokens) == 1), key=lambda s: -s.start)
    ordered = single
    if len(single) < len(segments):
        longer = [s for s in segments if len(s.tokens) > 1]
        tuned = sorted((s for s in longer if s.adapter is not None), key=lambda s: len(s.tokens))
        ordered = [*single, *tuned, *(s for s in longer if s.adapter is None)]

    tokens: list[int] = []
    first_row, first_page = array("q", (0,)), array("q", (0,))
    pages = array("q")
    lora: list[Rows] = []
    for s in ordered:
        first = len(tokens)
        tokens += s.tokens
        stop = len(tokens)
        pages.extend(s.pages[: -(-(s.start + stop - first) // page_tokens)])
        first_row.append(stop)
        first_page.append(len(pages))
        if stop - first == 1 or s.adapter is not None:
            lora.append(Rows(s.adapter, first, stop))
    return StepBatch(
        segments=tuple(ordered),
        tokens=torch.tensor(tokens),
        rows=PagedRows(first_row, array("q", [s.start for s in ordered]), first_page, pages),
        last=torch.tensor(first_row[1:]) - 1,
        lora=tuple(lora),
    )
