"""Seeded draws from logits, all rows of a step at once: temperature, min_p, top_k, top_p.

In this order, as vLLM's sampler has it, each among what the one before has left. The same row with
the same key gives the same token in any batch.

Rows with a top_k are narrowed to their likeliest few first. The others are never sorted: a token is
drawn, and stays when it is in the nucleus; else the nucleus lies among those likelier than it, and
the next is drawn from them. That is rejection sampling from ever smaller supersets of the nucleus,
so what stays has exactly the nucleus's distribution.

Memory is the larger half of the cost: a step's rows of logits are megabytes, and fresh pages for
them cost more than the arithmetic. So logits are used up in place, and buffers are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from engine.scheduling.shaping import PLAIN, Shaping

_BLOCK = 512  # a draw looks for its block first, then inside it
_LAST_ID = (1 << 32) - 1
_SMALL = 128  # the k likeliest lie in the k blocks that have the largest maxima


@dataclass(frozen=True, slots=True)
class Draw:
    """How a row's token is chosen. Temperature 0 is greedy. `key` seeds the draw."""

    temperature: float
    key: str
    top_p: float = 1.0  # among the likeliest that together have at least this much
    top_k: int = 0  # among so many likeliest; 0: all
    min_p: float = 0.0  # among those at least so likely as this times the likeliest

    @classmethod
    def of(
        cls,
        request_id: str,
        temperature: float,
        seed: int | None,
        sampled: int,
        top_p: float = 1.0,
        shaping: Shaping = PLAIN,
    ) -> Draw:
        """The same (seed or request, index of the draw) gives the same draw in any batch."""
        origin = f"seed {seed}" if seed is not None else f"request {request_id}"
        key = f"{origin} draw {sampled}"
        return cls(temperature, key, top_p, shaping.top_k, shaping.min_p)

    def uniform(self, attempt: int = 0) -> float:
        """A number in [0, 1) from the key, another for each attempt."""
        key = f"{self.key} attempt {attempt}" if attempt else self.key
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:7], "big") / 2.0**56


class Sampler:
    """Draws; owns the buffers it does so in. One thread."""

    def __init__(self) -> None:
        self._other = torch.empty(0)
        self._mask = torch.empty(0, dtype=torch.bool)

    def draw(
        self, logits: torch.Tensor, draws: Sequence[Draw], largest: torch.Tensor | None = None
    ) -> list[int]:
        """A token a row. logits: float32 [rows, vocab], finite at their largest, used up; one draw
        a row, each with a temperature above 0. `largest`: of each row, where it is known. Rows
        with a top_k are best put first: they need no copy then."""
        vocab = logits.shape[-1]
        few = [i for i, d in enumerate(draws) if 0 < d.top_k < vocab]
        rest = [i for i, d in enumerate(draws) if not 0 < d.top_k < vocab]
        tokens = [0] * len(draws)
        if few:
            found = _from_few(_rows(logits, few), [draws[i] for i in few])
            for i, token in zip(few, found, strict=True):
                tokens[i] = token
        if rest:
            best = logits.amax(-1) if largest is None else largest
            mine = [draws[i] for i in rest]
            found = self._from_all(_rows(logits, rest), mine, _rows(best, rest)[:, None])
            for i, token in zip(rest, found, strict=True):
                tokens[i] = token
        return tokens

    def _from_all(
        self, logits: torch.Tensor, draws: Sequence[Draw], largest: torch.Tensor
    ) -> list[int]:
        """By inverse transform over the whole row, again from what is likelier while the token
        that was drawn is outside the nucleus (Holtzman et al. 2020): the fewest tokens, likeliest
        first and equal ones by id, whose probabilities reach top_p."""
        weights = _to_weights(logits, draws, largest)
        blocks = _sums(weights)
        chosen = _pick(weights, blocks, _uniforms(draws, 0, blocks))
        left = [i for i, d in enumerate(draws) if d.top_p < 1.0]
        if not left:
            return list(chosen.tolist())
        bar = blocks.sum(-1) * _column([d.top_p for d in draws], blocks)[:, 0]
        tokens, other = chosen, self._room(weights)
        if len(left) < len(draws):
            rows = torch.tensor(left, device=weights.device)
            weights, other = torch.index_select(weights, 0, rows, out=other[: len(left)]), weights
            tokens, bar = chosen[rows], bar[rows]
        zero, attempt = weights.new_zeros(()), 0
        while True:
            other = other[: len(left)]
            torch.where(self._before(weights, tokens), weights, zero, out=other)
            blocks = _sums(other)
            outside = (blocks.sum(-1) >= bar).nonzero()[:, 0]
            if not len(outside):
                return list(chosen.tolist())
            left = [left[i] for i in outside.tolist()]
            weights = torch.index_select(other, 0, outside, out=weights[: len(left)])
            blocks, bar = blocks[outside], bar[outside]
            attempt += 1
            tokens = _pick(weights, blocks, _uniforms([draws[i] for i in left], attempt, blocks))
            chosen[left] = tokens

    def _before(self, weights: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """What comes before each row's token in the order of likelihood; of equally likely ones
        the smaller id. bool, as `weights`."""
        own = weights.gather(1, tokens[:, None])
        mask = torch.gt(weights, own, out=self._mask[: len(weights)])
        for row, token in enumerate(tokens.tolist()):
            equal = (weights[row, :token] == own[row]).nonzero()[:, 0]
            if len(equal):
                mask[row, equal] = True
        return mask

    def _room(self, weights: torch.Tensor) -> torch.Tensor:
        """As many rows again, of kept memory."""
        if self._other.shape[-1:] != weights.shape[-1:] or len(self._other) < len(weights):
            self._other = torch.empty_like(weights)
            self._mask = torch.empty_like(weights, dtype=torch.bool)
        return self._other[: len(weights)]


def _from_few(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """By inverse transform over the top_k of each row, likeliest first."""
    most = max(d.top_k for d in draws)
    values, ids = likeliest(logits, most)
    rank = torch.arange(most, device=logits.device)
    kept = rank < torch.tensor([[d.top_k] for d in draws], device=logits.device)
    weights = _to_weights(values, draws, values[:, :1].clone()).double().mul_(kept)
    cumulative = weights.cumsum(-1)
    bar = cumulative[:, -1:] * _column([d.top_p for d in draws], cumulative)
    cumulative = weights.mul_(cumulative - weights < bar).cumsum(-1)
    place = _passed(cumulative, _uniforms(draws, 0, cumulative) * cumulative[:, -1])
    tokens: list[int] = ids.gather(1, place[:, None])[:, 0].tolist()
    return tokens


def likeliest(logits: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `most` largest of each row, largest first, equal ones by id; and their ids."""
    vocab = logits.shape[-1]
    if most * 4 * _SMALL < vocab:
        maxima = _by_block(logits, _SMALL, lambda part: part.amax(-1))
        blocks = _first(maxima, torch.arange(maxima.shape[-1], device=logits.device), most)
        inside = torch.arange(_SMALL, device=logits.device)
        ids = (blocks[:, :, None] * _SMALL + inside).flatten(1)
        found = logits.gather(1, ids.clamp(max=vocab - 1))
        ids = _first(found.masked_fill_(ids >= vocab, float("-inf")), ids, most)
    else:
        ids = _first(logits, torch.arange(vocab, device=logits.device), most)
    return logits.gather(1, ids), ids


def _first(values: torch.Tensor, ids: torch.Tensor, most: int) -> torch.Tensor:
    """Ids of the `most` largest of each row, largest first, equal ones by id."""
    best, at = values.topk(most, -1)
    cut = best[:, -1:]
    if bool(((values == cut).sum(-1) > (best == cut).sum(-1)).any()):
        return _first_exactly(values, ids, most)
    found = ids.expand_as(values).gather(1, at)
    found, by_id = found.sort(-1)
    order = best.gather(1, by_id).sort(stable=True, dim=-1, descending=True).indices
    return found.gather(1, order)


def _first_exactly(values: torch.Tensor, ids: torch.Tensor, most: int) -> torch.Tensor:
    """As `_first`, where the cut falls among equals, of which `topk` takes any: each value is put
    above its id in one whole number."""
    bits = values.add(0.0).view(torch.int32).long()  # a zero has one sign from here on
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys: torch.Tensor = (ordered << 32) + (_LAST_ID - ids)
    return _LAST_ID - (keys.topk(most, -1).values & _LAST_ID)


def _rows(of: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """Some rows, in order; a view where they are a run."""
    is_run = rows[-1] - rows[0] + 1 == len(rows)
    return of[rows[0] : rows[-1] + 1] if is_run else of[rows]


def _to_weights(logits: torch.Tensor, draws: Sequence[Draw], largest: torch.Tensor) -> torch.Tensor:
    """exp(logit / temperature) in the logits' place, 1 at each row's largest; 0 where min_p rules
    a token out."""
    heat = _column([d.temperature for d in draws], logits)
    weights = logits.sub_(largest).div_(heat).exp_()
    for row, draw in zip(weights, draws, strict=True):
        if draw.min_p > 0:
            below = float(np.nextafter(np.float32(draw.min_p), np.float32(0)))
            F.threshold(row, below, 0.0, inplace=True)
    return weights


def _by_block(
    rows: torch.Tensor, size: int, of: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """[rows, blocks]: `of` each block; the last may be smaller."""
    whole = rows.shape[-1] // size * size
    parts = [of(rows[:, :whole].view(len(rows), -1, size))] if whole else []
    if whole < rows.shape[-1]:
        parts.append(of(rows[:, None, whole:]))
    return torch.cat(parts, 1)


def _sums(weights: torch.Tensor) -> torch.Tensor:
    return _by_block(weights, _BLOCK, lambda part: part.sum(-1)).double()


def _pick(weights: torch.Tensor, blocks: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The token at which a row's running sum passes its uniform part of the whole. blocks:
    float64 [rows, blocks], the sums of `weights`."""
    cumulative = blocks.cumsum(-1)
    target = uniform * cumulative[:, -1]
    block = _passed(cumulative, target)[:, None]
    before = (cumulative - blocks).gather(1, block)[:, 0]
    ids = block * _BLOCK + torch.arange(_BLOCK, device=weights.device)
    vocab = weights.shape[-1]
    inside = weights.gather(1, ids.clamp(max=vocab - 1)).masked_fill_(ids >= vocab, 0.0)
    return block[:, 0] * _BLOCK + _passed(inside.double().cumsum(-1), target - before)


def _passed(cumulative: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """First place of each row whose running sum is above the target; a target that rounding puts
    at the very end belongs to the last place that has a part of the sum."""
    found = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    return torch.minimum(found, (cumulative < cumulative[:, -1:]).sum(-1))


def _uniforms(draws: Sequence[Draw], attempt: int, like: torch.Tensor) -> torch.Tensor:
    numbers = [d.uniform(attempt) for d in draws]
    return torch.tensor(numbers, dtype=torch.float64, device=like.device)


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
