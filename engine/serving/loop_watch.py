"""Watches that a process's loop turns, from within. Owns how long it has not.

A step that hangs (a device, a dead lock) lets the process's other threads run: from outside it
gives signs of life, and only it knows that it gets nowhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable

from engine.serving.lookout import LOOK_S, Lookout
from engine.serving.silence import Silence

_FRAMES = 6


class LoopWatch:
    """`give_up(s)` is called once the loop has not turned for `hung_s`; it is to end the process.
    Made on the loop's own thread."""

    def __init__(self, hung_s: float, give_up: Callable[[float, str], None]) -> None:
        self._hung_s = hung_s
        self._give_up = give_up
        self._loop = threading.get_ident()
        self._silence = Silence()
        self._turns = self._seen = 0
        self._lookout = Lookout("loop-watch", self.look)

    def turned(self) -> None:
        """The loop's thread, once a turn, idle ones too."""
        self._turns += 1

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """It is an event loop: it turns as long as its timers fire."""
        self.turned()
        loop.call_later(LOOK_S, self.follow, loop)

    def look(self, passed_s: float) -> None:
        """`passed_s` after the last look."""
        turns = self._turns
        stuck_s = self._silence.turn(turns != self._seen, passed_s)
        self._seen = turns
        if stuck_s >= self._hung_s:
            self._give_up(stuck_s, self._where())

    def start(self) -> None:
        self._lookout.start()

    def stop(self) -> None:
        """The loop is over by its own will: nobody is ended for it any more."""
        self._lookout.stop()

    def _where(self) -> str:
        """What the loop's thread is at, innermost first: places only, no values."""
        frame = sys._current_frames().get(self._loop)
        frames = reversed(traceback.extract_stack(frame)[-_FRAMES:])
        return "\n".join(f"  {f.filename}:{f.lineno} in {f.name}" for f in frames)


def ends(
    what: str, last_words: Callable[[], object] = lambda: None
) -> Callable[[float, str], None]:
    """What to do about it: say where it hangs, run `last_words` (bounded), end the process."""

    def end(stuck_s: float, where: str) -> None:
        print(f"the loop hangs in\n{where}", file=sys.stderr)
        print(f"error: {what} is not over after {stuck_s:.0f} s (hung_s)", file=sys.stderr)
        sys.stderr.flush()
        last_words()
        os._exit(1)

    return end
