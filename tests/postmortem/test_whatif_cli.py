"""The command `postmortem whatif`: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.cli import invoke
from postmortem.cli import postmortem
from tests.postmortem.incident_stores import flood


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flood(tmp_path_factory.mktemp("flood"))


def ask(store: Path, *options: str) -> Result:
    return CliRunner().invoke(postmortem, ["whatif", "--store", str(store), *options])


def test_a_remedy_is_exit_code_0_and_is_printed_with_its_settings(store: Path):
    result = ask(store, "--policy", "vtc", "--policy", "cap", "--seeds", "1")
    assert result.exit_code == 0, result.stderr
    assert "REMEDY: vtc" in result.stdout
    assert 'policy = "vtc"' in result.stdout
    assert "tenantscope admin policy set vtc" in result.stdout
    assert "open-loop" in result.stdout
    assert result.stderr.startswith("window: ")
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_json_is_one_object_on_stdout(store: Path):
    result = ask(store, "--policy", "vtc", "--seeds", "1", "--json")
    body = json.loads(result.stdout)
    assert (body["format"], body["conclusion"], body["remedy"]) == (1, "remedy", "vtc")
    assert body["start_utc"].endswith("+00:00")


def test_no_conclusion_is_exit_code_1_and_says_why(store: Path):
    result = ask(store, "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:01:30Z")
    assert result.exit_code == 1
    assert "NO CONCLUSION: nobody is hurt in this window" in result.stdout


def test_without_a_tenant_says_how_it_would_have_been(store: Path):
    result = ask(store, "--without", "heavy")
    assert result.exit_code == 0
    assert "without heavy's excess" in result.stdout
    assert result.stdout.rstrip().endswith("(counterfactual)")


def test_a_misspelt_remedy_is_usage_and_names_the_near_one(store: Path):
    result = ask(store, "--policy", "vtx")
    assert result.exit_code == 2
    assert "did you mean vtc?" in result.stderr


def test_all_remedies_can_be_listed(store: Path):
    result = ask(store, "--policy", "all")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == ["revert", "vtc"]


def test_a_store_that_is_not_there_is_exit_code_1(tmp_path: Path):
    assert ask(tmp_path / "none").exit_code == 1


def test_help_teaches_with_an_example():
    result = CliRunner().invoke(postmortem, ["whatif", "--help"])
    assert "tenantscope postmortem whatif --store demo-store --from 17:00" in result.stdout


def test_the_command_is_mounted(capsys: pytest.CaptureFixture[str]):
    assert invoke(["postmortem", "--help"]) == 0
    assert "whatif" in capsys.readouterr().out


def test_no_part_of_the_what_if_loads_torch():
    code = (
        "import sys, postmortem.whatif.answer, postmortem.whatif.table, postmortem.whatif_cli;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
