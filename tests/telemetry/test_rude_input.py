"""What strangers send and people mistype: refused in a sentence, and never obeyed by a terminal."""

from __future__ import annotations

import datetime
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from console.cli import invoke
from telemetry import doctor
from telemetry.alerts import people
from telemetry.alerts.delivery import Courier, Parcel, Receipt
from telemetry.alerts.settings import WEBHOOK, Target, read_section
from telemetry.ask.export import CSV, placed
from telemetry.ask.reading import Result
from telemetry.cli import table
from telemetry.errors import QueryError, StoreError
from telemetry.narration import begin, one_line
from telemetry.outbound.settings import METRICS, endpoint_of
from telemetry.outbound.wire import Fate, _Http
from telemetry.prometheus import port as metrics_port
from telemetry.service import listen, wire
from telemetry.service.roles import Role, TokenFile, digest
from telemetry.service.server import StoreServer
from telemetry.service.tls import TlsFiles, server_credentials
from telemetry.settings import Reader, SettingsError
from telemetry.store.store import Store
from tests.telemetry.delivered import until

ESCAPES = "x\x1b]0;pwned\x07\x9b31m\u202e"


def ran(args: list[str]) -> int:
    try:
        return invoke(args)
    except SystemExit as e:
        return int(e.code or 0)


@pytest.mark.parametrize(
    "args",
    [
        ["store", "size", ESCAPES],
        ["watch", "--once", "--store", ESCAPES],
        ["watch", "--once", "--store", ".", "--sort", ESCAPES],
        ["alerts", "test", "--store", ESCAPES],
        ["collect", "--store", "never-made", "--listen", ESCAPES],
        [ESCAPES],
    ],
)
def test_an_error_prints_what_it_was_given_and_does_not_obey_it(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(args) in (1, 2)
    said = capsys.readouterr().err
    assert "pwned" in said
    assert not set(said) & set("\x1b\x07\x9b\u202e")


def test_a_log_line_prints_names_and_does_not_obey_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    begin("collect")
    [handler] = root.handlers
    handler.emit(logging.LogRecord("x", logging.ERROR, "", 0, "engine %s", (ESCAPES,), None))
    said = capsys.readouterr().err
    assert said == "collect: engine x\\x1b]0;pwned\\x07\\x9b31m\\u202e\n"
    assert one_line(ValueError("a\n  b\x1b")) == "a b\\x1b"


def test_bytes_that_are_no_text_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    for name, text in (("\udcff", ""), ("sql", "\udcff")):
        with pytest.raises(QueryError, match="not UTF-8 text"):
            wire.request(name, {"text": text})
    with pytest.raises(StoreError, match="not UTF-8 text"), placed(tmp_path / "\udcff", False):
        pytest.fail(f"a {CSV} was begun")


@pytest.mark.parametrize("port", ["²", "٢", "-1", "65536", "9" * 5000, "", " 1", "0x1"])
def test_a_port_is_a_number_in_plain_figures(port: str) -> None:
    for take in (listen.target, metrics_port.listen):
        with pytest.raises(StoreError):
            take(f"127.0.0.1:{port}")


def test_an_address_with_half_a_bracket_is_no_address() -> None:
    for text in ("http://[", "https://[::1", "unix:"):
        assert not listen.is_address(text)
    with pytest.raises(StoreError, match="names no socket"):
        listen.check(listen.Listen("unix:"))


@pytest.mark.parametrize(
    "url",
    ["http://[", "http://h:port", "http://h:99999", "http://a b", "http://\u202eh", "ftp://h"],
)
def test_a_target_that_is_no_url_is_refused_by_key_and_value(url: str) -> None:
    with pytest.raises(SettingsError, match=r"settings.toml.*url = .*expected http://HOST"):
        read_section(Reader("settings.toml", {"alerts": {WEBHOOK: [{"url": url}]}}))


def test_the_last_token_taken_out_opens_nothing_either(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[[token]]\nsha256 = "{digest("secret")}"\nrole = "{Role.VIEWER}"\n')
    tokens = TokenFile(path)
    assert tokens.find("secret") is not None
    path.write_text("# nobody any more\n")
    assert tokens.find("secret") is None
    path.write_text("a slip")
    assert tokens.find("secret") is None


def test_a_certificate_that_has_ended_is_said_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    made = trustme.CA().issue_cert("localhost", not_after=ended)
    files = TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")
    made.cert_chain_pems[0].write_to_path(files.cert)
    made.private_key_pem.write_to_path(files.key)
    server_credentials(files)
    assert "cert.pem ended at" in caplog.text
    assert "put a renewed one in its place" in caplog.text


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that answers a header line now and again, and never ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    enough = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not enough.wait(0.05):
                    connection.sendall(b"X-More: 1\r\n")
            except OSError:
                return  # it was left

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    enough.set()
    listening.close()


def test_a_webhook_that_answers_drop_by_drop_is_left_in_time(dripping: str) -> None:
    receipts: list[Receipt] = []
    target = Target(WEBHOOK, "slow", dripping, timeout_s=0.3)
    courier = Courier(target, None, receipts.append, attempts=1)
    courier.offer(Parcel("inc-x", 1, "inc-x/1", b"{}"))
    until(lambda: bool(receipts))
    courier.stop()
    assert not receipts[0].ok
    assert courier.stats().last_error == "no answer in 0.3 s"


def test_a_third_party_that_answers_drop_by_drop_is_left_in_time(dripping: str) -> None:
    http = _Http(endpoint_of(f"{dripping}/v1/metrics"), METRICS, {}, None)
    reply = http.send(b"", 0.3)
    http.close()
    assert (reply.fate, reply.why) == (Fate.LATER, "no answer in 0.3 s")


def test_a_very_long_name_is_one_short_cell() -> None:
    said = table(Result(("tenant",), (("\x1b" + "x" * 2_000_000,), ("界" * 2_000_000,))))
    assert max(map(len, said.splitlines())) <= 48
    assert "\\x1bxxx" in said


def test_a_reason_too_long_to_be_kept_is_refused_and_not_cut(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    asked = {"alert": "", "pool": "main", "tenant": "", "until": time.time() + 60, "who": "me"}
    with pytest.raises(StoreError, match=r"reason = .*5000 characters, at most 2000"):
        people.silence(store, {**asked, "reason": "x" * 5000})
    with pytest.raises(StoreError) as e:
        people.unsilence(store, {"silence": "y" * 100_000, "who": "me"})
    assert len(str(e.value)) < 200
    store.close()


def test_a_doctor_who_may_only_look_does_not_call_the_store_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{digest("looks")}"\nrole = "{Role.VIEWER}"\n')
    server = StoreServer(
        Store.open(tmp_path / "store"), listen.Listen("127.0.0.1:0", tokens=tokens)
    )
    server.start()
    monkeypatch.setenv("TENANTSCOPE_TOKEN", "looks")
    checks = {c.what: c for c in doctor.judge(doctor.examine(server.address))}
    server.stop(0.2)
    assert "store" not in checks
    assert "role operator" in checks["disk"].says


def test_a_store_that_does_not_answer_is_worth_trying_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    for args in (["collect", "status"], ["doctor"], ["usage"], ["watch", "--once"]):
        assert ran([*args, "--connect", address, "--json"]) == 3
    said = capsys.readouterr()
    assert said.out == "" or json.loads(said.out) is not None
    assert "with TLS it is https://" in said.err


def test_why_a_socket_cannot_be_bound_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert listen.why_not(f"unix:{tmp_path}/there") == "it is taken"
    assert listen.why_not(f"unix:{tmp_path}/gone/x.sock") == "its folder cannot be written"
