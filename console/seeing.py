"""The half of the console under its keys: what is heard, which page is open, what is drawn.

Owns the feed's thread, the newest picture and the one that is shown, the pages' own rows and the
reader's place on each page. Which key does what, `console.app` says.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import tzinfo
from pathlib import PurePath
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Input

from console.act.values import EngineState
from console.detail import NOTHING, Asks, Detail
from console.frame import screen_lines
from console.keys import Key, key_line
from console.lines import ASCII, UNICODE, Line, Piece
from console.overview import LEAST_CELLS, LEAST_LINES, Look, too_small
from console.pages import PAGES
from console.panels import Snapshot
from console.poller import Found, Now, Poller, Sees, Then, Told, Trouble
from console.screens import TENANT, Page, Place, Scene
from console.settings import ConsoleSettings
from console.widgets.lines import Lines
from console.widgets.theme import OWN_COLOURS, THEME
from telemetry.errors import QueryError
from telemetry.plain import safe as plain

SLOW_S = 2.0  # where pictures are rarer their age is drawn in between
SILENCE_S = 10.0  # a feed that has not answered for so long is said to be silent
REMEMBERED = 16  # answers to pages' questions that are kept: going back shows them at once
FIRST = "overview"
CROWDS = frozenset({FIRST, "table"})  # pages that list every tenant by themselves


class Heard(Message):
    """What the feed's thread has to tell."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told


class Seeing(App[None]):
    """`feed` gives the pictures. `tz` is the zone of the clocks, None the reader's; `monotonic`
    counts the banner's age; `at` begins in the past; `more_keys` are told on the last line too;
    `phases`: the overview says what is being played."""

    CSS_PATH: ClassVar[list[str | PurePath]] = ["lines.tcss", "app.tcss"]
    TITLE = "tenantscope"
    AUTO_FOCUS = ""

    picture: reactive[Snapshot | None] = reactive(None, init=False, layout=False)

    def __init__(
        self,
        feed: Sees,
        *,
        settings: ConsoleSettings | None = None,
        tz: tzinfo | None = None,
        ascii_only: bool = False,
        at: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        more_keys: Sequence[Key] = (),
        phases: bool = False,
    ) -> None:
        super().__init__()
        # Before the first stylesheet is read: else it is read twice.
        self.register_theme(THEME)
        self.set_reactive(App.theme, THEME.name)
        self.stylesheet.set_variables(self.get_css_variables())
        self._phases = phases
        self._settings = settings or ConsoleSettings()
        self._feed = feed
        self._tz = tz
        self._glyphs = ASCII if ascii_only else UNICODE
        self.set_class(ascii_only, "-ascii")
        self._monotonic = monotonic
        self._more_keys = tuple(more_keys)
        self._heard_at = monotonic()
        self._trouble: str | None = None
        self._not_then: str | None = None  # why there is no picture of the instant wanted
        self._newest: Snapshot | None = None
        self._at = at
        self._held = False
        self._stack: list[str] = [FIRST]
        self._places: dict[str, Place] = {}
        self._asks: Asks = ()
        self._every_column = False
        self._with_columns: Callable[[], object] | None = None  # waits for them
        self._details: OrderedDict[object, Detail] = OrderedDict()
        self._opened = {FIRST}  # pages that have been looked at
        self._poller = Poller(feed, self._tell, self._settings.period_s)
        self._poller.want(at)
        self._body = Lines(self._draw, id="body")
        self._prompt = Input(id="prompt", compact=True, select_on_focus=True)
        self._prompt.can_focus = False  # else it takes the keys while it is not there to be seen
        self.interrupted = False

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return OWN_COLOURS

    def compose(self) -> ComposeResult:
        yield self._body
        yield self._prompt

    def on_mount(self) -> None:
        self.set_interval(1.0, self.check_feed)
        self._heard_at = self._monotonic()
        self._poller.start()
        self.set_focus(None)

    def show(self) -> int:
        """Run; an exit code: not 0 where an error of our own ended it. Raises KeyboardInterrupt
        where Ctrl-C did."""
        self.run()
        self.leave()
        if self.interrupted:
            raise KeyboardInterrupt
        return self.return_code or 0

    def leave(self) -> None:
        """Wait a little for the threads, once the screen is gone: one inside native code takes the
        process down with it when the interpreter ends."""
        self._poller.stop()
        self._poller.join()

    def on_unmount(self) -> None:
        self._poller.stop()

    # What is heard.

    def _tell(self, told: Told) -> None:
        """On the feed's thread. What the pages sort and add up of a crowd once a picture is done
        here, by drawing them in vain: the screen's thread has keys to answer."""
        if isinstance(told, Now) and not told.snapshot.filling:
            for name in sorted(self._opened & CROWDS):
                with suppress(QueryError):  # a filter that cannot be used: drawing says why
                    cells, lines = self.size
                    place = self._places.get(name, Place())
                    scene = replace(self._scene(told.snapshot, cells, lines), place=place)
                    PAGES[name].lines(scene)
        self.post_message(Heard(told))

    def on_heard(self, message: Heard) -> None:
        told, before = message.told, self.picture
        if isinstance(told, Now):
            self._heard_at, self._trouble = self._monotonic(), None
            self._newest = told.snapshot
            early = self.picture is not None and self.picture.filling
            if self._at is None and not self._held:
                self.picture = told.snapshot
            elif self._at is None and early:  # a first look is not what was to be held
                self.picture = replace(told.snapshot, edge=told.snapshot.now)
            elif self.picture is not None:  # how far back it lies grows
                self.picture = replace(self.picture, edge=told.snapshot.now)
        elif isinstance(told, Then):
            if told.wanted == self._at:
                self._not_then = None
                self.picture = told.snapshot
        elif isinstance(told, Found):
            self._keep(told.detail)
        elif isinstance(told, Trouble) and told.wanted is None:
            self._trouble = told.why
        elif told.wanted == self._at:
            self._not_then = told.why
        if self.picture is before:  # a new one has been drawn already
            self._body.redraw()
        self._do_with_columns()

    def _keep(self, detail: Detail) -> None:
        """The newest answers to a page's questions; of a refusal only that there was one."""
        about = tuple(a.about for a in detail.asks)
        kept = self._details.pop(about, NOTHING)
        if detail.trouble is not None:
            detail = replace(kept, trouble=detail.trouble)
        self._details[about] = detail
        while len(self._details) > REMEMBERED:
            self._details.popitem(last=False)

    def check_feed(self) -> None:
        """Show the banner, and how old the figures have become since the last good answer."""
        slow = self._poller.rest_s > SLOW_S
        if slow or self._trouble is not None or self._is_silent():
            self._body.redraw()

    def _is_silent(self) -> bool:
        return self._monotonic() - self._heard_at > SILENCE_S + self._poller.rest_s

    def watch_picture(self) -> None:
        with self.batch_update():
            self.see()

    # Where the reader is.

    @property
    def page(self) -> Page:
        return PAGES[self._stack[-1]]

    @property
    def place(self) -> Place:
        return self._places.get(self._stack[-1], Place())

    @property
    def selected(self) -> str | None:
        """The tenant an action is about: the row chosen or whose it is, else the page's own."""
        row = self.place.cursor
        if row is not None and row.kind == TENANT:
            return row.name
        return row.tenant if row is not None and row.tenant is not None else self.place.tenant

    def scene(self) -> Scene | None:
        """What the open page is drawn from; None before there is a picture, and of a first look for
        every page but the first: it has the largest tenants alone."""
        cells, lines = self.size
        if self.picture is None or (self.picture.filling and self.page.name != FIRST):
            return None
        return self._scene(self.picture, cells, lines)

    def _scene(self, s: Snapshot, cells: int, lines: int) -> Scene:
        detail = self._details.get(tuple(a.about for a in self._asks), NOTHING)
        return Scene(s, self.place, cells, lines, self._look(cells), detail, self._settings,
                     self.engines())  # fmt: skip

    def engines(self) -> tuple[EngineState, ...]:
        """What operators' doors have said; nobody is asked here."""
        return ()

    def see(self, place: Place | None = None) -> None:
        """Draw the open page, from another place on it where one is given; what it wants to know
        is asked for."""
        if place is not None:
            self._places[self._stack[-1]] = place
        self._opened.add(self._stack[-1])
        self._choose_columns()
        if self.picture is not None and not self.picture.filling:
            asks = self.page.wants(self.picture, self.place)
            if asks != self._asks:
                self._asks = asks
                self._poller.ask(asks)
        self._body.redraw()

    def _choose_columns(self) -> None:
        """Have all columns asked for while something needs them, and no longer."""
        scene = self.scene()
        seen = scene is not None and self.page.wants_columns(scene)
        every = seen or self._with_columns is not None
        if every is not self._every_column:
            self._every_column = every
            self._feed.show_columns(every)
            if every and scene is not None and not scene.picture.every_column:
                self.ask_anew()

    def with_columns(self, do: Callable[[], object]) -> None:
        """Do it with a picture whose rows have all their columns: now, or when the next one is."""
        if self.picture is not None and self.picture.every_column:
            do()
            return
        self._with_columns = do
        self._choose_columns()

    def _do_with_columns(self) -> None:
        do = self._with_columns
        if do is not None and self.picture is not None and self.picture.every_column:
            self._with_columns = None
            do()

    def ask_anew(self) -> None:
        """What is looked at is asked for again: what the feed is to show of it has changed."""
        at = self._at
        if self._held and self.picture is not None:
            at = self.picture.now
        if at is not None:
            self._at, self._held = at + 1e-6, False  # the same instant, and another question
            self._poller.want(self._at)
        self._poller.look()

    def open_page(self, name: str, tenant: str | None = None) -> None:
        """Go on to a page; `esc` comes back. One that is under the open one is gone back to."""
        if name in self._stack:
            del self._stack[self._stack.index(name) + 1 :]
        else:
            self._stack.append(name)
        place = self.place
        # The tenant's own page without one is the one that was open last.
        if tenant != place.tenant and (tenant is not None or name != TENANT):
            place = replace(place, tenant=tenant, cursor=None, first=0)
        self.see(place)

    def close_page(self) -> None:
        """Back to the page before; from the first one only the row chosen is let go."""
        if len(self._stack) > 1:
            self._stack.pop()
            self.see()
        else:
            self.see(replace(self.place, cursor=None))

    # What is drawn.

    def _look(self, cells: int) -> Look:
        age = self._monotonic() - self._heard_at
        silent = "the source does not answer" if self._is_silent() else None
        return Look(
            glyphs=self._glyphs,
            tz=self._tz,
            banner=self._trouble or silent or self._not_then,
            age_s=age,
            held=self._held or self._at is not None,
            keys=key_line(self.page.name, cells, self._more_keys),
            phases=self._phases,
        )

    def _draw(self, cells: int, lines: int) -> Sequence[Line]:
        s = self.picture
        if cells < LEAST_CELLS or lines < LEAST_LINES:
            return too_small(cells, lines)
        if s is None:
            look = self._look(cells)
            why = f": {plain(look.banner)}" if look.banner else ""
            head = Line((Piece("tenantscope", "title"), Piece(f"  no figures yet{why}", "dim")))
            return (head, *(Line(),) * (lines - 2), Line(look.keys))
        try:
            drawn = screen_lines(self.page, self._scene(s, cells, lines), self._asks)
            if self._cursor_left(drawn, s, cells, lines):
                drawn = screen_lines(self.page, self._scene(s, cells, lines), self._asks)
            return drawn
        except QueryError as e:  # over these names the filter takes too long: it is let go
            self._places[self._stack[-1]] = replace(self.place, filter="", first=0)
            self.call_later(self.say, str(e), "warning")
            return screen_lines(self.page, self._scene(s, cells, lines), self._asks)

    def _cursor_left(self, drawn: Sequence[Line], s: Snapshot, cells: int, lines: int) -> bool:
        """Whether the row chosen has moved off the screen: the list is then scrolled after it, so
        that no action is ever about a tenant that cannot be seen."""
        place = self.place
        shown = [line.row for line in drawn if line.row is not None]
        if place.cursor is None or place.cursor in shown:
            return False
        every = list(self.page.rows(self._scene(s, cells, lines)))
        at = every.index(place.cursor) if place.cursor in every else None
        if at is None:  # it is no longer there to be chosen
            self._places[self._stack[-1]] = replace(place, cursor=None)
            return False
        first = max(0, at - len(shown) // 2)
        self._places[self._stack[-1]] = replace(place, first=first)
        return True

    def say(self, sentence: str, severity: str = "information") -> None:
        """A sentence over the picture, for some seconds; names in it are data. What is said once
        more replaces what was said: a key pressed in vain hides no figures."""
        if any(n.message == plain(sentence) for n in self._notifications):
            self.clear_notifications()
        self.notify(plain(sentence), severity="warning" if severity == "warning" else "information",
                    markup=False)  # fmt: skip
