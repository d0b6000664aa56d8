"""What the desk has its acts done by: workers and a front, whichever they are. Owns nothing."""

from __future__ import annotations

from typing import Protocol

from engine.config import Settings
from telemetry.proto import tenantscope_pb2 as pb


class WorkerHands(Protocol):
    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        """Raises WorkerSilent."""
        ...

    def close(self) -> None:
        """Nothing more is asked."""
        ...


class FrontHands(Protocol):
    def check(self, settings: Settings) -> None:
        """Raises ConfigError for settings that the front could not serve with."""
        ...

    def apply(self, settings: Settings) -> None:
        """Keys, limits and names are as here, for whoever comes from now on."""
        ...
