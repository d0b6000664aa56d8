"""The form of an act, over the picture, which goes on above it. Takes every key while it is open.

Owns the form that is shown; what a key means is `console.act.form`'s, what is sent the desk's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import tzinfo

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from console.act.desk import Desk
from console.act.draw import form_lines
from console.act.form import Form, Send, Stage, pasted, press
from console.act.hand import Acted
from console.lines import Glyphs, Line
from console.panels import Snapshot
from console.widgets.lines import Lines

BUSY = "the act before is still under way: wait for its answer"


class ActForm(ModalScreen[None]):
    """`seen` gives the picture behind the form. `form` changes with every key and answer."""

    AUTO_FOCUS = ""

    def __init__(
        self,
        form: Form,
        desk: Desk,
        seen: Callable[[], Snapshot | None],
        glyphs: Glyphs,
        tz: tzinfo | None = None,
    ) -> None:
        super().__init__()
        self.form = form
        self._desk = desk
        self._seen = seen
        self._glyphs = glyphs
        self._tz = tz
        self._body = Lines(self._draw, id="form")

    def compose(self) -> ComposeResult:
        yield self._body

    def on_mount(self) -> None:
        if self.form.stage is Stage.TRYING:
            self._send(dry_run=True)

    def on_key(self, event: events.Key) -> None:
        if event.key == "ctrl+c":
            return
        event.stop()
        event.prevent_default()
        if event.key == "ctrl+y" and self.form.what_if:
            self._copy(self.form.what_if)
            return
        self.form, send = press(self.form, event.key, event.character)
        if send is Send.CLOSE:
            self.dismiss(None)
            return
        if send in (Send.TRY, Send.DO):
            self._send(dry_run=send is Send.TRY)
        self._show()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.form = pasted(self.form, event.text)
        self._show()

    def hear(self, acted: Acted) -> bool:
        """Take up an answer; whether it is one to what this form sent."""
        waits = self.form.stage in (Stage.TRYING, Stage.DOING)
        same = {o.method for o in acted.orders} == {self.form.method} and {
            o.tenant for o in acted.orders
        } == {self.form.tenant}
        trial = self.form.stage is Stage.TRYING
        own = waits and same and acted.orders[0].dry_run == trial
        if own:
            self.form = self._desk.answered(self.form, acted)
        self._show()
        return own

    def renew(self) -> None:
        """The engines were looked at again, or there is a new picture."""
        self._show()

    def _copy(self, command: str) -> None:
        """The what-if's command into the terminal's clipboard; what cannot be seen never leaves."""
        if not command.isprintable():
            self.app.notify("the name holds characters that cannot be copied", severity="warning")
            return
        self.app.copy_to_clipboard(command)
        self.app.notify("copied: the what-if's command")

    def _send(self, *, dry_run: bool) -> None:
        if not self._desk.send(self.form, dry_run=dry_run):
            stage = Stage.TYPING if self.form.fields else Stage.DONE
            self.form = replace(self.form, stage=stage, trouble=BUSY)

    def _show(self) -> None:
        self.form = self._desk.told(self.form, self._seen())
        self._body.redraw()

    def _draw(self, cells: int, lines: int) -> Sequence[Line]:
        room = max(3, self.app.size.height - 2)
        return form_lines(self.form, self._desk.looked, cells, room, self._glyphs, self._tz)
