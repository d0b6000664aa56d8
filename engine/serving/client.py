"""Asks a pool's worker from another process: status, policy, the last hour. Owns one channel."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc

from engine.errors import EngineError
from engine.serving.link import CHANNEL_OPTIONS
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker's state at `now_s` (engine time)."""

    engine: str
    run_id: str
    pool: str
    policy: str
    policy_version: int
    running: int
    waiting: int
    last_token_age_s: float
    steps: int
    output_tokens: int
    now_s: float
    pages: int
    free_pages: int
    frozen: bool


@dataclass(frozen=True, slots=True)
class PolicySwitch:
    """A policy change that took effect: its version and the policy it replaced."""

    version: int
    previous: str


class WorkerClient:
    """Any thread. Every failure is an EngineError that says what to do."""

    def __init__(self, address: str, timeout_s: float = 5.0) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = pb_grpc.WorkerStub(self._channel)  # type: ignore[no-untyped-call]

    def status(self) -> WorkerStatus:
        """Raises EngineError when the worker does not answer."""
        reply = self._call(self._stub.Status, pb.StatusRequest())
        return WorkerStatus(**{name: getattr(reply, name) for name in WorkerStatus.__slots__})

    def set_policy(self, policy: str, *, who: str, why: str, if_version: int = 0) -> PolicySwitch:
        """Switch the policy live. `if_version` != 0 refuses when another version is in force.

        Raises EngineError: unknown policy, a version that has moved on, no answer.
        """
        request = pb.SetPolicyRequest(policy=policy, who=who, why=why, if_version=if_version)
        reply = self._call(self._stub.SetPolicy, request)
        return PolicySwitch(reply.version, reply.previous)

    def recent(self, from_unix_s: float, to_unix_s: float) -> tuple[list[bytes], list[bytes]]:
        """OTLP (metrics, logs) requests of the worker's last hour. Raises EngineError."""
        request = pb.RecentRequest(from_unix_s=from_unix_s, to_unix_s=to_unix_s)
        reply = self._call(self._stub.Recent, request)
        return list(reply.metrics), list(reply.logs)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, method: grpc.UnaryUnaryMultiCallable, request: object) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as e:
            if e.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
                raise EngineError(e.details()) from None
            raise EngineError(
                f"the worker at {self.address} did not answer ({e.code().name.lower()}): "
                "is 'tenantscope serve' still running?"
            ) from None
