"""A contender's process: started, asked, and stopped while it is another's turn. Decides nothing.

Only one contender may run at a time, and some spin while they wait: whoever's turn it is not is
held by SIGSTOP, with all its children.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peer_sides.wire import Ask, Job, Played, read_played, write_job

HERE = Path(__file__).resolve().parent
START_S = 900.0  # vLLM compiles for a minute, on a busy machine for ten
ROUND_S = 420.0
END_S = 5.0
# Libgomp's threads spin for milliseconds after each region; beside any other busy process that
# costs a factor, alone nothing (`engine.threads`). Ours bounds it, so the others get it too.
SPIN = {"GOMP_SPINCOUNT": "500"}


class ContenderFailed(RuntimeError):
    """It did not start, died, or took too long; says its last words."""


class Contender:
    """One side in its own process group. Stopped from the start on except while it is asked."""

    def __init__(self, name: str, script: str, python: str, job: Job, scratch: Path) -> None:
        """Starts it and waits until it is ready. Raises ContenderFailed."""
        self.name = name
        self._said = scratch / f"{name}.log"
        path = scratch / f"{name}.json"
        write_job(job, path)
        environment = {**SPIN, **os.environ}
        environment.pop("PYTHONPATH", None)  # another environment's libraries, for some
        with self._said.open("wb") as log:
            self._popen = subprocess.Popen(
                [python, str(HERE / script), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=environment,
                start_new_session=True,
            )
        try:
            self.about: str = self._answer(START_S)["ready"]
        except BaseException:
            self.close()
            raise
        self._hold()

    def play(self, ask: Ask) -> Played:
        """Raises ContenderFailed."""
        self._signal(signal.SIGCONT)
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(asdict(ask)).encode() + b"\n")
            self._popen.stdin.flush()
            return read_played(self._answer(ROUND_S))
        except BrokenPipeError:
            raise self._failed("ended") from None
        finally:
            self._hold()

    def close(self) -> None:
        """At once or in a few seconds, with whatever it has started."""
        self._signal(signal.SIGCONT)
        try:
            with suppress(subprocess.TimeoutExpired):  # some take their time
                self._popen.communicate(timeout=END_S)
        finally:
            self._signal(signal.SIGKILL)
            self._popen.communicate()

    def _hold(self) -> None:
        """Returns when it stands still, or has ended."""
        self._signal(signal.SIGSTOP)
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self._popen.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._popen.pid, number)
        except ProcessLookupError:
            return  # it has ended: whoever asks it next is told

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._popen.stdout is not None
        until = time.monotonic() + patience_s
        handle, line = self._popen.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([handle], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise self._failed(f"gave no answer in {patience_s:.0f} s")
            data = os.read(handle, 1 << 20)
            if not data:
                raise self._failed("ended")
            line += data
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, what: str) -> ContenderFailed:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(END_S if what == "ended" else 0.0)  # its last words come last
        words = self._said.read_text(errors="replace").strip().splitlines()[-4:]
        return ContenderFailed(f"{self.name} {what}: {' | '.join(words) or 'it said nothing'}")
