"""What transformers and PEFT say of whole sequences, and how answers are held against it.

Owns the reference's side: batches of one adapter at a time, in float32 or float64. Never touches
the engine's own code.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

MARGIN = 1e-3  # below it two tokens count as tied
TOLERANCE = 1e-3  # of a logit
BATCH_TOKENS = 2048
HELD_ANSWERS = 64  # whose logits are held at a time: a row of a large vocabulary is 200 kB


@dataclass(frozen=True, slots=True)
class Answer:
    """What a greedy request gave: its tokens, and by index the logits they were chosen from."""

    name: str
    adapter: Path | None
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    logits: Mapping[int, torch.Tensor] = field(default_factory=dict)  # float32 [vocab]

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.output[:-1]]  # the last one is never attended


@dataclass(slots=True)
class Verdict:
    """`wrong` are sentences; `tied` tokens were not compared, their two best being too close."""

    tokens: int = 0
    tied: int = 0
    wrong: list[str] = field(default_factory=list)
    logits: int = 0  # rows compared
    worst: float = 0.0  # largest distance of a logit from the reference

    def add(self, other: Verdict) -> None:
        self.tokens += other.tokens
        self.tied += other.tied
        self.wrong += other.wrong
        self.logits += other.logits
        self.worst = max(self.worst, other.worst)


class Judge:
    """A transformers model, and the PEFT adapters it has been asked about: they become layers of
    it. In float32, unless the model is not."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model.eval()
        self._tuned = None
        self._names: dict[Path, str] = {}

    def logits(
        self, adapter: Path | None, sequences: Sequence[Sequence[int]], last: Sequence[int]
    ) -> list[torch.Tensor]:
        """Logits [last[i], vocab] of each sequence's last positions, in float32 or float64."""
        out: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
        by_length = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        with torch.no_grad(), self._with(adapter):
            for batch in _batches(by_length, sequences):
                longest = max(len(sequences[i]) for i in batch)
                # Padding stands behind a sequence, where causal attention never looks.
                ids = [[*sequences[i], *[0] * (longest - len(sequences[i]))] for i in batch]
                hidden = self._model.model(torch.tensor(ids))[0]
                for row, i in zip(hidden, batch, strict=True):
                    end = len(sequences[i])
                    out[i] = self._model.lm_head(row[end - last[i] : end])
        return out

    def compare(self, answers: Iterable[Answer]) -> Verdict:
        """Every token against the reference's own choice after the same tokens before it, and the
        logits where an answer has them."""
        by_adapter: dict[Path | None, list[Answer]] = {}
        for a in answers:
            by_adapter.setdefault(a.adapter, []).append(a)
        verdict = Verdict()
        for adapter, group in by_adapter.items():
            for first in range(0, len(group), HELD_ANSWERS):
                part = group[first : first + HELD_ANSWERS]
                sequences, last = [a.tokens for a in part], [len(a.output) for a in part]
                expected = self.logits(adapter, sequences, last)
                for answer, rows in zip(part, expected, strict=True):
                    verdict.add(compare(answer, rows))
        return verdict

    def own_distance(self, answers: Sequence[Answer]) -> float:
        """How far this reference is from itself in float64: the largest logit over `answers`."""
        for adapter in {a.adapter for a in answers}:
            self._with(adapter)  # before the copy, which cannot load others
        exact = copy.deepcopy(self)
        exact._model.double()
        for module in exact._model.modules():
            if type(module).__name__.endswith("RMSNorm"):  # goes through float32 whatever it is fed
                module.forward = partial(_norm, module)
        worst = 0.0
        for a in answers:
            asked = (a.adapter, [a.tokens], [len(a.output)])
            worst = max(worst, distance(self.logits(*asked)[0], exact.logits(*asked)[0]))
        return worst

    def _with(self, adapter: Path | None) -> AbstractContextManager[object]:
        from peft import PeftModel

        if adapter is None:
            return nullcontext() if self._tuned is None else self._tuned.disable_adapter()
        name = self._names.get(adapter)
        if name is None:
            name = self._names[adapter] = f"adapter-{len(self._names)}"
            if self._tuned is None:
                self._tuned = PeftModel.from_pretrained(self._model, adapter, adapter_name=name)
            else:
                self._tuned.load_adapter(adapter, adapter_name=name)
            self._tuned.eval()
        assert self._tuned is not None
        self._tuned.set_adapter(name)
        return nullcontext()


def compare(answer: Answer, expected: torch.Tensor) -> Verdict:
    """`expected`: logits [output tokens, vocab] of the answer's own sequence."""
    best, second = expected.topk(2).values.T.tolist()
    verdict = Verdict(tokens=len(answer.output))
    for i, token in enumerate(answer.output):
        right = int(expected[i].argmax())
        if best[i] - second[i] < MARGIN:
            verdict.tied += 1
        elif token != right:
            verdict.wrong.append(
                f"{answer.name}: token {i} is {token}, transformers says {right} "
                f"(by {best[i] - second[i]:.2g})"
            )
        own = answer.logits.get(i)
        if own is not None:
            verdict.logits += 1
            verdict.worst = max(verdict.worst, float((own - expected[i]).abs().max()))
    return verdict


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of a logit."""
    return float((one.double() - other.double()).abs().max())


def check_right(judge: Judge, answers: Sequence[Answer], own: float = 0.0) -> None:
    """`own`: the reference's distance from float64, twice of which is allowed."""
    verdict = judge.compare(answers)
    print(
        f"{verdict.tokens} tokens, {verdict.tied} tied; {verdict.logits} rows of logits within "
        f"{verdict.worst:.2g} (the reference's own error: {own:.2g})"
    )
    assert not verdict.wrong, verdict.wrong[:5]
    assert verdict.logits > 0
    assert verdict.worst <= max(TOLERANCE, 2 * own)
    assert verdict.tied <= 0.02 * verdict.tokens


def _batches(order: Sequence[int], sequences: Sequence[Sequence[int]]) -> Iterable[list[int]]:
    batch: list[int] = []
    for i in order:  # ascending lengths: the newest decides what all are padded to
        if batch and (len(batch) + 1) * len(sequences[i]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _norm(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    square = x.pow(2).mean(-1, keepdim=True)
    return module.weight * x * torch.rsqrt(square + module.variance_epsilon)
