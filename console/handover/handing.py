"""The half of the console that hands over: what is under way, and what came of it.

Owns the line that says so and the thread's end; what is handed over `console.handover.deeds` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.message import Message

from console.act.acting import Acting
from console.handover.hand import Hand, Said
from console.lines import Line, Piece, cut
from console.overview import Look
from telemetry.plain import safe


class FromHand(Message):
    """What the hand-over's thread has to tell."""

    def __init__(self, said: Said) -> None:
        super().__init__()
        self.said = said


class Handing(Acting):
    """`hand` None: files go to the working folder, and no store can be named."""

    def __init__(self, *given: Any, hand: Hand | None = None, **more: Any) -> None:
        super().__init__(*given, **more)
        self.hand = Hand() if hand is None else hand
        self._status = ""

    def hear_hand(self, said: Said) -> None:
        """Called on the hand-over's thread."""
        self.post_message(FromHand(said))

    def on_from_hand(self, message: FromHand) -> None:
        said = message.said
        self._status = said.status
        if said.copy:
            self.copy_to_clipboard(said.copy)
        if said.sentence and self.screen_stack:
            self.say(said.sentence, "warning" if said.failed else "information")
            self._poller.look()  # a note is on the timeline now
        self._body.redraw()

    def leave(self) -> None:
        super().leave()
        self.hand.close()

    def on_unmount(self) -> None:
        self.hand.close()

    def _look(self, cells: int) -> Look:
        look = super()._look(cells)
        if not self._status:
            return look
        # What is under way stands before the keys; those that no longer fit make room.
        words = Line((Piece(f"{safe(self._status)}  ", "phase"), *look.keys))
        return replace(look, keys=cut(words, cells, look.glyphs.ellipsis).pieces)
