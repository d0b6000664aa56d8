"""The operator's desk: takes an act, judges it, has it done by worker and front, and keeps it.

Owns what is in force and in which order that changes: one act at a time. Knows no socket and no
HTTP: worker and front are two pairs of hands, the clock is passed in. A change is on the disk
before it is done, and off it again when the worker refuses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engine.admin import overlay as edits
from engine.admin.act import Act, Done, WorkerSilent, check, confined, leaves_nothing, until
from engine.admin.diff import differences, lifted, live_part
from engine.admin.hands import FrontHands, WorkerHands
from engine.admin.overlay import ChangeRefused, Edit, InForce, Overlay, served
from engine.admin.overlay_file import OverlayFile, OverlayLost
from engine.config import Settings, read_settings
from engine.config_keeper import lost
from engine.errors import ConfigError
from telemetry.proto import tenantscope_pb2 as pb

BY_ITSELF = "tenantscope"


@dataclass(frozen=True, slots=True)
class State:
    """What holds at one instant, read without the lock by whoever only looks."""

    base: Settings
    overlay: Overlay

    @property
    def in_force(self) -> InForce:
        return self.overlay.on(self.base)


class AdminDesk:
    """Thread-safe. `base` are the settings as the file has them, `config` is the file."""

    def __init__(
        self,
        base: Settings,
        kept: OverlayFile,
        overlay: Overlay,
        worker: WorkerHands,
        front: FrontHands,
        now: Callable[[], float],
        config: Path | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`now` is unix time on the engine's clock; `changed` hears that a change may end sooner
        than was known."""
        self._state = State(base, overlay)
        self._started_with = base
        self._kept = kept
        self._worker = worker
        self._front = front
        self._now = now
        self._config = config
        self._changed = changed
        self._lock = threading.Lock()
        self._owed = False  # the worker may not be as it should

    # -- looking

    @property
    def state(self) -> State:
        return self._state

    @property
    def overlay(self) -> Overlay:
        return self._state.overlay

    @property
    def base(self) -> Settings:
        return self._state.base

    @property
    def in_force(self) -> InForce:
        return self._state.in_force

    def look(self) -> pb.OperateReply:
        """What the worker has: running, waiting, resident. Raises WorkerSilent."""
        return self._worker.operate(pb.OperateRequest(look="all"))

    # -- changes that can be taken back

    def set_tenant(self, act: Act, name: str, words: dict[str, str], *, cap: bool = False) -> Done:
        """`cap`: lower only, whatever comes or ends under it."""
        make = edits.cap_edit if cap else edits.tenant_edit
        return self._edit(act, lambda now: make(now, name, words), tenant=name)

    def drain(self, act: Act, name: str) -> Done:
        return self._edit(
            act,
            lambda now: edits.drain_edit(now, name),
            f"tenant {name!r} drains: nothing new of it is let in, what is under way ends",
            tenant=name,
        )

    def resume(self, act: Act, name: str) -> Done:
        return self._take_back(act, "drain", name, f"tenant {name!r} does not drain", tenant=name)

    def set_policy(self, act: Act, policy: str) -> Done:
        return self._edit(act, lambda now: edits.policy_edit(now, policy))

    def load(self, act: Act, name: str, folder: str, tenants: tuple[str, ...]) -> Done:
        """Without a folder: one that was unloaded, or that the settings name and the worker left
        out."""
        if folder:
            path = confined(folder, self.base, self._config)
            return self._edit(
                act, lambda now: edits.load_edit(now, name, path, tenants), adapter=name
            )
        if any(c.in_force and c.edit == Edit("unload", name) for c in self.overlay.changes):
            gone = f"adapter {name!r} is not unloaded any more"
            return self._take_back(act, "unload", name, gone, adapter=name)
        return self.reload_adapter(act, name)

    def unload(self, act: Act, name: str) -> Done:
        return self._edit(act, lambda now: edits.unload_edit(now, name), adapter=name)

    def pin(self, act: Act, name: str) -> Done:
        return self._edit(
            act,
            lambda now: edits.pin_edit(now, name),
            f"adapter {name!r} stays on the device",
            adapter=name,
        )

    def unpin(self, act: Act, name: str) -> Done:
        return self._take_back(act, "pin", name, f"adapter {name!r} is not pinned", adapter=name)

    def undo(self, act: Act) -> Done:
        """The last change in force, whoever made it."""
        with self._lock:
            check(act, self.base, self.overlay)
            leaves_nothing(act)
            found = self.overlay.without_last()
            if found is None:
                raise ChangeRefused(
                    "nothing to undo: no change is in force (a config reload is taken back by the "
                    "file: put the old one there and reload it)"
                )
            after, change = found
            return self._put(act, after, self.base, f"undone: {change.what}", None)

    # -- the settings file

    def reload_config(self, act: Act, allow_lifts: bool) -> Done:
        """Read the settings file again; changes by operators stay on top of it. A limit that the
        file leaves out is taken for an accident unless `allow_lifts`. Raises ChangeRefused."""
        with self._lock:
            check(act, self.base, self.overlay)
            leaves_nothing(act)
            if self._config is None:
                raise ChangeRefused("this engine was started without a settings file to read again")
            old = self.base
            try:
                new = read_settings(self._config).one_pool()
            except ConfigError as e:
                raise ChangeRefused(f"{e}; the settings in force stay") from None
            # The model may have been named on the command line.
            new, waits = live_part(old, replace(new, model=old.model))
            why_not = lost(old, new)
            gone = lifted(old, new)
            if not why_not and gone and not allow_lifts:
                why_not = (
                    f"it leaves out {', '.join(gone)}, and a limit that is left out is no limit: "
                    "write it, or say --allow-lifts if that is meant"
                )
            if why_not:
                raise ChangeRefused(f"{self._config}: {why_not}; the settings in force stay")
            lines = differences(old, new)
            what = f"settings read again: {'; '.join(lines) or 'nothing is different'}"
            if waits:
                what += f"; only a restart will change {', '.join(waits)}"
            if not lines:
                return Done(self.overlay.version, act.dry_run, what, None, True, "as it was")
            after = replace(self.overlay, version=self.overlay.version + 1)
            return self._put(act, after, new, what, None, note=True)

    # -- acts that leave nothing to take back

    def preempt(self, act: Act, name: str) -> Done:
        if self.in_force.settings.tenant(name) is None:
            raise ChangeRefused(f"tenant {name!r} is not in the settings: see `admin tenant show`")
        request = pb.OperateRequest(preempt_tenant=name, tenant=name)
        return self._once(act, request, f"preempt the excess of tenant {name!r}")

    def abort(self, act: Act, request_id: str) -> Done:
        request = pb.OperateRequest(abort_request=request_id)
        return self._once(act, request, f"abort request {request_id!r}")

    def reload_adapter(self, act: Act, name: str) -> Done:
        if all(n != name for n, _ in self.in_force.settings.adapters):
            raise ChangeRefused(
                f"adapter {name!r} is not served here: to load it, give --folder and --tenant"
            )
        request = pb.OperateRequest(reload_adapter=name, adapter=name)
        return self._once(act, request, f"read adapter {name!r} again")

    def note(self, act: Act, what: str) -> None:
        """Write down what was not done. Raises OverlayLost."""
        with self._lock:
            after = self.overlay.with_note(what, self._now(), act.who, act.why)
            self._kept.write(after)
            self._state = State(self.base, after)

    # -- time, and the worker's comings

    def expire(self) -> tuple[str, ...]:
        """What was to end by now ends; returns what, in words. A worker that is not reached is
        told when it is back."""
        with self._lock:
            after, over = self.overlay.expired(self._now())
            if not over:
                return ()
            what = "; ".join(c.what for c in over)
            was, target = self.in_force, after.on(self.base)
            self._state = State(self.base, after)
            self._owed = True
            if _goes(was, target):
                self._front.apply(served(target))
            act = Act(BY_ITSELF, "its time is over")
            with suppress(WorkerSilent):
                self._owed = not self._tell_worker(act, target, f"over: {what}", lenient=True).ok
            self._front.apply(served(target))
            self._kept.write(after)  # last: a full disk must not keep a limit in force
            return tuple(c.what for c in over)

    @property
    def owes(self) -> bool:
        """Whether the worker is to be told once more (`sync`)."""
        return self._owed

    @property
    def next_expiry_s(self) -> float | None:
        return self.overlay.next_expiry_s

    def sync(self) -> tuple[str, ...]:
        """A worker answers: it is told what is in force, unless it started with just that. Returns
        the adapters it had to leave out. Raises WorkerSilent, ChangeRefused."""
        with self._lock:
            now = self.in_force
            if not self._owed and now == InForce(self._started_with):
                return ()
            act = Act(BY_ITSELF, "changes in force before this start")
            reply = self._tell_worker(act, now, "changes by operators are taken up", lenient=True)
            self._owed = False
            if not reply.ok:
                raise ChangeRefused(f"the worker does not take what is in force: {reply.detail}")
            return tuple(reply.left_out)

    # -- parts

    def _edit(
        self,
        act: Act,
        make: Callable[[InForce], Edit],
        what: str = "",
        *,
        tenant: str = "",
        adapter: str = "",
    ) -> Done:
        with self._lock:
            check(act, self.base, self.overlay)
            ends = until(act, self._now())
            now = self.in_force
            edit = make(now)
            words = what or _words(now, edit)
            after = self.overlay.with_change(edit, words, self._now(), ends, act.who, act.why)
            return self._put(act, after, self.base, words, ends, tenant=tenant, adapter=adapter)

    def _take_back(
        self,
        act: Act,
        kind: str,
        name: str,
        nothing: str,
        *,
        tenant: str = "",
        adapter: str = "",
    ) -> Done:
        with self._lock:
            check(act, self.base, self.overlay)
            leaves_nothing(act)
            after = self.overlay.without(kind, name)
            if after is None:
                raise ChangeRefused(nothing)
            what = f"{kind} of {name!r} is over"
            return self._put(act, after, self.base, what, None, tenant=tenant, adapter=adapter)

    def _put(
        self,
        act: Act,
        after: Overlay,
        base: Settings,
        what: str,
        ends: float | None,
        *,
        tenant: str = "",
        adapter: str = "",
        note: bool = False,
    ) -> Done:
        """Have it done. The worker may still refuse; then nothing has changed."""
        before, now = self._state, self.in_force
        target = after.on(base)
        self._front.check(served(target))
        if note and not act.dry_run:
            after = after.with_note(what, self._now(), act.who, act.why)
        if not act.dry_run:
            self._kept.write(after)
        # A name that goes is refused at the door before the worker forgets it; one that comes is
        # let in only when the worker has it.
        goes = _goes(now, target)
        try:
            if goes and not act.dry_run:
                self._front.apply(served(target))
            reply = self._tell_worker(act, target, what, tenant=tenant, adapter=adapter)
        except Exception:
            self._owed = self._owed or not act.dry_run  # it may have heard, and do it yet
            self._changed()
            self._restore(before, act, goes)
            raise
        if act.dry_run or not reply.ok:
            self._restore(before, act, goes)
            return Done(before.overlay.version, act.dry_run, what, ends, reply.ok, reply.detail)
        try:
            self._front.apply(served(target))
        finally:  # worker and disk have it, whether or not the front has turned yet
            self._state = State(base, after)
            self._changed()
        return Done(after.version, False, what, ends, True, reply.detail)

    def _restore(self, before: State, act: Act, front: bool) -> None:
        if act.dry_run:
            return
        try:
            self._kept.write(before.overlay)
        finally:
            if front:
                self._front.apply(served(before.in_force))

    def _once(self, act: Act, request: pb.OperateRequest, what: str) -> Done:
        with self._lock:
            check(act, self.base, self.overlay)
            leaves_nothing(act)
            request.who, request.why, request.what = act.who, act.why, what
            request.dry_run = act.dry_run
            reply = self._worker.operate(request)
            if reply.ok and not act.dry_run:
                after = self.overlay.with_note(
                    f"{what}: {reply.detail}", self._now(), act.who, act.why
                )
                try:
                    self._kept.write(after)
                except OverlayLost:  # what is done once cannot be taken back
                    reply.detail += "; done, but the disk took no note of it"
                self._state = State(self.base, after)
            version = self.overlay.version
            return Done(version, act.dry_run, what, None, reply.ok, reply.detail)

    def _tell_worker(
        self,
        act: Act,
        target: InForce,
        what: str,
        *,
        tenant: str = "",
        adapter: str = "",
        lenient: bool = False,
    ) -> pb.OperateReply:
        settings = served(target)
        bare = replace(settings, tenants=tuple(replace(t, key_sha256=()) for t in settings.tenants))
        desired = pb.Desired(settings=bare.dump(), pinned=sorted(target.pinned), lenient=lenient)
        return self._worker.operate(
            pb.OperateRequest(
                who=act.who,
                why=act.why,
                what=what,
                dry_run=act.dry_run,
                desired=desired,
                tenant=tenant,
                adapter=adapter,
            )
        )


def _goes(was: InForce, now: InForce) -> bool:
    """Whether an adapter's name is no longer there."""
    names = {n for n, _ in now.settings.adapters}
    return any(n not in names for n, _ in was.settings.adapters)


def _words(now: InForce, edit: Edit) -> str:
    lines = differences(served(now), served(edits.applied(now, edit)))
    if lines:
        return "; ".join(lines)
    given = ", ".join(f"{k} {v if v is not None else 'none'}" for k, v in edit.values.items())
    return f"{edit.kind} {edit.name!r}: {given or 'as it was'}, as before"
