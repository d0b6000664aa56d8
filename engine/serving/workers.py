"""The worker processes of one `serve`: where each stands, what it is told, that it is kept alive.

Owns their names, addresses and launch files; what a worker does is the worker's.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.admin.base_file import BaseFile
from engine.admin.kept import with_changes
from engine.clock import SystemClock
from engine.config import Settings
from engine.serving.keeper import Keeper
from engine.serving.launch import Launch, WorkerPlace
from engine.serving.process import Child, ready_or_raise
from engine.worker_names import WorkerNames

START_S = 1800.0  # it may download its model
_ALONE = "requests are answered 503 until it is back"
_ONE_OF_SEVERAL = "what it was answering failed or began again elsewhere, the other workers go on"

# (name, arguments, on_exit) -> the process
Make = Callable[[str, Sequence[str], Callable[[], None]], Child]


def places(settings: Settings, folder: Path) -> tuple[WorkerPlace, ...]:
    """One for each replica of each pool, in the order of the settings."""
    found = [(p.name, n) for p in settings.all_pools() for n in range(p.replicas)]
    # A socket's path is short by law of the kernel: pools' names have no room in it.
    sockets = ["worker.sock"] if len(found) == 1 else [f"w{i}.sock" for i in range(len(found))]
    return tuple(
        WorkerPlace(pool, n, f"unix:{folder / socket}")
        for (pool, n), socket in zip(found, sockets, strict=True)
    )


def names(places: Sequence[WorkerPlace]) -> tuple[str, ...]:
    """What a person calls each."""
    names = WorkerNames((p.pool, p.replica) for p in places)
    return tuple(names.name(p.pool, p.replica) for p in places)


def new_run_id() -> str:
    return f"run-{secrets.token_hex(6)}"


class Workers:
    """All of them. `launch` is the whole's; each is told its own part of it.

    `say` hears one line a stage, from threads of its own too.
    """

    def __init__(
        self, launch: Launch, folder: Path, make: Make, say: Callable[[str], None]
    ) -> None:
        self._launch = launch
        self._folder = folder
        self._make = make
        self._say = say
        self.names = names(launch.workers)
        self.keepers: list[Keeper] = []
        self.run_ids: dict[int, str] = {}  # of each place the run that was started last

    def start(self) -> None:
        """One after the other, so that the page cache has the model for the second. Raises
        ServeError when one does not become ready: at the first start that is no accident."""
        count = len(self.names)
        meanwhile = _ALONE if count == 1 else _ONE_OF_SEVERAL
        for place, name in enumerate(self.names):
            which = f" ({place + 1} of {count})" if count > 1 else ""
            self._say(f"starting the {name}{which}")
            keeper = Keeper(name, self._starter(place), self._say, START_S, meanwhile)
            self.keepers.append(keeper)
            ready_or_raise(keeper.child, START_S)
            keeper.watch()

    def stop(self, timeout_s: float) -> None:
        """End all at once, each within `timeout_s`; one that must be ended is said."""

        def end(keeper: Keeper) -> None:
            code, was_away = keeper.stop(timeout_s)
            if code != 0 and not was_away:
                self._say(f"the {keeper.name} did not end cleanly: {keeper.child.how()}")

        ends = [threading.Thread(target=end, args=(k,), name=f"end-{k.name}") for k in self.keepers]
        for thread in ends:
            thread.start()
        for thread in ends:
            thread.join()
        self.keepers.clear()

    def _starter(self, place: int) -> Callable[[Callable[[], None]], Child]:
        def start(on_exit: Callable[[], None]) -> Child:
            run_id = new_run_id()
            path = self._folder / f"launch-w{place}.json"
            self.told(place, run_id).write(path)
            child = self._make(self.names[place], [str(path)], on_exit)
            self.run_ids[place] = run_id
            return child

        return start

    def told(self, place: int, run_id: str) -> Launch:
        """What the worker of a place is told: its pool's settings as they were read last, with what
        operators have changed by now, and no digest of a key."""
        clock, admin = SystemClock(self._launch.clock), self._launch.admin
        kept, base = ("", "") if admin is None else (admin.kept, admin.base)
        read_again = BaseFile(Path(base)).read() if base else None
        settings = read_again or self._launch.settings
        now = with_changes(settings, kept, clock.base.unix(clock.now()))
        mine = now.of_pool(self._launch.workers[place].pool)
        return replace(
            self._launch,
            settings=mine.without_keys(),
            run_id=run_id,
            place=place,
            listen_fd=None,
            tls_cert="",
            tls_key="",
            admin=None,
        )
