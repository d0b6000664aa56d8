"""The command: what it prints, where, and with which exit code; on a real store."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from postmortem import asking
from postmortem.cli import postmortem
from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.records import Batch
from telemetry.service.server import StoreServer
from telemetry.store.store import Store
from tests.telemetry.synthetic_rows import T0, Pool

LOGS = ("request", "event", "policy", "engine_run")


def fill(folder: Path, pool: Pool) -> None:
    """Put a pool's rows into a store, the way every row goes."""
    minutes = [r for t, rows in pool.rows.items() if t not in LOGS for r in rows]
    logs = [r for t, rows in pool.rows.items() if t in LOGS for r in rows]
    with Store.open(folder) as store:
        for emitter in (Emitter.FRONT, Emitter.WORKER):
            own = tuple(logs) if emitter is Emitter.WORKER else ()
            batch = Batch(
                pool.engine_name, pool.run, pool.name, emitter, True, 1, tuple(minutes), own
            )
            metrics, log_bytes = encode(batch)
            if metrics:
                store.ingest_metrics(metrics)
            if log_bytes:
                store.ingest_logs(log_bytes)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("incident") / "store"
    pool = Pool().calm(0, 12).flood(12, 18)
    for i in range(18):
        for k in range(3):
            pool.request(pool.at(i) + k, "y", 10 * i + k, 6.0 if i >= 12 else 0.3)
    pool.policy(pool.at(9), 2, "fcfs", "vtc")
    pool.started(pool.at(0))
    fill(folder, pool)
    return folder


def ask(store: Path, *options: str) -> Result:
    return CliRunner().invoke(postmortem, ["report", "--store", str(store), *options])


def test_the_report_comes_out_of_a_store(store: Path):
    result = ask(store)
    assert result.exit_code == 0
    assert "CULPRIT x: 94% of the excess wait charged to it (charged, high)" in result.stdout
    assert "policy vtc to fcfs by bob (v2)" in result.stdout
    assert result.stderr.startswith("window: ")


def test_a_window_by_epoch_and_json_agree(store: Path):
    result = ask(store, "--from", str(T0 + 80), "--to", str(T0 + 180), "--format", "json")
    body = json.loads(result.stdout)
    assert (body["start"], body["end"]) == (T0 + 80, T0 + 180)
    assert body["verdict"]["onset"] == T0 + 120
    assert body["reconciled"]["offered"] == 4 * 40 + 6 * 90


def test_a_report_is_written_to_a_file(store: Path, tmp_path: Path):
    out = tmp_path / "report.md"
    result = ask(store, "--format", "md", "-o", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert out.read_text().startswith("# Postmortem: pool main")
    assert f"written to {out}" in result.stderr


def test_a_file_that_cannot_be_written_is_said(store: Path, tmp_path: Path):
    result = ask(store, "-o", str(tmp_path / "none" / "report.md"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_a_window_outside_the_data_exits_1_and_says_what_there_is(store: Path):
    result = ask(store, "--from", str(T0 + 99_000), "--to", str(T0 + 99_060))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the store covers 2027-01-15" in result.stderr


@pytest.mark.parametrize("options", [("--from", "noon"), ("--from", "end", "--to", "start")])
def test_a_wrong_time_exits_2(store: Path, options: tuple[str, ...]):
    result = ask(store, *options)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_no_such_pool_exits_2_and_lists_them(store: Path):
    result = ask(store, "--pool", "other")
    assert result.exit_code == 2
    assert "there is 'main'" in result.stderr


def test_a_missing_store_exits_1_in_one_line(tmp_path: Path):
    result = ask(tmp_path / "nowhere")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_an_empty_store_exits_1(tmp_path: Path):
    Store.open(tmp_path / "empty").close()
    result = ask(tmp_path / "empty")
    assert result.exit_code == 1
    assert "holds no telemetry yet" in result.stderr


def test_a_store_that_is_being_written_exits_3(tmp_path: Path):
    with Store.open(tmp_path / "busy"):
        result = ask(tmp_path / "busy")
    assert result.exit_code == 3


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from postmortem.cli import postmortem\n"
        "assert CliRunner().invoke(postmortem, ['report', '--help']).exit_code == 0\n"
        "heavy = {'duckdb', 'grpc', 'torch', 'textual', 'numpy', 'telemetry.records'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_dash_is_stdout_and_writes_no_file(store: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask(store, "-o", "-").stdout == ask(store).stdout
    assert not list(tmp_path.iterdir())


def test_an_empty_store_argument_is_a_usage_error(store: Path):
    result = CliRunner().invoke(postmortem, ["report", "--store", ""])
    assert result.exit_code == 2
    assert "--store is empty" in result.stderr


def test_a_store_that_does_not_answer_is_worth_trying_again(tmp_path: Path):
    result = ask(Path(f"unix:{tmp_path}/nobody.sock"))
    assert result.exit_code == 3
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [[], ["report"]])
def test_help_teaches_by_examples(command: list[str]):
    help_text = CliRunner().invoke(postmortem, [*command, "--help"]).stdout
    assert "tenantscope postmortem report --store" in help_text


@pytest.mark.parametrize("command", ["report", "find", "compare", "whatif", "watch", "import"])
def test_every_command_is_listed_and_teaches_by_an_example(command: str):
    assert f"  {command}" in CliRunner().invoke(postmortem, ["--help"]).stdout
    help_text = CliRunner().invoke(postmortem, [command, "--help"]).stdout
    assert f"tenantscope postmortem {command} " in help_text


def test_a_page_comes_out_of_a_store(store: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    out = tmp_path / "report.html"
    result = ask(store, "--format", "html", "-o", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "making the code that draws charts, once" in result.stderr
    assert out.read_text().startswith("<!DOCTYPE html>")


def test_a_store_and_an_address_at_once_are_a_usage_error(store: Path):
    result = ask(store, "--connect", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "one of them" in result.stderr


def test_of_a_store_that_ended_long_ago_a_time_of_day_is_that_of_its_last_day(monkeypatch):
    ended = T0 + 180.0
    begin = time.strftime("%H:%M:%S", time.localtime(T0 + 80))
    monkeypatch.setattr(time, "time", lambda: ended + 30 * 86400)
    assert asking.bounds_of(begin, "end", (T0, ended)) == (T0 + 80, ended)


def test_a_what_if_that_cannot_conclude_says_so_in_the_report(store: Path):
    result = ask(store, "--what-if", "--budget-s", "5")
    assert result.exit_code == 0
    flat = " ".join(result.stdout.split())
    assert "WHAT WOULD HAVE PREVENTED IT No conclusion" in flat


def test_a_live_store_gives_the_same_report(tmp_path: Path):
    pool = Pool().calm(0, 12).flood(12, 18)
    for i in range(18):
        pool.request(pool.at(i), "y", i, 6.0 if i >= 12 else 0.3)
    fill(tmp_path / "s", pool)
    window = ("--from", str(T0 + 80), "--to", str(T0 + 180), "--format", "json")
    closed = json.loads(ask(tmp_path / "s", *window).stdout)
    with Store.open(tmp_path / "s") as store:
        server = StoreServer(store, f"unix:{tmp_path}/sock")
        server.start()
        try:
            result = CliRunner().invoke(
                postmortem, ["report", "--connect", f"unix:{tmp_path}/sock", *window]
            )
        finally:
            server.stop(0.2)
    live = json.loads(result.stdout)
    for body in (closed, live):  # the commands name where it was asked
        body["what_if"] = body["asked"] = None
        for sample in body["worst"]:
            sample["command"] = None
    assert live == closed
