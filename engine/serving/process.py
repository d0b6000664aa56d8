"""One child process: its pipes, its readiness, signs of life, last words, end. Knows no `serve`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO

from engine.errors import EngineError
from engine.serving.launch import PROGRESS, READY

_LAST_WORDS = 20


class ServeError(EngineError):
    """A process of `serve` did not start, or ended when it should not have."""


class Child:
    """Starts `python -m module arguments` in a process group of its own, tied to this process.

    Its stdout speaks to us (`ready...`, `progress: ...`), its stderr to a person. The callbacks
    run on threads of this object and must not raise: who reads the pipes must not stop.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        keep_fds: Sequence[int] = (),
        on_error_line: Callable[[str], None],
        on_progress: Callable[[str], None],
        on_exit: Callable[[], None],
    ) -> None:
        self.name = name
        self._words: deque[str] = deque(maxlen=_LAST_WORDS)
        self._ready = threading.Event()
        self._over = threading.Event()  # ready, or will never be
        self._exited = threading.Event()
        self._closing = threading.Lock()  # two may stop it at once; what it holds is closed once
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._why = ""  # of an end that was made from here
        fd = theirs.fileno()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engine.serving.child", str(fd), module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=(fd, *keep_fds),
                start_new_session=True,
            )
        except BaseException:
            self._ours.close()
            raise
        finally:
            theirs.close()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        readers = [
            threading.Thread(target=self._hear, args=(self._process.stdout, on_progress)),
            threading.Thread(target=self._note, args=(self._process.stderr, on_error_line)),
        ]
        waiter = threading.Thread(target=self._wait, args=(readers, on_exit))
        try:
            for thread in (*readers, waiter):
                thread.name, thread.daemon = f"child-{name}", True
                thread.start()
        except RuntimeError:  # no more threads: nobody would hear it, nor end it
            self._kill_group()
            self._process.wait()
            self._ours.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Exit code once it has ended and all it said has been read; None while it lives."""
        return self._process.returncode if self._exited.is_set() else None

    def how(self) -> str:
        """How it ended, in words. For one that has."""
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def by_whom(self) -> str:
        """Why it was ended from here; or a hint, for one that was not; empty when it has a code."""
        if self._why:
            return f" ({self._why})"
        if self._process.returncode != -signal.SIGKILL:
            return ""
        return " (killed by hand, or by the system for want of memory: see dmesg)"

    def last_words(self) -> list[str]:
        return list(self._words)

    def wait_ready(self, timeout_s: float) -> bool:
        """True when it said `ready`; False when it ended before, or time is up."""
        self._over.wait(timeout_s)
        return self._ready.is_set()

    def stop(self, timeout_s: float) -> int:
        """SIGTERM, then SIGKILL to its whole group after `timeout_s`. Returns the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        if not self._exited.wait(timeout_s):
            self._kill_group()
            self._exited.wait()
        self._kill_group()  # whatever it started must not stay behind
        with self._closing:
            self._ours.close()
        return self._process.returncode

    def beat(self) -> bool:
        """Whether it has given a sign of life since the last call."""
        with self._closing, contextlib.suppress(OSError):
            return bool(self._ours.recv(4096))
        return False

    def end(self, why: str) -> None:
        """At once and without a word to it: it hangs. `why` is said with its end."""
        self._why = why
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _hear(self, stream: IO[str], on_progress: Callable[[str], None]) -> None:
        with stream:
            for line in stream:
                if line.startswith(PROGRESS):
                    on_progress(line[len(PROGRESS) :].rstrip())
                elif line.split(" ")[0].strip() == READY:
                    self._ready.set()
                    self._over.set()

    def _note(self, stream: IO[str], on_error_line: Callable[[str], None]) -> None:
        with stream:
            for line in stream:
                self._words.append(line.rstrip())
                on_error_line(line.rstrip())

    def _wait(self, readers: Sequence[threading.Thread], on_exit: Callable[[], None]) -> None:
        self._process.wait()
        for reader in readers:
            reader.join(1.0)  # a grandchild may hold the pipe open: its words are not awaited
        self._exited.set()
        self._over.set()
        on_exit()


def ready_or_raise(child: Child, within_s: float) -> None:
    """Wait until it is ready. Raises ServeError, with its last words, if it does not become so."""
    if child.wait_ready(within_s):
        return
    what = (
        f"was not ready within {within_s:.0f} s"
        if child.poll() is None
        else f"ended with {child.how()} before it was ready{child.by_whom()}"
    )
    raise ServeError(obituary(child, what))


def obituary(child: Child, what: str) -> str:
    """What became of it, in a sentence, and what it said last."""
    words = child.last_words()
    said = "; it said:\n" + "\n".join(f"  {line}" for line in words) if words else ""
    return f"the {child.name} process {what}{said}"
