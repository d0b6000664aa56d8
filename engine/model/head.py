"""From hidden states to next tokens: the output head, greedy choice, and who else is asked.

Owns the head's weight and the logits' buffer. Draws are `engine.model.sampling`, moved logits
`engine.model.penalties`; a row that asks for neither pays for neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from engine.model.linear import Linear
from engine.model.loaders import LoadedModel
from engine.model.penalties import Bend, Moved, Penalties, move
from engine.model.sampling import Draw, Sampler
from engine.scheduling.plan import TokenLogprobs
from kernels.cpu_head import native_head

# A bfloat16 logit is within 2**-8 of its float32 value, relative to the largest partial sums; the
# winner is searched among all that come this close to the best.
_NEAR = 2.0**-5
_BLOCK = 512
_MOST_NEAR = 64  # candidates a row, on average
_ROWS = 64  # of whole logits at once: what bounds the buffer
_EXACT_ROWS = 8  # of logits in float64 at once
_WEIGHT_ROWS = 2048  # of a bfloat16 weight made float32 at once: they stay in the core's cache


class OutputHead:
    """Hidden states to logits and tokens. Logits are float32. One thread.

    In bfloat16 the head's product rounds its outputs to 8 bits, which ties candidates that are
    not tied. So it only nominates: the candidates near the best are scored again in float32.
    """

    def __init__(self, model: LoadedModel) -> None:
        name = "model.embed_tokens.weight" if model.config.tied else "lm_head.weight"
        self._weight = model.weights[name]
        self._exact = model.dtype == torch.float32
        self._native = None if self._exact else native_head(self._weight)
        # A packed copy of a large weight: only where the candidates are nominated with it.
        self._finds_best = self._native is not None and self._native.finds_best
        self._linear = None if self._finds_best else Linear(self._weight)
        self._sampler = Sampler()
        self._penalties = Penalties()
        self._room = torch.empty(0, device=self._weight.device)

    def logits(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """hidden: float32 [rows, hidden] -> float32 [rows, vocab], unrounded."""
        vocab = len(self._weight)
        out = hidden.new_empty(len(hidden), vocab) if out is None else out
        if self._exact:
            return torch.mm(hidden, self._weight.t(), out=out)
        if self._native is not None:
            return self._native(hidden, out)
        for start in range(0, vocab, _WEIGHT_ROWS):
            part = self._weight[start : start + _WEIGHT_ROWS].float()
            torch.mm(hidden, part.t(), out=out[:, start : start + len(part)])
        return out

    def choose(
        self,
        hidden: torch.Tensor,
        draws: Sequence[Draw],
        bends: Sequence[Bend | None] | None = None,
    ) -> list[int | None]:
        """The next token of each row; None where the row's logits are not finite.

        hidden: float32 [rows, hidden], one draw a row. `bends`: whose logits move first. One call
        a step.
        """
        asks = [d.temperature > 0 for d in draws]
        moved: Sequence[Moved | None] = [None] * len(draws)
        if bends is not None and any(b is not None for b in bends):
            moved = self._penalties.counted(bends)
            asks = [hot or m is not None for hot, m in zip(asks, moved, strict=True)]
        if not any(asks):
            return self._likeliest(hidden)
        chosen: list[int | None] = [None] * len(draws)

        def fill(rows: list[int], tokens: list[int | None]) -> None:
            for i, token in zip(rows, tokens, strict=True):
                chosen[i] = token

        plain = [i for i, asking in enumerate(asks) if not asking]
        if plain:
            fill(plain, self._likeliest(hidden[plain]))
        # In runs of a kind, so that each is a slice: greedy, with a top_k, others.
        whole = [i for i, asking in enumerate(asks) if asking]
        whole.sort(key=lambda i: (draws[i].temperature > 0, draws[i].top_k == 0))
        for first in range(0, len(whole), _ROWS):
            rows = whole[first : first + _ROWS]
            some = [draws[i] for i in rows]
            fill(rows, self._from_logits(hidden[rows], some, [moved[i] for i in rows]))
        return chosen

    def _from_logits(
        self, hidden: torch.Tensor, draws: Sequence[Draw], moved: Sequence[Moved | None]
    ) -> list[int | None]:
        """By each row's whole logits; the greedy ones come first."""
        logits = self._whole(hidden)
        move(logits, moved)
        largest = logits.amax(-1)
        finite = torch.isfinite(largest).tolist()
        greedy = sum(d.temperature == 0 for d in draws)
        tokens: list[int] = logits[:greedy].argmax(-1).tolist()
        if greedy < len(draws):
            tokens += self._sampler.draw(logits[greedy:], draws[greedy:], largest[greedy:])
        return [t if ok else None for t, ok in zip(tokens, finite, strict=True)]

    def logprobs(
        self, hidden: torch.Tensor, tokens: list[int], counts: list[int]
    ) -> list[TokenLogprobs]:
        """What each row's token was given, and its `counts` likeliest: ln softmax(logits).

        hidden: float32 [rows, hidden], finite; one token and one count a row.
        """
        told: list[TokenLogprobs] = []
        for first in range(0, len(hidden), _ROWS):
            logits = self._whole(hidden[first : first + _ROWS])
            for start in range(0, len(logits), _EXACT_ROWS):
                some = logits[start : start + _EXACT_ROWS]
                rows = slice(first + start, first + start + len(some))
                told += _logprobs_of(some, tokens[rows], counts[rows])
        return told

    def _whole(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of at most `_ROWS` rows, in the buffer."""
        if len(self._room) < len(hidden):
            self._room = hidden.new_empty(len(hidden), len(self._weight))
        return self.logits(hidden, self._room[: len(hidden)])

    def _likeliest(self, hidden: torch.Tensor) -> list[int | None]:
        """The greedy choice of each row; None where it is not finite."""
        found = None if self._native is None else self._native.best(hidden)
        if found is not None:
            values, ids = found
            sound = torch.isfinite(values).tolist()
            return [t if ok else None for t, ok in zip(ids.tolist(), sound, strict=True)]
        tokens: list[int | None] = []
        for first in range(0, len(hidden), _ROWS):
            tokens += self._scored(hidden[first : first + _ROWS])
        return tokens

    def _scored(self, hidden: torch.Tensor) -> list[int | None]:
        """As `_likeliest`, of at most `_ROWS` rows."""
        assert self._linear is not None
        scores = self._linear(hidden.to(self._weight.dtype))
        # The largest value is NaN or infinite when any value is NaN or +inf: one cheap pass.
        best = scores.amax(-1).float()
        finite = torch.isfinite(best).tolist()
        tokens = self._nominated(hidden, scores, best)
        return [t if ok else None for t, ok in zip(tokens, finite, strict=True)]

    def _nominated(
        self, hidden: torch.Tensor, scores: torch.Tensor, best: torch.Tensor
    ) -> list[int]:
        if self._exact:
            return list(scores.argmax(-1).tolist())
        # Non-finite rows nominate nothing; their token is discarded by the caller.
        near = (best - (best.abs() * _NEAR + _NEAR)).to(scores.dtype)
        rows, ids = _at_least(scores, near)
        if len(rows) > _MOST_NEAR * len(scores):  # flat logits: scoring all is the cheaper way
            return list(self._whole(hidden).argmax(-1).tolist())
        exact = (hidden[rows] * self._weight[ids].float()).sum(-1)
        tokens = [0] * len(scores)
        top = [float("-inf")] * len(scores)
        for row, token, score in zip(rows.tolist(), ids.tolist(), exact.tolist(), strict=True):
            if score > top[row]:
                top[row], tokens[row] = score, token
        return tokens


def _logprobs_of(logits: torch.Tensor, tokens: list[int], counts: list[int]) -> list[TokenLogprobs]:
    """See `OutputHead.logprobs`."""
    told = torch.log_softmax(logits.double(), -1)
    own = told.gather(-1, torch.tensor(tokens, device=told.device)[:, None])[:, 0].tolist()
    most = min(max(counts), told.shape[-1])
    values, ids = told.topk(most, -1)
    return [
        TokenLogprobs(mine, tuple(zip(row[:n], ps[:n], strict=True)))
        for mine, row, ps, n in zip(own, ids.tolist(), values.tolist(), counts, strict=True)
    ]


def _at_least(scores: torch.Tensor, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, columns) where scores [rows, vocab] reach their row's floor [rows].

    Whole blocks are ruled out by their maximum first: searching every column costs milliseconds.
    """
    size = math.gcd(scores.shape[1], _BLOCK)
    blocks = scores.view(len(scores), -1, size)
    rows, block = (blocks.amax(-1) >= floor[:, None]).nonzero(as_tuple=True)
    which, column = (blocks[rows, block] >= floor[rows][:, None]).nonzero(as_tuple=True)
    return rows[which], block[which] * size + column
