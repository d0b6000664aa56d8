"""Whom third parties are, and what they are told: TLS, headers, what a client sends along; HTTP."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from telemetry.outbound.outbound import Outbound
from telemetry.outbound.settings import Endpoint, Outgoing, endpoint_of
from telemetry.outbound.wire import Fate, Reply, open_transport
from telemetry.settings import SettingsError
from tests.telemetry.delivered import T0, batch, request, until
from tests.telemetry.otlp_collector import collecting, refuses
from tests.telemetry.sending import (
    ALL,
    FAST,
    counting,
    hear,
    losses,
    metrics_to,
    one,
    sending,
    traces_to,
)

SECRET = "Bearer canary-4711"


def test_headers_arrive_and_are_nowhere_else(caplog: Any):
    caplog.set_level(logging.DEBUG)
    echo = refuses(grpc.StatusCode.PERMISSION_DENIED, f"not for {SECRET}")
    with collecting(echo) as collector:
        export = traces_to(collector.url, headers={"authorization": "env:TOKEN", "x-team": "sre"})
        outbound = Outbound(
            Outgoing((export,), ALL), counting("a"), environment={"TOKEN": SECRET}, pace=FAST
        )
        hear(outbound, request(1))
        until(lambda: losses(one(outbound)) == {"refused": 1})
        error = one(outbound).last_error
        outbound.stop()
    assert collector.metadata[0]["authorization"] == SECRET
    assert collector.metadata[0]["x-team"] == "sre"
    literal = traces_to("http://127.0.0.1:1", headers={"authorization": SECRET})
    for said in (error, caplog.text, repr(export), repr(literal), repr(outbound.stats())):
        assert "canary" not in said


def test_a_header_whose_variable_is_missing_is_named_and_nothing_is_left_running():
    export = traces_to("http://127.0.0.1:1", headers={"authorization": "env:NO_SUCH"})
    before = threading.active_count()
    with pytest.raises(SettingsError, match="authorization is 'env:NO_SUCH'"):
        Outbound(
            Outgoing((traces_to("http://127.0.0.1:2"), export), ALL), counting("a"), environment={}
        )
    until(lambda: threading.active_count() <= before)


def test_over_tls_only_who_is_known_is_sent_to(tmp_path: Path):
    ca, other = trustme.CA(), trustme.CA()
    certificate = ca.issue_cert("127.0.0.1")
    key, chain = certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()
    for name, whose in (("good", ca), ("bad", other)):
        whose.cert_pem.write_to_path(str(tmp_path / name))
    with collecting(credentials=grpc.ssl_server_credentials([(key, chain)])) as collector:
        url = collector.url
        with sending(traces_to(url, ca=tmp_path / "bad")) as outbound:
            hear(outbound, request(1))
            until(lambda: "UNAVAILABLE" in one(outbound).last_error)
        assert collector.calls == 0
        with sending(traces_to(url, ca=tmp_path / "good")) as outbound:
            hear(outbound, request(1))
            collector.wait(lambda: collector.calls == 1)


@pytest.mark.parametrize("path", ["", "/v1/traces"])
def test_a_ca_that_is_none_is_refused_at_the_start(tmp_path: Path, path: str):
    (tmp_path / "empty.pem").write_text("nothing")
    for file in ("empty.pem", "missing.pem"):
        export = traces_to(f"https://127.0.0.1:1{path}", ca=tmp_path / file)
        with pytest.raises(SettingsError, match=file):
            Outbound(Outgoing((export,), ALL), counting("a"), environment={})


CANARY = "canary-prompt-and-header"


def test_what_a_client_sends_along_goes_out_only_as_ids_of_fixed_form():
    row = request(1, trace_id=CANARY, parent_span_id=CANARY, trace_sampled=True)
    heard = counting("a")
    heard.hear([batch(row)], T0)
    with (
        collecting() as collector,
        sending(traces_to(collector.url), metrics_to(collector.url), heard=heard) as outbound,
    ):
        hear(outbound, row)
        collector.wait(lambda: bool(collector.spans()) and bool(collector.metrics))
    for sent in (*collector.traces, *collector.metrics):
        assert CANARY.encode() not in sent.SerializeToString()


# --- HTTP ---


class Http:
    """A collector over HTTP; `answers` are (status, headers, body), the last for ever."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        from http.server import BaseHTTPRequestHandler, HTTPServer

        self.bodies: list[bytes] = []
        left = list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                outer.headers = dict(self.headers)
                status, headers, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                for name, value in ({"content-length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return None

        self.headers: dict[str, str] = {}
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = Endpoint(
            f"http://127.0.0.1:{self.server.server_port}/v1/traces", "127.0.0.1",
            self.server.server_port, False, "traces",
        )  # fmt: skip
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ((200, {}, b""), Reply(Fate.TAKEN)),
        ((200, {}, b"\x0a\x02\x08\x02"), Reply(Fate.TAKEN, rejected=2)),
        ((200, {}, b"<html>"), Reply(Fate.TAKEN)),
        ((503, {"retry-after": "7"}, b""), Reply(Fate.LATER, after_s=7.0, why="HTTP 503")),
        ((429, {"retry-after": "soon"}, b""), Reply(Fate.LATER, why="HTTP 429")),
        ((400, {}, b""), Reply(Fate.NEVER, why="HTTP 400")),
        ((302, {"location": "http://elsewhere/"}, b""), Reply(Fate.NEVER, why="HTTP 302")),
    ],
)
def test_over_http_the_status_says_what_becomes_of_a_request(answer: Any, reply: Reply):
    http = Http(answer)
    transport = open_transport(http.endpoint, "traces", {"x-key": SECRET}, None)
    try:
        assert transport.send(b"data", 5.0) == reply
        assert http.bodies == [b"data"]
        assert http.headers["x-key"] == SECRET
        assert http.headers["content-type"] == "application/x-protobuf"
    finally:
        transport.close()
        http.close()


def test_over_http_nobody_there_is_later():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{s.getsockname()[1]}"
    transport = open_transport(endpoint_of(f"{dead}/v1/metrics"), "metrics", {}, None)
    assert transport.send(b"data", 1.0).fate is Fate.LATER
    transport.close()
