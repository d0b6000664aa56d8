"""Tells the service manager that started us how far we are: ready, what we do, on our way out.

The protocol is systemd's sd_notify(3): one datagram of VARIABLE=VALUE lines to the socket named in
the environment. Without one, nothing is said. Never raises: a manager that is not there must not
keep anybody from serving.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

SOCKET = "NOTIFY_SOCKET"
_LONGEST_STATUS = 200


class ServiceManager:
    """Takes the socket's name out of the environment, so that no child speaks in our name."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        name = environment.pop(SOCKET, "")
        # '@' stands for the null byte of an abstract name.
        self._address = "\0" + name[1:] if name.startswith("@") else name

    def ready(self, status: str) -> None:
        """Requests are answered from now on."""
        self._say("READY=1", f"STATUS={_line(status)}")

    def status(self, status: str) -> None:
        self._say(f"STATUS={_line(status)}")

    def stopping(self) -> None:
        self._say("STOPPING=1")

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto("\n".join(lines).encode(), self._address)


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_STATUS]
