"""The help screen: keys, and the words the table uses. Any key closes it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from console.lines import Line, Piece, cut
from console.widgets.lines import Lines

KEYS = (
    ("p", "switch the scheduling policy"),
    ("space", "hold the picture (figures are still collected)"),
    ("?", "this page"),
    ("q", "quit"),
)
WORDS = (
    ("!!", "hurt: misses its targets beyond what is usual"),
    ("*", "the tenant the verdict speaks of"),
    ("!", "missed a target in the window"),
    ("share", "of the service: prompt tokens + 2 x output tokens"),
    ("fair", "what its weight gives it among those with work waiting"),
    ("oldest", "age of its oldest wait"),
    ("excess", "waited beyond what is usual for it"),
    ("TTFT", "time to first token: p99/n; under 20 samples the maximum"),
    ("miss", "requests that missed a target, of those judged"),
    ("behind", "who held what it waited for: charged, no accusation"),
    ("(self)", "its own requests"),
    ("(capacity)", "nobody: the engine was slower than expected"),
    ("-", "not known; it is not 0"),
)


def help_lines(cells: int, lines: int) -> Sequence[Line]:
    def pair(left: str, right: str, role: str) -> Line:
        return cut(Line((Piece(f"{left:>11}  ", role), Piece(right))), cells)

    return (
        *(pair(k, what, "title") for k, what in KEYS),
        Line(),
        *(pair(w, what, "label") for w, what in WORDS),
    )


class Help(ModalScreen[None]):
    """Keys and words, over the picture, which goes on behind it."""

    def compose(self) -> ComposeResult:
        yield Lines(help_lines, id="help")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss(None)
