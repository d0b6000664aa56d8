"""Runs replays under a budget of wall time, in this process or in a few others. Owns processes.

What does not fit is told, never guessed. Ctrl-C and the end of the budget stop everything at once:
helpers hold nothing that could be left half done.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from engine.errors import EngineError
from postmortem.whatif.model import Outcome
from postmortem.whatif.replay import Job, Stretch, replay

POLL_S = 0.2
SMALL = 20_000  # requests to replay in all: for fewer, starting helpers takes longer than it saves


@dataclass(frozen=True, slots=True)
class Told:
    """How far the replays are: `part` of the one under way, by name."""

    done: int
    of: int
    under_way: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A setup that no pool could have: why."""

    why: str


Answer = Outcome | Refused
Hear = Callable[[Told], None]


class _OutOfTime(Exception):
    """The budget is spent in the middle of a replay."""


class Replays(AbstractContextManager["Replays"]):
    """Does jobs until `deadline_s` of `clock`. `processes` 1 = in this one."""

    def __init__(
        self,
        stretches: Mapping[str, Stretch],
        deadline_s: float,
        *,
        processes: int = 1,
        hear: Hear | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stretches = dict(stretches)
        self._deadline_s = deadline_s
        self._hear = hear
        self._clock = clock
        self._helpers = (
            [_Helper(self._stretches) for _ in range(processes)] if processes > 1 else []
        )

    def run(self, jobs: Sequence[Job]) -> list[Answer | None]:
        """An answer a job, in order; None = there was no time for it."""
        return self._together(jobs) if self._helpers else self._alone(jobs)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for helper in self._helpers:
            helper.stop()

    # -- in this process

    def _alone(self, jobs: Sequence[Job]) -> list[Answer | None]:
        out: list[Answer | None] = [None] * len(jobs)
        for i, job in enumerate(jobs):
            if self._clock() >= self._deadline_s:
                break
            try:
                out[i] = _answer(job, self._stretches[job.stretch], self._watch(i, len(jobs), job))
            except _OutOfTime:
                break
        return out

    def _watch(self, done: int, of: int, job: Job) -> Callable[[float], None]:
        def told(part: float) -> None:
            if self._clock() >= self._deadline_s:
                raise _OutOfTime
            if self._hear is not None:
                self._hear(Told(done, of, ((job.name, part),)))

        return told

    # -- in others

    def _together(self, jobs: Sequence[Job]) -> list[Answer | None]:
        out: list[Answer | None] = [None] * len(jobs)
        left = deque(range(len(jobs)))
        idle = list(self._helpers)
        busy: dict[int, tuple[_Helper, int]] = {}
        done = 0
        while left or busy:
            if self._clock() >= self._deadline_s:
                break
            while left and idle:
                helper, i = idle.pop(), left.popleft()
                helper.give(jobs[i])
                busy[i] = helper, i
            ready = wait([h.pipe for h, _ in busy.values()], timeout=POLL_S)
            for helper, i in [b for b in busy.values() if b[0].pipe in ready]:
                del busy[i]
                out[i] = helper.answer()
                idle.append(helper)
                done += 1
            if self._hear is not None:
                under_way = tuple((jobs[i].name, h.part) for h, i in busy.values())
                self._hear(Told(done, len(jobs), under_way))
        for helper, _ in busy.values():
            helper.stop()
        return out


def _answer(job: Job, stretch: Stretch, told: Callable[[float], None]) -> Answer:
    try:
        return replay(job, stretch, told)
    except EngineError as e:
        return Refused(str(e))


class _Helper:
    """A process that replays what it is given, one job at a time."""

    def __init__(self, stretches: Mapping[str, Stretch]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self._part = spawn.RawValue("d", 0.0)
        self._process = spawn.Process(
            target=_serve, args=(theirs, stretches, self._part), name="what-if", daemon=True
        )
        self._process.start()
        theirs.close()  # so that its death is an end of file here

    @property
    def part(self) -> float:
        return float(self._part.value)

    def give(self, job: Job) -> None:
        self._part.value = 0.0
        self.pipe.send(job)

    def answer(self) -> Answer:
        """Raises RuntimeError where the process ended instead of answering."""
        try:
            answer: Answer = self.pipe.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(
                f"a replay's process ended with code {self._process.exitcode}: is memory short? "
                "try a shorter window"
            ) from None
        return answer

    def stop(self) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection[Any, Any], stretches: Mapping[str, Stretch], part: Any) -> None:
    """A helper's whole life. Ctrl-C reaches every process of a terminal: the first one decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def told(now: float) -> None:
        part.value = now

    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(job, stretches[job.stretch], told))
