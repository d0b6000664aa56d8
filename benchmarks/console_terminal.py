"""A console on a terminal of its own (a pty, 120x40), for benchmarks: keys in, what is painted out.

A key is painted when a word that only the screen it opens has is on the terminal. CPU and memory of
a process by /proc.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import random
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from seal_commit import ROOT

ROWS, COLUMNS = 40, 120


# Pressed in turn: a key, and what is on the screen it opens and not on the one before.
KEYS = ((b"a", b"tenant "), (b"a", b"HOLDS"), (b"?", b"misses its targets"), (b"?", b"HOLDS"))
ESC = b"\x1b"


class Terminal:
    """A console on a pty. What it writes is read by a thread, with the time it came."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self.began = time.perf_counter()
        self._popen = subprocess.Popen(
            [sys.executable, "-c", "from console.cli import main; main()", "console", *arguments],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._heard = threading.Condition()
        self._seen: list[tuple[float, bytes]] = []
        self._thread = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            while data := os.read(self._master, 1 << 16):
                with self._heard:
                    self._seen.append((time.perf_counter(), data))
                    self._heard.notify_all()

    def wait_for(self, word: bytes, since: float, timeout_s: float = 60.0) -> float:
        """When a word came, from an instant on. Raises TimeoutError."""

        def found() -> float | None:
            text, at = b"", None
            for t, data in self._seen:
                if t >= since:
                    text = text[-len(word) :] + data
                    at = t
                    if word in text:
                        return at
            return None

        with self._heard:
            if not self._heard.wait_for(lambda: found() is not None, timeout_s):
                tail = b"".join(d for _, d in self._seen)[-2000:]
                raise TimeoutError(f"{word!r} did not come within {timeout_s:g} s: {tail!r}")
            came = found()
            assert came is not None
            self._seen = self._seen[-50:]
            return came

    def press(self, key: bytes) -> float:
        pressed = time.perf_counter()
        os.write(self._master, key)
        return pressed

    @property
    def pid(self) -> int:
        return self._popen.pid

    def stop(self) -> None:
        self.press(b"q")
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        os.close(self._master)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def press_keys(screen: Terminal, until: float) -> dict[str, float]:
    """Keys at random times, one after the other; seconds from each until it is painted."""
    draw = random.Random(1)
    took: list[float] = []
    at = 0
    while time.perf_counter() < until or at % len(KEYS):
        key, word = KEYS[at % len(KEYS)]
        time.sleep(draw.uniform(0.2, 0.6))
        pressed = screen.press(key)
        took.append(screen.wait_for(word, pressed) - pressed)
        at += 1
    ordered = sorted(took)
    return {
        "n": len(took),
        "p50": statistics.median(took),
        "p95": ordered[min(len(took) - 1, int(0.95 * len(took)))],
        "most": ordered[-1],
    }


def press_esc(screen: Terminal, times: int = 5) -> float:
    """Seconds until esc has closed the help, the median: the framework waits 100 ms by itself for
    what would make an arrow of it."""
    took = []
    for _ in range(times):
        screen.wait_for(b"misses its targets", screen.press(b"?"))
        pressed = screen.press(ESC)
        took.append(screen.wait_for(b"HOLDS", pressed) - pressed)
    return statistics.median(took)
