"""`tenantscope serve` and `keys`: what a person reads, and the exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli import keys, serve
from engine.serving.auth import digest_of

KEY_DIGEST = digest_of("ts-x")


def config(tmp_path: Path, text: str = "") -> str:
    path = tmp_path / "settings.toml"
    path.write_text(text or f'[[tenant]]\nname = "alice"\nkey_sha256 = ["{KEY_DIGEST}"]\n')
    return str(path)


def test_a_new_key_is_printed_once_with_the_digest_that_opens_for_it() -> None:
    result = CliRunner().invoke(keys, ["new"])
    lines = dict(line.split() for line in result.stdout.splitlines())
    assert result.exit_code == 0
    assert digest_of(lines["key"]) == lines["key_sha256"]
    assert lines["key"] not in result.stderr


def test_without_settings_it_shows_a_minimal_file() -> None:
    result = CliRunner().invoke(serve, [])
    assert result.exit_code == 2
    assert "[[tenant]]" in result.stderr
    assert "tenantscope keys new" in result.stderr


def test_settings_in_which_nobody_has_a_key_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(serve, ["--config", config(tmp_path, '[[tenant]]\nname = "a"\n')])
    assert result.exit_code == 2
    assert "nobody could call" in result.stderr


def test_a_bad_settings_file_is_a_usage_error_naming_file_key_and_value(tmp_path: Path) -> None:
    path = config(tmp_path, '[[tenant]]\nname = "a"\nrmp = 5\n')
    result = CliRunner().invoke(serve, ["--config", path])
    assert result.exit_code == 2
    assert path in result.stderr
    assert "did you mean rpm?" in result.stderr


def test_an_address_off_loopback_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        serve, ["--config", config(tmp_path), "--host", "0.0.0.0", "--store", str(tmp_path / "s")]
    )
    assert result.exit_code == 1
    assert "listens on loopback only" in result.stderr


@pytest.mark.parametrize("command", ["serve", "keys"])
def test_help_loads_nothing_heavy(command: str) -> None:
    script = (
        f"import sys\nfrom engine.cli import {command}\n"
        f"{command}(['--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'grpc', 'duckdb', 'starlette', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
