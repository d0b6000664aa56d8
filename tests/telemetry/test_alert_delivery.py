"""Delivery to real servers on this machine: taken, late, refused, hanging, redirected, too many."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from console.cli import invoke
from telemetry.alerts import bodies
from telemetry.alerts.delivery import Courier, Parcel, Receipt
from telemetry.alerts.incident import Incident, Said, State
from telemetry.alerts.settings import ALERTMANAGER, WEBHOOK, AlertSettings, Target, read_section
from telemetry.settings import Reader, SettingsError
from telemetry.store import settings as store_settings
from tests.telemetry.delivered import ODD_NAMES, until


class Server:
    """Answers as told, one code a request, the last one for ever; writes down what came."""

    def __init__(self, *codes: int, location: str = "", hang: bool = False) -> None:
        self.codes = list(codes)
        self.came: list[tuple[str, dict[str, str], bytes]] = []
        self.let_go = threading.Event()
        self.asked = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.came.append((self.path, dict(self.headers), body))
                outer.asked.set()
                if hang:
                    outer.let_go.wait(20)
                    return
                code = outer.codes.pop(0) if len(outer.codes) > 1 else outer.codes[0]
                self.send_response(code)
                if location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Any]:
    made: list[Server] = []

    def begin(*codes: int, **how: Any) -> Server:
        made.append(Server(*codes, **how))
        return made[-1]

    yield begin
    for server in made:
        server.stop()


@pytest.fixture
def courier() -> Iterator[Any]:
    made: list[Courier] = []

    def begin(
        target: Target, secret: str | None = None, **how: Any
    ) -> tuple[Courier, list[Receipt]]:
        receipts: list[Receipt] = []
        how = {"backoff_s": 0.01, "attempts": 4} | how
        made.append(Courier(target, secret, receipts.append, clock=lambda: 1000.0, **how))
        return made[-1], receipts

    yield begin
    for one in made:
        one.stop()


def parcel(notice: int = 1, body: bytes = b'{"a":1}', **how: Any) -> Parcel:
    return Parcel("inc-x", notice, f"inc-x/{notice}", body, **how)


def hook(url: str, **how: Any) -> Target:
    return Target(WEBHOOK, "hook", url, **how)


def test_a_webhook_gets_the_body_its_key_and_a_signature(serve: Any, courier: Any) -> None:
    server = serve(200)
    one, receipts = courier(hook(server.url), "s3cret")
    one.offer(parcel())
    until(lambda: bool(receipts))
    [(path, headers, body)] = server.came
    assert (path, body, receipts[0].ok) == ("/hook", b'{"a":1}', True)
    assert headers[bodies.DEDUP] == "inc-x/1"
    mac = hmac.new(b"s3cret", b"1000." + body, hashlib.sha256).hexdigest()
    assert headers[bodies.SIGNATURE] == f"t=1000,v1={mac}"
    assert one.stats().delivered == 1


def test_a_server_in_trouble_is_tried_again_with_the_same_key(serve: Any, courier: Any) -> None:
    server = serve(500, 503, 200)
    one, receipts = courier(hook(server.url))
    one.offer(parcel())
    until(lambda: bool(receipts))
    assert [r.ok for r in receipts] == [True]
    assert [h[bodies.DEDUP] for _, h, _ in server.came] == ["inc-x/1"] * 3


@pytest.mark.parametrize("code", [400, 401, 404, 302])
def test_what_cannot_get_better_is_given_up_at_once(serve: Any, courier: Any, code: int) -> None:
    server = serve(code)
    one, receipts = courier(hook(server.url))
    one.offer(parcel())
    until(lambda: bool(receipts))
    assert (receipts[0].ok, len(server.came)) == (False, 1)
    assert one.stats().failed == 1
    assert str(code) in (one.stats().last_error or "")


def test_a_redirect_is_not_followed(serve: Any, courier: Any) -> None:
    other = serve(200)
    server = serve(307, location=other.url)
    one, receipts = courier(hook(server.url), "s3cret")
    one.offer(parcel())
    until(lambda: bool(receipts))
    assert not receipts[0].ok
    assert other.came == []


def test_nobody_there_is_given_up_after_all_attempts(serve: Any, courier: Any) -> None:
    server = serve(200)
    server.stop()
    one, receipts = courier(hook(server.url))
    one.offer(parcel())
    until(lambda: bool(receipts))
    assert not receipts[0].ok
    assert "cannot be reached" in (one.stats().last_error or "")


def test_a_server_that_hangs_times_out(serve: Any, courier: Any) -> None:
    server = serve(200, hang=True)
    one, receipts = courier(hook(server.url, timeout_s=0.1), attempts=2)
    one.offer(parcel())
    until(lambda: bool(receipts))
    assert not receipts[0].ok
    assert "no answer in 0.1 s" in (one.stats().last_error or "")


def test_a_hanging_server_does_not_hold_up_the_end(serve: Any, courier: Any) -> None:
    server = serve(200, hang=True)
    one, receipts = courier(hook(server.url, timeout_s=30.0))
    one.offer(parcel())
    assert server.asked.wait(10)
    one.stop(0.1)
    assert receipts == []
    assert one.stats().queued == 1


def test_a_full_queue_gives_up_its_oldest_and_counts_it(serve: Any, courier: Any) -> None:
    server = serve(200, hang=True)
    one, receipts = courier(hook(server.url, timeout_s=30.0), bound=3)
    one.offer(parcel(0))
    assert server.asked.wait(10)
    for n in range(1, 6):
        one.offer(parcel(n))
    assert [r.parcel.notice for r in receipts] == [1, 2]
    stats = one.stats()
    assert (stats.dropped, stats.queued) == (2, 4)


def test_what_keeps_an_alert_alive_is_queued_once(serve: Any, courier: Any) -> None:
    server = serve(200, hang=True)
    one, _ = courier(hook(server.url, timeout_s=30.0))
    one.offer(parcel(0))
    assert server.asked.wait(10)
    for _ in range(10):
        one.offer(parcel(1, counts=False))
    assert one.stats().queued == 2


def test_an_alertmanager_gets_its_path_and_its_token(serve: Any, courier: Any) -> None:
    server = serve(200)
    base = server.url.removesuffix("/hook") + "/am/"
    one, receipts = courier(Target(ALERTMANAGER, "am", base), "t0ken")
    one.offer(parcel(body=b"[]"))
    until(lambda: bool(receipts))
    [(path, headers, _)] = server.came
    assert path == "/am/api/v2/alerts"
    assert headers["Authorization"] == "Bearer t0ken"


def test_a_secret_is_in_no_log_and_no_error(
    serve: Any, courier: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(500)
    one, receipts = courier(hook(server.url + "?key=hidden"), "s3cret")
    one.offer(parcel())
    until(lambda: bool(receipts))
    said = caplog.text + (one.stats().last_error or "")
    assert "s3cret" not in said
    assert "hidden" not in said


# ---------------------------------------------------------------- shapes


def incident(**how: Any) -> Incident:
    said = Said("TenantscopeGoodputBurnFast", "page", "y misses", "associated", "y", 10.0, 20.0)
    values: dict[str, Any] = {"alerts": (said,), "notice": 1, "notice_what": "opened"} | how
    return Incident("inc-main-1", "main", "e1", State.OPEN, "page", 10.0, 20.0, **values)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_travel_whole_in_the_webhook_and_never_into_labels(name: str) -> None:
    made = incident(hurt=(name,), hurt_count=1)
    body = json.loads(bodies.webhook_body(made, AlertSettings()))
    assert body["incident"]["hurt"] == [name]
    [alert] = json.loads(bodies.alertmanager_body(made, AlertSettings(), 30.0))
    assert not any(name in v for v in alert["labels"].values() if name != "self")


def test_the_published_shape_is_the_one_that_is_sent() -> None:
    page = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text()
    shown = json.loads(page.partition("```json")[2].partition("```")[0])
    sent = json.loads(
        bodies.webhook_body(
            incident(alerts=(Said("A", "page", "s", None, None, 1.0, 2.0, True,
                                  (("misses", 1.0, "1"),)),)),
            AlertSettings(),
        )
    )  # fmt: skip
    assert shown.keys() == sent.keys()
    assert shown["incident"].keys() == sent["incident"].keys()
    assert shown["incident"]["alerts"][0].keys() == sent["incident"]["alerts"][0].keys()


def test_the_runbook_of_the_settings_is_linked() -> None:
    settings = AlertSettings(runbook="https://docs.example.org/runbook.md")
    [alert] = json.loads(bodies.alertmanager_body(incident(), settings, 30.0))
    link = "https://docs.example.org/runbook.md#tenantscopegoodputburnfast"
    assert alert["annotations"]["runbook_url"] == link


# ---------------------------------------------------------------- settings


def read(**table: Any) -> AlertSettings:
    return read_section(Reader("settings.toml", {"alerts": table}))


def test_numbers_and_targets_are_read() -> None:
    made = read(
        burn_fast=10,
        silent_s=90.0,
        runbook="https://d/r.md",
        webhook=[{"url": "https://h.example.org/x", "secret": "env:HOOK"}],
        alertmanager=[{"name": "am", "url": "http://am:9093", "minimum": "page"}],
    )
    assert (made.limits.burn_fast, made.limits.silent_s) == (10.0, 90.0)
    assert [(t.kind, t.name, t.minimum) for t in made.targets] == [
        ("webhook", "webhook", "warn"),
        ("alertmanager", "am", "page"),
    ]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"burn_fast": 0.5}, r"burn_fast = 0.5: expected a number > 1"),
        ({"silent_s": "60"}, r"silent_s = '60'.*without quotes"),
        ({"silents": 60}, "unknown key 'silents'; did you mean silent_s"),
        ({"webhook": [{"url": "ftp://x"}]}, r"url = 'ftp://x': expected http"),
        ({"webhook": [{"url": "http://a"}, {"url": "http://b"}]}, "a name of its own"),
        ({"webhook": [{"url": "http://a", "minimum": "pag"}]}, "did you mean page"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        read(**table)


@pytest.mark.parametrize(
    "target", [{"url": "http://a", "secret": "hunter2"}, {"url": "http://u:hunter2@a"}]
)
def test_a_secret_in_the_file_is_refused_without_being_repeated(target: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="env:NAME") as e:
        read(webhook=[target])
    assert "hunter2" not in str(e.value)


def test_a_delivery_can_be_tried_from_the_command_line(
    serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(200, 404)
    monkeypatch.setenv("HOOK", "s3cret")
    assert invoke(["alerts", "test", "--webhook", server.url, "--secret", "env:HOOK"]) == 0
    assert bodies.SIGNATURE in server.came[0][1]
    assert invoke(["alerts", "test", "--webhook", server.url, "--json"]) == 1
    assert '"delivered": false' in capsys.readouterr().out
    assert invoke(["alerts", "test", "--webhook", server.url, "--secret", "env:NONE"]) == 1
    assert invoke(["alerts", "test"]) == 2


def test_a_stores_own_settings_hold_them(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("[alerts]\nstalled_s = 20\nevery_s = 5\n")
    made = store_settings.read(tmp_path).alerts
    assert (made.limits.stalled_s, made.every_s, made.targets) == (20.0, 5.0, ())
    (tmp_path / "settings.toml").write_text("[alerts]\nstalled_s = -1\n")
    with pytest.raises(SettingsError, match=r"settings.toml: \[alerts\]: stalled_s = -1"):
        store_settings.read(tmp_path)
