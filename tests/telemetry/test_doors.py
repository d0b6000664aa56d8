"""The doors of a store process: listeners, TLS, tokens and roles, senders bound to their engine."""

from __future__ import annotations

import contextlib
import os
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from telemetry import doctor
from telemetry.errors import NotAllowed, StoreError, StoreUnreachable
from telemetry.otlp import encode
from telemetry.service import listen, methods, roles, tls
from telemetry.service.access import Access
from telemetry.service.client import StoreClient
from telemetry.service.hearing import Hub
from telemetry.service.listen import Listen, Target
from telemetry.service.roles import Grant, Role
from telemetry.service.server import StoreServer
from telemetry.store.store import Store
from telemetry.watch import service as watch_service
from tests.telemetry.delivered import batch, minute

TOKENS = {
    "viewer": Grant(Role.VIEWER),
    "operator": Grant(Role.OPERATOR),
    "ingest": Grant(Role.INGEST),
    "bound": Grant(Role.INGEST, "e1"),
    "other": Grant(Role.INGEST, "e2"),
}


@dataclass(frozen=True)
class Doors:
    """A server with a unix socket, a guarded TLS port, a plain loopback port; the ways in."""

    server: StoreServer
    unix: str
    tls: str
    plain: str
    ca: Path
    tokens: Path
    cert: Path

    def client(self, token: str | None, address: str | None = None) -> StoreClient:
        return StoreClient(address or self.tls, access=Access(token=token, ca=self.ca))


def write_tokens(path: Path, grants: dict[str, Grant] = TOKENS) -> Path:
    lines = []
    for token, grant in grants.items():
        lines += ["[[token]]", f'sha256 = "{roles.digest(token)}"', f'role = "{grant.role}"']
        lines += [f'engine = "{grant.engine}"'] if grant.engine else []
    path.write_text("\n".join(lines) + "\n")
    return path


def issue(ca: trustme.CA, folder: Path, **more: Any) -> tls.TlsFiles:
    made = ca.issue_cert("localhost", "127.0.0.1", **more)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(b.bytes() for b in made.cert_chain_pems))
    made.private_key_pem.write_to_path(str(key))
    return tls.TlsFiles(cert, key)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def doors(tmp_path: Path, authority: trustme.CA) -> Iterator[Doors]:
    files = issue(authority, tmp_path)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    tokens = write_tokens(tmp_path / "tokens.toml")
    server = StoreServer(
        Store.open(tmp_path / "store"),
        [f"unix:{tmp_path}/s", Listen("localhost:0", files, tokens), "127.0.0.1:0"],
    )
    server.start()
    unix, guarded, plain = server.addresses
    yield Doors(server, unix, f"https://{guarded}", plain, ca, tokens, files.cert)
    server.stop(0.2)


METRICS = encode(batch(minute("a", output_tokens=4)))[0]
CALLS: dict[str, tuple[Role, Callable[[StoreClient], object]]] = {
    "export": (Role.INGEST, lambda c: c.export(METRICS, None)),
    "query": (Role.VIEWER, lambda c: c.query("span")),
    "info": (Role.VIEWER, lambda c: c.info()),
    "maintain": (Role.OPERATOR, lambda c: c.maintain("sizes")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("token", ["viewer", "operator", "ingest", "bound", "other"])
def test_a_token_opens_what_its_role_says_and_nothing_else(
    doors: Doors, token: str, call: str
) -> None:
    needed, ask = CALLS[call]
    grant = TOKENS[token]
    may = grant.role is needed or (grant.role is Role.OPERATOR and needed is Role.VIEWER)
    client = doors.client(token)
    if may and token != "other":
        ask(client)
    else:
        with pytest.raises(NotAllowed) as refused:
            ask(client)
        assert ("bound to the engine 'e2'" if may else f"of role {needed}") in str(refused.value)
    client.close()


@pytest.mark.parametrize("token", [None, "nobody's", "viewer2", "VIEWER"])
@pytest.mark.parametrize("call", CALLS)
def test_who_shows_no_token_or_an_unknown_one_is_unauthenticated(
    doors: Doors, token: str | None, call: str
) -> None:
    client = doors.client(token)
    with pytest.raises(NotAllowed, match=r"TENANTSCOPE_TOKEN") as refused:
        CALLS[call][1](client)
    assert ("needs a token" if token is None else "not in the store's tokens file") in str(
        refused.value
    )
    assert token is None or token not in str(refused.value)
    assert doors.server.store.info().batches == 0
    client.close()


def code_of(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as e:
        call()
    code: grpc.StatusCode = e.value.code()
    return code


def test_the_codes_are_those_that_clients_of_other_languages_know(doors: Doors) -> None:
    credentials = grpc.ssl_channel_credentials(doors.ca.read_bytes())
    with grpc.secure_channel(doors.tls.removeprefix("https://"), credentials) as channel:
        info = channel.unary_unary("/tenantscope.v1.Store/Info")

        def show(value: str) -> grpc.StatusCode:
            return code_of(lambda: info(b"", timeout=5, metadata=(("authorization", value),)))

        assert code_of(lambda: info(b"", timeout=5)) is grpc.StatusCode.UNAUTHENTICATED
        assert show("Basic viewer") is grpc.StatusCode.UNAUTHENTICATED
        assert show("Bearer ") is grpc.StatusCode.UNAUTHENTICATED
        assert show("Bearer ingest") is grpc.StatusCode.PERMISSION_DENIED
        assert info(b"", timeout=5, metadata=(("authorization", "bearer viewer"),))


def test_a_stranger_with_a_large_message_is_turned_away_unread(doors: Doors) -> None:
    client = doors.client(None)
    with pytest.raises(NotAllowed):
        client.export(b"\0" * (60 << 20), None)
    client.close()


def test_the_owner_of_the_socket_and_loopback_without_tokens_may_do_all(doors: Doors) -> None:
    for address in (doors.unix, doors.plain):
        client = doors.client(None, address)
        for _, ask in CALLS.values():
            ask(client)
        client.close()
    assert stat.S_IMODE(Path(doors.unix.removeprefix("unix:")).stat().st_mode) == 0o600


def test_a_bound_sender_cannot_speak_for_another_engine_and_nothing_of_it_is_kept(
    doors: Doors,
) -> None:
    theirs = replace(batch(minute("a", output_tokens=4)), engine="e2")
    rows = tuple(replace(m, engine="e2") for m in theirs.minutes)
    metrics, _ = encode(replace(theirs, minutes=rows))
    client = doors.client("bound")
    with pytest.raises(NotAllowed, match="bound to the engine 'e1', the rows are of 'e2'"):
        client.export(metrics, None)
    assert client.export(METRICS, None).refused == 0
    client.close()
    [row] = doors.server.liveness.engines().dicts()
    assert (row["engine"], row["batches"], row["denied"]) == ("e1", 1, 0)
    [store] = doors.server.liveness.store().dicts()
    assert store["denied"] == 1
    assert "sent rows of 'e2'" in store["last_denial"]


def test_a_token_taken_out_of_the_file_opens_nothing_from_then_on(doors: Doors) -> None:
    client = doors.client("viewer")
    client.info()
    write_tokens(doors.tokens, {k: g for k, g in TOKENS.items() if k != "viewer"})
    with pytest.raises(NotAllowed, match="not in the store's tokens file"):
        client.info()
    doors.tokens.write_text("[[token]]\nsha256 = 3\n")  # a slip: the tokens before it are kept
    operator = doors.client("operator")
    operator.info()
    for each in (client, operator):
        each.close()


def test_a_renewed_certificate_is_shown_to_the_next_caller(
    doors: Doors, authority: trustme.CA
) -> None:
    port = int(doors.tls.rpartition(":")[2])
    context = ssl.create_default_context(cafile=str(doors.ca))

    def shown() -> str:
        return ssl.get_server_certificate(("localhost", port), ca_certs=str(doors.ca))

    before = shown()
    issue(authority, doors.cert.parent)
    os.utime(doors.cert)
    assert context.cert_store_stats()["x509_ca"] == 1
    assert shown() != before
    doors.cert.write_text("spoiled")
    assert shown() != before  # the one in use stays


def test_an_untrusted_server_is_named_as_such(doors: Doors, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    client = StoreClient(doors.tls, access=Access(token="viewer", ca=stranger))
    with pytest.raises(StoreUnreachable, match="TENANTSCOPE_CA"):
        client.info()
    client.close()


def test_a_listener_may_want_client_certificates(tmp_path: Path, authority: trustme.CA) -> None:
    files = issue(authority, tmp_path)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    server = StoreServer(
        Store.open(tmp_path / "store"), Listen("localhost:0", replace(files, client_ca=ca))
    )
    server.start()
    mine = StoreClient(
        f"https://{server.address}", access=Access(ca=ca, cert=files.cert, key=files.key)
    )
    assert mine.info().pid == os.getpid()
    bare = StoreClient(f"https://{server.address}", timeout_s=2.0, access=Access(ca=ca))
    with pytest.raises(StoreUnreachable):
        bare.info()
    for each in (mine, bare):
        each.close()
    server.stop(0.2)


# --- health and reflection -----------------------------------------------------------------------


def test_health_is_open_to_all_and_says_when_the_store_closes(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml")
    server = StoreServer(Store.open(tmp_path / "store"), Listen("127.0.0.1:0", tokens=tokens))
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        wanted = health_pb2.HealthCheckRequest(service="tenantscope.v1.Store")
        assert health.Check(wanted, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
        seen = health.Watch(wanted, timeout=20)
        assert next(seen).status == health_pb2.HealthCheckResponse.SERVING
        server.stop(0.5)
        assert next(seen).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_a_store_whose_ingest_thread_has_ended_is_not_serving(doors: Doors) -> None:
    doors.server.intake.drain(2.0)
    with grpc.insecure_channel(doors.plain) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        said = health.Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert said.status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_reflection_lists_what_is_served_to_viewers_only(doors: Doors) -> None:
    credentials = grpc.ssl_channel_credentials(doors.ca.read_bytes())
    with grpc.insecure_channel(doors.plain) as channel:
        services = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {"tenantscope.v1.Store", "grpc.health.v1.Health"} <= services
    with grpc.secure_channel(doors.tls.removeprefix("https://"), credentials) as channel:
        stream = channel.stream_stream(f"/{methods.REFLECTION_SERVICE}/ServerReflectionInfo")
        code = code_of(lambda: next(stream(iter([b""]), timeout=5)))
    assert code is grpc.StatusCode.UNAUTHENTICATED


# --- no method without a role --------------------------------------------------------------------


def test_every_method_that_is_served_has_a_role_and_is_closed_to_strangers(tmp_path: Path) -> None:
    """All that the store process serves, other rooms' methods too, asked over the wire."""
    store, hub = Store.open(tmp_path / "store"), Hub(time.time)
    tokens = write_tokens(tmp_path / "tokens.toml")
    with contextlib.ExitStack() as stack:
        extra = watch_service.attach(store, hub, stack)
        server = StoreServer(store, Listen("127.0.0.1:0", tokens=tokens), hub.hear, [extra])
        server.start()
        stack.callback(server.stop, 0.2)
        asked: dict[str, grpc.StatusCode] = {}
        with grpc.insecure_channel(server.address) as channel:
            for service in methods.known_services():
                for method in service.methods:
                    name = f"/{service.full_name}/{method.name}"
                    call = channel.unary_unary(name).future(b"", timeout=2)
                    if server.roles.get(name) is not Role.OPEN:
                        asked[name] = call.code()
                    call.cancel()
    closed = {n for n, role in server.roles.items() if role is not Role.OPEN}
    assert {n for n, code in asked.items() if code is grpc.StatusCode.UNAUTHENTICATED} == closed
    assert {code for n, code in asked.items() if n not in closed} <= {grpc.StatusCode.UNIMPLEMENTED}
    assert {n.rpartition("/")[2] for n in closed} >= {"Export", "Query", "Maintain", "Info"}
    assert server.roles["/tenantscope.v1.Store/Maintain"] is Role.OPERATOR
    open_ = {n for n in server.roles if n not in closed}
    assert all(n.startswith("/grpc.health.v1.Health/") for n in open_)


def one_method(service: str, method: str) -> grpc.GenericRpcHandler:
    handler = grpc.unary_unary_rpc_method_handler(lambda data, context: data)
    return grpc.method_handlers_generic_handler(service, {method: handler})


def test_a_method_without_a_role_a_role_without_a_method_and_a_double_are_refused() -> None:
    info = one_method("tenantscope.v1.Store", "Info")
    with pytest.raises(ValueError, match="Info would be served without a role"):
        methods.gather([(info, {})])
    with pytest.raises(ValueError, match=r"Inof, which no handler answers"):
        methods.gather([(info, {"Info": "viewer", "Inof": "viewer"})])
    with pytest.raises(ValueError, match="served twice"):
        methods.gather([(info, {"Info": "viewer"}), (info, {"Info": "viewer"})])
    with pytest.raises(ValueError, match="'boss' is not a valid Role"):
        methods.gather([(info, {"Info": "boss"})])


def test_a_method_of_a_service_nobody_knows_is_nobodys_until_it_has_a_role(tmp_path: Path) -> None:
    rogue = one_method("rogue.Service", "Steal")
    server = StoreServer(Store.open(tmp_path / "store"), f"unix:{tmp_path}/s", None, [(rogue, {})])
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        steal = channel.unary_unary("/rogue.Service/Steal")
        assert code_of(lambda: steal(b"", timeout=5)) is grpc.StatusCode.PERMISSION_DENIED
    server.stop(0.2)


def test_other_rooms_methods_are_served_by_their_role(tmp_path: Path) -> None:
    extra = one_method("more.Service", "Tell")
    tokens = write_tokens(tmp_path / "tokens.toml")
    server = StoreServer(
        Store.open(tmp_path / "store"),
        Listen("127.0.0.1:0", tokens=tokens),
        None,
        [(extra, {"/more.Service/Tell": "viewer"})],
    )
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        tell = channel.unary_unary("/more.Service/Tell")
        assert tell(b"x", timeout=5, metadata=(("authorization", "Bearer viewer"),)) == b"x"
        denied = code_of(
            lambda: tell(b"x", timeout=5, metadata=(("authorization", "Bearer ingest"),))
        )
    assert denied is grpc.StatusCode.PERMISSION_DENIED
    server.stop(0.2)


# --- addresses, files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (Listen("0.0.0.0:4317"), "--tls-cert, --tls-key.* and .*--tokens.* missing"),
        (Listen("[::]:4317", tokens=Path("t")), "--tls-cert"),
        (Listen("10.0.0.1:1", tls.TlsFiles(Path("c"), Path("k"))), "a tokens file"),
    ],
)
def test_off_loopback_tls_and_tokens_are_required(given: Listen, missing: str) -> None:
    with pytest.raises(StoreError, match=f"not a loopback address.*{missing}"):
        listen.check(given)


def test_all_interfaces_are_served_with_tls_and_tokens_and_the_doctor_knocks(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = issue(authority, tmp_path)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    tokens = write_tokens(tmp_path / "tokens.toml")
    store = Store.open(tmp_path / "store")
    server = StoreServer(store, Listen("0.0.0.0:0", files, tokens))
    server.start()
    port = server.address.rpartition(":")[2]
    monkeypatch.setenv("TENANTSCOPE_TOKEN", "operator")
    monkeypatch.setenv("TENANTSCOPE_CA", str(ca))
    checks = {c.what: c for c in doctor.judge(doctor.examine(f"https://127.0.0.1:{port}"))}
    server.stop(0.2)
    assert checks["ports"].says == f"1 answer: 0.0.0.0:{port}"
    assert (checks["ports"].level, checks["certificates"].level) == ("ok", "ok")


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    first = StoreServer(Store.open(tmp_path / "a"), "127.0.0.1:0")
    with (
        Store.open(tmp_path / "b") as store,
        pytest.raises(StoreError, match="address already in use"),
    ):
        StoreServer(store, first.address)
    first.start()
    first.stop(0.2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("unix:/a/b", Target("unix:/a/b")),
        ("127.0.0.1:4317", Target("127.0.0.1:4317")),
        ("http://h:1", Target("h:1")),
        ("https://h.example:4317", Target("h.example:4317", True)),
        ("https://[::1]:4317/", Target("[::1]:4317", True)),
    ],
)
def test_an_address_is_taken_as_it_is_written(text: str, found: Target) -> None:
    assert listen.target(text) == found


@pytest.mark.parametrize(
    "text", ["", "unix:", "store", "host:", ":1", "h:70000", "::1:4317", "https://h", "ftp://h:1",
             "https://h:1/path"]
)  # fmt: skip
def test_what_is_no_address_is_refused_with_a_sentence(text: str) -> None:
    assert not listen.is_address(text)
    with pytest.raises(StoreError, match=r"write|names no"):
        StoreClient(text, access=Access())


def test_a_token_never_goes_out_in_the_clear() -> None:
    client = StoreClient("10.0.0.1:4317", access=Access(token="viewer"))
    with pytest.raises(NotAllowed, match=r"write https://10\.0\.0\.1:4317"):
        client.info()
    client.close()


def test_a_unix_socket_is_asked_without_a_token_and_whatever_its_file_is_like(doors: Doors) -> None:
    client = StoreClient(doors.unix, access=Access(token_file=Path("/nowhere/token")))
    assert client.info().pid == os.getpid()
    client.close()


def test_what_to_show_is_read_from_the_environment_and_the_file_at_every_call(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    access = Access.of_environment({"TENANTSCOPE_TOKEN_FILE": str(file), "TENANTSCOPE_CA": ""})
    assert (access.read_token(), access.ca) == ("first", None)
    file.write_text("second\n")
    assert access.read_token() == "second"
    file.write_text("two words\n")
    with pytest.raises(NotAllowed, match="holds no token") as e:
        access.read_token()
    assert "two words" not in str(e.value)
    file.unlink()
    with pytest.raises(NotAllowed, match="No such file"):
        access.read_token()
    assert "secret" not in repr(Access(token="secret"))
