"""The thread that asks: for now's picture again and again, for one of the past when it is wanted,
and for the rows of the page that is open.

Owns the thread and what is wanted; what becomes of an answer, the screen says (`tell`). A feed that
hangs holds up neither the screen nor quitting.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from console.detail import Asks, Detail
from console.panels import Snapshot

THREAD = "feed"  # the command line looks for this name when it ends
REST = 4.0  # at least so many times as long as a picture took: a fifth of a core at the most
DETAIL_EVERY_S = 10.0  # the same questions of a page are asked again: what is open goes on
# Made and not dropped since cycles were looked for: so many are soon looked through, and with those
# of a crowd's picture still fewer than what Python would look through in its midst.
FEW_OBJECTS = 100_000
LEAVE_S = 4.0  # how long a question under way may still take when the screen is left


class Sees(Protocol):
    """What gives pictures (`console.sight.Sight`): called from one thread, may raise anything."""

    def snapshot(self) -> Snapshot: ...

    def at(self, at: float) -> Snapshot: ...

    def detail(self, asks: Asks) -> Detail: ...

    def show_pool(self, pool: str | None) -> None: ...

    def show_columns(self, every: bool) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Now:
    """The picture of now."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Then:
    """The picture of the instant that was wanted."""

    wanted: float
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Found:
    """The rows a page asked for, or why there are none (`Detail.trouble`)."""

    detail: Detail


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no picture (of the instant that was wanted, where one was), in the words of what
    refused."""

    why: str
    wanted: float | None = None


Told = Now | Then | Found | Trouble


class Poller:
    """`tell` is called on the thread, with one `Told` after the other, until `stop`."""

    def __init__(
        self,
        feed: Sees,
        tell: Callable[[Told], object],
        period_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = feed
        self._tell = tell
        self._period_s = period_s
        self._over = threading.Event()
        self._wake = threading.Event()
        self._monotonic = monotonic
        self._wanted: float | None = None
        self._asks: Asks = ()
        self._asked: tuple[Asks, float] = ((), 0.0)  # what was answered last, and when
        self._cost_s = 0.0
        self.rest_s = period_s  # how long it rests between two pictures
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def want(self, at: float | None) -> None:
        """Look at an instant; None: at now alone. Answered as soon as the feed is free."""
        self._wanted = at
        self._wake.set()

    def ask(self, asks: Asks) -> None:
        """The questions of the page that is open; none: of no page. Answered as soon as the feed
        is free, and again now and then."""
        self._asks = asks
        self._wake.set()

    def look(self) -> None:
        """Ask again now, not only when the period is over."""
        self._wake.set()

    def stop(self) -> None:
        """Ask no more; wait a little for the question under way: a thread inside native code
        takes the process down with it when the interpreter ends."""
        self._over.set()
        self._wake.set()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(LEAVE_S)

    def _run(self) -> None:
        shown: float | None = None
        try:
            while not self._over.is_set():
                self._wake.clear()
                began = time.thread_time()
                wanted = self._wanted
                if wanted is not None and wanted != shown:
                    then = self._then(wanted)
                    self._say(then)
                    # What was refused is asked for again: the reader still waits for it.
                    shown = wanted if isinstance(then, Then) else None
                elif wanted is None:
                    shown = None
                self._answer()
                filling = False
                if not self._over.is_set() and not self._wake.is_set():
                    tidy()
                    now = self._now()
                    filling = isinstance(now, Now) and now.snapshot.filling
                    self._say(now)
                self._cost_s = time.thread_time() - began
                # After a first look the whole picture is waited for.
                self.rest_s = 0.0 if filling else pause_s(self._period_s, self._cost_s)
                self._wake.wait(self.rest_s)
        finally:
            self._feed.close()

    def _say(self, told: Told) -> None:
        if not self._over.is_set():
            self._tell(told)

    def _now(self) -> Told:
        try:
            return Now(self._feed.snapshot())
        except Exception as e:  # whatever a feed raises is shown; the screen lives on
            return Trouble(sentence_of(e))

    def _answer(self) -> None:
        """The page's rows, where its questions are new or were answered a while ago."""
        asks, now = self._asks, self._monotonic()
        answered, at = self._asked
        if self._over.is_set() or not asks:
            return
        if asks == answered and 0.0 <= now - at < DETAIL_EVERY_S:
            return
        try:
            self._say(Found(self._feed.detail(asks)))
            self._asked = (asks, now)
        except Exception as e:  # as above; asked again after a rest
            self._asked = ((), 0.0)
            self._say(Found(Detail(asks, trouble=sentence_of(e))))

    def _then(self, at: float) -> Told:
        try:
            return Then(at, self._feed.at(at))
        except Exception as e:  # as above
            return Trouble(sentence_of(e), at)


def tidy() -> None:
    """Look for cycles now, between two pictures, where there can be many: then a crowd's picture is
    made without a pause for it in its midst."""
    young, middle, _ = gc.get_count()
    if young > FEW_OBJECTS:
        gc.collect(1 if middle > gc.get_threshold()[1] else 0)


def pause_s(period_s: float, cost_s: float) -> float:
    """How long to wait after a picture that took `cost_s` of a core: a crowd of tenants makes
    pictures rarer, and not the machine busy."""
    return max(period_s, REST * cost_s)


def sentence_of(error: BaseException) -> str:
    """An exception as a person reads it: its message, or its kind where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
