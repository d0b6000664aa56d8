"""The folder that the processes of a serve share, and what each is told to begin with."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from engine.clock import ClockBase
from engine.config import Settings, Tenant
from engine.serving.faults import Faults
from engine.serving.launch import Launch, WorkerPlace
from engine.serving.process import ServeError
from engine.serving.runtime import make_runtime_dir


def test_a_runtime_folder_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="too long for unix sockets"):
        make_runtime_dir(tmp_path / ("x" * 120))


def test_a_long_temporary_folder_falls_back_to_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("y" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    folder = make_runtime_dir(None)
    assert len(str(folder)) < 60
    folder.rmdir()


def test_a_launch_reads_back_as_it_was_written(tmp_path: Path) -> None:
    launch = Launch(
        settings=Settings(tenants=(Tenant(name="a", adapters=("x",)),), adapters=(("x", "/p"),)),
        clock=ClockBase(1.5, 2.5),
        run_id="run-1",
        workers=(WorkerPlace("main", 0, "unix:/w"), WorkerPlace("gold", 1, "unix:/v")),
        store_address="unix:/s",
        place=1,
        listen_fd=7,
        tls_cert="/c.pem",
        tls_key="/k.pem",
        faults=Faults(slow_factor=1.6, freeze_at_s=3.0),
    )
    launch.write(tmp_path / "launch.json")
    assert stat.S_IMODE((tmp_path / "launch.json").stat().st_mode) == 0o600
    assert Launch.read(tmp_path / "launch.json") == launch
