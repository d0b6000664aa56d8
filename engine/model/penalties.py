"""Moves logits by what a request has said before, and by its bias. Owns the counts it keeps.

In this order, as vLLM's sampler has it: logit_bias; the repetition penalty (Keskar et al. 2019,
CTRL, section 4.1; over prompt and output, as transformers' RepetitionPenaltyLogitsProcessor has
it); then frequency and presence (OpenAI's, over the output only).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.scheduling.shaping import History, Shaping

_ROOM = 64  # tokens that a request may add before its arrays grow


@dataclass(frozen=True, slots=True)
class Bend:
    """How one row's logits move. `sampled`: tokens drawn before; `history` where they matter."""

    request_id: str
    sampled: int
    shaping: Shaping
    history: History | None


class Penalties:
    """Keeps counts of the requests of the last step that had some. They are a copy of what the
    histories say, for counting a long history anew for every token is slow: a request that missed
    a step (it was preempted, or waited) is counted again, one that ended is forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, _Counts] = {}

    def counted(self, bends: Sequence[Bend | None]) -> list[Moved | None]:
        """What `move` needs of each row. One call a step, with all of its rows."""
        moved = [None if b is None else Moved(b.shaping, self._counts(b)) for b in bends]
        self._known = {m.counts.request_id: m.counts for m in moved if m and m.counts}
        return moved

    def _counts(self, bend: Bend) -> _Counts | None:
        history = bend.history
        if history is None:
            return None
        known = self._known.get(bend.request_id)
        if known is not None and known.sampled + 1 == bend.sampled == len(history.output):
            known.sampled = bend.sampled
            known.add(history.output[-1])
            return known
        # A prompt matters to the repetition penalty only.
        prompt = history.prompt if bend.shaping.repetition_penalty != 1.0 else ()
        return _Counts(bend.request_id, bend.sampled, prompt, history.output)


@dataclass(frozen=True, slots=True)
class Moved:
    """A row's counts, as they are in this step."""

    shaping: Shaping
    counts: _Counts | None


def move(logits: torch.Tensor, rows: Sequence[Moved | None]) -> None:
    """Move some rows' logits, in place. logits: float32 [rows, vocab], contiguous; None: the row
    stays as it is."""
    flat, vocab = logits.view(-1), logits.shape[-1]
    asked = [(i * vocab, m) for i, m in enumerate(rows) if m is not None]
    biased = [(at + token, by) for at, m in asked for token, by in m.shaping.logit_bias]
    if biased:
        places, values = zip(*biased, strict=True)
        added = torch.tensor(values, dtype=torch.float32, device=flat.device)
        flat[torch.tensor(places, device=flat.device)] += added
    counted = [(at, m.shaping, m.counts) for at, m in asked if m.counts and m.counts.used]
    if counted:
        _penalise(flat, counted)


class _Counts:
    """Of one request: which tokens it has seen, and how often each is in its output."""

    __slots__ = ("_ids", "_made", "_place", "request_id", "sampled", "used")

    def __init__(
        self, request_id: str, sampled: int, prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        self.request_id, self.sampled = request_id, sampled
        known = list(dict.fromkeys((*prompt, *output)))
        self.used = len(known)
        self._place = {token: i for i, token in enumerate(known)}
        self._ids = np.zeros(self.used + _ROOM, np.int64)
        self._ids[: self.used] = known
        self._made = np.zeros(self.used + _ROOM, np.float32)
        np.add.at(self._made, [self._place[token] for token in output], 1.0)

    def add(self, token: int) -> None:
        place = self._place.setdefault(token, self.used)
        if place == self.used:
            if place == len(self._ids):
                self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
                self._made = np.concatenate((self._made, np.zeros_like(self._made)))
            self._ids[place] = token
            self.used += 1
        self._made[place] += 1.0

    @property
    def ids(self) -> np.ndarray:
        return self._ids[: self.used]

    @property
    def made(self) -> np.ndarray:
        return self._made[: self.used]


def _penalise(flat: torch.Tensor, rows: Sequence[tuple[int, Shaping, _Counts]]) -> None:
    """One gather and one scatter for all rows. `flat`: the logits; each row begins at its place."""
    sizes = [c.used for _, _, c in rows]

    def each(of: list[float]) -> torch.Tensor:
        return torch.from_numpy(np.repeat(np.array(of, np.float32), sizes)).to(flat.device)

    where = torch.from_numpy(np.concatenate([at + c.ids for at, _, c in rows])).to(flat.device)
    made = torch.from_numpy(np.concatenate([c.made for _, _, c in rows])).to(flat.device)
    repetition = each([s.repetition_penalty for _, s, _ in rows])
    was = flat[where]
    was = torch.where(was > 0, was / repetition, was * repetition)
    was -= made * each([s.frequency_penalty for _, s, _ in rows])
    was -= (made > 0) * each([s.presence_penalty for _, s, _ in rows])
    flat[where] = was
