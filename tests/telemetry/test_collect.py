"""`tenantscope collect`: many engines, one store; its options, its tokens, its process's end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from console.cli import invoke, tenantscope
from telemetry import doctor
from telemetry.otlp import encode
from telemetry.pipeline.exporter import Exporter
from telemetry.service import roles
from telemetry.service.access import Access
from telemetry.service.client import METRICS_EXPORT, StoreClient
from telemetry.service.listen import Listen
from telemetry.service.roles import Grant, Role
from telemetry.service.server import StoreServer
from telemetry.source import FileSource
from telemetry.store import owner, retention
from telemetry.store import settings as store_settings
from telemetry.store.store import Store
from tests.telemetry.collecting import of_run, papers_in
from tests.telemetry.delivered import batch, minute

ROOT = Path(__file__).parents[2]
AT = time.time() // 60 * 60 - 7_200  # a store process refuses what lies far ahead of its clock


RUN = "from console.cli import main; main()"
HANGS = """
import threading
from telemetry.store.store import Store
Store.ingest = lambda self, decoded: (print("hangs", flush=True), threading.Event().wait())
"""


class Process:
    """`tenantscope collect` in a process of its own, ready or ended."""

    def __init__(self, *arguments: str, code: str = RUN) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", code, "collect", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.popen.stdout is not None
        self.addresses = self.popen.stdout.readline().split()[1:]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """(exit code, what it said on stderr)."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        _, err = self.popen.communicate(timeout=20)
        return self.popen.returncode, err


@pytest.fixture
def collect() -> Iterator[Any]:
    started: list[Process] = []

    def start(*arguments: str, code: str = RUN) -> Process:
        started.append(Process(*map(str, arguments), code=code))
        return started[-1]

    yield start
    for process in started:
        if process.popen.poll() is None:
            process.end(signal.SIGKILL)


@pytest.fixture
def papers(tmp_path: Path) -> dict[str, Path]:
    return papers_in(tmp_path)


def test_two_engines_of_one_name_over_tls_are_told_apart_and_add_up_through_the_end(
    tmp_path: Path, collect: Any, papers: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    process = collect(
        "--store", store, "--listen", "localhost:0", "--tls-cert", papers["cert"],
        "--tls-key", papers["key"], "--tokens", papers["tokens"],
    )  # fmt: skip
    address = f"https://{process.addresses[1]}"
    monkeypatch.setenv("TENANTSCOPE_CA", str(papers["ca"]))
    one = Access(token="sender-one", ca=papers["ca"])
    first, second = Exporter(address, access=one), Exporter(address, access=one)
    for n in range(20):
        first.submit(of_run("r1", AT + 60 * n, 3, n + 1))
        second.submit(of_run("r2", AT + 60 * n, 5, n + 1))
    assert first.flush(30)
    assert second.flush(30)

    monkeypatch.setenv("TENANTSCOPE_TOKEN", "looks")
    for where in (["--connect", address], ["--store", str(store)]):
        said = CliRunner().invoke(tenantscope, ["collect", "status", *where, "--json"])
        status = json.loads(said.stdout)
        [engine] = status["heard"]
        assert (engine["engine"], engine["live"], engine["batches"], engine["senders"]) == (
            "e1", True, 40, 2,
        )  # fmt: skip
        assert engine["last_sealed_end_unix_s"] == AT + 1200
        assert [o["tls"] for o in status["listeners"]] == [False, True]
    shown = CliRunner().invoke(tenantscope, ["collect", "status", "--connect", address])
    assert "live" in shown.stdout.splitlines()[1]
    asked = CliRunner().invoke(
        tenantscope, ["query", "token_totals", "--connect", address, "--json"]
    )
    assert [r["output_tokens"] for r in json.loads(asked.stdout)] == [20 * 8]
    size = CliRunner().invoke(tenantscope, ["store", "retention", "--connect", address])
    assert size.exit_code != 0  # a viewer keeps nothing in order
    checks = {c.what: c for c in doctor.judge(doctor.examine(address))}
    assert (checks["ports"].level, checks["certificates"].level) == ("ok", "ok")
    assert "days left" in checks["certificates"].says

    first.submit(of_run("r1", AT + 1200, 3, 21))
    assert first.flush(30)
    code, err = process.end()
    assert code == 0, err  # one that takes longer than 5 s gives up, with 1
    assert "Traceback" not in err
    first.close(0.5)
    second.close(0.5)
    rows = FileSource(store).read("tenant_minute", AT, AT + 3600)
    assert sum(r.output_tokens for r in rows) == 20 * 8 + 3
    assert {r.run_id for r in rows} == {"r1", "r2"}
    assert not (store / "collect.sock").exists()


def test_what_stands_in_the_way_is_one_sentence_and_an_exit_code(
    tmp_path: Path, collect: Any
) -> None:
    first = collect("--store", tmp_path / "a", "--listen", "127.0.0.1:0")
    unix, port = first.addresses
    live = owner.find_live(tmp_path / "a")
    assert live is not None
    assert live.address == unix
    same = collect("--store", tmp_path / "a", "--listen", "127.0.0.1:0").end()
    taken = collect("--store", tmp_path / "b", "--listen", port).end()
    open_ = collect("--store", tmp_path / "c", "--listen", "0.0.0.0:0").end()
    assert (same[0], taken[0], open_[0]) == (3, 1, 2)
    assert f"in use by process {first.popen.pid}" in same[1]
    assert f"cannot listen at {port} (address already in use)" in taken[1]
    assert "TLS and tokens are required there" in open_[1]
    assert not any("Traceback" in said[1] for said in (same, taken, open_))
    assert first.end(signal.SIGINT)[0] == 130


def test_settings_bring_listeners_and_a_slip_in_them_is_usage(tmp_path: Path, collect: Any) -> None:
    page = tmp_path / "page.toml"
    page.write_text('[[listen]]\naddress = "127.0.0.1:0"\n')
    process = collect("--store", tmp_path / "a", "--config", page, "--metrics", "127.0.0.1:0")
    assert len(process.addresses) == 2
    code, err = process.end()
    assert code == 0
    assert "metrics at http://127.0.0.1:" in err
    assert f"listening at {process.addresses[1]} (no TLS, no tokens: everybody on this" in err
    page.write_text('[[listen]]\nadress = "127.0.0.1:0"\n')
    code, err = collect("--store", tmp_path / "a", "--config", page).end()
    assert (code, "address is missing" in err) == (2, True)
    page.write_text("[retention]\nrequest = 3\n")
    code, err = collect("--store", tmp_path / "a", "--config", page).end()
    assert (code, "[retention] belongs into" in err) == (2, True)


def test_the_example_in_deploy_is_understood(tmp_path: Path) -> None:
    found = store_settings.read(tmp_path, ROOT / "deploy" / "collector.toml")
    assert [(one.address, one.tls is not None) for one in found.listen] == [
        ("0.0.0.0:4317", True),
        ("127.0.0.1:4318", False),
    ]
    assert found.retention == retention.DEFAULT


def test_a_commit_that_never_returns_does_not_keep_the_process(
    tmp_path: Path, collect: Any
) -> None:
    process = collect("--store", tmp_path / "a", "--listen", "127.0.0.1:0", code=HANGS + RUN)
    with grpc.insecure_channel(process.addresses[1]) as channel:
        data = encode(batch(minute("a", AT, output_tokens=1)))[0]
        waiting = channel.unary_unary(METRICS_EXPORT).future(data, timeout=30)
        assert process.popen.stdout.readline().strip() == "hangs"
        code, err = process.end()
        assert waiting.code() is not grpc.StatusCode.OK
    assert code == 1
    assert "not ended within 4.8 s" in err
    assert FileSource(tmp_path / "a").read("tenant_minute", 0, float("inf")) == []


def test_a_path_too_long_for_a_socket_is_still_served(tmp_path: Path, collect: Any) -> None:
    store = tmp_path / ("x" * 100)
    process = collect("--store", store, "--listen", "127.0.0.1:0")
    live = owner.find_live(store)
    assert live is not None
    assert live.address == process.addresses[0]
    client = StoreClient(live.address)
    assert client.info().path == str(store)
    client.close()
    assert process.end()[0] == 0


# --- tokens, status ------------------------------------------------------------------------------


def test_a_token_is_printed_once_and_only_its_digest_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    made = [
        CliRunner().invoke(tenantscope, ["collect", "token", *options, "--tokens", str(file)])
        for options in (
            ["--role", "ingest", "--engine", 'é "1"', "--note", "rack 3"],
            ["--role", "viewer"],
        )
    ]
    tokens = [m.stdout.strip() for m in made]
    known = roles.read_tokens(file)
    assert known.find(tokens[0]) == Grant(Role.INGEST, 'é "1"', "rack 3")
    assert known.find(tokens[1]) == Grant(Role.VIEWER)
    assert not any(t in file.read_text() for t in tokens)
    assert file.stat().st_mode & 0o077 == 0
    pasted = CliRunner().invoke(tenantscope, ["collect", "token", "--role", "operator"])
    token, block = pasted.stdout.split("\n", 1)
    file.write_text(block)
    assert roles.read_tokens(file).find(token) == Grant(Role.OPERATOR)


@pytest.mark.parametrize(
    "options",
    [
        ["--role", "viewer", "--engine", "e1"],
        ["--role", "ingest", "--engine", "a\nb"],
        ["--role", "ingest", "--engine", ""],
        ["--role", "boss"],
    ],
)
def test_a_token_that_makes_no_sense_is_usage(options: list[str]) -> None:
    assert CliRunner().invoke(tenantscope, ["collect", "token", *options]).exit_code == 2


def test_status_of_nobody_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store.open(tmp_path / "store").close()
    with pytest.raises(SystemExit) as e:
        invoke(["collect", "status", "--store", str(tmp_path / "store")])
    assert e.value.code == 1
    assert "no store process answers" in capsys.readouterr().err
    assert invoke(["collect", "status"]) == 2


def test_the_token_file_of_the_command_line_reaches_every_command(
    tmp_path: Path, papers: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StoreServer(
        Store.open(tmp_path / "store"), Listen("127.0.0.1:0", tokens=papers["tokens"])
    )
    server.start()
    monkeypatch.setenv("TENANTSCOPE_TOKEN_FILE", "")
    (tmp_path / "token").write_text("keeps\n")
    for command in (
        ["query", "span", "--connect", server.address],
        ["store", "info", server.address],
        ["usage", "--connect", server.address],
        ["sql", "SELECT 1", "--connect", server.address],
    ):
        said = CliRunner().invoke(tenantscope, command)
        assert said.exit_code == 1, said.output
        assert "TENANTSCOPE_TOKEN" in f"{said.output}{said.exception}"
        monkeypatch.setenv("TENANTSCOPE_TOKEN_FILE", "")
        said = CliRunner().invoke(tenantscope, ["--token-file", str(tmp_path / "token"), *command])
        assert said.exit_code == 0, said.output
        monkeypatch.setenv("TENANTSCOPE_TOKEN_FILE", "")
    server.stop(0.2)
