"""`tenantscope serve` and `keys`: what a person reads, and the exit codes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from serving_fakes import short_folder

from engine.cli import _whom, keys, serve
from engine.config import PoolSpec, Settings, Tenant
from engine.serving.api.auth import digest_of

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


def test_an_address_off_loopback_is_refused_with_what_would_open_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        serve, ["--config", config(tmp_path), "--host", "0.0.0.0", "--store", str(tmp_path / "s")]
    )
    assert result.exit_code == 2
    for word in ("0.0.0.0 is no loopback address", "--tls-cert and --tls-key", "--plain-http"):
        assert word in result.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("command", ["serve", "keys"])
def test_help_loads_nothing_heavy(command: str) -> None:
    script = (
        f"import sys\nfrom engine.cli import {command}\n"
        f"{command}(['--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'grpc', 'duckdb', 'starlette', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def started(tmp_path: Path, wait: str, before: str = "") -> subprocess.Popen[str]:
    """`serve` over processes that only say when they start and stop."""
    script = f"""
        import signal
        from engine.serving import processes
        {before}

        class Processes:
            url = "http://127.0.0.1:1"
            admin_address = "unix:admin.sock"
            def __init__(self, *a, **k): pass
            def __enter__(self): return self
            def __exit__(self, *a): print("all ended", flush=True)
            def wait(self): {wait}

        processes.ServeProcesses = Processes
        from engine.cli import serve
        serve(["--config", {config(tmp_path)!r}])
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    # Byte by byte: what a buffered reader takes beyond the line, `communicate` would not see.
    fd, said = child.stdout.fileno(), b""
    while not said.endswith(b"\n") and (byte := os.read(fd, 1)):
        said += byte
    assert said == b"http://127.0.0.1:1\n"
    return child


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)]
)
def test_a_signal_ends_the_processes_first(tmp_path: Path, number: int, code: int) -> None:
    # A runner under nohup would hand its deafness to SIGHUP down.
    child = started(
        tmp_path, "signal.pause()", before="signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    )
    child.send_signal(number)
    out, err = child.communicate(timeout=20)
    assert (out, child.returncode) == ("all ended\n", code)
    assert err.endswith("stopped\n")


def test_a_service_manager_hears_when_requests_are_answered_and_when_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(folder / "n"))
        heard.settimeout(20.0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "n"))
        child = started(tmp_path, "signal.pause()")
        assert heard.recv(4096) == b"READY=1\nSTATUS=serving at http://127.0.0.1:1/v1"
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=20)
        assert heard.recv(4096) == b"STOPPING=1"


def test_a_serve_told_to_ignore_its_terminal_outlives_it(tmp_path: Path) -> None:
    child = started(
        tmp_path, "signal.pause()", before="signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    )
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=20)
    assert child.returncode == 130


def test_one_key_for_two_tenants_is_refused_before_anything_starts(tmp_path: Path) -> None:
    twice = f'[[tenant]]\nname = "{{}}"\nkey_sha256 = ["{KEY_DIGEST}"]\n'
    path = config(tmp_path, twice.format("alice") + twice.format("bob"))
    result = CliRunner().invoke(serve, ["--config", path, "--store", str(tmp_path / "s")])
    assert result.exit_code == 2
    assert "tenants 'alice' and 'bob' have one key_sha256" in result.stderr
    assert KEY_DIGEST not in result.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('device = "cuda:1"', ["pool 'gold': device = 'cuda:1'", "on the CPU", 'device = "cpu"']),
        ("cpus = [4095]", ["pool 'gold': cpus: 4095 is not among the cores", "may use: "]),
    ],
)
def test_a_pool_that_cannot_be_served_here_is_refused_before_anything_starts(
    tmp_path: Path, key: str, words: list[str]
) -> None:
    text = f'[[pool]]\nname = "bulk"\n[[pool]]\nname = "gold"\n{key}\n'
    text += f'[[tenant]]\nname = "a"\nkey_sha256 = ["{KEY_DIGEST}"]\n'
    args = ["--config", config(tmp_path, text), "--store", str(tmp_path / "s")]
    result = CliRunner().invoke(serve, args)
    assert result.exit_code == 2
    for word in words:
        assert word in result.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("gpu", "--device 'gpu': expected cpu, cuda:0, or a UUID"),
        ("cuda:7", "pool 'main': device = 'cuda:7': this version's engine computes on the"),
    ],
)
def test_a_device_of_the_command_line_is_refused_as_one_of_the_file(
    tmp_path: Path, named: str, words: str
) -> None:
    path = config(tmp_path, f'[[tenant]]\nname = "a"\nkey_sha256 = ["{KEY_DIGEST}"]\n')
    args = ["--config", path, "--store", str(tmp_path / "s"), "--device", named]
    result = CliRunner().invoke(serve, args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "s").exists()


def test_a_process_that_dies_ends_serve_with_its_name_and_a_failure(tmp_path: Path) -> None:
    child = started(tmp_path, "return 'the front process ended with signal 9 while serving'")
    out, err = child.communicate(timeout=20)
    assert (out, child.returncode) == ("all ended\n", 1)
    assert "Error: the front process ended with signal 9 while serving" in err


def test_the_line_of_a_pool_names_three_at_most_and_cuts_long_names() -> None:
    pools = (PoolSpec("main"), PoolSpec("gold"))
    names = ("n" * 200, "[red]x", "acme", "late")
    settings = Settings(tenants=tuple(map(Tenant, names[:3])), pools=pools)
    assert _whom(settings, pools[0]) == f"for '{'n' * 38}…, '[red]x', 'acme'"
    assert _whom(settings, pools[1]) == "for nobody yet"
    assert _whom(replace(settings, tenants=tuple(map(Tenant, names))), pools[0]) == "4 tenants"


class Served:
    """Stands for the processes of a `serve` that ends at once, and well."""

    url, admin_address, waited = "http://127.0.0.1:1", "unix:/x", False

    def __init__(self, *_: object, **__: object) -> None:
        Served.waited = False

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self) -> None:
        Served.waited = True


def test_a_full_disk_under_its_log_keeps_nobody_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("engine.serving.processes.ServeProcesses", Served)
    monkeypatch.setattr("engine.cli.click.echo", full)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    result = CliRunner().invoke(
        serve, ["--config", config(tmp_path), "--store", str(tmp_path / "s")]
    )
    assert result.exit_code == 0, result.output
    assert Served.waited
