"""Calls an engine's operator's door. Owns one channel; decides nothing, retries nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import grpc

from engine.errors import EngineError
from telemetry.errors import StoreError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.service import listen
from telemetry.service.access import Access

_CALL_S = 90.0  # an act may read an adapter of some gigabytes
LATER = "not now: "  # begins the details of an UNAVAILABLE that the engine itself said
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),  # ten thousand tenants with their adapters
)


class ActRefused(EngineError):
    """The act cannot be done as it was asked for."""

    exit_code = 2


class Moved(EngineError):
    """Somebody else has changed something since; or the engine could not do it."""

    exit_code = 1


class Unreachable(EngineError):
    """Nobody answers, or somebody does who cannot now."""

    exit_code = 3


class AdminClient:
    """One engine's. Over TCP always encrypted; what to show there is taken from the environment
    (`telemetry.service.access`). Raises ActRefused for what is no address."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        self.address = address
        self._access = Access.of_environment() if access is None else access
        try:
            target = listen.target(address)
            self._encrypted = not address.startswith(listen.UNIX)
            if self._encrypted:
                self._channel = grpc.secure_channel(
                    target.address, self._access.credentials(), options=_OPTIONS
                )
            else:
                self._channel = grpc.insecure_channel(target.address, options=_OPTIONS)
        except StoreError as e:
            raise ActRefused(str(e)) from None
        self._stub = pb_grpc.AdminStub(self._channel)  # type: ignore[no-untyped-call]

    def show(self) -> pb.AdminShowReply:
        """Raises ActRefused, Unreachable."""
        reply: pb.AdminShowReply = self._call("Show", pb.AdminShowRequest())
        return reply

    def act(self, method: str, request: Any) -> pb.AdminReply:
        """One of the service's other methods. Raises ActRefused, Moved, Unreachable."""
        reply: pb.AdminReply = self._call(method, request)
        return reply

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, method: str, request: Any) -> Any:
        metadata = []
        try:
            token = self._access.read_token() if self._encrypted else None
        except StoreError as e:
            raise ActRefused(str(e)) from None
        if token is not None:
            metadata.append(("authorization", f"Bearer {token}"))
        try:
            return getattr(self._stub, method)(request, timeout=_CALL_S, metadata=metadata)
        except grpc.RpcError as e:
            raise self._worded(e) from None

    def _worded(self, e: grpc.RpcError) -> EngineError:
        code, said = e.code(), e.details() or "it does not say why"
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            return ActRefused(said)
        if code is grpc.StatusCode.UNAUTHENTICATED or code is grpc.StatusCode.PERMISSION_DENIED:
            return Moved(f"{self.address}: {said}")
        if code is grpc.StatusCode.UNAVAILABLE and said.startswith(LATER):
            return Unreachable(said.removeprefix(LATER))
        if code is grpc.StatusCode.UNAVAILABLE:
            return Unreachable(
                f"nobody answers at {self.address}: is `tenantscope serve` running, and is that "
                "its operator's address (and, over TCP, its CA trusted: TENANTSCOPE_CA)?"
            )
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(
                f"no answer from {self.address} within {_CALL_S:.0f} s: look at "
                "`tenantscope admin changes` before you try again"
            )
        return Moved(said)
