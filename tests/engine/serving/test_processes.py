"""The supervisor, with children that are a few lines each."""

from __future__ import annotations

import errno
import os
import queue
import select
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from serving_fakes import short_folder

from engine.admin import base_file
from engine.config import Settings
from engine.serving.process import ServeError
from engine.serving.processes import ServeProcesses

GOOD = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("progress: halfway", flush=True)
    print("ready here", flush=True)
    signal.pause()
"""
STUBBORN = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        signal.pause()
"""
BROKEN = """
    import sys
    print("what I was doing", file=sys.stderr)
    print("error: the disk is full", file=sys.stderr)
    sys.exit(3)
"""
SHORT_LIVED = """
    import sys
    print("ready", flush=True)
    sys.stdin.read()
    print("error: out of memory", file=sys.stderr, flush=True)
    sys.exit(9)
"""
WRITES_ITS_END = """
    import os, signal, sys
    from pathlib import Path
    name = Path(sys.argv[0]).stem

    def end(*_):
        with open(os.environ["ENDS"], "a") as f:
            f.write(name + "\\n")
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    signal.pause()
"""
NEEDS_ROOM = """
    import signal, sys
    from pathlib import Path
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if (Path(__file__).parent / "full").exists():
        sys.exit("no room")
    print("ready", flush=True)
    signal.pause()
"""
CHATTY = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for i in range(5000):  # more than a pipe holds
        print("line", i, file=sys.stderr)
        print("progress: line", i)
    sys.stderr.close()
    print("ready", flush=True)
    signal.pause()
"""
ANSWERS = """
    import os, signal, socket, sys
    from pathlib import Path
    from engine.serving.launch import Launch
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    launch = Launch.read(Path(sys.argv[1]))
    listening = socket.socket(fileno=launch.listen_fd)
    print("ready", flush=True)
    while True:
        connection, _ = listening.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok")
        connection.close()
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Writes child modules; unnamed ones are well-behaved."""
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr("engine.serving.keeper._FIRST_PAUSE_S", 0.01)

    def make(**sources: str) -> dict[str, str]:
        named = {}
        for process in ("store", "worker", "front"):
            named[process] = f"child_{process}"
            source = textwrap.dedent(sources.get(process, GOOD))
            (tmp_path / f"child_{process}.py").write_text(source)
        return named

    return make


def serve(tmp_path: Path, modules: dict[str, str], **more: object) -> ServeProcesses:
    return ServeProcesses(Settings(), tmp_path / "store", modules=modules, **more)  # type: ignore[arg-type]


def all_pids(processes: ServeProcesses) -> list[int]:
    """Of store, workers, front."""
    store, workers, front = processes._store, processes._workers, processes._front
    assert store is not None
    assert workers is not None
    assert front is not None
    return [c.pid for c in (store.child, *(k.child for k in workers.keepers), front)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_all_three_start_in_order_and_end_in_the_reverse_one(
    tmp_path: Path, modules: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENDS", str(tmp_path / "ends"))
    heard: list[str] = []
    named = modules(store=WRITES_ITS_END, worker=WRITES_ITS_END, front=WRITES_ITS_END)
    with serve(tmp_path, named, progress=heard.append) as processes:
        assert processes.failure() is None
        folder = processes.runtime_dir
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not (folder / "launch.json").exists()  # read by all; it held key digests
        pids = all_pids(processes)
    # ... and nothing about an end that was not clean.
    assert heard == ["starting the store", "starting the worker", "starting the front"]
    assert (tmp_path / "ends").read_text().split() == ["child_front", "child_worker", "child_store"]
    assert not folder.exists()
    assert not any(alive(p) for p in pids)


def test_progress_of_a_child_is_passed_on(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    heard: list[str] = []
    with serve(tmp_path, modules(), progress=heard.append):
        pass
    assert "worker: halfway" in heard


def test_the_port_answers_through_the_inherited_socket(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    with serve(tmp_path, modules(front=ANSWERS)) as processes:
        assert processes.port != 0
        assert httpx.get(processes.url, timeout=10).text == "ok"
    with pytest.raises(httpx.ConnectError):
        httpx.get(processes.url, timeout=10)


def test_a_port_in_use_is_said_with_the_port_before_anything_starts(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=rf"port {port} .*--port"):
            serve(tmp_path, modules(), port=port, progress=heard.append).start()
    assert heard == []


SERVES_METRICS = """
    import os, signal, socket, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listening = socket.socket(fileno=int(sys.argv[sys.argv.index("--metrics-fd") + 1]))
    print("ready", flush=True)
    while True:
        connection, _ = listening.accept()
        connection.recv(65536)
        pid = str(os.getpid())
        head = f"HTTP/1.1 200 OK\\r\\ncontent-length: {len(pid)}\\r\\n\\r\\n"
        connection.sendall((head + pid).encode())
        connection.close()
"""


def test_the_metrics_port_outlives_a_store_that_is_started_again(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines, hear = hearing()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = modules(store=SERVES_METRICS)
    with serve(tmp_path, made, progress=hear, metrics_port=port) as processes:
        url = processes.metrics_url
        assert url == f"http://127.0.0.1:{port}/metrics"
        first = all_pids(processes)[0]
        assert httpx.get(url).text == str(first)
        os.kill(first, signal.SIGKILL)
        heard_until(lines, "starting it again")
        assert httpx.get(url, timeout=30).text == str(all_pids(processes)[0]) != str(first)
    with socket.create_server(("127.0.0.1", port)):
        pass  # given back


def test_a_taken_metrics_port_is_said_before_anything_starts(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=rf"port {port} .*--metrics-port"):
            serve(tmp_path, modules(), metrics_port=port, progress=heard.append).start()
    assert heard == []


SAYS_WHERE_TO_SEND = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("progress:", *sys.argv[sys.argv.index("--otlp-to"):])
    print("ready", flush=True)
    signal.pause()
"""


def test_where_to_send_is_told_to_the_store_and_a_collector_is_told_elsewhere(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines, hear = hearing()
    url = "http://127.0.0.1:4317"
    with serve(tmp_path, modules(store=SAYS_WHERE_TO_SEND), progress=hear, otlp_to=url):
        heard_until(lines, f"store: --otlp-to {url}")
    with pytest.raises(ServeError, match=r"--otlp-to .*\[\[export\]\]"):
        serve(tmp_path, modules(), otlp_to=url, collector="127.0.0.1:1")


def test_metrics_are_off_unless_asked_for(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    says = GOOD.replace('"progress: halfway"', '"progress:", *sys.argv[1:]')
    lines, hear = hearing()
    with serve(tmp_path, modules(store=says), progress=hear) as processes:
        assert processes.metrics_url is None
    said = [line for line in heard_until(lines, "starting the worker") if "--listen" in line]
    assert len(said) == 1
    assert "--metrics" not in said[0]


def test_a_child_that_dies_at_start_is_named_with_its_last_words_and_nothing_stays(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    processes = serve(tmp_path, modules(worker=BROKEN))
    with pytest.raises(ServeError) as e, processes:
        pass
    message = str(e.value)
    assert "the worker process ended with exit code 3 before it was ready" in message
    assert "  what I was doing\n  error: the disk is full" in message
    assert processes._front is None
    assert not processes.runtime_dir.exists()


def test_a_front_that_dies_ends_serving_and_is_reported_by_name(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    with serve(tmp_path, modules()) as processes:
        os.kill(all_pids(processes)[-1], signal.SIGKILL)
        failure = processes.wait(20)
    assert failure is not None
    assert failure.startswith("the front process ended with signal 9 while serving")


def test_the_words_of_a_front_that_failed_while_serving_are_kept(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines: list[tuple[str, str]] = []
    named = modules(front=SHORT_LIVED)
    with serve(tmp_path, named, on_line=lambda n, line: lines.append((n, line))) as processes:
        failure = processes.wait(20)
    assert failure is not None
    assert "exit code 9" in failure
    assert "error: out of memory" in failure
    assert ("front", "error: out of memory") in lines


def hearing() -> tuple[queue.SimpleQueue[str], Callable[[str], None]]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    return lines, lines.put


def heard_until(lines: queue.SimpleQueue[str], end: str) -> list[str]:
    heard = [lines.get(timeout=20)]
    while end not in heard[-1]:
        heard.append(lines.get(timeout=20))
    return heard


def test_a_store_that_dies_is_started_again_and_serving_goes_on(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines, hear = hearing()
    with serve(tmp_path, modules(), progress=hear) as processes:
        before = all_pids(processes)
        os.kill(before[0], signal.SIGKILL)
        heard = heard_until(lines, "is back")
        after = all_pids(processes)
        assert processes.failure() is None
        assert not processes._front_ended.is_set()
    assert [line for line in heard if "process" in line] == [
        "the store process ended with signal 9; serving goes on, its rows wait; starting it again"
        " (killed by hand, or by the system for want of memory: see dmesg)",
        "the store process is back",
    ]
    assert after[0] != before[0]
    assert after[1:] == before[1:]
    assert not any(alive(p) for p in (*before, *after))


def test_a_store_that_cannot_start_again_is_tried_until_it_can_and_says_why(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines, hear = hearing()
    with serve(tmp_path, modules(store=NEEDS_ROOM), progress=hear) as processes:
        (tmp_path / "full").touch()
        os.kill(all_pids(processes)[0], signal.SIGKILL)
        heard = heard_until(lines, "it said: no room")
        assert processes.failure() is None
        (tmp_path / "full").unlink()
        heard_until(lines, "is back")
    assert "exit code 1" in heard[-1]


def test_stopping_while_the_store_is_away_leaves_nothing_behind(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines, hear = hearing()
    with serve(tmp_path, modules(store=NEEDS_ROOM), progress=hear) as processes:
        (tmp_path / "full").touch()
        os.kill(all_pids(processes)[0], signal.SIGKILL)
        heard_until(lines, "it said: no room")
        pids = all_pids(processes)
    assert not any(alive(p) for p in pids)
    assert not [t for t in threading.enumerate() if t.name == "keeper-store"]


def test_a_listener_that_fails_takes_no_process_along(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    def gone(*_: str) -> None:
        raise BrokenPipeError(32, "the terminal is gone")

    with serve(tmp_path, modules(worker=CHATTY), progress=gone, on_line=gone) as processes:
        worker = processes._workers.keepers[0].child
        assert worker.last_words()[-1] == "line 4999"
        pids = all_pids(processes)
    assert not any(alive(p) for p in pids)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (OSError(errno.ENOSPC, "No space left", "/tmp/x"), r"No space left \(/tmp/x\); make room"),
        (BlockingIOError(errno.EAGAIN, "Try again"), r"Try again; more processes .*ulimit -u"),
        (OSError(errno.EMFILE, "Too many open files"), r"open files; more open .*ulimit -n"),
        (PermissionError(errno.EACCES, "Denied", "/x/python"), r"Denied \(/x/python\)$"),
        (RuntimeError("can't start new thread"), r"new thread; more processes .*ulimit -u"),
    ],
)
def test_what_the_system_refuses_at_the_start_is_said_in_a_sentence(
    tmp_path: Path,
    modules: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    refusal: Exception,
    said: str,
) -> None:
    def refuses(*_: object, **__: object) -> str:
        raise refusal

    monkeypatch.setattr("tempfile.mkdtemp", refuses)
    with pytest.raises(ServeError, match=said):
        serve(tmp_path, modules()).start()


def test_a_child_that_ignores_the_request_to_end_is_ended(
    tmp_path: Path, modules: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serving.processes._STOP_S", 0.3)
    heard: list[str] = []
    with serve(tmp_path, modules(worker=STUBBORN), progress=heard.append) as processes:
        pids = all_pids(processes)
    assert not any(alive(p) for p in pids)
    assert [line for line in heard if "cleanly" in line] == [
        "the worker did not end cleanly: signal 9"
    ]


def test_children_do_not_outlive_a_killed_parent_not_even_those_that_are_stopped(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    named = modules()
    script = textwrap.dedent(f"""
        import signal
        from pathlib import Path
        from engine.config import Settings
        from engine.serving.processes import ServeProcesses
        with ServeProcesses(Settings(), Path({str(tmp_path / "s")!r}), modules={named!r}) as p:
            pids = [c.pid for c in (p._store.child, p._workers.keepers[0].child, p._front)]
            print(*pids, p.runtime_dir, flush=True)
            signal.pause()
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    *pids, folder = parent.stdout.readline().split()
    watched = [os.pidfd_open(int(pid)) for pid in pids]
    for pid in pids[:2]:
        os.kill(int(pid), signal.SIGSTOP)
    parent.kill()
    parent.wait()
    for fd in watched:
        ended, _, _ = select.select([fd], [], [], 20)
        os.close(fd)
        assert ended, "a child is still there"
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.full
def test_a_worker_and_a_store_that_are_stopped_are_ended_and_started_again(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    lines, hear = hearing()
    settings = Settings(hung_s=5.0)
    with ServeProcesses(settings, tmp_path / "s", modules=modules(), progress=hear) as processes:
        store, worker, front = all_pids(processes)
        os.kill(store, signal.SIGSTOP)
        os.kill(worker, signal.SIGSTOP)
        heard = heard_until(lines, "is back")
        heard += heard_until(lines, "is back")
        after = all_pids(processes)
    ends = [line for line in heard if "ended with signal 9" in line]
    assert sorted(line.split(" process")[0] for line in ends) == ["the store", "the worker"]
    assert all("no sign of life for 5 s, and was ended for it" in line for line in ends)
    assert (after[0] != store, after[1] != worker, after[2] == front) == (True, True, True)


@pytest.mark.full
def test_a_front_that_is_stopped_ends_serving_with_the_reason(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    settings = Settings(hung_s=5.0)
    with ServeProcesses(settings, tmp_path / "s", modules=modules()) as processes:
        os.kill(all_pids(processes)[-1], signal.SIGSTOP)
        failure = processes.wait(30)
    assert failure is not None
    assert "the front process ended with signal 9 while serving" in failure
    assert "no sign of life for 5 s" in failure


def test_stopping_twice_is_stopping_once(
    tmp_path: Path, modules: Callable[..., dict[str, str]]
) -> None:
    processes = serve(tmp_path, modules())
    with processes:
        processes.stop()
    processes.stop()
    assert processes.failure() is None


def test_a_given_runtime_folder_stays_and_is_left_clean(
    modules: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    with short_folder() as folder:
        (folder / "run").mkdir()
        old = folder / "run" / base_file.NAME
        old.write_text("settings that another `serve` read again before it was killed")
        with serve(tmp_path, modules(), runtime_dir=folder / "run"):
            assert (folder / "run").is_dir()
            assert not old.exists()
        assert list((folder / "run").iterdir()) == []
