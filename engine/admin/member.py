"""A worker as the desk knows it, and what an act says to it. Owns nothing but who is owed."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.act import Act, Said
from engine.admin.errors import WorkerSilent
from engine.admin.hands import WorkerHands
from telemetry.proto import tenantscope_pb2 as pb


@dataclass(slots=True)
class Member:
    """A worker: which pool's, which of its replicas (from 0), and how it is reached."""

    pool: str
    replica: int
    hands: WorkerHands
    owed: bool = False

    def said(self, reply: pb.OperateReply) -> Said:
        return Said(self.pool, self.replica, reply.ok, reply.detail)

    def silent(self, why: WorkerSilent, *, owed: bool) -> Said:
        return Said(self.pool, self.replica, False, str(why), True, owed)


@dataclass(frozen=True, slots=True)
class Order:
    """What an act says to every worker it concerns."""

    act: Act
    what: str
    tenant: str = ""
    adapter: str = ""

    def request(self) -> pb.OperateRequest:
        return pb.OperateRequest(
            who=self.act.who,
            why=self.act.why,
            what=self.what,
            dry_run=self.act.dry_run,
            tenant=self.tenant,
            adapter=self.adapter,
        )
