"""The operator's door: who gets through, what each method needs, and what a stranger is told."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import trustme

from engine.admin import reach
from engine.admin import service as admin_service
from engine.admin.client import ActRefused, AdminClient, Moved, Unreachable
from engine.admin.errors import FrontSilent, WorkerSilent
from engine.admin.listen import AdminListen, NoDoor
from engine.admin.member import Member
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.room import AdminRoom
from engine.config import Settings
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.service.access import Access
from telemetry.service.methods import gather, served_methods
from telemetry.service.roles import Role, digest, new_token
from tests.engine.admin.doors import SETTINGS, FakeFront, act, opened

# -- every method


def requests() -> dict[str, Any]:
    """A request of each method, taken from the service's descriptor: none is missed."""
    service = pb.DESCRIPTOR.services_by_name["Admin"]
    return {m.name: getattr(pb, m.input_type.name)() for m in service.methods}


def test_every_method_of_the_service_needs_the_role_operator() -> None:
    assert {
        f"/{admin_service.SERVICE}/{name}": Role.OPERATOR for name in requests()
    } == admin_service.ROLES


def test_a_method_that_names_no_role_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = dict(admin_service.ROLES)
    fewer.popitem()
    monkeypatch.setattr(admin_service, "ROLES", fewer)
    service = admin_service.AdminService(None, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a role"):
        gather([service.as_served()])


def test_the_door_serves_the_operators_methods_and_no_others() -> None:
    service = admin_service.AdminService(None, None)  # type: ignore[arg-type]
    handlers, _ = gather([service.as_served()])
    assert served_methods(handlers) == set(admin_service.ROLES)


# -- over TCP


@pytest.fixture
def guarded(folder: Path) -> Iterator[tuple[str, dict[str, str], Path]]:
    """A door over TCP: its address, a token of each role, and the CA to trust."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    tokens = {role: new_token() for role in ("operator", "viewer", "ingest")}
    lines = [
        f'[[token]]\nsha256 = "{digest(token)}"\nrole = "{role}"\nnote = "{role} of ours"\n'
        for role, token in tokens.items()
    ]
    (folder / "tokens.toml").write_text("".join(lines))
    port = free_port()
    where = AdminListen(
        f"127.0.0.1:{port}",
        str(folder / "cert.pem"),
        str(folder / "key.pem"),
        str(folder / "tokens.toml"),
    )
    with opened(where, folder):
        yield where.address, tokens, folder / "ca.pem"


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.parametrize("token", ["viewer", "ingest", "nobody's", "a tenant's key", ""])
def test_without_an_operators_token_no_method_answers(
    guarded: tuple[str, dict[str, str], Path], token: str
) -> None:
    address, tokens, ca = guarded
    shown = tokens.get(token) or {"nobody's": new_token(), "a tenant's key": "ts-alice"}.get(token)
    with AdminClient(address, Access(token=shown, ca=ca)) as client:
        for method, request in requests().items():
            with pytest.raises(Moved, match="token"):
                client.act(method, request)


def test_an_operators_token_opens_and_what_it_is_called_is_written_down(
    guarded: tuple[str, dict[str, str], Path],
) -> None:
    address, tokens, ca = guarded
    with AdminClient(address, Access(token=tokens["operator"], ca=ca)) as client:
        client.act("SetPolicy", pb.AdminPolicyRequest(act=act(), policy="fcfs"))
        assert client.show().changes[0].who == "op (token operator of ours)"
        assert client.show().tenants[0].running == 2


def test_without_tls_nobody_gets_as_far_as_showing_a_token(
    guarded: tuple[str, dict[str, str], Path],
) -> None:
    address, tokens, _ = guarded
    with grpc.insecure_channel(address) as channel:
        stub = pb_grpc.AdminStub(channel)
        metadata = [("authorization", f"Bearer {tokens['operator']}")]
        with pytest.raises(grpc.RpcError) as refused:
            stub.Show(pb.AdminShowRequest(), metadata=metadata, timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:9000", "[::1]:9000"])
def test_over_tcp_there_is_no_door_without_tls_and_tokens_on_loopback_neither(address: str) -> None:
    with pytest.raises(NoDoor, match="needs TLS and tokens"):
        AdminListen(address).check()


@pytest.mark.parametrize(
    "where",
    [
        AdminListen("unix:/tmp/x.sock", tokens="t"), AdminListen("nonsense"),
        AdminListen("127.0.0.1:1", "/no/cert", "/no/key", "/no/tokens"),
    ],
)  # fmt: skip
def test_what_is_no_door_is_refused_in_a_sentence(where: AdminListen) -> None:
    with pytest.raises(NoDoor):
        where.check()


# -- the socket


def test_the_socket_is_its_owners_alone(door: str, folder: Path) -> None:
    mode = (folder / "admin.sock").stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert mode & 0o777 == 0o600


def test_acts_change_the_front_on_its_own_loop_only(folder: Path) -> None:
    address = f"unix:{folder / 'admin.sock'}"
    with opened(AdminListen(address), folder) as (_, front), AdminClient(address) as client:
        request = pb.SetTenantRequest(act=act(), tenant="alice", values={"rpm": "6"})
        client.act("SetTenant", request)
        assert front.door.view("alice", 0.0).rpm_limit == 6
        assert front.threads == {"the-loop"}


def test_a_loop_that_hangs_is_told_and_keeps_no_operator_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "_LOOP_S", 0.01)
    loop = asyncio.new_event_loop()
    try:
        front = FakeFront()
        with pytest.raises(FrontSilent, match="has not turned"):
            reach.LoopHands(front, loop).apply(SETTINGS)
        loop.run_until_complete(asyncio.sleep(0))
        assert front.settings == SETTINGS  # what was told is done, late
    finally:
        loop.close()


@pytest.mark.parametrize("silent", [False, True])
def test_a_change_whose_time_is_over_ends_without_anybody_asking_whatever_the_worker_does(
    folder: Path, silent: bool
) -> None:
    address = f"unix:{folder / 'admin.sock'}"
    clock = [1000.0]
    applied = threading.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    class Front(FakeFront):
        def apply(self, settings: Settings) -> None:
            super().apply(settings)
            if settings == SETTINGS:
                applied.set()

    class Worker:
        silent = False

        def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
            if self.silent:
                raise WorkerSilent("it does not answer")
            return pb.OperateReply(ok=True)

        def close(self) -> None:
            """Holds nothing."""

    kept = OverlayFile(folder / "operator.json")
    where = AdminListen(address)
    worker = Worker()
    workers = [Member("main", 0, worker)]
    room = AdminRoom(where, SETTINGS, kept, Overlay(), workers, lambda: clock[0], None)
    try:
        room.open(Front(), loop)
        with AdminClient(address) as client:
            policy = pb.AdminPolicyRequest(act=act(ttl_s=60.0), policy="fcfs")
            client.act("SetPolicy", policy)
            assert not applied.is_set()
            worker.silent = silent
            clock[0] += 61.0
            if silent:
                room.worker_up()  # there, and gone before it could be told
            room._wake.set()  # as the wait for the instant would
            assert applied.wait(10)
            assert client.show().policy == "vtc"
            assert client.show().changes[0].state == "expired"
    finally:
        room.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


class Late(grpc.RpcError):
    """A call that ran out of its time."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_worker_that_is_frozen_is_looked_at_before_it_is_waited_for_again() -> None:
    asked: list[tuple[str | None, float]] = []
    frozen = [True]

    def operate(request: pb.OperateRequest, timeout: float) -> pb.OperateReply:
        asked.append((request.WhichOneof("act"), timeout))
        if frozen[0]:
            raise Late
        return pb.OperateReply(ok=True)

    wire = reach.WorkerWire("unix:/nowhere", "worker gold", timeout_s=60.0, look_s=5.0)
    wire._stub = SimpleNamespace(Operate=operate)  # type: ignore[assignment]
    note = pb.OperateRequest(note="n")
    for _ in range(2):
        with pytest.raises(WorkerSilent, match="worker gold does not answer"):
            wire.operate(note)
    assert asked == [("note", 60.0), ("look", 5.0)]
    with pytest.raises(WorkerSilent):  # whoever only looks waits for all workers, one by one
        wire.operate(pb.OperateRequest(look="all"))
    assert asked.pop() == ("look", 0.5)
    frozen[0] = False
    assert wire.operate(note).ok
    assert wire.operate(note).ok
    assert asked[2:] == [("look", 5.0), ("note", 60.0), ("note", 60.0)]
    wire.close()


def test_a_channel_that_another_thread_has_closed_is_a_worker_that_was_silent() -> None:
    wire = reach.WorkerWire("unix:/nowhere", "worker gold")
    wire.close()
    with pytest.raises(WorkerSilent, match="worker gold was lost while it was asked"):
        wire.operate(pb.OperateRequest(note="n"))


def test_refusals_say_what_may_be_and_where_nobody_answers(door: str) -> None:
    with AdminClient(door) as client:
        many = pb.SetTenantRequest(act=act(), tenant="alice", values={"rpm": "many"})
        with pytest.raises(ActRefused, match="rpm"):
            client.act("SetTenant", many)
        moved = pb.AdminPolicyRequest(act=act(if_version=9), policy="fcfs")
        with pytest.raises(Moved, match="look again"):
            client.act("SetPolicy", moved)
    with pytest.raises(ActRefused), AdminClient("nonsense"):
        pass


def test_nobody_there_is_worth_trying_again(folder: Path) -> None:
    with (
        AdminClient(f"unix:{folder / 'none.sock'}") as client,
        pytest.raises(Unreachable, match="nobody answers"),
    ):
        client.show()


def test_an_act_whose_caller_hung_up_meanwhile_is_not_done(folder: Path) -> None:
    class HungUp:
        def is_active(self) -> bool:
            return False

        def abort(self, code: grpc.StatusCode, why: str) -> None:
            raise RuntimeError(f"{code.name}: {why}")

    address = f"unix:{folder / 'admin.sock'}"
    with opened(AdminListen(address), folder) as (room, front):
        service = admin_service.AdminService(room.desk, front)
        request = pb.AdminPolicyRequest(act=act(), policy="fcfs")
        with pytest.raises(RuntimeError, match=r"CANCELLED.*nothing was changed"):
            service.SetPolicy(request, HungUp())  # type: ignore[arg-type]
        assert room.desk.in_force.settings.policy == "vtc"


@pytest.mark.parametrize("module", ["engine.admin.start", "engine.admin.words"])
def test_neither_the_door_nor_the_command_loads_anything_heavy(module: str) -> None:
    script = (
        f"import sys, {module}\n"
        "print(sorted({'torch', 'duckdb', 'triton', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
