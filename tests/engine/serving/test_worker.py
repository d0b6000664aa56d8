"""The worker process's loop, its signals, and faults on purpose."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import TurnedClock
from engine.errors import ConfigError
from engine.scheduling.plan import StepOutcome, StepPlan
from engine.serving.faults import Faults, FaultyRunner
from engine.serving.worker import run_loop


class LoopCore:
    """Has work for a number of steps, then asks the loop to stop."""

    def __init__(self, pattern: list[bool], stopping: threading.Event) -> None:
        self.pattern = pattern
        self.stopping = stopping
        self.steps = 0

    def wait_for_work(self, timeout_s: float) -> bool:
        has_work = self.pattern.pop(0)
        if not self.pattern:
            self.stopping.set()
        return has_work

    def step(self) -> Any:
        self.steps += 1
        return SimpleNamespace(number=self.steps)


def test_the_loop_steps_only_when_there_is_work_and_publishes_every_step_in_order() -> None:
    stopping = threading.Event()
    core = LoopCore([True, False, True, True, False], stopping)
    published: list[int] = []
    run_loop(core, lambda result: published.append(result.number), stopping)  # type: ignore[arg-type]
    assert published == [1, 2, 3]


def test_a_step_that_raises_ends_the_loop_loudly() -> None:
    stopping = threading.Event()
    core = LoopCore([True, True], stopping)
    core.step = lambda: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        run_loop(core, lambda result: None, stopping)  # type: ignore[arg-type]


def process(body: str, *, patient: bool = True) -> subprocess.Popen[str]:
    script = """
        import threading, time
        from engine.serving.worker import stop_on_signal
        stopping = threading.Event()
    """
    watch = """
        stop_on_signal(stopping, lambda: print("telemetry sent", flush=True), within_s=0.2)
    """
    up = "print('up', flush=True)\n"
    parts = (script, watch if patient else "", up, body)
    source = "".join(textwrap.dedent(part) for part in parts)
    child = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_step_under_way_end(number: int) -> None:
    child = process("stopping.wait()\nprint('ended by itself', flush=True)")
    child.send_signal(number)
    out, err = child.communicate(timeout=20)
    assert (out, err, child.returncode) == ("ended by itself\n", "", 0)


def test_a_step_that_never_ends_does_not_keep_the_process_nor_its_telemetry() -> None:
    # The main thread is stuck where no Python signal handler could run.
    child = process("import ctypes\nctypes.CDLL(None).sleep(600)")
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert (out, child.returncode) == ("telemetry sent\n", 1)
    assert "did not end in time" in err


def test_a_worker_that_still_loads_ends_at_once_and_cleanly() -> None:
    child = process(
        "stop_on_signal(stopping, lambda: None, within_s=600, serving=threading.Event())\n"
        "print('loading', flush=True)\nimport ctypes\nctypes.CDLL(None).sleep(600)",
        patient=False,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "loading\n"
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert (out, err, child.returncode) == ("", "", 0)


# -- faults


class TimedRunner:
    """Every step takes `step_s` on a turned clock."""

    def __init__(self, clock: TurnedClock, step_s: float) -> None:
        self.clock = clock
        self.step_s = step_s

    def execute(self, plan: StepPlan) -> StepOutcome:
        self.clock.turn(self.step_s)
        return StepOutcome({"r": plan.step}, {})


def durations(faults: Faults, steps: int, arm_after: int = 0) -> list[float]:
    clock = TurnedClock()
    runner = FaultyRunner(TimedRunner(clock, 0.5), faults, clock, clock.turn)
    out = []
    for step in range(steps):
        if step == arm_after:
            runner.arm()
        began = clock.now()
        assert runner.execute(StepPlan(step, ())).tokens == {"r": step}
        out.append(clock.now() - began)
    return out


def test_a_slowed_engine_takes_its_factor_longer_between_its_two_times() -> None:
    slow = Faults(slow_factor=2.0, slow_from_s=1.0, slow_to_s=3.0)
    assert durations(slow, 6) == [0.5, 0.5, 1.0, 1.0, 0.5, 0.5]


def test_a_freeze_falls_on_one_step_only() -> None:
    assert durations(Faults(freeze_at_s=0.9, freeze_s=5.0), 4) == [0.5, 0.5, 5.5, 0.5]


def test_a_freeze_at_zero_hits_the_first_step() -> None:
    assert durations(Faults(freeze_at_s=0.0, freeze_s=5.0), 2) == [5.5, 0.5]


def test_the_warm_up_is_left_alone() -> None:
    assert durations(Faults(slow_factor=2.0), 4, arm_after=2) == [0.5, 0.5, 1.0, 1.0]


def test_no_faults_change_nothing() -> None:
    assert durations(Faults(), 3) == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("bad", [{"slow_factor": 0.5}, {"freeze_s": -1.0}])
def test_a_fault_out_of_range_names_its_value(bad: dict[str, float]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ConfigError, match=f"{name} = {value}"):
        Faults(**bad)


def test_a_request_that_comes_in_while_its_stream_ends_does_not_run_for_nobody():
    from engine.clock import SystemClock
    from engine.serving.worker_service import Outbox, WorkerService
    from telemetry.proto import tenantscope_pb2 as pb

    calls: list[tuple[str, str]] = []
    outbox = Outbox()

    class Core:
        def submit(self, ask):
            for request_id in outbox.close():  # the stream ends at the worst moment
                self.abort(request_id)
            calls.append(("submit", ask.request_id))

        def abort(self, request_id):
            calls.append(("abort", request_id))

    service = WorkerService(
        Core(), SystemClock(), engine="e", run_id="r", pool="main", adapters={},
        stop_tokens=frozenset(), history=None,
    )  # fmt: skip
    service._take(pb.Ask(request_id="late", tenant="a", prompt=[1], max_tokens=3), outbox)
    assert calls == [("abort", "late"), ("submit", "late"), ("abort", "late")]


def test_a_stream_that_is_behind_says_several_steps_at_once_and_loses_nothing_of_them():
    from serving_fakes import ending, step

    from engine.serving import charges
    from engine.serving.worker_service import Outbox
    from telemetry.proto import tenantscope_pb2 as pb

    outbox = Outbox()
    for name in ("a", "b", "refused"):
        outbox.took(name)
    outbox.put(step([("a", 1), ("b", 2), ("another front's", 9)]))
    outbox.put(pb.WorkerMessage(charges=charges.to_proto({"t": 2.0, "u": 1.0})))
    outbox.put(step([("a", 3), ("b", 4)], [ending("a", output_tokens=2)]))
    outbox.put(pb.WorkerMessage(charges=charges.to_proto({"t": 0.5})))
    outbox.put(pb.WorkerMessage(ended=[pb.Ended(request_id="refused", outcome="failed")]))
    outbox.put(step([("b", 5)]))
    outbox.put(None)
    (message,) = outbox.messages()
    assert [(o.request_id, o.token) for o in message.tokens] == [
        ("a", 1), ("b", 2), ("a", 3), ("b", 4), ("b", 5),
    ]  # fmt: skip
    assert [(e.request_id, e.output_tokens) for e in message.ended] == [("a", 2), ("refused", 0)]
    assert charges.of_proto(message.charges) == {"t": 2.5, "u": 1.0}
    assert outbox.owns("b")
    assert not outbox.owns("a")


def test_what_was_charged_goes_to_the_newest_front_alone_and_what_others_charged_to_the_core() -> (
    None
):
    from engine.clock import SystemClock
    from engine.core_values import StepResult
    from engine.serving.worker_service import Outbox, WorkerService
    from telemetry.proto import tenantscope_pb2 as pb

    heard: list[dict[str, float]] = []
    core = SimpleNamespace(charged_elsewhere=heard.append)
    service = WorkerService(
        core, SystemClock(), engine="e", run_id="r", pool="main", adapters={},
        stop_tokens=frozenset(), history=None,
    )  # fmt: skip
    leaving, newest = Outbox(), Outbox()
    service._outboxes = (leaving, newest)
    service.publish(StepResult(charges={"a": 7.0, "b": -2.0}))
    for outbox in (leaving, newest):
        outbox.put(None)
    assert list(leaving.messages()) == []
    (message,) = newest.messages()
    assert {c.tenant: c.service for c in message.charges.tenants} == {"a": 7.0, "b": -2.0}
    service._listen(iter([pb.FrontMessage(charges=message.charges)]), newest)
    assert heard == [{"a": 7.0, "b": -2.0}]
