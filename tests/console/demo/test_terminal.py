"""The README's commands in a real terminal: what is on the screen, which keys end it, with what."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TMUX = shutil.which("tmux")
LONG_S = 120.0
pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("terminal"),
    pytest.mark.skipif(TMUX is None, reason="there is no tmux here"),
]


class Terminal:
    """A command in a terminal of a size; its last line says how it ended."""

    def __init__(self, size: tuple[int, int], *args: str) -> None:
        self._name = f"test-{uuid.uuid4().hex[:8]}"
        words = " ".join(f"'{a}'" for a in args)
        run = f"{sys.executable} -c 'from console.cli import main; main()' {words}"
        self._tmux("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]),
                   f"cd '{ROOT}' && LC_ALL=C.UTF-8 {run}; echo EXIT $?; read _")  # fmt: skip

    def _tmux(self, *args: str) -> str:
        done = subprocess.run([str(TMUX), "-L", self._name, *args], capture_output=True, text=True,
                              check=False)  # fmt: skip
        return done.stdout

    @property
    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until(self, true: Callable[[str], bool]) -> str:
        """The screen, once it shows something."""
        end, tick = time.monotonic() + LONG_S, threading.Event()
        while not true(text := self.text):
            assert time.monotonic() < end, text
            tick.wait(0.1)
        return text

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(size: tuple[int, int], *args: str) -> Terminal:
        opened.append(Terminal(size, *args))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_the_recording_plays_in_the_console_to_its_end_and_q_leaves(terminal, size):
    screen = terminal(size, "demo", "--replay", "--speed", "30")
    screen.until(lambda text: "CULPRIT acme" in text)
    text = screen.until(lambda text: "the recording ends here" in text)
    assert "policy vtc v2" in text
    assert "REPLAY x30" in text
    assert max(len(line) for line in text.splitlines()) <= size[0]
    screen.press("c")
    screen.until(lambda text: "read-only: a recorded run" in text)
    screen.press("q")
    screen.until(lambda text: "EXIT 0" in text)


def test_the_live_demo_is_capped_and_undone_on_its_own_screen(terminal, tmp_path):
    screen = terminal((100, 30), "demo", "--model", "synthetic", "--duration", "60",
                      "--store", str(tmp_path / "store"))  # fmt: skip
    screen.until(lambda text: "ADMIN" in text and "initech" in text)
    screen.press("Down", "c")
    screen.until(lambda text: "CAP" in text)
    screen.press("Down", "Down", "1", "Enter")
    screen.until(lambda text: "Enter: do it" in text)
    screen.press("Enter")
    screen.until(lambda text: "Enter: close" in text)
    screen.press("Enter")
    screen.until(lambda text: "SET   1" in text)
    screen.press("u")
    screen.until(lambda text: "Enter: do it" in text and "takes back" in text)
    screen.press("Enter")
    screen.until(lambda text: "Enter: close" in text)
    screen.press("Escape")
    screen.until(lambda text: "SET   1" not in text and "HOLDS" in text)
    screen.press("q")
    screen.until(lambda text: "EXIT 0" in text)
