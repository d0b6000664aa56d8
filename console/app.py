"""The console under its keys: pages, time, prompts, clicks. What each key does, one method each.

Figures come from a feed on a thread of its own; what is heard and drawn is `console.seeing`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.screen import Screen
from textual.widgets import Input

from console.act.desk import Desk
from console.cells import clip
from console.deeds import Deed, deed
from console.handover.hand import Hand
from console.handover.handing import Handing
from console.keys import KEYS, Key, in_order, key_at, shadowed
from console.lines import Line, Piece
from console.overview import LEAST_LINES, Look
from console.panels import ReadTime
from console.poller import Sees
from console.screens import GoTo, Open, Say, bucket_s_of
from console.seeing import Heard
from console.settings import ConsoleSettings
from console.widgets.help_page import HelpPage
from telemetry.errors import QueryError
from telemetry.plain import safe as plain

__all__ = ["ConsoleApp", "Heard"]

TABLE, HELP = "table", "help"
LEAVES = "  esc leaves it"
# Of no use in the palette: it moves over its own rows.
NOT_LISTED = ("palette", "leave", "enter", "move(-1)", "move(1)", "move_page(-1)", "move_page(1)")

Accept = Callable[[str], object]


class ConsoleApp(Handing):
    """`read_time` reads what is typed at `t` (unix seconds; its errors are shown). `more_keys` are
    keys beside those of `console.keys`, before them where they are the same, and `deeds` what
    they do (`do('name')`). The rest as in `Handing`, `Acting` and `Seeing`."""

    COMMAND_PALETTE_BINDING = "ctrl+backslash"  # the palette's own keys are among ours
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(k.keys, k.action, k.long, show=False) for k in in_order(KEYS)),
        Binding("ctrl+c", "interrupt", "interrupt", show=False, priority=True),
    ]

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
        more_keys: Sequence[Key] = (),
        deeds: Mapping[str, Deed] | None = None,
        desk: Desk | None = None,
        wall: Callable[[], float] = time.time,
        phases: bool = False,
        hand: Hand | None = None,
    ) -> None:
        super().__init__(feed, settings=settings, tz=tz, ascii_only=ascii_only, at=at,
                         monotonic=monotonic, more_keys=more_keys, desk=desk, wall=wall,
                         phases=phases, hand=hand)  # fmt: skip
        self._read_time = read_time
        self._deeds = dict(deeds or {})
        self._asking = ""  # what the prompt is open for: time, filter, ...
        self._hint = ""
        self._accept: Accept = str
        for k in more_keys:
            self.bind(k.keys, k.action, description=k.long, show=False)

    # Which keys work where.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key of some pages does nothing on the others, and leaves its place to another one."""
        asked = f"{action}({', '.join(map(repr, parameters))})" if parameters else action
        ours = [k for k in KEYS if not shadowed(k, self._more_keys)]
        known = [k for k in (*KEYS, *self._more_keys) if k.action == asked]
        usable = [k for k in (*ours, *self._more_keys) if k.action == asked]
        return not known or any(k.works(self.page.name) for k in usable)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: what the keys of the open page do, and what has too many forms for a key
        each."""
        from console.wide_columns import COLUMNS, GROUPS

        ours = [k for k in KEYS if not shadowed(k, self._more_keys)]
        for key in (*ours, *self._more_keys):
            if key.action not in NOT_LISTED and key.works(self.page.name):
                words = key.short or key.long
                yield SystemCommand(f"{words} ({key.shown})", key.long if key.short else "",
                                    partial(self.run_action, key.action))  # fmt: skip
        for group in GROUPS:
            yield SystemCommand(f"columns: {group}", "the wide table from these columns on",
                                partial(self._see_table, "", group))  # fmt: skip
        for name, column in COLUMNS.items():
            yield SystemCommand(f"sort by {name}", column.meaning,
                                partial(self._see_table, name, ""))  # fmt: skip

    def _see_table(self, sort: str, group: str) -> None:
        self.open_page(TABLE)
        place = self.place.turn("group", group) if group else self.place
        if sort:
            place = replace(place, sort=sort, descending=True, first=0)
        self.see(place)

    # Pages.

    def action_open(self, name: str) -> None:
        """A page; the one that is open: back."""
        if name == self.page.name:
            self.close_page()
        else:
            self.open_page(name, self.selected)

    def action_leave(self) -> None:
        if self._asking:
            self.close_prompt()
        else:
            self.close_page()

    def action_enter(self) -> None:
        scene = self.scene()
        step = self.page.enter(scene) if scene is not None else None
        if isinstance(step, Open):
            self.open_page(step.page, step.tenant)
        elif isinstance(step, GoTo):
            self.go(step.at)
        elif isinstance(step, Say):
            self.say(step.sentence)

    def action_turn(self, what: str) -> None:
        """A switch of the open page's own."""
        scene = self.scene()
        if scene is not None:
            self.see(self.page.turn(scene, what))

    def action_do(self, name: str) -> None:
        """What is more than looking (`console.deeds`)."""
        (self._deeds.get(name) or deed(name))(self)

    def action_help(self) -> None:
        if not self.is_screen_installed(HELP):  # built once: the second time it is there at once
            self.install_screen(HelpPage(self._more_keys), HELP)
        self.push_screen(HELP)

    def action_palette(self) -> None:
        self.action_command_palette()

    def action_command_palette(self) -> None:
        """Not over a form or the help: what it offers would be done to the page under them."""
        if len(self.screen_stack) == 1:
            self.push_screen(CommandPalette(placeholder="an action, by its words"))

    def action_interrupt(self) -> None:
        """Ctrl-C means here what it means in any command; the caller gives the exit code."""
        self.interrupted = True
        self.exit()

    def action_pool(self) -> None:
        pools = self.picture.pools if self.picture is not None else ()
        if len(pools) < 2 or self.picture is None:
            self.say("there is one pool here")
            return
        shown = pools.index(self.picture.pool) if self.picture.pool in pools else -1
        self._feed.show_pool(pools[(shown + 1) % len(pools)])
        self._not_then = None
        self.ask_anew()
        self._body.redraw()

    # Rows.

    def action_move(self, rows: int) -> None:
        """Choose a row further on; the first time the first one that is shown."""
        scene = self.scene()
        if scene is None:
            return
        with suppress(QueryError):  # drawing says why, and lets go of the filter
            every, place = list(self.page.rows(scene)), scene.place
            shown = [x.row for x in self._body.shown if x.row is not None]
            if not every:
                return
            if place.cursor in every:
                at = min(len(every) - 1, max(0, every.index(place.cursor) + rows))
            else:
                at = every.index(shown[0]) if shown and shown[0] in every else 0
            room = max(1, len(shown))
            first = min(max(place.first, at - room + 1), at)
            self.see(replace(place, cursor=every[at], first=first))

    def action_move_page(self, pages: int) -> None:
        self.action_move(pages * max(1, sum(x.row is not None for x in self._body.shown)))

    async def on_click(self, event: events.Click) -> None:
        """A click chooses a row, a second one opens it; on the last line it is the key that stands
        there; beside the rows the page knows. What lies over the lines (a prompt, a sentence, a
        form) has its own."""
        scene, y = self.scene(), event.screen_y
        if event.widget is not self._body or not 0 <= y < len(self._body.shown):
            return
        line = self._body.shown[y]
        if y == len(self._body.shown) - 1 and line.row is None:
            key = key_at(line, event.screen_x, self.page.name, self._more_keys)
            if key is not None:
                await self.run_action(key.action)
            return
        if scene is None:
            return
        if line.row is None:
            place = self.page.click(scene, line, event.screen_x)
            if place is not None:
                self.see(place)
        elif line.row == scene.place.cursor:
            self.action_enter()
        else:
            self.see(replace(scene.place, cursor=line.row))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(-1)

    def _wheel(self, rows: int) -> None:
        if len(self.screen_stack) == 1:  # a form or the help has a wheel of its own
            self.action_move(rows)

    def action_filter(self) -> None:
        if not self.page.filter_hint:
            self.open_page(TABLE)
        self.open_prompt("filter", self.page.filter_hint, self.place.filter, self._filtered)

    def _filtered(self, text: str) -> None:
        self.page.check_filter(text)
        self.see(replace(self.place, filter=text, first=0))

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
        self._body.redraw()  # the picture may be the same one, and no longer held

    def action_step(self, buckets: int) -> None:
        s = self.picture
        if s is None:
            return
        bucket_s = bucket_s_of(s)
        # From where the reader was going, not from where the screen has got to.
        base = self._at if self._at is not None else s.data_at if s.data_at is not None else s.now
        at = (base // bucket_s + buckets) * bucket_s
        edge = self._newest.now if self._newest is not None else None
        if edge is not None and at >= edge:
            self.action_edge()
        elif buckets > 0 and self._at is None and not self._held:
            return
        else:
            self.go(at)

    def action_time(self) -> None:
        self.open_prompt("time", "17:03, 2026-11-29T17:03, 5m ago, start, end", "", self._timed)

    def _timed(self, text: str) -> None:
        if not text.strip():
            return
        seen = self._newest or self.picture
        if seen is None:
            raise ValueError("there are no figures yet to go back from")
        if text.strip().lower() in ("end", "now", "live"):
            self.action_edge()
        else:
            self.go(self._read_time(text, seen))

    def go(self, at: float) -> None:
        """Look at an instant (unix seconds)."""
        self._at, self._held, self._not_then = at, False, None
        self._poller.want(at)
        self._body.redraw()

    # The prompt.

    def ask_whom(self, name: str) -> None:
        """A tenant without traffic is on no list: it can be named."""
        hint = "whom it is about; a row chosen with up and down is not asked for"

        def accept(tenant: str) -> None:
            if not tenant.strip():
                raise ValueError("name the tenant, or leave with esc")
            self.act_on(name, tenant)

        self.open_prompt(f"{name} tenant", hint, "", accept)

    def open_prompt(self, asking: str, hint: str, value: str, accept: Accept) -> None:
        """Ask for a line. What `accept` refuses (ValueError, QueryError) stays in the prompt, with
        the reason shown."""
        self._asking, self._hint, self._accept = asking, hint, accept
        self._prompt.placeholder = f"{asking}: {hint}"
        self._prompt.value = value
        self._prompt.add_class("-open")
        self._prompt.can_focus = True
        self._prompt.focus()
        self._body.redraw()

    def _look(self, cells: int) -> Look:
        """While a line is asked for, what it is asked for stands where the keys were: a line that
        begins with a value does not show its hint, and the keys type letters."""
        look = super()._look(cells)
        if not self._asking:
            return look
        asked = clip(f"{self._asking}: {plain(self._hint)}", max(1, cells - len(LEAVES)),
                     look.glyphs.ellipsis)  # fmt: skip
        return replace(look, keys=(Piece(asked, "title"), Piece(LEAVES, "dim")))

    def _draw(self, cells: int, lines: int) -> Sequence[Line]:
        """On the lowest screen the prompt has the line above the keys."""
        if not self._asking or lines != LEAST_LINES - 1:
            return super()._draw(cells, lines)
        drawn = super()._draw(cells, LEAST_LINES)
        return (*drawn[: lines - 1], *drawn[LEAST_LINES - 1 :])

    def close_prompt(self) -> None:
        self._asking = ""
        self._prompt.remove_class("-open")
        self._prompt.can_focus = False
        self.set_focus(None)
        self._body.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        accept = self._accept
        try:
            accept(event.value)
        except (ValueError, QueryError) as e:
            self.say(str(e), "warning")
            return
        if self._accept is accept:  # else it has asked for something more
            self.close_prompt()
