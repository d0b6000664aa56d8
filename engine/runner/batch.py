"""A plan as index tensors: one ragged batch of all segments' tokens. Built once a step; no math.

Rows are ordered so that the rooms after it need only slices: segments of one token (decode rows)
by falling context, then prefill segments with an adapter by rising length, then base prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.runner.arena import Arena
from engine.scheduling.plan import Segment
from kernels.backend import Rows

# A new decode group starts when padding contexts to one length would gather this many tokens in
# vain: about what the calls of one more group cost.
GROUP_WASTE_TOKENS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class DecodeGroup:
    """Rows start .. stop, one query each, padded to one number of pages.

    pages: int64 [rows x pages a row]; bias: [rows, 1, 1, pages a row x page_tokens], 0 on the
    row's keys and -inf beyond them.
    """

    start: int
    stop: int
    pages: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PrefillSegment:
    """Rows start .. stop of one sequence over `context` keys.

    pages: int64 [pages]; bias: [queries, context], causal with the chunk's offset.
    """

    start: int
    stop: int
    context: int
    pages: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """tokens, positions: int64 [T]; kv_rows: int64 [layers, T]; last: int64 [segments], each
    segment's last row, in the order of `segments`; lora: tiles the rows that may carry adapters."""

    segments: tuple[Segment, ...]
    tokens: torch.Tensor
    positions: torch.Tensor
    kv_rows: torch.Tensor
    fresh_pages: torch.Tensor
    decode: tuple[DecodeGroup, ...]
    prefill: tuple[PrefillSegment, ...]
    last: torch.Tensor
    lora: tuple[Rows, ...]


def build_batch(segments: Sequence[Segment], arena: Arena) -> StepBatch:
    """Index tensors of a step. The segments must fit the arena (`TorchRunner` checks)."""
    single = sorted((s for s in segments if len(s.tokens) == 1), key=lambda s: -s.start)
    longer = [s for s in segments if len(s.tokens) > 1]
    tuned = sorted((s for s in longer if s.adapter is not None), key=lambda s: len(s.tokens))
    ordered = [*single, *tuned, *(s for s in longer if s.adapter is None)]

    tokens: list[int] = []
    positions: list[int] = []
    pages: list[int] = []
    fresh: list[int] = []
    last: list[int] = []
    lora: list[Rows] = []
    prefill: list[PrefillSegment] = []
    size = arena.page_tokens
    for s in ordered:
        start, stop = len(tokens), len(tokens) + len(s.tokens)
        end = s.start + len(s.tokens)
        tokens += s.tokens
        positions += range(s.start, end)
        pages += [s.pages[p // size] for p in range(s.start, end)]
        final = (end - 1) // size
        # Slots past a sequence's end are read (and masked) with their page. Zeroing the page as
        # its first slot is written keeps garbage, NaN above all, out of the masked products.
        if final * size >= s.start:
            fresh.append(s.pages[final])
        last.append(stop - 1)
        if len(s.tokens) == 1 or s.adapter is not None:
            lora.append(Rows(s.adapter, start, stop))
        if len(s.tokens) > 1:
            prefill.append(_prefill(s, start, stop, arena))
    where = torch.tensor(positions)
    return StepBatch(
        segments=tuple(ordered),
        tokens=torch.tensor(tokens),
        positions=where,
        kv_rows=arena.slot_rows(torch.tensor(pages), where % size),
        fresh_pages=torch.tensor(fresh, dtype=torch.int64),
        decode=tuple(_decode_groups(single, arena)),
        prefill=tuple(prefill),
        last=torch.tensor(last),
        lora=tuple(lora),
    )


def _prefill(s: Segment, start: int, stop: int, arena: Arena) -> PrefillSegment:
    context = s.start + len(s.tokens)
    used = -(-context // arena.page_tokens)
    ahead = torch.arange(context)[None, :] > torch.arange(s.start, context)[:, None]
    bias = torch.zeros(ahead.shape, dtype=arena.dtype).masked_fill_(ahead, float("-inf"))
    return PrefillSegment(start, stop, context, torch.tensor(s.pages[:used]), bias)


def _decode_groups(single: Sequence[Segment], arena: Arena) -> list[DecodeGroup]:
    """Cut rows of falling context into groups of little padding."""
    size = arena.page_tokens
    groups: list[DecodeGroup] = []
    first = 0
    while first < len(single):
        widest = single[first].start // size + 1
        waste, stop = 0, first
        while stop < len(single):
            waste += (widest - (single[stop].start // size + 1)) * size
            if waste > GROUP_WASTE_TOKENS:
                break
            stop += 1
        rows = single[first:stop]
        pages: list[int] = []
        for s in rows:
            used = s.start // size + 1
            # Padding repeats the row's own first page: never another sequence's bytes.
            pages += [*s.pages[:used], *([s.pages[0]] * (widest - used))]
        length = torch.tensor([s.start + 1 for s in rows])
        beyond = torch.arange(widest * size)[None, :] >= length[:, None]
        bias = torch.zeros(beyond.shape, dtype=arena.dtype).masked_fill_(beyond, float("-inf"))
        groups.append(DecodeGroup(first, stop, torch.tensor(pages), bias[:, None, None, :]))
        first = stop
    return groups
