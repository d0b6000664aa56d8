"""The operator's desk: every act by name, judged and worded. Owns the settings file's path.

Knows no socket and no HTTP; how a change is carried out is `standing`'s, whom it concerns `crew`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.admin import edits
from engine.admin.act import Act, Done, Said, confined, leaves_nothing, until, within
from engine.admin.base_file import BaseFile
from engine.admin.crew import Crew
from engine.admin.diff import differences
from engine.admin.errors import ChangeRefused, OverlayLost
from engine.admin.hands import FrontHands
from engine.admin.in_force import Edit, InForce, applied, served
from engine.admin.member import Member
from engine.admin.overlay import Change, End, Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.reread import read_again
from engine.admin.standing import Planned, Standing, State
from engine.config import Settings
from telemetry.proto import tenantscope_pb2 as pb


class AdminDesk:
    """Thread-safe. `base` are the settings as the file has them, `config` is the file."""

    def __init__(
        self,
        base: Settings,
        kept: OverlayFile,
        overlay: Overlay,
        workers: Sequence[Member],
        front: FrontHands,
        now: Callable[[], float],
        config: Path | None = None,
        changed: Callable[[], None] = lambda: None,
        over: Iterable[Change] = (),
        base_file: BaseFile | None = None,
    ) -> None:
        """`now` is unix time on the engine's clock; `changed` hears that there is something to do
        sooner than was known; `over`: changes that ended while nobody ran; `base_file` has the
        settings of workers that are started later."""
        crew = Crew(workers, InForce(base))
        state = State(base, overlay)
        self._standing = Standing(state, kept, crew, front, now, changed, over, base_file)
        self._config = config

    # -- looking

    @property
    def state(self) -> State:
        return self._standing.state

    @property
    def overlay(self) -> Overlay:
        return self.state.overlay

    @property
    def base(self) -> Settings:
        return self.state.base

    @property
    def in_force(self) -> InForce:
        return self.state.in_force

    def look(self) -> list[tuple[Member, pb.OperateReply | str]]:
        """What each worker has: running, waiting, resident; or why it does not say."""
        return self._standing.crew.look()

    # -- changes that can be taken back

    def set_tenant(self, act: Act, name: str, words: dict[str, str], *, cap: bool = False) -> Done:
        """`cap`: lower only, whatever comes or ends under it."""
        make = edits.cap_edit if cap else edits.tenant_edit
        return self._edit(act, lambda now: make(now, name, words), tenant=name)

    def move(self, act: Act, name: str, pool: str) -> Done:
        """Requests that come go to the pool, those under way end where they are."""
        return self._edit(act, lambda now: edits.move_edit(now, name, pool), tenant=name)

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
        """Without a folder: one that was unloaded, or that the settings name and a worker left
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
        with self._standing.turn(act) as state:
            leaves_nothing(act)
            found = state.overlay.without_last(self._end(act))
            if found is None:
                raise ChangeRefused(
                    "nothing to undo: no change is in force (a config reload is taken back by the "
                    "file: put the old one there and reload it)"
                )
            after, change = found
            return self._standing.put(act, Planned(after, state.base, f"undone: {change.what}"))

    # -- the settings file

    def reload_config(self, act: Act, allow_lifts: bool) -> Done:
        """Read the settings file again; changes by operators stay on top of it. A limit that the
        file leaves out is taken for an accident unless `allow_lifts`. Raises ChangeRefused."""
        with self._standing.turn(act) as state:
            leaves_nothing(act)
            found = read_again(self._config, state.base, allow_lifts)
            if found.is_same:
                version = state.overlay.version
                return Done(version, act.dry_run, found.what, None, True, "as it was")
            after = replace(state.overlay, version=state.overlay.version + 1)
            plan = Planned(after, found.settings, found.what, note=True)
            return self._standing.put(act, plan)

    # -- acts that leave nothing to take back

    def preempt(self, act: Act, name: str) -> Done:
        """In every replica of its pool, each by itself; and where it was moved away from, as long
        as it has something under way there."""
        edits.known_tenant(self.in_force, name)
        # Before its turn: a worker that is silent must hold up nobody else's act.
        under_way = self._standing.crew.holding(name)
        with self._standing.turn(act) as state:
            now = state.in_force
            edits.known_tenant(now, name)
            request = pb.OperateRequest(preempt_tenant=name, tenant=name)
            what = f"preempt the excess of tenant {name!r}"
            home = now.pool_of(name) or ""
            return self._once(act, request, under_way | {home}, what)

    def abort(self, act: Act, request_id: str) -> Done:
        """Wherever it is."""
        with self._standing.turn(act) as state:
            request = pb.OperateRequest(abort_request=request_id)
            pools = frozenset({act.pool} if act.pool else _names(state.base))
            return self._once(act, request, pools, f"abort request {request_id!r}", first=True)

    def reload_adapter(self, act: Act, name: str) -> Done:
        """In every pool that serves it: all of them read it, or none serves what is new."""
        with self._standing.turn(act) as state:
            settings = served(state.in_force)
            pools = frozenset(
                pool
                for pool in _names(settings)
                if any(n == name for n, _ in settings.of_pool(pool).adapters)
            )
            if not pools:
                raise ChangeRefused(
                    f"adapter {name!r} is not served here: to load it, give --folder and --tenant"
                )
            request = pb.OperateRequest(reload_adapter=name, adapter=name)
            return self._once(act, request, pools, f"read adapter {name!r} again", judged=True)

    def note(self, act: Act, what: str) -> None:
        """Write down what was not done. Raises OverlayLost."""
        with self._standing.turn(act):
            self._standing.remember(act, what)

    # -- time, and workers' comings

    def expire(self) -> tuple[str, ...]:
        """See `Standing.expire`."""
        return self._standing.expire()

    @property
    def owes(self) -> bool:
        """Whether somebody is to be told once more (`sync`)."""
        return self._standing.owes

    @property
    def next_expiry_s(self) -> float | None:
        return self.overlay.next_expiry_s

    def sync(self, came: Callable[[Member], bool] = lambda member: True) -> tuple[str, ...]:
        """See `Standing.sync`. `came`: whether a worker began to answer just now."""
        return self._standing.sync(came)

    # -- parts

    def _end(self, act: Act) -> End:
        return End(self._standing.now(), act.who, act.why)

    def _edit(
        self,
        act: Act,
        make: Callable[[InForce], Edit],
        what: str = "",
        *,
        tenant: str = "",
        adapter: str = "",
    ) -> Done:
        standing = self._standing
        with standing.turn(act) as state:
            at = standing.now()
            ends = until(act, at)
            now = state.in_force
            edit = make(now)
            words = what or _words(now, edit)
            after = state.overlay.with_change(edit, words, at, ends, act.who, act.why)
            plan = Planned(after, state.base, words, ends, tenant=tenant, adapter=adapter)
            return standing.put(act, plan)

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
        with self._standing.turn(act) as state:
            leaves_nothing(act)
            after = state.overlay.without(kind, name, self._end(act))
            if after is None:
                raise ChangeRefused(nothing)
            what = f"{kind} of {name!r} is over"
            plan = Planned(after, state.base, what, tenant=tenant, adapter=adapter)
            return self._standing.put(act, plan)

    def _once(
        self,
        act: Act,
        request: pb.OperateRequest,
        pools: frozenset[str],
        what: str,
        *,
        first: bool = False,
        judged: bool = False,
    ) -> Done:
        """`first`: one worker that does it is enough, the others have nothing to do with it.
        `judged`: several workers are asked first whether they can."""
        leaves_nothing(act)
        within(act, pools)
        standing, crew = self._standing, self._standing.crew
        request.who, request.why, request.what = act.who, act.why, what
        request.dry_run = act.dry_run
        if judged and not act.dry_run and crew.count(pools) > 1:
            trial = pb.OperateRequest()
            trial.CopyFrom(request)
            trial.dry_run = True
            said = crew.once(trial, pools)
            if any(s.refused for s in said):
                return self._told(act, what, said, ok=False)
        said = crew.once(request, pools, (lambda reply: reply.ok) if first else None)
        if first and said[-1].ok:
            said = said[-1:]
        ok = any(s.ok for s in said)
        done = self._told(act, what, said, ok)
        if not ok or act.dry_run:
            return done
        try:
            standing.remember(act, f"{what}: {done.detail}")
        except OverlayLost:  # what is done once cannot be taken back
            lost_note = f"{done.detail}; done, but the disk took no note of it"
            return replace(done, detail=lost_note)
        return done

    def _told(self, act: Act, what: str, said: tuple[Said, ...], ok: bool) -> Done:
        version = self.overlay.version
        detail = self._standing.crew.summary(said)
        return Done(version, act.dry_run, what, None, ok, detail, said)


def _names(settings: Settings) -> tuple[str, ...]:
    return tuple(p.name for p in settings.all_pools())


def _words(now: InForce, edit: Edit) -> str:
    lines = differences(served(now), served(applied(now, edit)))
    if lines:
        return "; ".join(lines)
    given = ", ".join(f"{k} {v if v is not None else 'none'}" for k, v in edit.values.items())
    return f"{edit.kind} {edit.name!r}: {given or 'as it was'}, as before"
