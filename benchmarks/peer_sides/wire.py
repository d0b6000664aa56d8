"""What the driver and a side say to each other: one JSON object a line. Standard library only.

A side runs in whatever environment its engine lives in, so it imports nothing else of this
project. What an engine prints goes to stderr; the answers have the old stdout for themselves.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """What a side is started with. `folder`: the model in Hugging Face's form; `adapters`: PEFT
    folders; `gguf` and `gguf_adapters`: the same for llama.cpp; `how`: a side's own variant."""

    model: str
    folder: str
    dtype: str
    adapters: tuple[str, ...]
    gguf: str
    gguf_adapters: tuple[str, ...]
    streams: int  # at most
    rank: int
    prompt_tokens: int
    output_tokens: int
    how: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """One round: all prompts at once, greedily, `output_tokens` each whatever the model says.
    `adapters`: each stream's, by its place in the job's; None = the base model."""

    prompts: list[list[int]]
    adapters: list[int | None]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Played:
    """`steps`: when tokens came, seconds since the round began, and whose; `tokens` by stream,
    empty for a stream that was left out (`Side.about` says why)."""

    steps: list[tuple[float, list[int]]]
    tokens: list[list[int]]


class Side(Protocol):
    def about(self) -> str:
        """What it is, with its version, in a few words."""
        ...

    def play(self, ask: Ask) -> Played: ...

    def close(self) -> None:
        """What would outlive the process goes."""
        ...


def read_job(path: str) -> Job:
    raw = json.loads(Path(path).read_text())
    raw["adapters"], raw["gguf_adapters"] = tuple(raw["adapters"]), tuple(raw["gguf_adapters"])
    return Job(**raw)


def write_job(job: Job, path: Path) -> None:
    path.write_text(json.dumps(asdict(job)))


def read_played(raw: dict[str, Any]) -> Played:
    return Played([(at, streams) for at, streams in raw["steps"]], raw["tokens"])


def serve(make: Callable[[Job], Side]) -> None:
    """Make the side of the job file in argv[1], say that it is ready, play what is asked."""
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        side = make(read_job(sys.argv[1]))
        print(json.dumps({"ready": side.about()}), file=answers)
        for line in sys.stdin:
            played = side.play(Ask(**json.loads(line)))
            print(json.dumps(asdict(played)), file=answers)
        side.close()
