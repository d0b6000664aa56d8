"""Simulated prompts: as many made-up token ids as a prompt is long, none of them in a list.

Two requests share ids exactly where their prefix blocks say so, so that a prefix cache meets what
a trace met. Owns no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import overload

from engine.simulation.workload import Arrival

BLOCK_TOKENS = 512  # of a trace's prefix block
_OWN = 1 << 40  # ids of a request's own tokens begin here, so that no block has them
_APART = 1 << 21  # longest prompt


def prompt_of(arrival: Arrival, number: int) -> Sequence[int]:
    """The arrival's prompt; `number` is the request's own, its tokens are nobody else's."""
    start = _OWN + number * _APART
    own = range(start, start + arrival.prompt_tokens)
    return own if arrival.prefix is None else BlockPrompt(arrival.prefix, own)


class BlockPrompt(Sequence[int]):
    """`blocks` of BLOCK_TOKENS ids each, as far as the prompt goes, then the request's own ids."""

    __slots__ = ("_blocks", "_own", "_shared")

    def __init__(self, blocks: tuple[int, ...], own: range) -> None:
        self._blocks = blocks
        self._own = own
        self._shared = min(len(own), len(blocks) * BLOCK_TOKENS)

    def __len__(self) -> int:
        return len(self._own)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self._own))
            if step == 1:
                return self._run(start, stop)
            return tuple(map(self._token, range(start, stop, step)))
        if not -len(self._own) <= at < len(self._own):
            raise IndexError(f"position {at} of a prompt of {len(self._own)} tokens")
        return self._token(at % len(self._own))

    def _run(self, start: int, stop: int) -> tuple[int, ...]:
        """Positions start .. stop-1, block by block: prompts are long, and read whole."""
        shared = min(stop, self._shared)
        parts: list[range] = []
        at = start
        while at < shared:
            number, inside = divmod(at, BLOCK_TOKENS)
            first = self._blocks[number] * BLOCK_TOKENS
            end = min(BLOCK_TOKENS, inside + shared - at)
            parts.append(range(first + inside, first + end))
            at += end - inside
        return tuple(chain(*parts, self._own[max(at, self._shared) : stop] if at < stop else ()))

    def _token(self, at: int) -> int:
        if at < self._shared:
            return self._blocks[at // BLOCK_TOKENS] * BLOCK_TOKENS + at % BLOCK_TOKENS
        return self._own[at]
