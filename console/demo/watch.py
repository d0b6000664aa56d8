"""How a play is watched: in the console, or as plain lines. Owns nothing of the play itself.

A live play and a recorded one give the very same pictures (`console.sight`); here is only how long
they look back, the key of the demo's own, and when it is over.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol

import click

from console.cells import clip
from console.formats import ABSENT, clock, percent, quantity
from console.keys import Key
from console.lines import UNICODE, Glyphs, glyphs_for
from console.overview import Look, plain_text
from console.panels import Snapshot
from console.poller import sentence_of
from telemetry.errors import StoreError
from telemetry.plain import safe as plain

if TYPE_CHECKING:
    from console.act.desk import Desk
    from console.app import ConsoleApp
    from console.sight import Edge, Sight

# Buckets are ten seconds: two without harm and the screen is quiet again.
RECENT_S = 20.0
WINDOW_S = 30.0
ACCOUNT_S = 60.0  # so that the acts are not mixed up
LINES = 40  # of plain text, at the most
CELLS = 80
EVERY_S = 10.0
POLICY_KEY = Key("p", "p", "do('policy')", "switch policy", "switch the scheduling policy", rank=1)

Act = Callable[[], str]


class Playing(Protocol):
    """What is being played, live (`console.demo.director`)."""

    phase: str | None

    def switch_policy(self) -> str: ...


def sight(
    opening: Callable[[], Any],
    edge: Edge,
    phase: Callable[[], str | None] = lambda: None,
    tz: tzinfo | None = None,
) -> Sight:
    """The pictures of a play, over times that fit it."""
    from console.sight import Sight

    return Sight(
        opening,
        edge,
        tz=tz,
        phase=phase,
        recent_s=RECENT_S,
        window_s=WINDOW_S,
        account_s=ACCOUNT_S,
    )


def screen(feed: Sight, switch: Act | None, desk: Desk, tz: tzinfo | None = None) -> ConsoleApp:
    """The console on a play. `switch` is what the demo's own key does; None: nothing can be
    switched, and the key says so."""
    from console.app import ConsoleApp
    from console.command import read_time

    return ConsoleApp(
        feed,
        read_time=read_time,
        tz=tz,
        more_keys=(POLICY_KEY,),
        deeds={"policy": deed(switch)},
        desk=desk,
        phases=True,
        ascii_only=glyphs_for(sys.stdout.encoding) is not UNICODE,
    )


def deed(switch: Act | None) -> Callable[[Any], None]:
    """A key's act off the screen's thread, one at a time; what it did, or why not, is told."""
    busy = threading.Lock()

    def act(app: Any) -> None:
        if switch is None:
            app.say("a recorded run cannot be changed", "warning")
            return
        if not busy.acquire(blocking=False):
            return  # the answer to the press before is still to come

        def work() -> None:
            try:
                told, severity = switch(), "information"
            except Exception as e:  # an action that fails is told, and changes nothing here
                told, severity = sentence_of(e), "warning"
            finally:
                busy.release()
            in_app(app, app.say, told, severity)

        threading.Thread(target=work, name="action", daemon=True).start()

    return act


def in_app(app: Any, call: Callable[..., object], *given: object) -> None:
    """On the app's own thread; one that has been left needs no telling."""
    if app.is_running:
        with suppress(RuntimeError):  # left in between
            app.call_from_thread(call, *given)


def watch_screen(app: ConsoleApp, play: threading.Thread | None = None) -> None:
    """Show it until the reader leaves, or the play is over."""
    if play is not None:

        def leave() -> None:
            play.join()
            in_app(app, app.exit)

        threading.Thread(target=leave, name="curtain", daemon=True).start()
    app.show()


def watch_lines(
    feed: Sight, playing: Playing, play: threading.Thread, say: Callable[[str], object]
) -> None:
    """Say every phase as it begins, and between them now and then the whole picture."""
    phase, next_at = None, 0.0
    try:
        while play.is_alive():
            play.join(0.5)
            if playing.phase == phase and time.monotonic() < next_at:
                continue
            if playing.phase != phase:
                phase = playing.phase
                say(f"== {phase}")
            else:
                tell_now(feed, say)
            next_at = time.monotonic() + EVERY_S
    finally:
        feed.close()


def tell_now(feed: Sight, say: Callable[[str], object]) -> None:
    """The picture of now; a store that does not answer is a line, and the play goes on."""
    try:
        picture = feed.snapshot()
    except StoreError as e:
        say(f"no figures now: {e}")
        return
    if picture.tenants:
        say(text(picture))
        say(summary_line(picture))


def play_lines(feed: Sight, speed: float) -> None:
    """A recording as plain pictures, to its end."""
    try:
        for picture in pictures(feed, lambda: time.sleep(EVERY_S / speed)):
            click.echo(text(picture))
    finally:
        feed.close()


def pictures(feed: Sight, rest: Callable[[], object]) -> Iterator[Snapshot]:
    """One after the other, up to the one that says that the recording ends."""
    while True:
        picture = feed.snapshot()
        yield picture
        if picture.ticker and picture.ticker[-1].kind == "end":
            return
        rest()


def text(picture: Snapshot, glyphs: Glyphs | None = None) -> str:
    """The overview as plain text."""
    drawn = glyphs or glyphs_for(sys.stdout.encoding)
    return plain_text(picture, CELLS, LINES, Look(glyphs=drawn, phases=True))


def summary_line(s: Snapshot) -> str:
    """One line for a log: time, phase, policy, waiting, misses, the verdict's first sentence."""
    eligible = sum(t.slo_eligible or 0 for t in s.tenants)
    missed = sum(t.slo_missed or 0 for t in s.tenants)
    parts = [
        clock(s.now),
        plain(s.phase) if s.phase else s.mode,
        plain(s.policy) if s.policy else ABSENT,
        f"waiting {quantity(s.wait.waiting)}",
        f"missed {percent(missed / eligible) if eligible else ABSENT}",
        f"out {quantity(s.strip.output_tokens_per_s)} tok/s",
        plain(s.verdict.lines[0]) if s.verdict.lines else s.verdict.level.value,
    ]
    return clip(" | ".join(parts), 240)
