"""Where a console's files go, whose store it looks at, and the one thing that is under way.

Owns the thread on which a slow hand-over runs and the process it may have started; what is handed
over others do. Nothing here is waited for by the screen, and leaving ends it.
"""

from __future__ import annotations

import getpass
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.poller import sentence_of

THREAD = "handover"  # the command line looks for this name when it ends
TICK_S = 1.0
LONGEST_S = 300.0  # of a process that was started
ENDS_S = 2.0  # how long one has to end when it is told to


@dataclass(frozen=True, slots=True)
class Said:
    """What a hand-over says: what is under way (empty: nothing), a sentence for the reader, text to
    be copied."""

    sentence: str = ""
    status: str = ""
    copy: str = ""
    failed: bool = False


Tell = Callable[[Said], None]
Do = Callable[[Callable[[str], None]], Said]


@dataclass(frozen=True, slots=True)
class Place:
    """What is looked at: `where` as `telemetry.source.open_source` takes it, `options` as the
    command line says it. `recorded`: a sample or a replay, which takes no notes. `write_notes`:
    a closed store takes them too."""

    where: str
    options: tuple[str, ...]
    recorded: bool = False
    write_notes: bool = False


def login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


@dataclass(slots=True)
class Hand:
    """`place` None: what is on the screen has no store behind it that could be named."""

    place: Place | None = None
    folder: Path = field(default_factory=Path.cwd)
    who: str = field(default_factory=login)
    monotonic: Callable[[], float] = time.monotonic
    _busy: str = ""
    _over: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[str] | None = None

    @property
    def busy(self) -> str:
        """What is under way; empty: nothing."""
        return self._busy

    def start(self, what: str, do: Do, tell: Tell) -> bool:
        """Do it on a thread; `do` is given a way to tell a status. False: something else is under
        way, or the console is being left. `tell` is called on the thread."""
        if self._busy or self._over.is_set():
            return False
        self._busy = what

        def run() -> None:
            try:
                said = do(lambda status: tell(Said(status=status)))
            except Exception as e:  # whatever refuses is said; the screen lives on
                said = Said(f"no {what}: {sentence_of(e)}", failed=True)
            self._busy = ""
            if not self._over.is_set():
                tell(said)

        threading.Thread(target=run, name=THREAD, daemon=True).start()
        return True

    def process(
        self, words: Sequence[str], status: Callable[[str], None], what: str, **more: Any
    ) -> tuple[int, str]:
        """Run a process to its end; its exit code and the last line of its stderr. Its status is
        told every second. Raises TimeoutError, and has ended it then."""
        began = self.monotonic()
        self._process = process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True, **more,
        )  # fmt: skip
        if self._over.is_set():  # `close` came before there was a process to end
            self._end(process)
        lines: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=_last_lines, args=(process.stderr, lines), daemon=True)
        reader.start()
        try:
            while True:
                status(f"{what} {self.monotonic() - began:.0f}s")
                try:
                    code = process.wait(TICK_S)
                    break
                except subprocess.TimeoutExpired:
                    if self.monotonic() - began > LONGEST_S:
                        raise TimeoutError(
                            f"it did not end within {LONGEST_S:.0f} s and was stopped"
                        ) from None
        finally:
            self._end(process)
            self._process = None
        reader.join(ENDS_S)
        return code, lines[-1] if lines else ""

    def close(self) -> None:
        """Leave: what is under way is ended and told to nobody."""
        self._over.set()
        process = self._process
        if process is not None:
            self._end(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(ENDS_S)


def _last_lines(stream: Any, lines: list[str]) -> None:
    """Keep the last few, so that a talkative process fills no pipe and no memory."""
    for line in stream:
        if line.strip():
            lines.append(line.strip())
            del lines[:-5]
