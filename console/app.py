"""The console: the overview and the wide table, under keys. Owns what the reader wants to see.

Figures come from a feed on a thread of its own, one message and one reactive assignment a picture;
what a screen says is made of plain lines by `console.overview` and `console.wide`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from pathlib import PurePath
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Input

from console.keys import KEYS, OVERVIEW, TABLE, key_line
from console.lines import ASCII, UNICODE, Line, Piece
from console.live import OWN_COLOURS, THEME
from console.overview import LEAST_CELLS, LEAST_LINES, Look, overview_lines, too_small
from console.panels import Snapshot
from console.poller import Now, Poller, Sees, Then, Told
from console.settings import ConsoleSettings
from console.wide import View, column_at, next_group, next_sort, ranked, wide_lines
from console.wide_columns import COLUMNS, GROUPS
from console.widgets.help_page import HelpPage
from console.widgets.lines import Lines
from telemetry.errors import QueryError
from telemetry.plain import safe as plain

SLOW_S = 2.0  # where pictures are rarer their age is drawn in between
SILENCE_S = 10.0  # a feed that has not answered for so long is said to be silent

ReadTime = Callable[[str, Snapshot], float]


class Heard(Message):
    """What the feed's thread has to tell."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told


class ConsoleApp(App[None]):
    """`feed` gives the pictures. `read_time` reads what is typed at `t` (unix seconds; its errors
    are shown). `tz` is the zone of the clocks, None the reader's; `monotonic` counts the banner's
    age; `at` begins in the past. Every key is one of `console.keys`."""

    CSS_PATH: ClassVar[list[str | PurePath]] = ["lines.tcss", "app.tcss"]
    TITLE = "tenantscope"
    AUTO_FOCUS = ""
    COMMAND_PALETTE_BINDING = "ctrl+backslash"  # the palette's own keys are among ours
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(k.keys, k.action, k.long, show=False) for k in KEYS),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "scroll(-20)", show=False),
        Binding("pagedown", "scroll(20)", show=False),
        Binding("ctrl+c", "interrupt", "interrupt", show=False, priority=True),
    ]

    picture: reactive[Snapshot | None] = reactive(None, init=False, layout=False)

    def __init__(
        self,
        feed: Sees,
        *,
        read_time: ReadTime,
        settings: ConsoleSettings | None = None,
        tz: tzinfo | None = None,
        ascii_only: bool = False,
        at: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._settings = settings or ConsoleSettings()
        self._feed = feed
        self._read_time = read_time
        self._tz = tz
        self._glyphs = ASCII if ascii_only else UNICODE
        self._monotonic = monotonic
        self._heard_at = monotonic()
        self._trouble: str | None = None
        self._not_then: str | None = None  # why there is no picture of the instant wanted
        self._newest: Snapshot | None = None
        self._at = at
        self._held = False
        self._wide = False
        self._view = View.of(self._settings)
        self._asking = ""  # what the prompt is open for: time or filter
        self._poller = Poller(feed, lambda told: self.post_message(Heard(told)),
                              self._settings.period_s)  # fmt: skip
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
        self.register_theme(THEME)
        self.theme = THEME.name
        self.set_interval(1.0, self.check_feed)
        self._heard_at = self._monotonic()
        self._poller.start()
        self.set_focus(None)

    def show(self) -> int:
        """Run; an exit code: not 0 where an error of our own ended it. Raises KeyboardInterrupt
        where Ctrl-C did."""
        self.run()
        self._poller.stop()
        self._poller.join()
        if self.interrupted:
            raise KeyboardInterrupt
        return self.return_code or 0

    def on_unmount(self) -> None:
        self._poller.stop()

    # What is heard.

    def on_heard(self, message: Heard) -> None:
        told, before = message.told, self.picture
        if isinstance(told, Now):
            self._heard_at, self._trouble = self._monotonic(), None
            self._newest = told.snapshot
            if self._at is None and not self._held:
                self.picture = told.snapshot
            elif self.picture is not None:  # how far back it lies grows
                self.picture = replace(self.picture, edge=told.snapshot.now)
        elif isinstance(told, Then):
            if told.wanted == self._at:
                self._not_then = None
                self.picture = told.snapshot
        elif told.wanted is None:
            self._trouble = told.why
        elif told.wanted == self._at:
            self._not_then = told.why
        if self.picture is before:  # a new one has been drawn already
            self._body.redraw()

    def check_feed(self) -> None:
        """Show the banner, and how old the figures have become since the last good answer."""
        slow = self._poller.rest_s > SLOW_S
        if slow or self._trouble is not None or self._is_silent():
            self._body.redraw()

    def _is_silent(self) -> bool:
        return self._monotonic() - self._heard_at > SILENCE_S + self._poller.rest_s

    def watch_picture(self) -> None:
        with self.batch_update():
            self._body.redraw()

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
            keys=key_line(TABLE if self._wide else OVERVIEW, cells),
        )

    def _draw(self, cells: int, lines: int) -> Sequence[Line]:
        s, look = self.picture, self._look(cells)
        if cells < LEAST_CELLS or lines < LEAST_LINES:
            return too_small(cells, lines)
        if s is None:
            why = f": {plain(look.banner)}" if look.banner else ""
            head = Line((Piece("tenantscope", "title"), Piece(f"  no figures yet{why}", "dim")))
            return (head, *(Line(),) * (lines - 2), Line(look.keys))
        if not self._wide:
            return overview_lines(s, cells, lines, look)
        try:
            return wide_lines(s, self._view, cells, lines, look, self._settings)
        except QueryError as e:  # over these names the filter takes too long: it is let go
            self._view = replace(self._view, filter="", first=0)
            self.call_later(self._tell, str(e), "warning")
            return wide_lines(s, self._view, cells, lines, look, self._settings)

    # What the reader does: both tables.

    def action_table(self) -> None:
        self._wide = not self._wide
        self._body.redraw()

    def action_leave(self) -> None:
        if self._asking:
            self._close_prompt()
        elif self._wide:
            self.action_table()

    def action_help(self) -> None:
        self.push_screen(HelpPage())

    def action_palette(self) -> None:
        self.action_command_palette()

    def action_interrupt(self) -> None:
        """Ctrl-C means here what it means in any command; the caller gives the exit code."""
        self.interrupted = True
        self.exit()

    def action_pool(self) -> None:
        pools = self.picture.pools if self.picture is not None else ()
        if len(pools) < 2 or self.picture is None:
            self._tell("there is one pool here")
            return
        shown = pools.index(self.picture.pool) if self.picture.pool in pools else -1
        self._feed.show_pool(pools[(shown + 1) % len(pools)])
        if self._at is not None or self._held:
            at = self._at if self._at is not None else self.picture.now
            self._go(at + 1e-6)  # the same instant, asked for anew
        self._poller.look()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action of the keys, and what has too many forms for a key each."""
        for key in KEYS:
            if key.action not in ("palette", "leave"):
                words = key.short or key.long
                yield SystemCommand(f"{words} ({key.shown})", key.long,
                                    getattr(self, f"action_{key.action}"))  # fmt: skip
        for group in GROUPS:
            view = replace(self._view, group=group)
            words = "the wide table from these columns on"
            yield SystemCommand(f"columns: {group}", words, partial(self._see, view))
        for name, column in COLUMNS.items():
            view = replace(self._view, sort=name, descending=True, first=0)
            yield SystemCommand(f"sort by {name}", column.meaning, partial(self._see, view))

    # The table.

    def _see(self, view: View) -> None:
        self._view, self._wide = view, True
        self._body.redraw()

    def action_group(self) -> None:
        self._see(next_group(self._view))

    def action_sort(self) -> None:
        self._see(next_sort(self._view, self.size.width))

    def action_sort_before(self) -> None:
        self._see(next_sort(self._view, self.size.width, -1))

    def action_reverse(self) -> None:
        self._see(replace(self._view, descending=not self._view.descending, first=0))

    def action_filter(self) -> None:
        self._wide = True
        self._open_prompt("filter", "names that match this (!this: all the others)",
                          self._view.filter)  # fmt: skip

    def action_scroll(self, lines: int) -> None:
        if not self._wide or self.picture is None or self.picture.account is None:
            return
        matching = len(self.picture.account.tenants)
        if self._view.filter:
            with suppress(QueryError):  # drawing says why, and lets go of the filter
                matching = len(ranked(self.picture.account.tenants, self._view)[0])
        last = max(0, matching - 1)
        self._see(replace(self._view, first=min(last, max(0, self._view.first + lines))))

    def on_click(self, event: events.Click) -> None:
        """A click on a heading sorts by it, and again the other way."""
        covered = len(self.screen_stack) > 1
        if not self._wide or covered or event.screen_y != self._heading_at():
            return
        key = column_at(self._view, self.size.width, event.screen_x)
        if key == self._view.sort:
            self.action_reverse()
        elif key is not None:
            self._see(replace(self._view, sort=key, descending=key != "tenant", first=0))

    def _heading_at(self) -> int:
        for y, line in enumerate(self._body.shown):
            if line.tint == "head" and line.plain.lstrip().startswith("tenant "):
                return y
        return -1

    # Time.

    def action_pause(self) -> None:
        """Hold the picture, and go on collecting; again: the newest at once."""
        if self._held or self._at is not None:
            self.action_edge()
            return
        if self.picture is not None:
            self._held = True
            self.picture = replace(self.picture, edge=self.picture.now)

    def action_edge(self) -> None:
        self._held, self._at, self._not_then = False, None, None
        self._poller.want(None)
        if self._newest is not None:
            self.picture = self._newest

    def action_step_back(self) -> None:
        self._step(-1)

    def action_step_on(self) -> None:
        self._step(1)

    def _step(self, buckets: int) -> None:
        s = self.picture
        if s is None:
            return
        bucket_s = s.trend.bucket_s if s.trend is not None else 60.0
        # From where the reader was going, not from where the screen has got to.
        base = self._at if self._at is not None else s.data_at if s.data_at is not None else s.now
        at = (base // bucket_s + buckets) * bucket_s
        edge = self._newest.now if self._newest is not None else None
        if edge is not None and at >= edge:
            self.action_edge()
        elif buckets > 0 and self._at is None and not self._held:
            return
        else:
            self._go(at)

    def action_time(self) -> None:
        self._open_prompt("time", "17:03, 2026-11-29T17:03, 5m ago, start, end", "")

    def _go(self, at: float) -> None:
        self._at, self._held, self._not_then = at, False, None
        self._poller.want(at)
        self._body.redraw()

    # The prompt.

    def _open_prompt(self, asking: str, hint: str, value: str) -> None:
        self._asking = asking
        self._prompt.placeholder = f"{asking}: {hint}"
        self._prompt.value = value
        self._prompt.add_class("-open")
        self._prompt.can_focus = True
        self._prompt.focus()

    def _close_prompt(self) -> None:
        self._asking = ""
        self._prompt.remove_class("-open")
        self._prompt.can_focus = False
        self.set_focus(None)
        self._body.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """What cannot be read stays in the prompt, with the reason shown."""
        try:
            if self._asking == "time" and event.value.strip():
                seen = self._newest or self.picture
                if seen is None:
                    raise ValueError("there are no figures yet to go back from")
                if event.value.strip().lower() in ("end", "now", "live"):
                    self.action_edge()
                else:
                    self._go(self._read_time(event.value, seen))
            elif self._asking == "filter":
                view = replace(self._view, filter=event.value, first=0)
                ranked((), view)
                self._view = view
        except (ValueError, QueryError) as e:
            self._tell(str(e), "warning")
            return
        self._close_prompt()

    def _tell(self, sentence: str, severity: str = "information") -> None:
        self.notify(plain(sentence), severity="warning" if severity == "warning" else "information",
                    markup=False)  # fmt: skip
