"""Where tenants call: nothing is open off loopback by chance, and what is open is said."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from engine.config import Settings
from engine.serving.api.connections import PatientServer
from engine.serving.door import DoorRefused, HttpDoor, is_loopback, listen
from engine.serving.front import uvicorn_config
from engine.serving.https import follow
from engine.serving.process import ServeError
from engine.serving.processes import ServeProcesses
from telemetry.service.tls import TlsFiles


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, str, str]:
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    made.private_key_pem.write_to_path(folder / "key.pem")
    return authority, str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "2001:db8::1", "myhost", "127.1"])
def test_off_loopback_it_is_refused_with_the_two_ways_to_open_it(host: str) -> None:
    with pytest.raises(DoorRefused, match=r"no loopback address.*--tls-cert and.*--plain-http"):
        HttpDoor(host).check()
    HttpDoor(host, plain_http=True).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_on_loopback_nothing_more_is_asked_and_nothing_said(host: str) -> None:
    door = HttpDoor(host)
    door.check()
    assert is_loopback(host)
    assert door.said() == ""


def test_what_is_open_is_said(pem: tuple[trustme.CA, str, str]) -> None:
    _, cert, key = pem
    plain = HttpDoor("0.0.0.0", 80, plain_http=True)
    assert "plain HTTP at every address of this machine" in plain.said()
    assert "only a proxy that ends TLS should reach this port" in plain.said()
    safe = HttpDoor("::", 443, cert, key)
    safe.check()
    assert safe.url == "https://[::]:443"
    assert safe.said() == f"HTTPS at every address of this machine, with the certificate {cert}"


def test_half_a_pair_two_ways_at_once_and_files_that_are_no_pair_are_refused(
    pem: tuple[trustme.CA, str, str], tmp_path: Path
) -> None:
    _, cert, key = pem
    for door, words in (
        (HttpDoor(tls_cert=cert), "--tls-cert without --tls-key"),
        (HttpDoor(tls_key=key), "--tls-key without --tls-cert"),
        (HttpDoor("::", 0, cert, key, plain_http=True), "--plain-http with --tls-cert"),
        (HttpDoor("::", 0, cert, cert), "no certificate with its key"),
        (HttpDoor("::", 0, cert, str(tmp_path / "none")), "cannot be read"),
    ):
        with pytest.raises(DoorRefused, match=words):
            door.check()


def test_serve_itself_refuses_an_open_door(tmp_path: Path) -> None:
    with pytest.raises(DoorRefused, match="no loopback address"):
        ServeProcesses(Settings(), tmp_path, host="0.0.0.0")


def test_metrics_stay_on_loopback_wherever_tenants_call(tmp_path: Path) -> None:
    for host, url in (("0.0.0.0", "http://127.0.0.1:9464/metrics"), ("::", "http://[::1]:9464/")):
        door = HttpDoor(host, plain_http=True)
        processes = ServeProcesses(Settings(), tmp_path, door=door, metrics_port=9464)
        assert str(processes.metrics_url).startswith(url)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_every_address_of_both_kinds_is_one_socket() -> None:
    with listen("::", 0) as listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=10).close()


def test_an_address_of_another_machine_is_not_blamed_on_the_port() -> None:
    with pytest.raises(ServeError, match=r"203\.0\.113\.7.*give an address or a name of this") as e:
        listen("203.0.113.7", 0)  # kept for documents: nobody's
    assert "--port" not in str(e.value)


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_said_to_be_empty(host: str) -> None:
    with pytest.raises(DoorRefused, match="--host is empty"):
        HttpDoor(host, plain_http=True).check()


def test_a_host_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with monkeypatch.context() as m:
        m.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(ServeError, match=r"--host nohost: name or service.*of this machine"):
            listen("nohost", 0)
    with pytest.raises(ServeError, match=r"cannot listen on 192\.0\.2\.1, port 0"):
        listen("192.0.2.1", 0)


async def page(scope, receive, send):  # type: ignore[no-untyped-def]
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


def test_who_never_shakes_hands_is_let_go(
    pem: tuple[trustme.CA, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cert, key = pem
    monkeypatch.setattr(PatientServer, "handshake_s", 0.05)

    async def run() -> None:
        config = uvicorn_config(page, ssl_certfile=cert, ssl_keyfile=key)
        config.load()
        server = PatientServer(config)
        server.lifespan = config.lifespan_class(config)
        with listen("127.0.0.1", 0) as listening:
            await server.startup(sockets=[listening])
            try:
                reader, writer = await asyncio.open_connection(*listening.getsockname())
                async with asyncio.timeout(10):
                    assert await reader.read() == b""
                writer.close()
            finally:
                await server.shutdown(sockets=[listening])

    asyncio.run(run())


def test_the_front_speaks_https_and_follows_a_certificate_that_is_renewed(
    pem: tuple[trustme.CA, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, renewed = pem[0], trustme.CA()
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(by: trustme.CA) -> None:
        made = by.issue_cert("127.0.0.1")
        made.cert_chain_pems[0].write_to_path(cert)
        made.private_key_pem.write_to_path(key)

    async def asked(port: int, whom: trustme.CA) -> str:
        trust = ssl.create_default_context()
        whom.configure_trust(trust)
        async with httpx.AsyncClient(verify=trust) as client:
            return (await client.get(f"https://127.0.0.1:{port}/")).text

    async def run() -> None:
        config = uvicorn_config(page, ssl_certfile=str(cert), ssl_keyfile=str(key))
        config.load()
        assert config.ssl is not None
        follow(config.ssl, TlsFiles(cert, key))
        server = PatientServer(config)
        server.lifespan = config.lifespan_class(config)
        with listen("127.0.0.1", 0) as listening:
            port = listening.getsockname()[1]
            await server.startup(sockets=[listening])
            try:
                assert await asked(port, authority) == "https"
                cert.write_text("half a file")
                assert await asked(port, authority) == "https"
                assert "the certificate in use is kept" in caplog.text
                put(renewed)
                for _ in range(2):  # the first to notice, and whoever comes after
                    assert await asked(port, renewed) == "https"
                with pytest.raises(httpx.ConnectError):
                    await asked(port, authority)
            finally:
                await server.shutdown(sockets=[listening])

    put(authority)
    asyncio.run(run())
