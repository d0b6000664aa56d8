"""The command: quick help, lazy rooms, errors in one sentence, exit codes one can script."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from console import cli
from console.cli import COMMANDS, Lazy, LazyGroup, invoke
from engine.errors import AdapterError, ConfigError
from telemetry.settings import SettingsError

HEAVY = ("textual", "duckdb", "grpc", "torch", "rich", "opentelemetry", "numpy", "starlette")


def loaded_after(code: str, modules: tuple[str, ...]) -> set[str]:
    """Which of `modules` a fresh interpreter has loaded after `code`."""
    probe = f"{code}\nimport sys\nprint('|'.join(m for m in {modules!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(filter(None, done.stdout.splitlines()[-1].split("|")))


def test_help_imports_none_of_the_heavy_libraries_and_none_of_the_rooms():
    code = "from console.cli import invoke\nassert invoke(['--help']) == 0"
    rooms = tuple(lazy.target.partition(":")[0] for lazy in COMMANDS.values())
    assert loaded_after(code, HEAVY + rooms) == set()


def test_help_lists_every_command_with_its_line(capsys):
    assert invoke(["--help"]) == 0
    out = capsys.readouterr().out
    for name, lazy in COMMANDS.items():
        assert f"{name} " in out
        assert lazy.help in out


def test_a_command_started_without_its_three_files_opens_no_other_in_their_place():
    code = (
        "import os\nos.closerange(0, 3)\nfrom console.cli import keep_three_open\n"
        "import sys\nsys.stdin = sys.stdout = sys.stderr = None\n"  # as Python has them then
        "keep_three_open()\nfd = os.open('/', os.O_RDONLY)\n"
        "assert sys.stdin.read() == '' and not sys.stdout.isatty() and not sys.stderr.isatty()\n"
        "os._exit(fd if fd > 2 else 99)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3


def test_the_version_is_printed(capsys):
    assert invoke(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tenantscope ")


def test_an_unknown_command_is_a_usage_error(capsys):
    assert invoke(["nope"]) == 2
    assert "No such command 'nope'" in capsys.readouterr().err


@click.command()
@click.argument("what")
def raiser(what: str) -> int:
    """Raises what the test asks for."""
    if what == "ok":
        return 0
    if what == "found":
        return 1
    raise ERRORS[what]


class OwnCode(AdapterError):
    exit_code = 3


ERRORS: dict[str, BaseException] = {
    "config": ConfigError("serve.toml: [limits]: slots = 0: expected a whole number >= 1"),
    "settings": SettingsError("serve.toml: no such file"),
    "adapter": AdapterError("adapters/x: adapter_model.safetensors is missing"),
    "retry": OwnCode("busy"),
    "file": PermissionError(13, "Permission denied", "/some/file"),
    "ctrl-c": KeyboardInterrupt(),
    "full": OSError(28, "No space left on device"),
    "usage": click.UsageError("--from is after --to"),
    "bug": ZeroDivisionError("a bug"),
}
OwnCode.__module__ = "engine.elsewhere"


@pytest.fixture
def group():
    target = f"{__name__}:raiser"
    return LazyGroup(name="tenantscope", lazy={"raise": Lazy(target, "Raises.")})


@pytest.mark.parametrize(
    ("what", "code"),
    [("ok", 0), ("found", 1), ("config", 2), ("settings", 2), ("adapter", 1), ("retry", 3),
     ("file", 1), ("full", 1), ("ctrl-c", 130), ("usage", 2)],
)  # fmt: skip
def test_exit_codes(group, what, code, tmp_path, monkeypatch):
    # A stdout of its own: where nothing more can be written its descriptor is let go.
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert invoke(["raise", what], group) == code


def test_a_known_error_is_one_sentence_on_stderr(group, capsys):
    invoke(["raise", "config"], group)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "tenantscope: serve.toml: [limits]: slots = 0: expected a whole number >= 1\n"
    invoke(["raise", "file"], group)
    assert capsys.readouterr().err == "tenantscope: /some/file: Permission denied\n"


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["demo", "--help"]])
def test_a_full_disk_behind_stdout_is_one_sentence(args):
    code = f"from console.cli import invoke; import sys; sys.exit(invoke({args!r}))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=-1, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "tenantscope: the output cannot be written: No space left on device"
    ]


def test_a_reader_that_left_is_no_traceback():
    code = "from console.cli import main; import sys; sys.argv[1:] = ['--help']; main()"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=-1, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_without_a_stdout_nothing_breaks():
    code = "import sys; sys.stdout = None; from console.cli import invoke; sys.exit(invoke([]))"
    done = subprocess.run([sys.executable, "-c", code], stderr=-1, check=False)
    assert b"Traceback" not in done.stderr


def test_help_teaches_by_examples(capsys):
    for args in ([], ["demo"]):
        invoke([*args, "--help"])
        assert "tenantscope demo --replay" in capsys.readouterr().out


def test_a_bug_is_not_dressed_up_as_an_error_of_the_user(group):
    with pytest.raises(ZeroDivisionError):
        invoke(["raise", "bug"], group)


def test_a_store_that_is_busy_is_worth_trying_again():
    errors = pytest.importorskip("telemetry.errors")
    assert cli.exit_code(errors.StoreBusy("busy")) == cli.RETRY
    assert cli.exit_code(errors.QueryError("no such query")) == cli.USAGE
    assert cli.exit_code(errors.StoreError("no")) == cli.FAILED


@pytest.mark.parametrize(
    "module",
    ["snapshot", "overview", "judge", "sight", "app", "act.desk", "widgets.lines"],
)
def test_the_console_loads_no_torch_and_no_duckdb(module):
    heavy = ("torch", "duckdb", "grpc", "engine.core")
    assert loaded_after(f"import console.{module}", heavy) == set()


def test_snapshots_and_plain_text_need_no_textual():
    modules = "import console.overview, console.sight, console.judge"
    assert loaded_after(modules, ("textual",)) == set()
