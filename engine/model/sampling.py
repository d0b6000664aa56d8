"""From hidden states to next tokens: the output head, greedy choice and seeded draws."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.model.linear import Linear
from engine.model.loaders import LoadedModel
from engine.scheduling.plan import TokenLogprobs

# A bfloat16 logit is within 2**-8 of its float32 value, relative to the largest partial sums; the
# winner is searched among all that come this close to the best.
_NEAR = 2.0**-5
_BLOCK = 512
_MOST_NEAR = 64  # candidates a row, on average


@dataclass(frozen=True, slots=True)
class Draw:
    """How a row's token is chosen. Temperature 0 is greedy. `key` seeds the draw."""

    temperature: float
    key: str
    top_p: float = 1.0  # draw among the likeliest that together have at least this much

    @classmethod
    def of(
        cls,
        request_id: str,
        temperature: float,
        seed: int | None,
        sampled: int,
        top_p: float = 1.0,
    ) -> Draw:
        """The same (seed or request, index of the draw) gives the same draw in any batch."""
        origin = f"seed {seed}" if seed is not None else f"request {request_id}"
        return cls(temperature, f"{origin} draw {sampled}", top_p)

    def uniform(self) -> float:
        """A number in [0, 1) from the key."""
        digest = hashlib.sha256(self.key.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:7], "big") / 2.0**56


class OutputHead:
    """Hidden states to logits and tokens. Logits are float32.

    In bfloat16 the head's product rounds its outputs to 8 bits, which ties candidates that are
    not tied. So it only nominates: the candidates near the best are scored again in float32.
    """

    def __init__(self, model: LoadedModel) -> None:
        name = "model.embed_tokens.weight" if model.config.tied else "lm_head.weight"
        self._weight = model.weights[name]
        self._exact = model.dtype == torch.float32
        self._linear = Linear(self._weight)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: float32 [rows, hidden] -> float32 [rows, vocab], unrounded."""
        return F.linear(hidden, self._weight.float())

    def choose(self, hidden: torch.Tensor, draws: list[Draw]) -> list[int | None]:
        """The next token of each row; None where the row's logits are not finite.

        hidden: float32 [rows, hidden], one draw a row.
        """
        scores = self._linear(hidden.to(self._weight.dtype))
        # The largest value is NaN or infinite when any value is NaN or +inf: one cheap pass.
        best = scores.amax(-1).float()
        finite = torch.isfinite(best).tolist()
        tokens = self._greedy(hidden, scores, best)
        chosen: list[int | None] = [t if ok else None for t, ok in zip(tokens, finite, strict=True)]
        hot = [i for i, d in enumerate(draws) if d.temperature > 0 and finite[i]]
        if hot:
            logits = scores[hot].float() if self._exact else self.logits(hidden[hot])
            for row, i in zip(logits, hot, strict=True):
                chosen[i] = sample(row, draws[i])
        return chosen

    def logprobs(
        self, hidden: torch.Tensor, tokens: list[int], counts: list[int]
    ) -> list[TokenLogprobs]:
        """What each row's token was given, and its `counts` likeliest: ln softmax(logits).

        hidden: float32 [rows, hidden], finite; one token and one count a row.
        """
        told = torch.log_softmax(self.logits(hidden).double(), -1)
        own = told.gather(-1, torch.tensor(tokens, device=told.device)[:, None])[:, 0].tolist()
        most = min(max(counts), told.shape[-1])
        values, ids = told.topk(most, -1)
        return [
            TokenLogprobs(mine, tuple(zip(row[:n], ps[:n], strict=True)))
            for mine, row, ps, n in zip(own, ids.tolist(), values.tolist(), counts, strict=True)
        ]

    def _greedy(self, hidden: torch.Tensor, scores: torch.Tensor, best: torch.Tensor) -> list[int]:
        if self._exact:
            return list(scores.argmax(-1).tolist())
        # Non-finite rows nominate nothing; their token is discarded by the caller.
        near = (best - (best.abs() * _NEAR + _NEAR)).to(scores.dtype)
        rows, ids = _at_least(scores, near)
        if len(rows) > _MOST_NEAR * len(scores):  # flat logits: scoring all is the cheaper way
            return list(self.logits(hidden).argmax(-1).tolist())
        exact = (hidden[rows] * self._weight[ids].float()).sum(-1)
        tokens = [0] * len(scores)
        top = [float("-inf")] * len(scores)
        for row, token, score in zip(rows.tolist(), ids.tolist(), exact.tolist(), strict=True):
            if score > top[row]:
                top[row], tokens[row] = score, token
        return tokens


def _at_least(scores: torch.Tensor, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, columns) where scores [rows, vocab] reach their row's floor [rows].

    Whole blocks are ruled out by their maximum first: searching every column costs milliseconds.
    """
    size = math.gcd(scores.shape[1], _BLOCK)
    blocks = scores.view(len(scores), -1, size)
    rows, block = (blocks.amax(-1) >= floor[:, None]).nonzero(as_tuple=True)
    which, column = (blocks[rows, block] >= floor[rows][:, None]).nonzero(as_tuple=True)
    return rows[which], block[which] * size + column


def sample(logits: torch.Tensor, draw: Draw) -> int:
    """Draw from softmax(logits / temperature) by inverse transform. logits: float32 [vocab].

    With top_p < 1, among the nucleus only: the fewest tokens, likeliest first, whose
    probabilities reach top_p (Holtzman et al. 2020); one at least.
    """
    scaled = (logits.double() - logits.max().double()) / draw.temperature
    chances = torch.softmax(scaled, -1)
    if draw.top_p < 1.0:
        chances = _nucleus(chances, draw.top_p)
    cumulative = chances.cumsum(-1)
    target = draw.uniform() * float(cumulative[-1])
    found = int(
        torch.searchsorted(cumulative, torch.tensor(target, dtype=torch.float64), right=True)
    )
    # A target that rounding puts at the very end belongs to the last token that has a chance.
    return min(found, int(torch.count_nonzero(cumulative < cumulative[-1])))


def _nucleus(chances: torch.Tensor, top_p: float) -> torch.Tensor:
    ranked, ids = chances.sort(descending=True, stable=True)
    before = ranked.cumsum(-1) - ranked
    kept = torch.zeros_like(chances)
    within = ids[before < top_p] if top_p > 0 else ids[:1]
    kept[within] = chances[within]
    return kept
