"""Starts a process again when it ends by itself. Owns one child and the pause between two tries.

For the store: what its senders could not deliver waits with them, so serving goes on without it
and nothing is lost until their bound is reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.serving.process import Child

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0

Start = Callable[[Callable[[], None]], Child]


class Keeper:
    """Keeps the child that `start(on_exit)` makes alive, until `stop`.

    `say` hears one line when it has ended and one when it is back.
    """

    def __init__(
        self,
        name: str,
        start: Start,
        say: Callable[[str], None],
        ready_s: float,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._name = name
        self._start = start
        self._say = say
        self._ready_s = ready_s
        self._first_pause_s = first_pause_s
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._turn = threading.Lock()  # a child is started, or all of it is stopping
        self.child = start(self._ended.set)
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """From now on an end is answered with a new start. Before, `child` is as any other."""
        self._thread = threading.Thread(target=self._keep, name=f"keeper-{self._name}", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> tuple[int, bool]:
        """End the child. Returns its exit code and whether it had ended before."""
        self._stopping.set()
        self._ended.set()
        with self._turn:
            child = self.child
        ended_before = child.poll() is not None
        code = child.stop(timeout_s)
        if self._thread is not None:
            self._thread.join()
        return code, ended_before

    def _keep(self) -> None:
        pause_s = self._first_pause_s
        while True:
            self._ended.wait()
            if self._stopping.is_set():
                return
            old = self.child
            words = old.last_words()
            self._say(
                f"the {self._name} process ended with {old.how()}; serving goes on, its rows wait; "
                f"starting it again" + (f" (it said: {words[-1]})" if words else "")
            )
            old.stop(0.0)
            if self._stopping.wait(pause_s):
                return
            with self._turn:
                if self._stopping.is_set():
                    return
                self._ended.clear()
                self.child = self._start(self._ended.set)
            if self.child.wait_ready(self._ready_s):
                self._say(f"the {self._name} process is back")
                pause_s = self._first_pause_s
            elif not self._stopping.is_set():
                self.child.stop(0.0)  # hung or gone: either way the next try is a new one
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
