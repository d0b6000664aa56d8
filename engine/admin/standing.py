"""What stands, and how it changes as one: disk, workers and front, in an order that loses nobody.

Owns the state, its lock (one act at a time) and what is yet to be said; which change is made the
desk decides. A change is on the disk before it is done, and off it again when a worker refuses it.
The order: names that go are refused at the door; workers have what comes; the front sends there;
workers let go of a tenant that is served elsewhere by now.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from engine.admin.act import Act, Done, Said, check, within
from engine.admin.base_file import BaseFile
from engine.admin.crew import Crew
from engine.admin.errors import WorkerSilent
from engine.admin.hands import FrontHands
from engine.admin.in_force import InForce, served
from engine.admin.member import Member, Order
from engine.admin.overlay import BY_ITSELF, MOST_IN_FORCE, TIME_OVER, Change, Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.part import Need, Turn, narrowed
from engine.config import Settings
from engine.errors import ConfigError
from telemetry.proto import tenantscope_pb2 as pb

_log = logging.getLogger(__name__)
_NOBODY = "no worker has anything to do"
_MOST_UNSAID = 2 * MOST_IN_FORCE


@dataclass(frozen=True, slots=True)
class State:
    """What holds at one instant, read without the lock by whoever only looks."""

    base: Settings
    overlay: Overlay

    @property
    def in_force(self) -> InForce:
        return self.overlay.on(self.base)


@dataclass(frozen=True, slots=True)
class Planned:
    """A change as it is asked for: what would stand after it, and the words for it. `note`: it is
    remembered as something that cannot be undone. `ends`: when it reverts, unix seconds."""

    after: Overlay
    base: Settings
    what: str
    ends: float | None = None
    tenant: str = ""
    adapter: str = ""
    note: bool = False


class Standing:
    """Thread-safe. `now` is unix time on the engine's clock; `changed` hears that a change may end
    sooner than was known, or that somebody is owed. `over`: changes that ended while nobody ran.
    `base_file` has the settings of workers that are started later."""

    def __init__(
        self,
        state: State,
        kept: OverlayFile,
        crew: Crew,
        front: FrontHands,
        now: Callable[[], float],
        changed: Callable[[], None],
        over: Iterable[Change] = (),
        base_file: BaseFile | None = None,
    ) -> None:
        self.state = state
        self._base_file = base_file
        self.crew = crew
        self.now = now
        self._kept = kept
        self._front = front
        self._changed = changed
        self._lock = threading.Lock()
        self._front_late = False  # it may not have turned yet as it was told
        self._unsaid = deque(_event(state, c) for c in over)
        self._unsaid_lost = 0
        # The file has other ends than the state. (Until what ended while nobody ran is said, it is
        # in force there: the next start would say it.)
        self._unwritten = bool(self._unsaid)

    @property
    def owes(self) -> bool:
        """Whether somebody is to be told once more (`sync`)."""
        return self.crew.owes or self._front_late or bool(self._unsaid) or self._unwritten

    @contextlib.contextmanager
    def turn(self, act: Act) -> Iterator[State]:
        """One act at a time. Raises what `check` does, when its turn has come."""
        with self._lock:
            check(act, self.state.base, self.state.overlay)
            yield self.state

    # -- within a turn

    def put(self, act: Act, plan: Planned) -> Done:
        """Have it done, or judged. A worker may still refuse; then nothing has changed. Raises
        what front, disk and `Crew.take` raise; then nothing has changed either, but for
        FrontSilent at the very end, when all but the front have it."""
        before, now = self.state, self.state.in_force
        then = plan.after.on(plan.base)
        order, turn = Order(act, plan.what, plan.tenant, plan.adapter), Turn(now, then)
        self._front.check(served(then))
        concerned = self.crew.concerned(turn)
        within(act, concerned or self._home(now, plan.tenant))
        fronts_own = self.crew.need(turn) <= Need.RECORD
        if act.dry_run:
            said = (self.crew.force if fronts_own else self.crew.take)(order, turn)
            if not any(s.refused for s in said):
                said += self.crew.release(order, turn)
            return self._done(act, plan, before.overlay.version, said)
        after = plan.after
        if plan.note:
            after = after.with_note(plan.what, self.now(), act.who, act.why)
        self._keep(after)
        if fronts_own:  # at once: a worker whose step hangs must not hold up a limit
            said = self._front_first(State(plan.base, after), order, turn, concerned)
            if not concerned:
                self._say(order, self.now(), next(iter(self._home(now, plan.tenant))))
            return replace(self._done(act, plan, after.version, said), ok=True)
        goes = _goes(now, then)
        try:
            if goes:
                self._turn_front(narrowed(now, then))
            said = self.crew.take(order, turn)
        except BaseException:
            self._changed()
            self._restore(before, goes)
            raise
        if any(s.refused for s in said):
            self._changed()
            self._restore(before, goes)
            return self._done(act, plan, before.overlay.version, said)
        self._stands(State(plan.base, after))  # workers and disk have it, whatever the front does
        try:
            self._turn_front(then)
            released = self.crew.release(order, turn)
        except BaseException:
            self.crew.owe(concerned)
            raise
        finally:
            self._changed()
        done = self._done(act, plan, after.version, (*said, *released))
        return replace(done, ok=True)  # whatever those said who only let go

    def remember(self, act: Act, what: str) -> None:
        """Write down something that cannot be undone. Raises OverlayLost; it is remembered here all
        the same."""
        after = self.state.overlay.with_note(what, self.now(), act.who, act.why)
        self.state = State(self.state.base, after)
        self._keep(after)

    # -- time, and workers' comings

    def expire(self) -> tuple[str, ...]:
        """What was to end by now ends; returns what, in words. A worker that is not reached is
        told when it is back."""
        with self._lock:
            after, over = self.state.overlay.expired(self.now())
            if not over:
                return ()
            base, now = self.state.base, self.state.in_force
            then = after.on(base)
            self.state, self._unwritten = State(base, after), True
            what = "; ".join(c.what for c in over)
            order, turn = Order(Act(BY_ITSELF, TIME_OVER), f"over: {what}"), Turn(now, then)
            concerned = self.crew.concerned(turn)
            try:
                if self.crew.need(turn) < Need.GAIN:  # no worker has to have anything before it
                    self._turn_front(then)
                elif _goes(now, then):
                    self._turn_front(narrowed(now, then))
                self.crew.force(order, turn)
                self._turn_front(then)
                self.crew.release(order, turn)
            except BaseException:
                self.crew.owe(concerned)
                raise
            if not concerned:
                self._say(order, self.now(), "")
            self._keep(after)  # last: a full disk must not keep a limit in force
            return tuple(c.what for c in over)

    def sync(self, came: Callable[[Member], bool]) -> tuple[str, ...]:
        """Workers that came, or were owed something, are told what is in force; what could not be
        said is said. Returns the adapters that had to be left out. Raises WorkerSilent,
        ChangeRefused, FrontSilent."""
        with self._lock:
            now = self.state.in_force
            self.crew.arrived(now, came)
            if self._front_late:
                self._turn_front(now)
            left_out = self.crew.sync(now)
            while self._unsaid:
                request, pool = self._unsaid[0]
                if not self.crew.note(request, pool):
                    raise WorkerSilent("no worker answers to write down what operators did")
                self._unsaid.popleft()
            if self._unwritten:
                self._keep(self.state.overlay)
            return left_out

    # -- parts

    def _front_first(
        self, state: State, order: Order, turn: Turn, concerned: frozenset[str]
    ) -> tuple[Said, ...]:
        self._stands(state)
        try:
            self._turn_front(state.in_force)
            return self.crew.force(order, turn)
        except BaseException:
            self.crew.owe(concerned)
            raise
        finally:
            self._changed()

    def _stands(self, state: State) -> None:
        is_reread = state.base is not self.state.base
        self.state = state
        if is_reread:
            self.crew.forget_start()
            try:
                if self._base_file is not None:
                    self._base_file.write(state.base)
            except ConfigError as e:
                _log.error("%s: a worker that is started is told only when it answers", e)

    def _home(self, now: InForce, tenant: str) -> frozenset[str]:
        """The pool that writes it down when no worker has to do with a change."""
        pool = now.pool_of(tenant) if tenant else None
        return frozenset({pool or now.settings.all_pools()[0].name})

    def _done(self, act: Act, plan: Planned, version: int, said: tuple[Said, ...]) -> Done:
        ok = not any(s.refused for s in said)
        detail = self.crew.summary(said) or _NOBODY
        return Done(version, act.dry_run, plan.what, plan.ends, ok, detail, said)

    def _keep(self, overlay: Overlay) -> None:
        self._kept.write(overlay)
        self._unwritten = False

    def _turn_front(self, then: InForce) -> None:
        settings = served(then)
        self._front_late = True
        self._front.check(settings)  # on this thread: what `apply` would take long for on the loop
        self._front.apply(settings)
        self._front_late = False

    def _restore(self, before: State, front: bool) -> None:
        try:
            self._keep(before.overlay)
        finally:
            if front:
                self._turn_front(before.in_force)

    def _say(self, order: Order, at_s: float, pool: str) -> None:
        """An event; kept for later when nobody answers."""
        request = order.request()
        request.note, request.at_unix_s = order.what, at_s
        if self._unsaid or not self.crew.note(request, pool):
            if len(self._unsaid) >= _MOST_UNSAID:
                self._unsaid.popleft()
                self._unsaid_lost += 1
                request.note += f" ({self._unsaid_lost} earlier acts could not be written down)"
            self._unsaid.append((request, pool))
            self._changed()


def _event(state: State, change: Change) -> tuple[pb.OperateRequest, str]:
    """A change that ended while nobody ran, as it is to be written down, and by whose worker."""
    about = change.edit
    is_adapter = about.kind in ("load", "unload", "pin")
    tenant = about.name if not is_adapter and about.kind != "policy" else ""
    what = f"over, while the engine was down: {change.what}"
    request = pb.OperateRequest(
        who=BY_ITSELF,
        why=TIME_OVER,
        what=what,
        note=what,
        at_unix_s=change.until_unix_s or 0.0,
        tenant=tenant,
        adapter=about.name if is_adapter else "",
    )
    return request, state.in_force.pool_of(tenant) or ""


def _goes(was: InForce, now: InForce) -> bool:
    """Whether a tenant or an adapter is no longer there."""
    return narrowed(was, now) != was
