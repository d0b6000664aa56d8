"""A desk over one worker and a front that remember, in one order, what they were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine.admin.act import Act, Done
from engine.admin.base_file import BaseFile
from engine.admin.desk import AdminDesk
from engine.admin.errors import WorkerSilent
from engine.admin.member import Member
from engine.admin.overlay_file import OverlayFile
from engine.admin.room import read_overlay
from engine.config import Settings, Tenant
from engine.errors import ConfigError
from telemetry.proto import tenantscope_pb2 as pb

KEY = "ab" * 32
BASE = Settings(
    engine="e",
    tenants=(Tenant("a", rpm=100, adapters=("one",), key_sha256=(KEY,)), Tenant("b")),
    adapters=(("one", "/adapters/one"),),
)
ALICE = Act("alice")


@dataclass
class Hands:
    """Worker and front at once: remember, in one order, what they were told."""

    told: list[tuple[str, object]] = field(default_factory=list)
    refuses: str = ""
    silent: bool = False
    bad: str = ""

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        if self.silent:
            raise WorkerSilent("the worker does not answer")
        self.told.append(("worker", request))
        return pb.OperateReply(ok=not self.refuses, detail=self.refuses or "as told")

    def close(self) -> None:
        """Holds nothing."""

    def check(self, settings: Settings) -> None:
        if self.bad:
            raise ConfigError(self.bad)

    def apply(self, settings: Settings) -> None:
        self.told.append(("front", settings))

    @property
    def front(self) -> Settings:
        return next(s for w, s in reversed(self.told) if w == "front")  # type: ignore[return-value]

    @property
    def worker(self) -> pb.OperateRequest:
        return next(r for w, r in reversed(self.told) if w == "worker")  # type: ignore[return-value]


class Desk:
    """A desk with a clock to turn and hands to look at."""

    def __init__(self, folder: Path, config: Path | None = None, base: Settings = BASE) -> None:
        self.hands = Hands()
        self.now_s = 1000.0
        self.file = OverlayFile(folder / "operator.json")
        self.config = config
        self.base = base
        self.base_file = BaseFile(folder / "settings.json")
        self.start()

    def start(self) -> None:
        """As a start of the engine does."""
        overlay, over, _ = read_overlay(self.file, self.now_s)
        self.desk = AdminDesk(
            self.base,
            self.file,
            overlay,
            [Member("main", 0, self.hands)],
            self.hands,
            lambda: self.now_s,
            self.config,
            over=over,
            base_file=self.base_file,
        )

    def tenant(self, name: str = "a") -> Tenant:
        tenant = self.desk.in_force.settings.tenant(name)
        assert tenant is not None
        return tenant


def cap(desk: Desk, rpm: str = "6", act: Act = ALICE) -> Done:
    return desk.desk.set_tenant(act, "a", {"rpm": rpm})
