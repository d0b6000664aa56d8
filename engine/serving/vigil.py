"""Ends child processes that give no sign of life. Owns how long each has been silent.

A process that is stopped, or that holds the interpreter for ever, ends by nothing of its own; who
would start it again waits for its end. What becomes of it after is its keeper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from engine.serving.lookout import Lookout
from engine.serving.silence import Silence

SAID_S = 15.0  # silent for so long, it is told; a busy machine alone does not do that


class Watched(Protocol):
    """As much of a child process as this needs to know."""

    name: str

    def beat(self) -> bool:
        """Whether it has given a sign of life since the last call."""
        ...

    def end(self, why: str) -> None:
        """At once, whatever it does."""
        ...


class Vigil:
    """`watched` are those that are up now; one that is silent for `hung_s` is ended."""

    def __init__(
        self,
        watched: Callable[[], Iterable[Watched]],
        hung_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._watched = watched
        self._hung_s = hung_s
        self._say = say
        self._silent: dict[Watched, Silence] = {}
        self._lookout = Lookout("vigil", self.look)

    def start(self) -> None:
        self._lookout.start()

    def stop(self) -> None:
        """Nobody is ended by it any more."""
        self._lookout.stop()

    def look(self, passed_s: float) -> None:
        """One turn, `passed_s` after the last one."""
        here = list(self._watched())
        self._silent = {w: self._silent.get(w) or Silence() for w in here}
        for one, silence in self._silent.items():
            before_s = silence.silent_s
            silent_s = silence.turn(one.beat(), passed_s)
            if silent_s >= self._hung_s:
                one.end(f"it had given no sign of life for {silent_s:.0f} s, and was ended for it")
            elif before_s < SAID_S <= silent_s:
                self._say(
                    f"the {one.name} process gives no sign of life: is it stopped, or the machine "
                    f"out of breath? After {self._hung_s:g} s (hung_s) it is ended"
                )
