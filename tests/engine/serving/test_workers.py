"""Several workers of one `serve`, with children that are a few lines each."""

from __future__ import annotations

import json
import os
import queue
import signal
import stat
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.admin import base_file
from engine.clock import ClockBase
from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.serving import workers
from engine.serving.launch import AdminLaunch, Launch, WorkerPlace
from engine.serving.process import ServeError
from engine.serving.processes import ServeProcesses

SETTINGS = Settings(
    pool="shared",
    pools=(PoolSpec("shared", 1, Limits(slots=4)), PoolSpec("gold", 2, Limits(slots=2))),
    tenants=(
        Tenant("a", key_sha256=("secret-a",)),
        Tenant("b", pool="gold", key_sha256=("secret-b",)),
    ),
)
GOOD = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("ready", flush=True)
    signal.pause()
"""
# Says what it was told; one that finds `REFUSE` in the folder beside does not start.
WORKER = """
    import json, os, signal, sys
    from pathlib import Path
    from engine.serving.launch import Launch
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    told = Launch.take(Path(sys.argv[1]))
    me = told.worker
    s = told.settings
    if (Path(__file__).parent / f"refuse-{me.pool}-{me.replica}").exists():
        sys.exit("no room for me")
    print("progress:", json.dumps({
        "place": [me.pool, me.replica], "pool": s.pool, "slots": s.limits.slots,
        "tenants": [t.name for t in s.tenants], "keys": [t.key_sha256 for t in s.tenants],
        "run": told.run_id, "fd": told.listen_fd, "admin": told.admin, "pid": os.getpid(),
    }))
    print("ready", flush=True)
    signal.pause()
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ServeProcesses]:
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr("engine.serving.keeper._FIRST_PAUSE_S", 0.01)
    named = {}
    for kind, source in (("store", GOOD), ("worker", WORKER), ("front", GOOD)):
        named[kind] = f"ladder_{kind}"
        (tmp_path / f"ladder_{kind}.py").write_text(textwrap.dedent(source))

    def made(hear: Callable[[str], None]) -> ServeProcesses:
        return ServeProcesses(SETTINGS, tmp_path / "store", progress=hear, modules=named)

    return made


def until(lines: queue.SimpleQueue[str], end: str) -> list[str]:
    heard = [lines.get(timeout=20)]
    while end not in heard[-1]:
        heard.append(lines.get(timeout=20))
    return heard


def told(lines: list[str]) -> list[dict[str, object]]:
    return [json.loads(line.partition(": ")[2]) for line in lines if "{" in line]


def test_each_worker_is_told_its_own_part_and_one_that_dies_comes_back_alone(
    make: Callable[..., ServeProcesses],
) -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with make(lines.put) as processes:
        heard = until(lines, "starting the front")
        assert [line for line in heard if line.startswith("starting the worker")] == [
            "starting the worker shared (1 of 3)",
            "starting the worker gold/1 (2 of 3)",
            "starting the worker gold/2 (3 of 3)",
        ]
        first = told(heard)
        assert [t["place"] for t in first] == [["shared", 0], ["gold", 0], ["gold", 1]]
        assert [(t["pool"], t["slots"], t["tenants"]) for t in first] == [
            ("shared", 4, ["a"]),
            ("gold", 2, ["b"]),
            ("gold", 2, ["b"]),
        ]
        assert all(t["keys"] == [[]] and t["fd"] is None and t["admin"] is None for t in first)
        assert len({t["run"] for t in first}) == 3
        assert list(processes.runtime_dir.glob("launch*")) == []

        os.kill(int(str(first[2]["pid"])), signal.SIGKILL)
        heard = until(lines, "is back")
        assert (
            "the worker gold/2 process ended with signal 9; what it was answering failed or began"
            in heard[0]
        )
        (again,) = told(heard)
        assert again["place"] == ["gold", 1]
        assert again["run"] != first[2]["run"]
        assert processes.failure() is None
        os.kill(int(str(again["pid"])), signal.SIGKILL)  # a second time, longer waited for
        assert "is back" in until(lines, "is back")[-1]
        for t in first[:2]:
            os.kill(int(str(t["pid"])), 0)  # the others never noticed
        pids = [k.child.pid for k in processes._workers.keepers]  # type: ignore[union-attr]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.full
def test_one_of_several_that_does_not_start_fails_serve_with_its_words_and_leaves_nothing(
    make: Callable[..., ServeProcesses], tmp_path: Path
) -> None:
    (tmp_path / "refuse-gold-0").touch()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    processes = make(lines.put)
    with pytest.raises(ServeError, match=r"worker gold/1 .*exit code 1.*\n  no room for me"):
        processes.__enter__()
    (first,) = told([lines.get_nowait() for _ in range(lines.qsize())])
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(first["pid"])), 0)
    assert not processes.runtime_dir.exists()


@pytest.mark.full
def test_one_that_cannot_come_back_is_tried_again_and_the_rest_ends_at_once(
    make: Callable[..., ServeProcesses], tmp_path: Path
) -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with make(lines.put) as processes:
        first = told(until(lines, "starting the front"))
        (tmp_path / "refuse-shared-0").touch()
        os.kill(int(str(first[0]["pid"])), signal.SIGKILL)
        heard = until(lines, "no room for me")
        assert "the worker shared process ended with exit code 1" in heard[-1]
        assert processes.failure() is None
    assert not [line for line in iter_now(lines) if "cleanly" in line]


def iter_now(lines: queue.SimpleQueue[str]) -> list[str]:
    return [lines.get_nowait() for _ in range(lines.qsize())]


def test_a_worker_started_after_a_reload_starts_with_what_was_read(tmp_path: Path) -> None:
    admin = AdminLaunch("unix:/a", kept="", base=str(tmp_path / base_file.NAME))
    launch = Launch(
        SETTINGS, ClockBase(0.0, 0.0), "run", workers.places(SETTINGS, tmp_path), "unix:/s",
        admin=admin,
    )  # fmt: skip
    crew = workers.Workers(launch, tmp_path, lambda *_: None, lambda line: None)  # type: ignore[arg-type,return-value]
    assert [t.weight for t in crew.told(0, "r").settings.tenants] == [1.0]
    heavier = replace(SETTINGS, tenants=(replace(SETTINGS.tenants[0], weight=3.0),))
    file = base_file.BaseFile(tmp_path / base_file.NAME)
    file.write(heavier)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert "secret" not in file.path.read_text()
    assert [t.weight for t in crew.told(0, "r").settings.tenants] == [3.0]
    assert crew.told(1, "r").settings.tenants == (), "b is gone"
    file.forget()
    assert [t.weight for t in crew.told(0, "r").settings.tenants] == [1.0]


def test_a_sole_worker_keeps_its_plain_name_and_socket() -> None:
    places = workers.places(Settings(), Path("/run/x"))
    assert places == (WorkerPlace("main", 0, "unix:/run/x/worker.sock"),)
    assert workers.names(places) == ("worker",)


def test_sockets_stay_short_however_long_a_pools_name_is() -> None:
    settings = Settings(pools=(PoolSpec("n" * 200), PoolSpec("m" * 200, 2)))
    places = workers.places(settings, Path("/r"))
    assert [p.address for p in places] == ["unix:/r/w0.sock", "unix:/r/w1.sock", "unix:/r/w2.sock"]
    assert workers.names(places)[0] == f"worker {'n' * 200}"
