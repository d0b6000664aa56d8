"""The live screen: asks a feed for snapshots on a thread of its own and paints them.

Owns no figures and makes no decision: the picture is a `Snapshot`, an action is a call. A feed
that fails or hangs leaves the last picture standing under a banner that says since when.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import tzinfo
from pathlib import PurePath
from typing import ClassVar, Protocol

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.theme import Theme
from textual.widgets import Footer

from console.feed import Feed
from console.formats import clock, whole
from console.lines import Line, Piece, spread, wrap
from console.panels import Snapshot
from console.text import (
    header_lines,
    strip_lines,
    tenant_lines,
    ticker_lines,
    verdict_lines,
)
from console.widgets.help import Help
from console.widgets.lines import Lines
from telemetry.plain import safe as plain

PERIOD_S = 0.5
FEED_THREAD = "feed"
LEAVE_S = 5.0  # how long a question under way may still take when the screen is left
SILENCE_S = 5.0  # a feed that has not answered for so long is said to be silent
ROOMY_LINES = 32
WIDE_CELLS = 100  # with room to spare the panels keep a cell to the edges
LOW_LINES = 20  # below it the strips and the verdict make room for the tenants
LOW_TICKER_LINES, TICKER_LINES, ROOMY_TICKER_LINES = 2, 4, 9
LOW_VERDICT_LINES, VERDICT_LINES, ROOMY_VERDICT_LINES = 3, 5, 8
LOW_STRIPS = slice(2, 4)  # how long is waited, and behind whom
BANNER_LINES = 2

THEME = Theme(
    name="tenantscope",
    primary="#7aa2c9",
    secondary="#8fb8a8",
    accent="#d9a662",
    warning="#d9a662",
    error="#e0707a",
    success="#86b88a",
    foreground="#c3cad3",
    background="#0f1216",
    surface="#171c22",
    panel="#1d232b",
    dark=True,
    variables={
        "footer-key-foreground": "#7aa2c9",
        "footer-description-foreground": "#8d99a8",
        "footer-background": "#171c22",
    },
)
# Named by the stylesheet; any theme may set its own.
OWN_COLOURS = {
    "text-quiet": "#6c7886",
    "text-label": "#8d99a8",
    "text-value": "#e3e8ee",
    "line": "#2f3843",
    "tint-hurt": "#2a181d",
    "tint-named": "#29221a",
    "tint-banner": "#54252c",
    "series-1": "#6f9fd0",
    "series-2": "#a98bd0",
    "series-3": "#6fb3a6",
    "series-4": "#d09a6f",
}


class Actions(Protocol):
    """What the keys may do. Called on a thread of its own; returns a sentence, may raise."""

    def switch_policy(self) -> str: ...


class Fresh(Message):
    """A feed's answer."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class Failed(Message):
    """A feed's refusal, in its own words."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class Done(Message):
    """What an action did, or why it did not."""

    def __init__(self, sentence: str, ok: bool) -> None:
        super().__init__()
        self.sentence = sentence
        self.ok = ok


def sentence_of(error: BaseException) -> str:
    """An exception as a person reads it: its message, or its kind where it has none."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def by_height(height: int, low: int, usual: int, roomy: int) -> int:
    return roomy if height >= ROOMY_LINES else usual if height >= LOW_LINES else low


class LiveApp(App[None]):
    """The console's first screen.

    `feed.snapshot()` is called every `period_s` on a daemon thread, so a feed that hangs can
    neither hold up the first paint nor quitting. `actions` None: a key that would act says that
    there is nothing to act on. `tz` is the zone of the clocks shown, None the reader's.
    `monotonic` is what the banner's age is counted with.
    """

    CSS_PATH: ClassVar[list[str | PurePath]] = ["lines.tcss", "live.tcss"]
    TITLE = "tenantscope"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "policy", "switch policy"),
        Binding("space", "pause", "pause"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "interrupt", "interrupt", show=False, priority=True),
    ]

    picture: reactive[Snapshot | None] = reactive(None, init=False, layout=False)

    def __init__(
        self,
        feed: Feed,
        actions: Actions | None = None,
        *,
        period_s: float = PERIOD_S,
        tz: tzinfo | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        no_actions: str = "nothing to switch here",
    ) -> None:
        super().__init__()
        self._feed = feed
        self._actions = actions
        self._no_actions = no_actions
        self._period_s = period_s
        self._tz = tz
        self._monotonic = monotonic
        self._heard_at = monotonic()
        self._trouble: str | None = None
        self._latest: Snapshot | None = None
        self._paused = False
        self._over = threading.Event()
        self._poller = threading.Thread(target=self._poll, name=FEED_THREAD, daemon=True)
        self._ticker_most = TICKER_LINES
        self._acting = False
        self.interrupted = False
        # Held here, not queried: figures go on arriving while another screen lies on top.
        self._panels = {
            name: Lines(draw, id=name)
            for name, draw in (
                ("header", self._header),
                ("banner", self._banner),
                ("verdict", self._verdict),
                ("strips", self._strips),
                ("tenants", self._tenants),
                ("ticker", self._ticker),
            )
        }

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return OWN_COLOURS

    def compose(self) -> ComposeResult:
        yield from self._panels.values()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self._fit(self.size)
        self.set_interval(1.0, self.check_feed)
        self._heard_at = self._monotonic()
        self._poller.start()

    def show(self) -> None:
        """Run, and come back when the feed's last question is answered: a thread inside native
        code takes the process down with it when the interpreter ends. Raises KeyboardInterrupt
        where Ctrl-C ended it."""
        self.run()
        self._over.set()
        if self._poller.ident is not None:
            self._poller.join(LEAVE_S)
        if self.interrupted:
            raise KeyboardInterrupt

    def on_unmount(self) -> None:
        self._over.set()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        roomy = size.height >= ROOMY_LINES
        self.screen_stack[0].set_class(roomy, "-roomy")
        self.screen_stack[0].set_class(size.height < LOW_LINES, "-low")
        self.screen_stack[0].set_class(size.width >= WIDE_CELLS, "-wide")
        self._ticker_most = by_height(
            size.height, LOW_TICKER_LINES, TICKER_LINES, ROOMY_TICKER_LINES
        )
        self._fit_ticker()

    def _fit_ticker(self) -> None:
        told = len(self.picture.ticker) if self.picture is not None else 0
        lines = min(self._ticker_most, max(min(self._ticker_most, TICKER_LINES), told + 1))
        self._panels["ticker"].styles.height = lines

    # The feed's thread.

    def _poll(self) -> None:
        while not self._over.is_set():
            try:
                message: Message = Fresh(self._feed.snapshot())
            except Exception as e:  # whatever a feed raises is shown; the screen lives on
                message = Failed(sentence_of(e))
            if self._over.is_set():
                return
            self.post_message(message)
            self._over.wait(self._period_s)

    def on_fresh(self, message: Fresh) -> None:
        self._heard_at = self._monotonic()
        self._trouble = None
        self._latest = message.snapshot
        if not self._paused:
            self.picture = message.snapshot
        self.check_feed()

    def on_failed(self, message: Failed) -> None:
        self._trouble = message.why
        self.check_feed()

    def check_feed(self) -> None:
        """Show, refresh or take away the banner; its age counts from the last good answer."""
        silent = self._monotonic() - self._heard_at > SILENCE_S
        banner = self._panels["banner"]
        banner.set_class(self._trouble is not None or silent, "-on")
        banner.redraw()

    # The picture.

    def watch_picture(self) -> None:
        with self.batch_update():
            self._fit_ticker()
            for panel in self._panels.values():
                panel.redraw()

    def _header(self, cells: int, lines: int) -> Sequence[Line]:
        s = self.picture
        if s is None:
            waiting = [Piece("waiting for the first figures", "dim")]
            return (spread([Piece("tenantscope", "title")], waiting, cells, "head"), Line())
        first, second = header_lines(s, cells, tz=self._tz)
        if self._paused:
            held = [Piece(f"HELD at {clock(s.now, self._tz)}, space goes on", "warn")]
            second = spread([Piece(plain(s.phase or ""), "phase")], held, cells, "head")
        return (first, second)

    def _banner(self, cells: int, lines: int) -> Sequence[Line]:
        age = whole(self._monotonic() - self._heard_at)
        why = "the feed does not answer" if self._trouble is None else plain(self._trouble)
        words = f"no fresh figures for {age}: {why}"
        parts = wrap(words, max(10, cells - 3))[:BANNER_LINES]
        return [
            Line((Piece("   " if i else "!! ", "hurt"), Piece(part, "value")))
            for i, part in enumerate(parts)
        ]

    def _verdict(self, cells: int, lines: int) -> Sequence[Line]:
        height = self.size.height
        most = by_height(height, LOW_VERDICT_LINES, VERDICT_LINES, ROOMY_VERDICT_LINES)
        return verdict_lines(self.picture, cells, most) if self.picture else (Line(),)

    def _strips(self, cells: int, lines: int) -> Sequence[Line]:
        strips = strip_lines(self.picture, cells) if self.picture else ()
        return strips[LOW_STRIPS] if self.size.height < LOW_LINES else strips

    def _tenants(self, cells: int, lines: int) -> Sequence[Line]:
        s = self.picture
        if s is None:
            return tenant_lines((), 0.0, cells)
        return tenant_lines(s.top(max(1, lines - 2)), s.covered_s, cells)

    def _ticker(self, cells: int, lines: int) -> Sequence[Line]:
        return ticker_lines(self.picture, lines, cells, tz=self._tz) if self.picture else ()

    # The keys.

    def action_pause(self) -> None:
        """Hold the picture; what is collected meanwhile shows at once afterwards."""
        self._paused = not self._paused
        if not self._paused and self._latest is not None:
            self.picture = self._latest
        self._panels["header"].redraw()

    def action_interrupt(self) -> None:
        """Ctrl-C means here what it means in any command; the caller gives the exit code."""
        self.interrupted = True
        self.exit()

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_policy(self) -> None:
        """Switch the policy, off the screen's thread; one at a time."""
        actions = self._actions
        if actions is None:
            self.post_message(Done(self._no_actions, ok=False))
            return
        if self._acting:
            return
        self._acting = True

        def act() -> None:
            try:
                done = Done(actions.switch_policy(), ok=True)
            except Exception as e:  # an action that fails is told, and changes nothing here
                done = Done(sentence_of(e), ok=False)
            self.post_message(done)

        threading.Thread(target=act, name="action", daemon=True).start()

    def on_done(self, message: Done) -> None:
        self._acting = False
        self.notify(
            plain(message.sentence),
            severity="information" if message.ok else "warning",
            markup=False,
        )
