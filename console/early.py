"""The feed's first picture, begun while the screen is still being built. Owns that one thread.

What the screen needs takes as long to load as a store takes to answer: the two go side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from console.detail import Asks, Detail
from console.panels import Snapshot
from console.poller import LEAVE_S, THREAD, Sees


class Early:
    """`feed`, with its first picture asked for at `start`. Called as the feed is: from one thread,
    but for `show_pool` and `show_columns`."""

    def __init__(self, feed: Sees) -> None:
        self._feed = feed
        self._made: Callable[[], Snapshot] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            made = self._feed.snapshot()
        except Exception as e:  # raised again where the picture is asked for
            error = e

            def refuse() -> Snapshot:
                raise error

            self._made = refuse
        else:
            self._made = lambda: made

    def snapshot(self) -> Snapshot:
        """The first time what was begun, and what it raised."""
        made, self._made = self._waited(), None
        return self._feed.snapshot() if made is None else made()

    def _waited(self) -> Callable[[], Snapshot] | None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        return self._made

    def at(self, at: float) -> Snapshot:
        self._waited()
        return self._feed.at(at)

    def detail(self, asks: Asks) -> Detail:
        self._waited()
        return self._feed.detail(asks)

    def show_pool(self, pool: str | None) -> None:
        self._feed.show_pool(pool)

    def show_columns(self, every: bool) -> None:
        self._feed.show_columns(every)

    def close(self) -> None:
        """A picture under way is waited for only a little: a source that hangs holds up no end."""
        thread = self._thread
        if thread is not None:
            thread.join(LEAVE_S)
            if thread.is_alive():
                return  # the feed is still that thread's
        self._feed.close()
