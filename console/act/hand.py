"""The threads that speak with the engines: one looks again and again, one at a time acts.

Owns the doors and the threads; what becomes of an answer, the screen says (`tell`). A silent engine
holds up neither the screen nor the other engines nor quitting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from console.act.values import Answer, EngineState, Looked, No, Order
from console.poller import sentence_of

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
REST = 25.0  # so many times as long as a look took: an engine of many tenants is not kept busy
LONGEST_REST_S = 15.0  # one that was silent is found again
LEAVE_S = 2.0  # how long a call that was cut off may take to end
MOST_DOORS = 32


class DoorShut(Exception):
    """A door does not open; says why and what to do."""


class Door(Protocol):
    """One engine's door. Called from threads, several at a time; every call ends within a bound."""

    address: str

    def look(self) -> EngineState: ...

    def act(self, order: Order) -> Answer: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Acted:
    """The answers to what was sent, in its order, and a look made after them."""

    orders: tuple[Order, ...]
    answers: tuple[Answer, ...]
    looked: Looked


Heard = Looked | Acted
Again = Callable[[Collection[str]], Sequence[Door]]
T = TypeVar("T")


class Hand:
    """`tell` is called on its threads with every look and every answer, until `stop`. `again` is
    asked, once nobody answers, for doors at other addresses than those known: an engine that is
    started again may have another one.
    Raises ValueError for more doors than it takes."""

    def __init__(
        self,
        doors: Sequence[Door],
        tell: Callable[[Heard], object],
        every_s: float = LOOK_EVERY_S,
        again: Again | None = None,
    ) -> None:
        if len(doors) > MOST_DOORS:
            raise ValueError(f"{len(doors)} operators' addresses: at most {MOST_DOORS} at once")
        self._doors = {d.address: d for d in doors}
        self._tell = tell
        self._every_s = every_s
        self._again = again
        self._over = threading.Event()
        self._wake = threading.Event()
        self._busy = threading.Lock()
        self._seeking = threading.Lock()
        self._calls = ThreadPoolExecutor(2 * max(4, len(doors)), thread_name_prefix="door")
        self._looker = threading.Thread(target=self._look_on, name="operator", daemon=True)
        self._actor: threading.Thread | None = None

    def start(self) -> None:
        self._looker.start()

    def send(self, orders: Sequence[Order]) -> bool:
        """Have it done; False while the act before is still under way."""
        if self._over.is_set() or not self._busy.acquire(blocking=False):
            return False
        self._actor = threading.Thread(
            target=self._act, args=(tuple(orders),), name="operator's act", daemon=True
        )
        self._actor.start()
        return True

    def look(self) -> None:
        """Look again now, not only when it is time."""
        self._wake.set()

    def stop(self) -> None:
        """Ask no more; calls under way are cut off."""
        self._over.set()
        self._wake.set()
        for door in self._doors.values():
            door.close()
        self._calls.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        for thread in (self._looker, self._actor):
            if thread is not None and thread.ident is not None:
                thread.join(LEAVE_S)

    def _look_on(self) -> None:
        while not self._over.is_set():
            self._wake.clear()
            began = time.monotonic()
            self._say(self._look())
            self._wake.wait(rest_s(self._every_s, time.monotonic() - began))

    def _look(self) -> Looked:
        tried = self._doors
        looked = self._look_once()
        return self._look_once() if not looked.states and self._found_anew(tried) else looked

    def _found_anew(self, tried: dict[str, Door]) -> bool:
        """Whether there are other doors now than those tried; then only those are."""
        with self._seeking:  # the looker and the actor may both find nobody answering
            return self._doors is not tried or self._seek()

    def _seek(self) -> bool:
        try:
            fresh = () if self._again is None else self._again(self._doors)
        except Exception as e:  # the doors that are known stay, and are asked again
            _log.info("no door can be looked for: %s", sentence_of(e))
            return False
        if not fresh:
            return False
        gone, self._doors = self._doors, {d.address: d for d in fresh[:MOST_DOORS]}
        unused = fresh if self._over.is_set() else fresh[MOST_DOORS:]
        for door in (*gone.values(), *unused):
            door.close()
        return True

    def _look_once(self) -> Looked:
        asked = [(a, self._submit(d.look)) for a, d in self._doors.items()]
        states: list[EngineState] = []
        closed = []
        for address, future in asked:
            try:
                states.append(future.result())
            except Exception as e:  # of one door alone: what it says is shown beside the others
                closed.append((address, sentence_of(e)))
        return Looked(tuple(states), tuple(closed))

    def _act(self, orders: tuple[Order, ...]) -> None:
        try:
            asked = [(o, self._submit(self._have_done, o)) for o in orders]
            answers = []
            for order, future in asked:
                try:
                    answers.append(future.result())
                except Exception as e:  # whatever it is, the other engines' answers are told
                    why_not = sentence_of(e)
                    answers.append(Answer(address=order.address, no=_why(e), why_not=why_not))
            looked = self._look()
        finally:
            self._busy.release()
        self._say(Acted(orders, tuple(answers), looked))

    def _have_done(self, order: Order) -> Answer:
        door = self._doors.get(order.address)
        if door is None:  # its engine has been started again elsewhere since
            gone = f"the engine at {order.address} has gone: look again, then ask again"
            raise DoorShut(gone)
        return door.act(order)

    def _submit(self, call: Callable[..., T], *given: object) -> Future[T]:
        try:
            return self._calls.submit(call, *given)
        except RuntimeError:  # stopped meanwhile
            failed: Future[T] = Future()
            failed.set_exception(DoorShut("the console is being left"))
            return failed

    def _say(self, heard: Heard) -> None:
        if not self._over.is_set():
            self._tell(heard)


def rest_s(every_s: float, took_s: float) -> float:
    """How long to wait after a look that took so long."""
    return min(max(every_s, REST * took_s), max(every_s, LONGEST_REST_S))


def _why(error: Exception) -> No:
    return No.REFUSED if isinstance(error, DoorShut) else No.SILENT
