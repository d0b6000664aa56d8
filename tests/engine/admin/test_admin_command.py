"""`tenantscope admin`: what it says, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from console.cli import invoke
from engine.admin import listen as admin_listen
from engine.admin.cli import admin
from engine.admin.listen import NoDoor


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
        (("tenant", "move", "alice", "--pool", "gold"), 2),
        (("tenant", "move", "alice"), 2),
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


# -- several workers


def test_a_move_is_told_worker_by_worker_and_shown(several: str) -> None:
    moved = run(several, "tenant", "move", "alice", "--pool", "[b]gold", "--reason", "launch")
    assert moved.exit_code == 0
    assert "tenant 'alice': moves from pool 'main' to '[b]gold'" in moved.stdout
    said = [line.strip() for line in moved.stdout.splitlines() if "worker" in line]
    assert said == [f"worker {w}: as told" for w in ("[b]gold", "main/1", "main/2")]
    row = json.loads(run(several, "tenant", "show", "alice", "--json").stdout)[0]
    assert (row["pool"], row["overridden"]) == ("[b]gold", ["pool"])
    # 2 running and 1 waiting in each of the three
    assert (row["running"], row["waiting"]) == (6, 3)
    result = json.loads(run(several, "undo", "--who", "me", "--json").stdout)["results"][0]
    told = [(w["pool"], w["replica"], w["ok"]) for w in result["workers"]]
    assert told == [("main", 0, True), ("main", 1, True), ("[b]gold", 0, True)]
    change = json.loads(run(several, "changes", "--all", "--json").stdout)[0]
    assert (change["state"], change["ended_by"]) == ("undone", "me")
    assert change["ended"] == "1970-01-01T00:16:40Z"
    assert "undone 1970-01-01T00:16:40Z by me" in run(several, "changes", "--all").stdout


def test_adapters_and_workers_are_shown_by_pool_and_replica(several: str) -> None:
    rows = json.loads(run(several, "adapter", "list", "--json").stdout)
    where = [("main", 0), ("main", 1), ("[b]gold", 0)]
    assert [(r["pool"], r["replica"]) for r in rows] == where
    assert "main/2" in run(several, "adapter", "list").stdout
    rows = json.loads(run(several, "workers", "--json").stdout)
    assert [(r["pool"], r["replica"]) for r in rows] == where
    assert {(r["running"], r["waiting"], r["owed"], r["trouble"]) for r in rows} == {
        (2, 1, False, "")
    }
    assert "answers" in run(several, "workers").stdout


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
