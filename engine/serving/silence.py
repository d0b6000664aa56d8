"""How long something has given no sign of life, by the turns of who watches it. Pure, no clock."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_A_TURN_S = 2.0


@dataclass(slots=True)
class Silence:
    """One turn after the other. A turn counts for two seconds at most: where the watcher itself was
    kept from running (a machine that was suspended or had no time) it must not take the others,
    who were so as well, for dead."""

    silent_s: float = 0.0

    def turn(self, heard: bool, passed_s: float) -> float:
        """`heard`: a sign of life since the last turn, which was `passed_s` ago. Returns how long
        there has been none, seconds."""
        if heard:
            self.silent_s = 0.0
        else:
            self.silent_s += min(passed_s, _MOST_A_TURN_S)
        return self.silent_s
