"""Who gives no sign of life is ended; who was only kept from running with everybody is not."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Settings
from engine.config_keys import declared
from engine.serving.api.connections import PatientServer
from engine.serving.child import BEAT_S
from engine.serving.front import _Server, uvicorn_config
from engine.serving.lookout import Lookout
from engine.serving.loop_watch import LoopWatch
from engine.serving.silence import Silence
from engine.serving.vigil import SAID_S, Vigil


class Process:
    """Alive as long as the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.ended: list[str] = []

    def beat(self) -> bool:
        return self.alive

    def end(self, why: str) -> None:
        self.ended.append(why)


class Watch:
    def __init__(self, hung_s: float, *names: str) -> None:
        self.said: list[str] = []
        self.processes = [Process(name) for name in names]
        self.vigil = Vigil(lambda: self.processes, hung_s, self.said.append)

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.vigil.look(1.0)


def test_one_that_is_silent_for_too_long_is_told_and_then_ended_and_nobody_else() -> None:
    watch = Watch(60.0, "worker gold", "worker tail")
    gold, tail = watch.processes
    gold.alive = False
    watch.pass_s(int(SAID_S) - 1)
    assert watch.said == []
    watch.pass_s(1)
    assert watch.said == [
        "the worker gold process gives no sign of life: is it stopped, or the machine out of "
        "breath? After 60 s (hung_s) it is ended"
    ]
    watch.pass_s(44)
    assert gold.ended == []
    watch.pass_s(1)
    assert gold.ended == ["it had given no sign of life for 60 s, and was ended for it"]
    assert tail.ended == []
    assert len(watch.said) == 1


def test_any_sign_of_life_begins_the_count_anew() -> None:
    watch = Watch(30.0, "store")
    (store,) = watch.processes
    for _ in range(5):
        store.alive = False
        watch.pass_s(29)
        store.alive = True
        watch.pass_s(1)
    assert store.ended == []


def test_a_machine_that_was_suspended_for_an_hour_ends_nobody() -> None:
    watch = Watch(30.0, "worker", "front")
    for process in watch.processes:
        process.alive = False
    watch.vigil.look(3600.0)
    watch.pass_s(20)
    assert [p.ended for p in watch.processes] == [[], []]


def test_one_that_is_started_again_is_not_charged_with_the_silence_of_the_one_before() -> None:
    watch = Watch(30.0, "worker")
    watch.processes[0].alive = False
    watch.pass_s(29)
    watch.processes[0] = Process("worker")
    watch.processes[0].alive = False
    watch.pass_s(29)
    assert watch.processes[0].ended == []


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 1e4)), max_size=30))
def test_silence_is_never_longer_than_the_time_since_the_last_sign(
    turns: list[tuple[bool, float]],
) -> None:
    silence, since_s = Silence(), 0.0
    for heard, passed_s in turns:
        since_s = 0.0 if heard else since_s + passed_s
        assert 0.0 <= silence.turn(heard, passed_s) <= since_s + 1e-6


# -- the worker's own loop


def test_a_loop_that_does_not_turn_is_given_up_and_where_it_hangs_is_said() -> None:
    given_up: list[tuple[float, str]] = []
    watches: list[LoopWatch] = []
    made, hang = threading.Event(), threading.Event()

    def a_step_that_hangs() -> None:
        watches.append(LoopWatch(5.0, lambda s, where: given_up.append((s, where))))
        watches[0].turned()
        made.set()
        hang.wait(20)

    thread = threading.Thread(target=a_step_that_hangs)
    thread.start()
    assert made.wait(20)
    for _ in range(5):
        watches[0].look(1.0)
    assert given_up == []
    watches[0].look(1.0)
    hang.set()
    thread.join()
    ((stuck_s, where),) = given_up
    assert stuck_s == 5.0
    assert "in a_step_that_hangs" in where
    assert str(Path(__file__)) in where


def test_a_loop_that_turns_now_and_then_goes_on() -> None:
    given_up: list[float] = []
    watch = LoopWatch(5.0, lambda s, where: given_up.append(s))
    for _ in range(10):
        watch.turned()
        for _ in range(4):
            watch.look(1.0)
    assert given_up == []


def test_an_event_loop_turns_as_long_as_its_timers_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.serving.loop_watch.LOOK_S", 0.0)
    given_up: list[str] = []

    async def run() -> None:
        watch = LoopWatch(5.0, lambda s, where: given_up.append(where))
        watch.follow(asyncio.get_running_loop())
        for _ in range(20):
            await asyncio.sleep(0)
            watch.look(2.0)
        assert given_up == []
        for _ in range(3):
            watch.look(2.0)  # the loop is kept from turning

    asyncio.run(run())
    assert "in run" in given_up[0]


def test_the_fronts_watch_is_over_with_its_server_however_that_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes after, an interpreter's end that takes long, is no loop that hangs."""

    async def fails(server: PatientServer, sockets: object = None) -> None:
        raise OSError("as it ended")

    async def run() -> None:
        pools: Any = SimpleNamespace(let_go=lambda: None)
        server = _Server(uvicorn_config(lambda *_: None), pools, hung_s=60.0)  # type: ignore[arg-type]
        server._watch.start()
        thread = server._watch._lookout._thread
        assert thread is not None
        assert thread.is_alive()
        with pytest.raises(OSError, match="as it ended"):
            await server.shutdown()
        assert not thread.is_alive()

    monkeypatch.setattr(PatientServer, "shutdown", fails)
    asyncio.run(run())


# -- the thread that looks


def test_a_lookout_is_told_the_time_that_has_passed_until_it_is_stopped_and_no_more() -> None:
    passed: list[float] = []
    thrice = threading.Event()

    def look(passed_s: float) -> None:
        passed.append(passed_s)
        if len(passed) == 3:
            thrice.set()

    lookout = Lookout("test", look, every_s=0.0)
    begin_s = time.monotonic()
    lookout.start()
    assert thrice.wait(20)
    lookout.stop()
    count, whole_s = len(passed), time.monotonic() - begin_s
    assert all(p >= 0.0 for p in passed)
    assert sum(passed) <= whole_s
    lookout.stop()
    assert len(passed) == count, "the thread is over, not only told"


def test_one_that_is_stopped_before_its_start_never_looks() -> None:
    passed: list[float] = []
    lookout = Lookout("test", passed.append, every_s=0.0)
    lookout.stop()
    lookout.start()
    lookout.stop()
    assert passed == []


# -- the child's side

HANGS = """
import socket, sys, time
from engine.serving.child import go_on_when_parent_dies, watch_parent
go_on_when_parent_dies()
watch_parent(socket.socket(fileno=int(sys.argv[1])), beat_s=0.02)
print("up", flush=True)
time.sleep(60)
"""


def test_a_child_beats_until_it_is_stopped_and_ends_with_its_parent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", HANGS, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        ours.settimeout(20)
        try:
            assert ours.recv(1) == b"."
            assert ours.recv(1) == b".", "again and again"
            ours.close()
            assert child.wait(20) == -signal.SIGTERM
        finally:
            child.kill()
            child.communicate()


def test_the_least_that_may_be_set_is_several_beats() -> None:
    least = next(d for d in declared(Settings) if d.name == "hung_s").key.at_least
    assert least is not None
    assert least >= 5 * BEAT_S
