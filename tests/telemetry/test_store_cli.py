"""The commands that keep a store in order: data on stdout, narration on stderr, exit codes kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from telemetry.cli import query, store
from telemetry.service.process import StoreServer
from telemetry.source import FileSource
from telemetry.store.retention import DEFAULT_DAYS
from telemetry.store.store import Store
from tests.telemetry.delivered import DAY_S, T0, batch, charge, deliver, engine_minute, minute

NAME = "\x1b[31mred\n"
FIRST = "2027-01-15"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "store") as opened:
        for n in range(3):
            at = T0 + n * DAY_S
            rows = (minute(NAME, at, output_tokens=1), minute("b", at, output_tokens=2))
            deliver(opened, batch(*rows, engine_minute(at, steps=1), charge("b", NAME, 0.5, at)))
        opened.close_day(FIRST)
    return tmp_path / "store"


def run(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(store, [*arguments], input=answer)


def tenants(folder: Path) -> set[str]:
    return {r.tenant for r in FileSource(folder).read("tenant_minute", 0.0, float("inf"))}


def test_size_is_a_table_with_totals_and_a_forecast(folder: Path) -> None:
    done = run("size", str(folder))
    assert done.exit_code == 0
    cells = [line.split() for line in done.stdout.splitlines()]
    assert cells[0] == ["day", "table", "rows", "bytes", "bytes/row", "part"]
    assert [c[2] for c in cells if c[:2] == [FIRST, "tenant_minute"]] == ["2"]
    assert {c[0] for c in cells if c} >= {"total", "free", "growth", "disk"}
    facts = json.loads(run("size", str(folder), "--json").stdout)
    assert facts["bytes"] == sum(t["bytes"] for t in facts["tables"])
    assert all(t["bytes_a_row"] == t["bytes"] / t["rows"] for t in facts["tables"])


def test_a_live_store_is_measured_by_its_address(folder: Path, tmp_path: Path) -> None:
    server = StoreServer(Store.open(folder), f"unix:{tmp_path}/s")
    server.start()
    assert json.loads(run("size", server.address, "--json").stdout)["store"] == str(folder)
    server.stop(0.2)


def test_a_backup_made_and_restored_from_the_shell(folder: Path, tmp_path: Path) -> None:
    made = run("backup", str(tmp_path / "copy.tar"), "--store", str(folder), "--json")
    assert made.exit_code == 0
    parts = {row["part"] for row in json.loads(made.stdout)}
    assert parts == {FIRST, "2027-01-16", "2027-01-17"}
    back = run("restore", str(tmp_path / "copy.tar"), str(tmp_path / "back"))
    assert back.exit_code == 0
    assert "restored into" in back.stderr
    assert tenants(tmp_path / "back") == {NAME, "b"}
    again = run("restore", str(tmp_path / "copy.tar"), str(tmp_path / "back"))
    assert again.exit_code == 1
    assert "is not empty: restore into a new folder" in again.stderr
    assert run("backup", str(tmp_path / "x")).exit_code == 2


def test_forgetting_asks_first_and_a_no_changes_nothing(folder: Path) -> None:
    refused = run("forget", NAME, "--store", str(folder), answer="n\n")
    assert refused.exit_code == 1
    assert "6 rows" not in refused.stdout
    assert "3 rows dropped, 3 changed of \\x1b[31mred\\n: forget for good?" in refused.stderr
    assert "nothing was forgotten" in refused.stderr
    assert "\x1b" not in refused.output
    assert tenants(folder) == {NAME, "b"}
    tried = run("forget", NAME, "--store", str(folder), "--dry-run")
    assert "would go" in tried.stderr
    assert tenants(folder) == {NAME, "b"}
    assert run("forget", NAME, "--store", str(folder), answer="y\n").exit_code == 0
    assert tenants(folder) == {"b"}
    nothing = run("forget", NAME, "--store", str(folder), "--yes")
    assert nothing.exit_code == 0
    assert "nothing in the store names \\x1b[31mred\\n" in nothing.stdout


def test_retention_says_what_it_drops(folder: Path) -> None:
    forever = "\n".join(f'{t} = "forever"' for t in DEFAULT_DAYS)
    (folder / "settings.toml").write_text(f"[retention]\n{forever}\n")
    done = run("retention", str(folder), "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == []
    (folder / "settings.toml").write_text("[retention]\nevent = -1\n")
    bad = run("retention", str(folder))
    assert bad.exit_code == 1
    assert "settings.toml: [retention]: event = -1" in bad.stderr


def test_a_store_in_use_by_one_that_does_not_answer_is_worth_trying_again(folder: Path) -> None:
    with Store.open(folder):
        for arguments in (("size", str(folder)), ("forget", "b", "--store", str(folder), "--yes")):
            done = run(*arguments)
            assert done.exit_code == 3
            assert "in use by process" in done.stderr


def test_a_partial_answer_is_said_beside_it(folder: Path) -> None:
    (folder / FIRST / "engine_minute.parquet").write_bytes(b"short")
    done = CliRunner().invoke(query, ["token_totals", "--store", str(folder), "--json"])
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)) == 2
    assert done.stderr.startswith(f"partial: {FIRST}: engine_minute")


@pytest.mark.parametrize("name", ["size", "retention", "backup", "restore", "forget"])
def test_help_teaches_with_an_example(name: str) -> None:
    text = run(name, "--help").stdout
    assert "For example" in text or "[retention]" in text
