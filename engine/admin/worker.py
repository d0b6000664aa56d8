"""The worker's side of an operator's act: reads adapters, then changes the core between two steps.

Owns no state of its own but which settings were asked for last. What is slow (reading a folder)
happens before, on the caller's thread; what is done between two steps is a few plain writes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.admin.adapters import AdapterNames
from engine.admin.shelf import Shelf
from engine.chronicle import KnownAdapter
from engine.config import Settings, load_settings
from engine.errors import AdapterError
from telemetry.proto import tenantscope_pb2 as pb

if TYPE_CHECKING:
    from engine.core import EngineCore
    from engine.scheduling.scheduler import Scheduler

_STEP_S = 10.0  # a step that takes longer is told as frozen
# Of a tenant: what a policy's row records, or the scheduler or the ledger reads.
_RECORDED = ("weight", "tier", "rpm", "tpm", "concurrency", "prefix_group", "slo", "share_by")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a `Desired` comes to: what is new, what goes, and the words for it."""

    settings: Settings
    come: tuple[KnownAdapter, ...]
    left_out: tuple[str, ...]
    pinned: tuple[str, ...]


class Operator:
    """One worker's. Acts come one at a time."""

    def __init__(
        self, core: EngineCore, settings: Settings, names: AdapterNames, shelf: Shelf
    ) -> None:
        self._core = core
        self._settings = settings
        self._names = names
        self._shelf = shelf
        self._turn = threading.Lock()

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        """Do it, or say why not. A frozen step raises StepStuck."""
        act = request.WhichOneof("act")
        if act == "look":
            return self._look()
        with self._turn:
            try:
                if act == "desired":
                    return self._desired(request)
                if act == "preempt_tenant":
                    return self._preempt(request)
                if act == "abort_request":
                    return self._abort(request)
                if act == "reload_adapter":
                    return self._reload(request)
                if act == "note":
                    self._tell(request, request.note)
                    return self._reply(True, "written down")
            except AdapterError as e:
                return self._reply(False, str(e))
        return self._reply(False, "this worker does not know what was asked of it")

    # -- to be as the settings say

    def _desired(self, request: pb.OperateRequest) -> pb.OperateReply:
        wanted = self._read(request.desired)
        folders = dict(wanted.settings.adapters)
        goes = [n for n in self._names if n not in folders]
        between = self._core.between_steps
        short = between.do(lambda s: self._cannot_pin(s, wanted), _STEP_S)
        if short and not request.desired.lenient:
            return self._reply(False, short)
        if short:
            wanted = replace(wanted, pinned=())
        effect = between.do(lambda s: self._effect(s, wanted, goes), _STEP_S)
        if short:
            effect = f"{effect}; nothing is pinned: {short}"
        if request.dry_run:
            return self._reply(True, effect)
        for known in wanted.come:
            self._shelf.keep(known, Path(folders[known.name]))
        # The core first: no name may lead to what the core does not know yet, what leaves it still
        # serves whoever was let through a moment ago, and a step that hangs changes nothing.
        between.do(lambda s: self._carry_out(s, wanted, goes, request), _STEP_S)
        self._names.change(wanted.come, folders)
        self._settings = wanted.settings
        reply = self._reply(True, effect)
        reply.left_out.extend(wanted.left_out)
        return reply

    def _read(self, desired: pb.Desired) -> _Wanted:
        settings = load_settings(desired.settings)
        come, left_out = [], []
        for name, folder in settings.adapters:
            if folder == self._names.folder(name) and self._names.is_served(name):
                continue
            if folder == self._names.folder(name) and not desired.lenient:
                continue  # it was left out before, and nobody asks for it now
            try:
                come.append(self._shelf.read(name, Path(folder)))
            except AdapterError:
                if not desired.lenient:
                    raise
                left_out.append(name)
        return _Wanted(settings, tuple(come), tuple(left_out), tuple(desired.pinned))

    def _cannot_pin(self, scheduler: Scheduler, wanted: _Wanted) -> str:
        """Why the pins do not fit, or "". Counted for all of them as if none were there."""
        coming = {a.name: a for a in (*self._names.known(), *wanted.come)}
        pins = {coming[n].key: coming[n].pages for n in wanted.pinned if n in coming}
        if not pins:
            return ""
        largest = max(a.pages for a in coming.values())
        most = scheduler.orders.most_pinned_pages(largest)
        pages = sum(pins.values())
        if pages <= most:
            return ""
        return (
            f"pinned adapters would hold {pages} pages and may hold {max(0, most)}: beside them "
            "the longest request with the largest adapter must find room; unpin another, or make "
            "limits.pool_bytes larger"
        )

    def _effect(self, scheduler: Scheduler, wanted: _Wanted, goes: list[str]) -> str:
        orders, said = scheduler.orders, []
        for name in goes:
            said.append(_leaves(name, orders.users(self._names[name].key)))
        for known in wanted.come:
            said.append(f"adapter {known.name!r}: {_described(known)}")
        said += self._tenants_effect(wanted.settings, orders.present())
        if wanted.settings.policy != scheduler.policy:
            said.append(f"{scheduler.waiting} waiting are put in the new order at the next step")
        return "; ".join(said) or "from the next request on"

    def _tenants_effect(
        self, settings: Settings, present: Mapping[str, tuple[int, int]]
    ) -> list[str]:
        before = {t.name: t for t in self._settings.tenants}
        said = []
        for t in settings.tenants:
            was = before.pop(t.name, None)
            if was is None:
                said.append(f"tenant {t.name!r} is served here")
            elif _differs(was, t):
                running, waiting = present.get(t.name, (0, 0))
                said.append(
                    f"tenant {t.name!r} has {running} running, {waiting} waiting: they go on"
                )
        for name in before:
            under_way = sum(present.get(name, (0, 0)))
            ends = f"what it has under way ends here ({_requests(under_way)})"
            left = ends if under_way else "it has nothing under way"
            said.append(f"tenant {name!r} is no longer served here; {left}")
        return said

    def _carry_out(
        self, scheduler: Scheduler, wanted: _Wanted, goes: list[str], request: pb.OperateRequest
    ) -> None:
        core = self._core
        for known in wanted.come:
            core.take_in(known, scheduler)
        for name in goes:
            core.let_leave(name, scheduler)
        whose = _owners(wanted.settings)
        pins = {a.key: whose.get(a.name, "") for a in core.adapters if a.name in wanted.pinned}
        core.pin(pins, scheduler)
        settings = wanted.settings
        if settings.policy != scheduler.policy or _recorded(settings) != _recorded(self._settings):
            core.set_policy(
                settings.policy,
                who=request.who,
                why=request.why,
                tenants=settings.tenants,
                said=request.what,
                is_event=not request.is_told,
            )
        else:
            self._tell(request, request.what)

    # -- once

    def _preempt(self, request: pb.OperateRequest) -> pb.OperateReply:
        tenant = request.preempt_tenant

        def act(scheduler: Scheduler) -> str:
            excess = scheduler.orders.excess(tenant)
            if not request.dry_run and excess.may_go:
                scheduler.preempt(tenant)
            return (
                f"{excess.may_go} of {excess.running} running sequences "
                f"{'would wait' if request.dry_run else 'wait'} again, its fair share of the slots "
                f"is {excess.fair}"
            )

        detail = self._core.between_steps.do(act, _STEP_S)
        if not request.dry_run:
            self._tell(request, f"{request.what}: {detail}")
        return self._reply(True, detail)

    def _abort(self, request: pb.OperateRequest) -> pb.OperateReply:
        request_id = request.abort_request

        def act(scheduler: Scheduler) -> bool:
            found = scheduler.orders.is_live(request_id)
            if found and not request.dry_run:
                scheduler.abort(request_id, "aborted by an operator")
            return found

        if not self._core.between_steps.do(act, _STEP_S):
            return self._reply(False, f"no request {request_id!r} is under way: it may have ended")
        if not request.dry_run:
            self._tell(request, request.what, request_id=request_id)
        return self._reply(True, "it ends now, what it gave is charged")

    def _reload(self, request: pb.OperateRequest) -> pb.OperateReply:
        name = request.reload_adapter
        folder = self._names.folder(name)
        if folder is None:
            return self._reply(False, f"adapter {name!r} is not served here")
        known = self._shelf.read(name, Path(folder))
        served = {a.name: a for a in self._names.known()}
        was = served.get(name)
        if was is not None and was.key == known.key:
            return self._reply(True, "its content is as it was")
        detail = _described(known)
        if was is not None:
            users = self._core.between_steps.do(lambda s: s.orders.users(was.key), _STEP_S)
            detail += f"; what is under way ends with what it was ({_requests(users)})"
        if request.dry_run:
            return self._reply(True, detail)
        self._shelf.keep(known, Path(folder))
        self._core.between_steps.do(lambda s: self._core.take_in(known, s), _STEP_S)
        self._names.change((known,), dict(self._settings.adapters))
        self._tell(request, f"{request.what}: {detail}")
        return self._reply(True, detail)

    # -- words

    def _look(self) -> pb.OperateReply:
        core, reply = self._core, self._reply(True, "")
        with core.ledger.lock:
            orders = core.scheduler.orders
            for tenant, (running, waiting) in orders.present().items():
                reply.tenants.add(tenant=tenant, running=running, waiting=waiting)
            held = orders.held
            for a in core.adapters:
                reply.adapters.add(
                    name=a.name,
                    hash=a.key,
                    pages=a.pages,
                    place=orders.place(a.key),
                    pinned=a.key in held,
                    requests=orders.users(a.key),
                )
        return reply

    def _tell(self, request: pb.OperateRequest, what: str, *, request_id: str = "") -> None:
        if request.is_told:
            return
        why = f": {request.why}" if request.why else ""
        self._core.operated(
            f"{what} by {request.who}{why}",
            tenant=request.tenant or None,
            adapter=request.adapter or None,
            request_id=request_id or None,
            at_unix_s=request.at_unix_s or None,
        )

    def _reply(self, ok: bool, detail: str) -> pb.OperateReply:
        version = self._core.scheduler.policy_version
        return pb.OperateReply(ok=ok, detail=detail, policy_version=version)


def _described(known: KnownAdapter) -> str:
    sizes = f"rank {known.rank}, {known.pages} pages"
    return "; ".join([sizes, *(f"warning: {w}" for w in known.warnings)])


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _leaves(name: str, users: int) -> str:
    if not users:
        return f"adapter {name!r} leaves at once"
    return f"adapter {name!r} leaves when what uses it has ended ({_requests(users)})"


def _owners(settings: Settings) -> Mapping[str, str]:
    """Adapter -> the first tenant that may name it: a load that nobody's request asked for is its
    tenant's."""
    owners: dict[str, str] = {}
    for tenant in settings.tenants:
        for name in tenant.adapters:
            owners.setdefault(name, tenant.name)
    return owners


def _differs(was: object, now: object) -> bool:
    return any(getattr(was, k) != getattr(now, k) for k in _RECORDED)


def _recorded(settings: Settings) -> dict[str, tuple[object, ...]]:
    return {t.name: tuple(getattr(t, k) for k in _RECORDED) for t in settings.tenants}
