"""Three workers in two pools, a front and a desk, and what must hold between them all the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.admin.act import Act
from engine.admin.desk import AdminDesk
from engine.admin.errors import WorkerSilent
from engine.admin.in_force import InForce
from engine.admin.member import Member
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.part import part
from engine.config import Settings, Tenant, load_settings
from engine.config_pools import PoolSpec
from telemetry.proto import tenantscope_pb2 as pb

KEY = "ab" * 32
BASE = Settings(
    engine="e",
    pools=(PoolSpec("main", replicas=2), PoolSpec("gold", tiers=(7,))),
    tenants=(
        Tenant("a", rpm=100, adapters=("one", "both"), key_sha256=(KEY,)),
        Tenant("b", pool="gold", adapters=("two", "both")),
        Tenant("c"),
    ),
    adapters=(("one", "/x/one"), ("two", "/x/two"), ("both", "/x/both")),
)
ALICE = Act("alice")


@dataclass
class Worker:
    """One worker, as far as the desk can see: what it was told last, and what it says to it."""

    world: World
    pool: str
    replica: int
    has: Settings
    pinned: tuple[str, ...] = ()
    silent: bool = False
    refuses: str = ""
    heard: list[pb.OperateRequest] = field(default_factory=list)
    running: tuple[str, ...] = ()  # whose requests are under way
    while_looked_at: Callable[[], object] = lambda: None

    @property
    def name(self) -> str:
        return f"{self.pool}/{self.replica}"

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        if self.silent:
            raise WorkerSilent(f"worker {self.name} does not answer")
        if request.WhichOneof("act") == "look":
            self.while_looked_at()
            reply = pb.OperateReply(ok=True)
            for tenant in self.running:
                reply.tenants.add(tenant=tenant, running=1)
            return reply
        copy = pb.OperateRequest()
        copy.CopyFrom(request)
        self.heard.append(copy)
        if request.WhichOneof("act") == "desired":
            if self.refuses and not request.desired.lenient:
                return pb.OperateReply(ok=False, detail=self.refuses)
            if not request.dry_run:
                self.world.log.append(self.name)
                self.world.may_let_go(self, load_settings(request.desired.settings))
                self.has = load_settings(request.desired.settings)
                self.pinned = tuple(request.desired.pinned)
            return pb.OperateReply(ok=True, detail=f"as told, {self.name}")
        if request.WhichOneof("act") == "abort_request" and self.refuses:
            return pb.OperateReply(ok=False, detail="it is not under way here")
        return pb.OperateReply(ok=not self.refuses, detail=self.refuses or "done")

    def close(self) -> None:
        """Holds nothing."""

    def serves(self, tenant: str) -> bool:
        return self.has.tenant(tenant) is not None


class World:
    """Three workers, a front and a desk with a clock to turn; holds what must hold at any instant:
    the front sends nobody to a worker that does not have them (unless that one is yet to be told).
    """

    def __init__(
        self, file: OverlayFile, base: Settings = BASE, config: Path | None = None
    ) -> None:
        self.log: list[str] = []
        self.front = base
        self.now_s = 1000.0
        self.workers = [
            Worker(self, p.name, n, part(InForce(base), p.name).settings)
            for p in base.all_pools()
            for n in range(p.replicas)
        ]
        self.members = [Member(w.pool, w.replica, w) for w in self.workers]
        self.file = file
        self.desk = AdminDesk(
            base, self.file, Overlay(), self.members, self, lambda: self.now_s, config
        )

    def check(self, settings: Settings) -> None:
        assert settings.tenants

    def apply(self, settings: Settings) -> None:
        self.log.append("front")
        self.front = settings
        for tenant in settings.tenants:
            pool = settings.pool_of(tenant).name
            for worker, member in zip(self.workers, self.members, strict=True):
                if worker.pool == pool and not member.owed and not worker.silent:
                    assert worker.serves(tenant.name), (tenant.name, worker.name)
                    served = {n for n, _ in worker.has.adapters}
                    assert served >= set(tenant.adapters), (tenant.name, worker.name)

    def may_let_go(self, worker: Worker, then: Settings) -> None:
        for tenant in self.front.tenants:
            if self.front.pool_of(tenant).name == worker.pool:
                assert then.tenant(tenant.name) is not None, (tenant.name, worker.name)
                assert {n for n, _ in then.adapters} >= set(tenant.adapters)

    def of(self, name: str) -> Worker:
        return next(w for w in self.workers if w.name == name)

    def home(self, tenant: str) -> set[str]:
        """Where it is served, as the workers have it."""
        return {w.pool for w in self.workers if w.serves(tenant)}

    def settled(self) -> bool:
        """Whether everybody has exactly what is in force."""
        now = self.desk.in_force
        return all(
            (w.has, w.pinned) == (p.settings, tuple(sorted(p.pinned)))
            for w in self.workers
            for p in (part(now, w.pool),)
        )


class InMemory(OverlayFile):
    """A disk that costs nothing."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self._kept = Overlay()

    def read(self) -> Overlay:
        return self._kept

    def write(self, overlay: Overlay) -> None:
        self._kept = overlay
