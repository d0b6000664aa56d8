"""What an engine says of itself to an operator: settings, workers, levels, changes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from engine.admin.edits import CHANGEABLE
from engine.admin.in_force import served
from engine.admin.member import Member
from engine.admin.overlay import Change
from engine.admin.standing import State
from engine.config import Settings, Tenant
from engine.scheduling.quota import QuotaView
from telemetry.proto import tenantscope_pb2 as pb

Looked = Sequence[tuple[Member, pb.OperateReply | str]]


def shown(state: State, looked: Looked, levels: Mapping[str, QuotaView]) -> pb.AdminShowReply:
    """One look: rows and version are of the same instant."""
    now, overlay = state.in_force, state.overlay
    settings = now.settings
    reply = pb.AdminShowReply(
        engine=settings.engine,
        pool=", ".join(p.name for p in settings.all_pools()),
        version=overlay.version,
        policy=settings.policy,
        changes=[_change(c) for c in overlay.changes],
    )
    running: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for member, said in looked:
        worker = reply.workers.add(pool=member.pool, replica=member.replica, owed=member.owed)
        if isinstance(said, str):
            worker.trouble = said
            continue
        worker.policy_version = said.policy_version
        for t in said.tenants:
            running[t.tenant] += t.running
            waiting[t.tenant] += t.waiting
            worker.running += t.running
            worker.waiting += t.waiting
        for a in said.adapters:
            row = reply.adapters.add()
            row.CopyFrom(a)
            row.pool, row.replica = member.pool, member.replica
    reply.worker = "; ".join(dict.fromkeys(w.trouble for w in reply.workers if w.trouble))
    reply.policy_version = max((w.policy_version for w in reply.workers), default=0)
    for tenant in served(now).tenants:
        row = _row(tenant, state.base, levels.get(tenant.name))
        row.pool = settings.pool_of(tenant).name
        was = state.base.tenant(tenant.name)
        if was is not None and state.base.pool_of(was).name != row.pool:
            row.overridden.append("pool")
        row.draining = tenant.name in now.draining
        row.running, row.waiting = running[tenant.name], waiting[tenant.name]
        reply.tenants.append(row)
    return reply


def _change(c: Change) -> pb.AdminChange:
    return pb.AdminChange(
        number=c.number,
        at_unix_s=c.at_unix_s,
        until_unix_s=c.until_unix_s or 0.0,
        who=c.who,
        why=c.why,
        what=c.what,
        state=c.state,
        ended_unix_s=c.ended_unix_s or 0.0,
        ended_by=c.ended_by,
        ended_why=c.ended_why,
    )


def _row(tenant: Tenant, base: Settings, view: QuotaView | None) -> pb.AdminTenant:
    was = base.tenant(tenant.name)
    changed = [k for k in CHANGEABLE if was is None or getattr(was, k) != getattr(tenant, k)]
    return pb.AdminTenant(
        tenant=tenant.name,
        rpm=tenant.rpm,
        tpm=tenant.tpm,
        concurrency=tenant.concurrency,
        weight=tenant.weight,
        tier=tenant.tier,
        rpm_left=None if view is None else view.rpm_level,
        tpm_left=None if view is None else view.tpm_level,
        under_way=0 if view is None else view.concurrency,
        overridden=changed,
        adapters=tenant.adapters,
    )
