"""Runs replays under a budget of wall time, in this process or in a few others. Owns processes.

What does not fit is told, never guessed. Ctrl-C and the end of the budget stop everything at once:
helpers hold nothing that could be left half done. One that dies costs the replay it was at, and the
others go on; one whose parent died ends by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from engine.errors import EngineError
from postmortem.whatif.model import Outcome
from postmortem.whatif.replay import Job, Stretch, replay

POLL_S = 0.2
SMALL = 20_000  # requests to replay in all: for fewer, starting helpers takes longer than it saves
MOST_PROCESSES = 4  # each holds its own copy of the arrivals


def cores() -> int:
    """Processes that are worth starting: the cores this one may run on, MOST_PROCESSES at most."""
    try:
        mine = len(os.sched_getaffinity(0))
    except AttributeError:  # not everywhere
        mine = os.cpu_count() or 1
    return min(MOST_PROCESSES, mine)


@dataclass(frozen=True, slots=True)
class Told:
    """How far the replays are: `part` of the one under way, by name."""

    done: int
    of: int
    under_way: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """No outcome: a setup that no pool could have, or a process that died over it. `why`: all of
    a sentence but its beginning."""

    why: str


Answer = Outcome | Refused
Hear = Callable[[Told], None]
Then = Callable[[Answer], Sequence[Job] | None]


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

    def run(self, jobs: Sequence[Job], then: Then = lambda first: ()) -> list[Answer | None]:
        """An answer a job, in order; None = there was no time for it. `then` hears the first job's
        answer and says what is to be run next, before the others: its answers stand at the end.
        None: nothing more is run, and what another process was at meanwhile is thrown away."""
        queue = _Queue(jobs, then)
        if self._helpers:
            self._together(queue)
        else:
            self._alone(queue)
        return queue.answers

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for helper in self._helpers:
            helper.stop()

    # -- in this process

    def _alone(self, queue: _Queue) -> None:
        while queue.left and self._clock() < self._deadline_s:
            i = queue.left.popleft()
            job = queue.jobs[i]
            told = self._watch(queue.done, len(queue.jobs), job)
            try:
                queue.take(i, _answer(job, self._stretches[job.stretch], told))
            except _OutOfTime:
                break

    def _watch(self, done: int, of: int, job: Job) -> Callable[[float], None]:
        def told(part: float) -> None:
            if self._clock() >= self._deadline_s:
                raise _OutOfTime
            if self._hear is not None:
                self._hear(Told(done, of, ((job.name, part),)))

        return told

    # -- in others

    def _together(self, queue: _Queue) -> None:
        idle = list(self._helpers)
        busy: dict[int, tuple[_Helper, int]] = {}
        while (busy or (queue.left and idle)) and self._clock() < self._deadline_s:
            while queue.left and idle:
                helper, i = idle.pop(), queue.left.popleft()
                helper.give(queue.jobs[i])
                busy[i] = helper, i
            ready = wait([h.pipe for h, _ in busy.values()], timeout=POLL_S)
            for helper, i in [b for b in busy.values() if b[0].pipe in ready]:
                del busy[i]
                queue.take(i, helper.answer())
                if helper.lives:
                    idle.append(helper)
            if self._hear is not None:
                under_way = tuple((queue.jobs[i].name, h.part) for h, i in busy.values())
                self._hear(Told(queue.done, len(queue.jobs), under_way))
            if queue.over:
                break
        for helper, _ in busy.values():
            helper.stop()
        self._helpers = [h for h in self._helpers if h.lives]
        if not self._helpers and not busy:
            for i in queue.left:
                queue.answers[i] = Refused("no process is left to replay it")


class _Queue:
    """The jobs of one run and their answers. `left` are the places of those to be begun."""

    def __init__(self, jobs: Sequence[Job], then: Then) -> None:
        self.jobs = list(jobs)
        self.answers: list[Answer | None] = [None] * len(jobs)
        self.left = deque(range(len(jobs)))
        self.done = 0
        self.over = False
        self._then = then

    def take(self, place: int, answer: Answer) -> None:
        self.answers[place] = answer
        self.done += 1
        if place:
            return
        more = self._then(answer)
        if more is None:
            self.over = True
            self.left.clear()
            return
        first = len(self.jobs)
        self.jobs += more
        self.answers += [None] * len(more)
        self.left.extendleft(reversed(range(first, len(self.jobs))))


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

    @property
    def lives(self) -> bool:
        return self._process.is_alive()

    def give(self, job: Job) -> None:
        self._part.value = 0.0
        with suppress(OSError):  # it died while it was idle: the answer says so
            self.pipe.send(job)

    def answer(self) -> Answer:
        """To what it was given, once there is something to read. Refused where its process ended
        instead of answering."""
        try:
            answer: Answer = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return Refused(
                f"the replay's process ended with code {self._process.exitcode} (is memory short? "
                "try a shorter window)"
            )
        return answer

    def stop(self) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection[Any, Any], stretches: Mapping[str, Stretch], part: Any) -> None:
    """A helper's whole life. Ctrl-C reaches every process of a terminal: the first one decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = os.getppid()

    def told(now: float) -> None:
        if os.getppid() != first:
            raise SystemExit(1)  # nobody is left to hear the answer
        part.value = now

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_answer(job, stretches[job.stretch], told))
