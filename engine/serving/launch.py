"""What a child process of one `serve` is told at its start. A value, handed over as a file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.clock import ClockBase
from engine.config import Settings, load_settings
from engine.serving.faults import NO_FAULTS, Faults

READY = "ready"
PROGRESS = "progress: "


@dataclass(frozen=True, slots=True)
class AdminLaunch:
    """The operator's door: where it is, what it is guarded with, the file that keeps what was
    changed over a restart, and the settings file to read again (empty: none)."""

    address: str
    kept: str
    config: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tokens: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Settings, the clock all processes share, the run's name, and who listens where.

    `listen_fd` is the front's listening socket, bound by the supervisor and inherited.
    """

    settings: Settings
    clock: ClockBase
    run_id: str
    worker_address: str
    store_address: str
    listen_fd: int | None = None
    faults: Faults = NO_FAULTS
    admin: AdminLaunch | None = None

    def write(self, path: Path) -> None:
        """Readable by its owner only: it holds key digests."""
        text = json.dumps(
            {
                "settings": self.settings.dump(),
                "clock": self.clock.dump(),
                "run_id": self.run_id,
                "worker_address": self.worker_address,
                "store_address": self.store_address,
                "listen_fd": self.listen_fd,
                "faults": self.faults.dump(),
                "admin": None if self.admin is None else asdict(self.admin),
            }
        )
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)

    @classmethod
    def read(cls, path: Path) -> Launch:
        raw = json.loads(path.read_text())
        return cls(
            settings=load_settings(raw["settings"]),
            clock=ClockBase.load(raw["clock"]),
            run_id=raw["run_id"],
            worker_address=raw["worker_address"],
            store_address=raw["store_address"],
            listen_fd=raw["listen_fd"],
            faults=Faults.load(raw["faults"]),
            admin=None if raw["admin"] is None else AdminLaunch(**raw["admin"]),
        )


def say(line: str) -> None:
    """One line to the supervisor."""
    print(line, flush=True)


def say_progress(text: str) -> None:
    say(PROGRESS + " ".join(str(text).split()))
