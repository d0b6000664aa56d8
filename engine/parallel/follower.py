"""What every rank but the first does: compute its part of each step, copy in its share of each
adapter. Decides nothing; rank 0 has told it in the order in which it does the same itself.

Two threads, as beside rank 0's core: a load must not hold up a step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from engine.errors import EngineError
from engine.parallel.wire import Channel, Done, Drop, Load, Step, segments_of
from engine.scheduling.plan import HostAdapter, Segment


class Part(Protocol):
    """A rank's part of the model on its arena (`TorchRunner`)."""

    def compute(self, segments: Sequence[Segment]) -> object: ...

    def copy_in(self, adapter: HostAdapter, pages: Sequence[int]) -> None: ...

    def drop(self, key: str) -> None: ...


class Follower:
    """Follows until rank 0 closes its end of the channels, or is gone."""

    def __init__(self, part: Part, steps: Channel, loads: Channel) -> None:
        self._part = part
        self._steps = steps
        self._loads = loads
        self._serials: dict[str, int] = {}  # of each key the last copy
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Steps and drops, on the caller's thread. What goes wrong in a step is raised: ranks that
        do not stand at the same sum will never meet again."""
        while (order := _next(self._steps)) is not None:
            if isinstance(order, Step):
                self._part.compute(segments_of(order.rows))
            elif isinstance(order, Drop):
                self._drop(order)

    def start_loading(self, failed: Callable[[Exception], None]) -> threading.Thread:
        """Loads, on a thread of their own; `failed` hears what ended it before its time."""

        def run() -> None:
            try:
                while isinstance(order := _next(self._loads), Load):
                    self._load(order)
            except Exception as e:
                failed(e)

        thread = threading.Thread(target=run, name="rank-loads", daemon=True)
        thread.start()
        return thread

    def _drop(self, order: Drop) -> None:
        with self._lock:
            if self._serials.get(order.key) == order.serial:
                del self._serials[order.key]
                self._part.drop(order.key)

    def _load(self, order: Load) -> None:
        began_s = time.perf_counter()
        share = order.share
        image = np.empty((share.pages, share.image.shape[1]), dtype=np.uint8)
        self._loads.recv_into(image.data.cast("B"))
        # Before the copy: a drop of the copy before it may be on its way, and is too late then.
        with self._lock:
            self._serials[share.key] = order.serial
        refusal = None
        try:
            self._part.copy_in(replace(share, image=image), order.pages)
        except EngineError as e:  # rank 0 checks the same, and says so
            refusal = str(e)
        self._loads.send(Done(order.serial, time.perf_counter() - began_s, refusal))


def _next(channel: Channel) -> object | None:
    """The next order; None at the end."""
    try:
        order: object = channel.recv()
    except (EOFError, ConnectionError):
        return None
    return order
