"""Starts a process again when it ends by itself. Owns one child and the pause between two tries.

For the store and for workers: serving goes on beside the gap, as far as it can. Who keeps a child
whose end must end everything (the front) does without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.serving.process import Child

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_SETTLED_S = 30.0  # who has been up for so long and ends is no repeated failure

Start = Callable[[Callable[[], None]], Child]


class Keeper:
    """Keeps the child that `start(on_exit)` makes alive, until `stop`.

    `say` hears one line when it has ended and one when it is back; `meanwhile` is what holds
    between the two. Each try waits twice as long as the one before, up to 30 s, until a child has
    been ready for 30 s.
    """

    def __init__(
        self,
        name: str,
        start: Start,
        say: Callable[[str], None],
        ready_s: float,
        meanwhile: str,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._start = start
        self._say = say
        self._ready_s = ready_s
        self._meanwhile = meanwhile
        self._now = now
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._turn = threading.Lock()  # a child is started, or all of it is stopping
        self.child = start(self._ended.set)
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """From now on an end is answered with a new start. Before, `child` is as any other."""
        thread = threading.Thread(target=self._keep, name=f"keeper-{self.name}", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self, timeout_s: float) -> tuple[int, bool]:
        """End the child. Returns its exit code and whether it was not up anyway: ended before, or
        not ready yet, when the request to end may well be what it dies of."""
        self._stopping.set()
        self._ended.set()
        with self._turn:
            child = self.child
        was_away = child.poll() is not None or not child.wait_ready(0)
        code = child.stop(timeout_s)
        if self._thread is not None:
            self._thread.join()
        return code, was_away

    def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        ready_at_s: float | None = self._now()
        while True:
            self._ended.wait()
            if self._stopping.is_set():
                return
            old = self.child
            words = old.last_words()
            self._say(
                f"the {self.name} process ended with {old.how()}; {self._meanwhile}; "
                f"starting it again{old.by_whom()}" + (f" (it said: {words[-1]})" if words else "")
            )
            old.stop(0.0)
            if ready_at_s is not None and self._now() - ready_at_s >= _SETTLED_S:
                pause_s = _FIRST_PAUSE_S
            ready_at_s = None
            while not self._started_after(pause_s):
                if self._stopping.is_set():
                    return
                pause_s = _longer(pause_s)
            pause_s = _longer(pause_s)
            if self.child.wait_ready(self._ready_s):
                ready_at_s = self._now()
                self._say(f"the {self.name} process is back")
            elif not self._stopping.is_set():
                self.child.stop(0.0)  # hung or gone: either way the next try is a new one

    def _started_after(self, pause_s: float) -> bool:
        """Whether there is a new child. Not when the system refuses one, nor when stopping."""
        if self._stopping.wait(pause_s):
            return False
        with self._turn:
            if self._stopping.is_set():
                return False
            self._ended.clear()
            try:
                self.child = self._start(self._ended.set)
            except Exception as e:
                # No room, no more processes or threads: it may pass, and whatever it is, a keeper
                # that ended with it would keep nobody.
                why = getattr(e, "strerror", None) or str(e) or type(e).__name__
                self._say(f"the {self.name} process cannot be started ({why}); trying again")
                return False
        return True


def _longer(pause_s: float) -> float:
    return min(2 * pause_s, _LONGEST_PAUSE_S)
