"""What a child process of one `serve` is told at its start. A value, handed over as a file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.clock import ClockBase
from engine.config import Settings, load_settings
from engine.errors import ConfigError
from engine.serving.faults import NO_FAULTS, Faults

READY = "ready"
PROGRESS = "progress: "


@dataclass(frozen=True, slots=True)
class AdminLaunch:
    """The operator's door: where it is, what it is guarded with, the file that keeps what was
    changed over a restart, the settings file to read again (empty: none), and where it is kept for
    workers that are started after that."""

    address: str
    kept: str
    config: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tokens: str = ""
    base: str = ""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One worker of a `serve`: which pool's, which of its replicas (from 0), and where it listens.
    The address stays when the worker is started again; its run's name does not."""

    pool: str
    replica: int
    address: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Settings, the clock all processes share, the run's name, and who listens where.

    `place`: which of `workers` a worker process is; its settings are its pool's then, without key
    digests, and its `run_id` is made anew at each start. None for the front, whose settings are
    the whole and whose `run_id` is the first worker's.
    `listen_fd` is the front's listening socket, bound by the supervisor and inherited; with
    `tls_cert` and `tls_key` (PEM files) HTTPS is spoken there.
    """

    settings: Settings
    clock: ClockBase
    run_id: str
    workers: tuple[WorkerPlace, ...]
    store_address: str
    place: int | None = None
    listen_fd: int | None = None
    tls_cert: str = ""
    tls_key: str = ""
    faults: Faults = NO_FAULTS
    admin: AdminLaunch | None = None

    @property
    def worker(self) -> WorkerPlace:
        """The place of the worker process that this is for. Raises ConfigError for the front's."""
        if self.place is None:
            raise ConfigError("this launch file is the front's: it names no worker's place")
        return self.workers[self.place]

    def write(self, path: Path) -> None:
        """Readable by its owner only: the front's holds key digests."""
        text = json.dumps(
            {
                "settings": self.settings.dump(),
                "clock": self.clock.dump(),
                "run_id": self.run_id,
                "workers": [asdict(w) for w in self.workers],
                "store_address": self.store_address,
                "place": self.place,
                "listen_fd": self.listen_fd,
                "tls_cert": self.tls_cert,
                "tls_key": self.tls_key,
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
            workers=tuple(WorkerPlace(**w) for w in raw["workers"]),
            store_address=raw["store_address"],
            place=raw["place"],
            listen_fd=raw["listen_fd"],
            tls_cert=raw["tls_cert"],
            tls_key=raw["tls_key"],
            faults=Faults.load(raw["faults"]),
            admin=None if raw["admin"] is None else AdminLaunch(**raw["admin"]),
        )

    @classmethod
    def take(cls, path: Path) -> Launch:
        """Read it and remove it: each start has a file of its own."""
        launch = cls.read(path)
        path.unlink(missing_ok=True)
        return launch


def say(line: str) -> None:
    """One line to the supervisor."""
    print(line, flush=True)


def say_progress(text: str) -> None:
    say(PROGRESS + " ".join(str(text).split()))
