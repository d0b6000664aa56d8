"""The operator's door: who gets through, what each method needs, and what a stranger is told."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from click.testing import CliRunner

from console.cli import invoke
from engine.admin import listen as admin_listen
from engine.admin import room as admin_room
from engine.admin import service as admin_service
from engine.admin.act import FrontSilent, WorkerSilent
from engine.admin.cli import admin
from engine.admin.client import ActRefused, AdminClient, Moved, Unreachable
from engine.admin.listen import AdminListen, NoDoor
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.room import AdminRoom
from engine.config import Settings, Tenant
from engine.scheduling.quota import QuotaDoor
from engine.serving.api.auth import digest_of
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.service.access import Access
from telemetry.service.methods import gather, served_methods
from telemetry.service.roles import Role, digest, new_token
from tests.engine.serving.serving_fakes import short_folder

SETTINGS = Settings(
    engine="e",
    tenants=(
        Tenant("alice", rpm=100, key_sha256=(digest_of("ts-alice"),)),
        Tenant("-b"),
        Tenant("[red]x[/] y"),
    ),
)


class FakeFront:
    """The front's side without HTTP: a real door, and a thread that is its loop."""

    def __init__(self) -> None:
        self.door = QuotaDoor(SETTINGS)
        self.settings = SETTINGS
        self.threads: set[str] = set()

    def check(self, settings: Settings) -> None:
        for tenant in settings.tenants:
            assert tenant.name

    def apply(self, settings: Settings) -> None:
        self.threads.add(threading.current_thread().name)
        self.settings = settings
        for tenant in settings.tenants:
            self.door.put(tenant, 0.0)

    def views(self, tenants: Any) -> Any:
        return {t: self.door.view(t, 0.0) for t in tenants}


class FakeWorker(pb_grpc.WorkerServicer):
    """Says yes to everything."""

    def Operate(self, request: pb.OperateRequest, context: Any) -> pb.OperateReply:
        reply = pb.OperateReply(ok=True, detail="as told", policy_version=3)
        reply.tenants.add(tenant="alice", running=2, waiting=1)
        reply.adapters.add(name="\x1b[2J", hash="ab" * 32, pages=3, place="device", requests=2)
        return reply


@contextmanager
def opened(where: AdminListen, folder: Path) -> Iterator[tuple[AdminRoom, FakeFront]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="the-loop")
    thread.start()
    worker = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_WorkerServicer_to_server(FakeWorker(), worker)
    address = f"unix:{folder / 'worker.sock'}"
    worker.add_insecure_port(address)
    worker.start()
    front = FakeFront()
    kept = OverlayFile(folder / "operator.json")
    room = AdminRoom(where, SETTINGS, kept, Overlay(), address, lambda: 1000.0, None)
    try:
        room.open(front, loop)
        yield room, front
    finally:
        room.close()
        worker.stop(0).wait(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@pytest.fixture
def door(folder: Path) -> Iterator[str]:
    address = f"unix:{folder / 'admin.sock'}"
    with opened(AdminListen(address), folder):
        yield address


def act(**more: Any) -> pb.Act:
    return pb.Act(who="op", **more)


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
    monkeypatch.setattr(admin_room, "_LOOP_S", 0.01)
    loop = asyncio.new_event_loop()
    try:
        front = FakeFront()
        with pytest.raises(FrontSilent, match="has not turned"):
            admin_room.LoopHands(front, loop).apply(SETTINGS)
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
    room = AdminRoom(where, SETTINGS, kept, Overlay(), "unix:none", lambda: clock[0], None)
    room._worker = worker = Worker()  # type: ignore[assignment]
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


# -- the command line


def run(door: str, *args: str) -> Any:
    return CliRunner().invoke(admin, [*args], env={"TENANTSCOPE_ADMIN": door})


def test_a_change_is_told_with_its_end_and_can_be_seen_and_undone(door: str) -> None:
    set_ = ("tenant", "set", "alice", "--rpm", "60", "--tier", "low", "--ttl", "30m")
    result = run(door, *set_, "--reason", "fan-out", "--who", "me")
    assert result.exit_code == 0
    assert "e/main: tenant 'alice': tier 0 -> 10, rpm 100 -> 60" in result.stdout
    assert "then it reverts by itself" in result.stdout
    shown = json.loads(run(door, "changes", "--json").stdout)
    assert [(c["who"], c["why"], c["state"]) for c in shown] == [("me", "fan-out", "in force")]
    rows = json.loads(run(door, "tenant", "show", "alice", "--json").stdout)
    assert (rows[0]["rpm"], rows[0]["tier"], rows[0]["overridden"]) == (60, 10, ["rpm", "tier"])
    assert run(door, "undo", "--json").exit_code == 0
    assert json.loads(run(door, "changes", "--json").stdout) == []


def test_a_dry_run_says_would(door: str) -> None:
    result = run(door, "tenant", "drain", "alice", "--dry-run")
    assert "would: tenant 'alice' drains" in result.stdout
    assert json.loads(run(door, "changes", "--all", "--json").stdout) == []


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("tenant", "set", "alice", "--rpm", "many"), 2),
        (("tenant", "set", "nobody", "--rpm", "1"), 2),
        (("tenant", "set", "alice"), 2),
        (("tenant", "set", "alice", "--rpm", "1", "--ttl", "soon"), 2),
        (("tenant", "set", "alice", "--rpm", "1", "--permanent"), 2),
        (("tenant", "set", "alice", "--pool", "gold"), 2),
        (("policy", "set", "lottery"), 2),
        (("policy", "set", "fcfs", "--engine", "other"), 2),
        (("policy", "set", "fcfs", "--if-version", "7"), 1),
        (("undo",), 2),
        (("config", "reload"), 2),
        (("tenant", "show", "nobody"), 2),
    ],
)
def test_exit_codes_tell_what_kind_of_no_it_is(door: str, args: tuple[str, ...], code: int) -> None:
    result = run(door, *args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr


def test_several_engines_are_asked_one_by_one_and_each_answers(door: str, folder: Path) -> None:
    gone = f"unix:{folder / 'gone.sock'}"
    args = ("policy", "set", "fcfs", "--json", "--connect", gone, "--connect", door)
    result = run(door, *args)
    assert result.exit_code == 3
    results = json.loads(result.stdout)["results"]
    assert [r["ok"] for r in results] == [False, True]


def test_names_are_data_in_tables(door: str) -> None:
    result = run(door, "tenant", "set", "--rpm", "5", "--", "-b")
    assert result.exit_code == 0
    assert "tenant '-b': rpm none -> 5" in result.stdout
    assert "[red]x[/] y" in run(door, "tenant", "show").stdout
    adapters = run(door, "adapter", "list").stdout
    assert "\x1b" not in adapters
    assert "\\x1b[2J" in adapters


@pytest.mark.parametrize("path", [(), ("tenant",), ("adapter",), ("tenant", "set"), ("undo",)])
def test_help_teaches_with_an_example_and_calls_nobody(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(admin, [*path, "--help"])
    assert result.exit_code == 0
    if not path or path[-1] in ("set", "undo"):
        assert "tenantscope admin " in result.stdout


def test_the_one_engine_that_runs_here_is_found(door: str, folder: Path) -> None:
    def found() -> str:
        return admin_listen.find({}, [str(folder)])

    with pytest.raises(NoDoor, match="no engine of yours answers"):
        found()
    for name in ("tenantscope-1", "tenantscope-dead"):
        (folder / name).mkdir()
    (folder / "tenantscope-dead" / "admin.sock").touch()
    os.symlink(folder / "admin.sock", folder / "tenantscope-1" / "admin.sock")
    assert found() == f"unix:{folder / 'tenantscope-1' / 'admin.sock'}"
    (folder / "tenantscope-2").mkdir()
    os.symlink(folder / "admin.sock", folder / "tenantscope-2" / "admin.sock")
    with pytest.raises(NoDoor, match=r"name one with --connect: .*tenantscope-1.*tenantscope-2"):
        found()
    assert admin_listen.find({"TENANTSCOPE_ADMIN": "h:1"}, [str(folder)]) == "h:1"


def test_the_command_is_mounted(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENANTSCOPE_ADMIN", door)
    assert invoke(["admin", "tenant", "show"]) == 0


@pytest.mark.parametrize("module", ["engine.admin.start", "engine.admin.words"])
def test_neither_the_door_nor_the_command_loads_anything_heavy(module: str) -> None:
    script = (
        f"import sys, {module}\n"
        "print(sorted({'torch', 'duckdb', 'triton', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
