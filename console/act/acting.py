"""The half of the console that acts: forms over the picture, and what became of what was done.

Owns the forms that are open and when the engines are asked; what may be done and what it means is
the desk's (`console.act.desk`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from textual.message import Message

from console.act.acts import BY_NAME
from console.act.desk import Desk
from console.act.hand import Acted
from console.act.hand import Heard as Spoken
from console.act.values import EngineState
from console.keys import key_line
from console.lines import Line
from console.overview import Look
from console.panels import Snapshot
from console.seeing import Seeing
from console.widgets.act_form import ActForm

ROOMY_LINES = 16  # below it the picture needs every line


class FromEngine(Message):
    """What an operator's door has said."""

    def __init__(self, spoken: Spoken) -> None:
        super().__init__()
        self.spoken = spoken


class Acting(Seeing):
    """`desk` None: nothing can be changed from here. `wall` gives unix seconds: how long changes
    still hold is counted with it. The rest as in `Seeing`."""

    def __init__(
        self,
        *given: Any,
        desk: Desk | None = None,
        wall: Callable[[], float] = time.time,
        **more: Any,
    ) -> None:
        super().__init__(*given, **more)
        self._desk = Desk() if desk is None else desk
        self._wall = wall

    def on_mount(self) -> None:
        self._desk.start(lambda spoken: self.post_message(FromEngine(spoken)))

    def on_unmount(self) -> None:
        self._desk.stop()

    def leave(self) -> None:
        super().leave()
        self._desk.stop()
        self._desk.join()

    # What is heard.

    def on_from_engine(self, message: FromEngine) -> None:
        spoken = message.spoken
        sentence = self._desk.heard(spoken, self._seen())
        if not self.screen_stack:  # the last word of a call that was cut off on leaving
            return
        form = self.screen if isinstance(self.screen, ActForm) else None
        shown = False
        if form is not None and isinstance(spoken, Acted):
            shown = form.hear(spoken)
        elif form is not None:
            form.renew()
        if sentence and not shown:
            failed = isinstance(spoken, Acted) and not all(a.ok for a in spoken.answers)
            self.say(sentence, "warning" if failed else "information")
        self._body.redraw()

    def _seen(self) -> Snapshot | None:
        """What is now, whatever instant the reader looks at: acts are of now."""
        return self._newest if self._newest is not None else self.picture

    # What is done.

    @property
    def acted_on(self) -> str | None:
        """The tenant chosen, else the one that the verdict names; the form says which."""
        if self.selected is not None or self.picture is None:
            return self.selected
        return self.picture.verdict.named

    def action_act(self, name: str) -> None:
        """Open the form of an act, or say why there is none."""
        if isinstance(self.screen, ActForm):
            return
        about_one = BY_NAME[name].name != "undo"
        if about_one and self.acted_on is None and self._desk.open:
            self.ask_whom(name)
            return
        try:
            self.act_on(name, self.acted_on)
        except ValueError as e:
            self.say(str(e), "warning")

    def act_on(self, name: str, tenant: str | None) -> None:
        """Open the form of an act on a tenant. Raises ValueError where there is none."""
        made = self._desk.form(BY_NAME[name], tenant, self._seen())
        if isinstance(made, str):
            raise ValueError(made)
        self.push_screen(ActForm(made, self._desk, self._seen, self._glyphs, self._tz))

    def ask_whom(self, name: str) -> None:
        """No tenant is chosen, and the verdict names none."""
        self.say(f"{name}: choose a tenant first: up and down, or a click", "warning")

    # What is drawn.

    def engines(self) -> tuple[EngineState, ...]:
        return self._desk.looked.states

    def check_feed(self) -> None:
        super().check_feed()
        if any(s.in_force for s in self._desk.looked.states):  # their time runs down
            self._body.redraw()

    def _look(self, cells: int) -> Look:
        may = self._desk.open
        keys = key_line(self.page.name, cells, self._more_keys, acts=may)
        return replace(super()._look(cells), admin=may, keys=keys)

    def _draw(self, cells: int, lines: int) -> Sequence[Line]:
        notes: tuple[Line, ...] = ()
        if lines >= ROOMY_LINES:
            notes = self._desk.notes(self._seen(), self._wall(), cells, self._glyphs)
        drawn = super()._draw(cells, lines - len(notes))
        return (*drawn[:-1], *notes, *drawn[-1:]) if notes else drawn
