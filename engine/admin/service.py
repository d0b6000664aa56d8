"""The operator's gRPC service: words in, words out. Decides nothing (the desk does); owns no port.

Every method needs the role operator: `ROLES` names each, and one that is not in it cannot be
served (`telemetry.service.methods.gather`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import grpc

from engine.admin.act import Act, Done
from engine.admin.client import LATER
from engine.admin.desk import AdminDesk
from engine.admin.errors import ChangeRefused, FrontSilent, GivenUp, VersionMoved, WorkerSilent
from engine.admin.showing import shown
from engine.between_steps import StepStuck
from engine.errors import ConfigError, EngineError
from engine.scheduling.quota import QuotaView
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.service.methods import Collected, Served
from telemetry.service.roles import Finder, Role, bearer

SERVICE = "tenantscope.v1.Admin"
_METHODS = (
    "Show", "SetTenant", "DrainTenant", "ResumeTenant", "PreemptTenant", "MoveTenant",
    "LoadAdapter", "UnloadAdapter", "ReloadAdapter", "PinAdapter", "UnpinAdapter", "AbortRequest",
    "SetPolicy", "ReloadConfig", "Undo",
)  # fmt: skip
ROLES = {f"/{SERVICE}/{method}": Role.OPERATOR for method in _METHODS}
_log = logging.getLogger(__name__)
_LONGEST_NO = 2_000  # characters: what is longer than a header may be would be no answer at all
_CODES = (
    (VersionMoved, grpc.StatusCode.ABORTED),
    (ChangeRefused, grpc.StatusCode.INVALID_ARGUMENT),
    (ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
    (WorkerSilent, grpc.StatusCode.UNAVAILABLE),
    (StepStuck, grpc.StatusCode.UNAVAILABLE),
    (FrontSilent, grpc.StatusCode.UNAVAILABLE),
    (GivenUp, grpc.StatusCode.CANCELLED),
)


class Levels(Protocol):
    """The door's counts, by tenant; asked for off the HTTP loop."""

    def views(self, tenants: Iterable[str]) -> dict[str, QuotaView]: ...


class AdminService(pb_grpc.AdminServicer):
    def __init__(self, desk: AdminDesk, levels: Levels, tokens: Finder | None = None) -> None:
        """`tokens` None: whoever reaches the socket is its owner."""
        self._desk = desk
        self._levels = levels
        self._tokens = tokens

    def as_served(self) -> Served:
        """Handler and roles, as `gather` takes them."""
        collected = Collected()
        pb_grpc.add_AdminServicer_to_server(self, collected)  # type: ignore[no-untyped-call]
        return collected.handlers[0], ROLES

    # -- looking

    def Show(
        self, request: pb.AdminShowRequest, context: grpc.ServicerContext
    ) -> pb.AdminShowReply:
        desk = self._desk
        state = desk.state
        looked = desk.look()
        try:
            levels = self._levels.views(t.name for t in state.in_force.settings.tenants)
        except EngineError as e:
            reply = shown(state, looked, {})
            reply.worker = reply.worker or str(e)
            return reply
        return shown(state, looked, levels)

    # -- acts

    def SetTenant(
        self, request: pb.SetTenantRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        values = dict(request.values)
        return self._do(
            request.act, context, lambda a: self._desk.set_tenant(a, request.tenant, values)
        )

    def DrainTenant(
        self, request: pb.AdminTenantRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.drain(a, request.tenant))

    def ResumeTenant(
        self, request: pb.AdminTenantRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.resume(a, request.tenant))

    def PreemptTenant(
        self, request: pb.AdminTenantRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.preempt(a, request.tenant))

    def MoveTenant(
        self, request: pb.AdminMoveRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(
            request.act, context, lambda a: self._desk.move(a, request.tenant, request.pool)
        )

    def LoadAdapter(
        self, request: pb.AdminAdapterRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        tenants = tuple(request.tenants)
        return self._do(
            request.act,
            context,
            lambda a: self._desk.load(a, request.adapter, request.folder, tenants),
        )

    def UnloadAdapter(
        self, request: pb.AdminAdapterRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.unload(a, request.adapter))

    def ReloadAdapter(
        self, request: pb.AdminAdapterRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(
            request.act, context, lambda a: self._desk.reload_adapter(a, request.adapter)
        )

    def PinAdapter(
        self, request: pb.AdminAdapterRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.pin(a, request.adapter))

    def UnpinAdapter(
        self, request: pb.AdminAdapterRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.unpin(a, request.adapter))

    def AbortRequest(
        self, request: pb.AdminAbortRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.abort(a, request.request_id))

    def SetPolicy(
        self, request: pb.AdminPolicyRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(request.act, context, lambda a: self._desk.set_policy(a, request.policy))

    def ReloadConfig(
        self, request: pb.AdminReloadRequest, context: grpc.ServicerContext
    ) -> pb.AdminReply:
        return self._do(
            request.act, context, lambda a: self._desk.reload_config(a, request.allow_lifts)
        )

    def Undo(self, request: pb.AdminUndoRequest, context: grpc.ServicerContext) -> pb.AdminReply:
        return self._do(request.act, context, self._desk.undo)

    # -- parts

    def _do(
        self, act: pb.Act, context: grpc.ServicerContext, do: Callable[[Act], Done]
    ) -> pb.AdminReply:
        try:
            done = do(self._act(act, context))
        except EngineError as e:
            code = next(
                (code for kind, code in _CODES if isinstance(e, kind)),
                grpc.StatusCode.FAILED_PRECONDITION,
            )
            begins = LATER if code is grpc.StatusCode.UNAVAILABLE else ""
            context.abort(code, f"{begins}{e}"[:_LONGEST_NO])
        settings = self._desk.base
        pools = dict.fromkeys(s.pool for s in done.said) or (p.name for p in settings.all_pools())
        result = pb.EngineResult(
            engine=settings.engine, pool=", ".join(pools), ok=done.ok, detail=done.detail
        )
        return pb.AdminReply(
            version=done.version,
            dry_run=done.dry_run,
            effect=done.effect,
            until_unix_s=done.until_unix_s or 0.0,
            results=[result],
            workers=[
                pb.WorkerResult(
                    pool=s.pool, replica=s.replica, ok=s.ok, detail=s.detail, owed=s.owed
                )
                for s in done.said
            ],
        )

    def _act(self, act: pb.Act, context: grpc.ServicerContext) -> Act:
        return Act(
            who=self._who(act.who, context),
            why=act.why,
            if_version=act.if_version,
            ttl_s=act.ttl_s,
            permanent=act.permanent,
            dry_run=act.dry_run,
            engine=act.engine,
            pool=act.pool,
            wanted=context.is_active,
        )

    def _who(self, said: str, context: grpc.ServicerContext) -> str:
        """Who a caller says it is, and beside it what its token is called: that is known."""
        if self._tokens is None:
            return said
        token = bearer(context.invocation_metadata())
        grant = self._tokens.find(token) if token is not None else None
        note = grant.note if grant is not None and grant.note else "unnamed"
        return f"{said} (token {note})" if said else f"token {note}"
