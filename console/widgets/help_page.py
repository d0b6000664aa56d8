"""The console's help: every key and every word, made of the keys themselves. Scrolls where it is
longer than the screen; any other key closes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from console.keys import Key, help_lines
from console.widgets.lines import Lines


class HelpPage(ModalScreen[None]):
    """Over the picture, which goes on behind it. `more_keys`: those of the app's own."""

    AUTO_FOCUS = "VerticalScroll"  # else the arrows reach nothing
    SCROLLING: ClassVar[frozenset[str]] = frozenset(
        {"up", "down", "pageup", "pagedown", "home", "end"}
    )

    def __init__(self, more_keys: Sequence[Key] = ()) -> None:
        super().__init__()
        self._more_keys = more_keys

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Lines(partial(help_lines, more=self._more_keys), id="help")

    def on_key(self, event: events.Key) -> None:
        if event.key not in self.SCROLLING:
            event.stop()
            event.prevent_default()
            self.dismiss(None)
