"""What a service manager hears, and that it cannot do harm."""

from __future__ import annotations

import socket
from pathlib import Path

from engine.serving.notify import SOCKET, ServiceManager


def _manager(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(path))
    listening.settimeout(2.0)
    return listening


def test_a_manager_hears_status_ready_and_stopping_a_line_each(tmp_path: Path) -> None:
    with _manager(tmp_path / "n") as heard:
        environment = {SOCKET: str(tmp_path / "n"), "HOME": "/"}
        manager = ServiceManager(environment)
        manager.status("starting the worker")
        manager.ready("serving at\nhttp://127.0.0.1:8000\nREADY=0")
        manager.stopping()
        assert heard.recv(4096) == b"STATUS=starting the worker"
        assert heard.recv(4096) == b"READY=1\nSTATUS=serving at http://127.0.0.1:8000 READY=0"
        assert heard.recv(4096) == b"STOPPING=1"
    # A child would speak in our name, and a manager takes only the first for what it says.
    assert environment == {"HOME": "/"}


def test_an_abstract_name_is_understood() -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"tenantscope-{id(listening)}"
    with listening:
        listening.bind("\0" + name)
        listening.settimeout(2.0)
        ServiceManager({SOCKET: f"@{name}"}).stopping()
        assert listening.recv(64) == b"STOPPING=1"


def test_nobody_there_and_nobody_named_are_no_failure(tmp_path: Path) -> None:
    for environment in ({}, {SOCKET: ""}, {SOCKET: str(tmp_path / "gone")}, {SOCKET: "x" * 300}):
        manager = ServiceManager(environment)
        manager.ready("serving")
        manager.stopping()


def test_a_manager_that_does_not_read_blocks_nobody(tmp_path: Path) -> None:
    with _manager(tmp_path / "n"):
        manager = ServiceManager({SOCKET: str(tmp_path / "n")})
        for _ in range(2_000):  # far more than its socket holds
            manager.status("x" * 1_000)
