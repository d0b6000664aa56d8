"""A step's hidden states to its tokens: whose row is sound, how it is drawn, what is told beside.

Owns nothing but the way from segments to the output head; knows no pages and no adapters' bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.model.head import OutputHead
from engine.model.penalties import Bend
from engine.model.sampling import Draw
from engine.scheduling.plan import Segment, TokenLogprobs
from engine.scheduling.shaping import PLAIN


class NextTokens:
    """One runner's."""

    def __init__(self, head: OutputHead) -> None:
        self._head = head

    def choose(
        self, segments: Sequence[Segment], hidden: torch.Tensor, failed: dict[str, str]
    ) -> dict[str, int]:
        """The next token of each segment that samples; who has none is put into `failed`.

        hidden: float32 [segments, hidden], each segment's last row.
        """
        # A NaN or infinity anywhere in a sequence reaches its last row through attention.
        sound = torch.isfinite(hidden.sum(-1)).tolist()
        for s, ok in zip(segments, sound, strict=True):
            if not ok:
                failed[s.request_id] = not_finite(s)
        rows = [i for i, s in enumerate(segments) if s.samples and sound[i]]
        if not rows:
            return {}
        sampling = [segments[i] for i in rows]
        mine = hidden if len(rows) == len(segments) else hidden[rows]
        tokens: dict[str, int] = {}
        chosen = self._head.choose(mine, [_draw(s) for s in sampling], [_bend(s) for s in sampling])
        for s, token in zip(sampling, chosen, strict=True):
            if token is None:
                failed[s.request_id] = not_finite(s)
            else:
                tokens[s.request_id] = token
        return tokens

    def logprobs(
        self, segments: Sequence[Segment], hidden: torch.Tensor, tokens: dict[str, int]
    ) -> dict[str, TokenLogprobs] | None:
        """Of the rows that asked: nobody else pays for a whole row of logits."""
        asked = [
            (i, s.request_id, s.logprobs)
            for i, s in enumerate(segments)
            if s.logprobs is not None and s.request_id in tokens
        ]
        if not asked:
            return None
        rows, names, counts = ([*column] for column in zip(*asked, strict=True))
        told = self._head.logprobs(hidden[rows], [tokens[n] for n in names], counts)
        return dict(zip(names, told, strict=True))


_GREEDY = Draw(0.0, "")
_COLDEST = 1e-5  # below it the likeliest token is taken, as in vLLM; float32 ends far below


def _draw(s: Segment) -> Draw:
    if s.temperature < _COLDEST:
        return _GREEDY
    return Draw.of(s.request_id, s.temperature, s.seed, s.sampled, s.top_p, s.shaping)


def _bend(s: Segment) -> Bend | None:
    if s.shaping is PLAIN or not s.shaping.moves_logits:
        return None
    return Bend(s.request_id, s.sampled, s.shaping, s.history)


def not_finite(s: Segment) -> str:
    through = f" with adapter {s.adapter[:12]}" if s.adapter is not None else ""
    return f"the model's output{through} was not finite (NaN or infinity)"
