"""Finds stop strings in text that comes in pieces, and shows no part of one. Pure.

The first to be complete ends the text, however the text was cut into pieces; of several complete
at the same character the longest counts.
"""

from __future__ import annotations


class StopScan:
    """Text goes in by `push`, what is safe to show comes out. After `hit` nothing comes any more.

    Costs a search over what is held back and what is new, never over the whole text.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """What can be shown now: never a stop string, nor what may yet become one."""
        if self.hit or not self._stops:
            return "" if self.hit else text
        text = self._held + text
        found = [(at + len(s), at) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            self.hit, self._held = True, ""
            return text[: min(found)[1]]
        keep = max(_beginning(s, text) for s in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The text is over: what was held back was no stop string after all."""
        held, self._held = self._held, ""
        return held


def _beginning(stop: str, text: str) -> int:
    """How many of the text's last characters are how `stop` begins, all of it excluded."""
    for n in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
