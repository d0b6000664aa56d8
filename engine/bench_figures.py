"""What a throughput run measured, as values: from the times of steps to medians. Runs nothing.

Decode and end-to-end are kept apart. *Decode* looks only at the window in which every stream is
decoding: from the instant the last stream has its first token to the instant the first stream has
its last. *End to end* is all output tokens over all of the round's time, prompts included. Both
can be had of any server that says when its tokens came, which is what makes them comparable.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked: each of `streams` is a round of so many requests that arrive together, stream
    i with adapter i modulo `adapters` (0: the base model only)."""

    streams: tuple[int, ...] = (1, 8, 32)
    adapters: int = 8
    rank: int = 16
    prompt_tokens: int = 128
    output_tokens: int = 64
    rounds: int = 3
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step as its caller saw it: when it was over, seconds since the requests were sent, and
    whose tokens it gave. `streams` are numbers of the round."""

    at_s: float
    streams: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of requests that arrived together. None: there was no window in which all streams
    decoded (`output_tokens` is too small for so many prompts)."""

    streams: int
    output_tokens: int
    wall_s: float
    prefill_s: float  # until the last stream had its first token
    ttft_s: float  # median over the streams
    step_s: float | None  # median step of the window, planning and settling included
    decode_tokens_per_s: float | None
    end_to_end_tokens_per_s: float
    ours_s: float | None = None  # of the median step of the window: what is not the runner's


@dataclass(frozen=True, slots=True)
class AtStreams:
    """The rounds of one number of streams, and their medians."""

    streams: int
    rounds: tuple[Round, ...]

    @property
    def decode_tokens_per_s(self) -> float | None:
        return self._median(lambda r: r.decode_tokens_per_s)

    @property
    def end_to_end_tokens_per_s(self) -> float:
        return self._median(lambda r: r.end_to_end_tokens_per_s) or 0.0

    @property
    def step_s(self) -> float | None:
        return self._median(lambda r: r.step_s)

    @property
    def ours_s(self) -> float | None:
        return self._median(lambda r: r.ours_s)

    @property
    def prefill_s(self) -> float:
        return self._median(lambda r: r.prefill_s) or 0.0

    @property
    def ttft_s(self) -> float:
        return self._median(lambda r: r.ttft_s) or 0.0

    def _median(self, of: Callable[[Round], float | None]) -> float | None:
        known = [value for r in self.rounds if (value := of(r)) is not None]
        return statistics.median(known) if known else None

    def to_json(self) -> dict[str, Any]:
        rates = ("decode_tokens_per_s", "end_to_end_tokens_per_s")
        times = ("step_s", "ours_s", "prefill_s", "ttft_s")
        medians = {name: getattr(self, name) for name in (*rates, *times)}
        return {"streams": self.streams, **medians, "rounds": [asdict(r) for r in self.rounds]}


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What went the telemetry's way meanwhile. `where`: what took it."""

    where: str
    requests: int  # delivered
    bytes: int
    lost: int


@dataclass(frozen=True, slots=True)
class Figures:
    """A whole run: what computed it, what was asked, what came out."""

    model: str
    dtype: str
    backend: str  # what computes the adapters and the attention
    threads: int
    load: Load
    at: tuple[AtStreams, ...]
    telemetry: Telemetry
    synthetic: bool  # a random model: the figures say nothing about a real one
    busy_before: float  # the machine's load average of the minute before: others' work

    def of(self, streams: int) -> AtStreams:
        """Raises KeyError when so many streams were not measured."""
        for at in self.at:
            if at.streams == streams:
                return at
        raise KeyError(streams)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dtype": self.dtype,
            "backend": self.backend,
            "threads": self.threads,
            "synthetic": self.synthetic,
            "busy_before": self.busy_before,
            "load": asdict(self.load),
            "telemetry": asdict(self.telemetry),
            "at": [a.to_json() for a in self.at],
        }


def round_of(steps: Sequence[StepSeen], ours_s: Sequence[float] = ()) -> Round:
    """Read a round off its steps, in order. `ours_s`: of each step the seconds outside the runner.

    Raises ValueError when no step gave a token.
    """
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for step in steps:
        for stream in step.streams:
            first.setdefault(stream, step.at_s)
            last[stream] = step.at_s
    if not first:
        raise ValueError("a round without a token has no figures")
    prefill_s, window_end_s, wall_s = max(first.values()), min(last.values()), max(last.values())
    tokens = sum(len(step.streams) for step in steps)
    inside = [i for i, s in enumerate(steps) if prefill_s < s.at_s <= window_end_s]
    took = [steps[i].at_s - steps[i - 1].at_s for i in inside]
    made = sum(len(steps[i].streams) for i in inside)
    own = [ours_s[i] for i in inside] if ours_s else []
    return Round(
        streams=len(first),
        output_tokens=tokens,
        wall_s=wall_s,
        prefill_s=prefill_s,
        ttft_s=statistics.median(first.values()),
        step_s=statistics.median(took) if took else None,
        decode_tokens_per_s=made / (window_end_s - prefill_s) if took else None,
        end_to_end_tokens_per_s=tokens / wall_s,
        ours_s=statistics.median(own) if own else None,
    )
