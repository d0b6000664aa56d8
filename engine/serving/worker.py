"""The worker process: one model, one core, one hot loop. Owns the process's life and signals.

The main thread steps the core. Beside it live only the core's timer, the exporter and the gRPC
threads; HTTP, the tokenizer and the store are other processes'.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.clock import Clock, SystemClock
from engine.errors import EngineError
from engine.serving.faults import NO_FAULTS, Faults
from engine.serving.launch import READY, Launch, say, say_progress

if TYPE_CHECKING:
    from engine.core import EngineCore, StepResult

_IDLE_S = 0.5
_STOP_S = 4.0  # then the process ends, frozen step or not


def run_loop(
    core: EngineCore,
    publish: Callable[[StepResult], None],
    stopping: threading.Event,
    clock: Clock,
    faults: Faults = NO_FAULTS,
) -> None:
    """Step while there is work, until `stopping`. The only caller of `core.step`."""
    ready_s = clock.now()
    previous_s = float("-inf")
    while not stopping.is_set():
        if not core.wait_for_work(_IDLE_S):
            continue
        began_s = clock.now() - ready_s
        publish(core.step())
        if faults is not NO_FAULTS:
            extra_s = faults.extra_s(previous_s, began_s, clock.now() - ready_s)
            if extra_s > 0:
                stopping.wait(extra_s)
        previous_s = began_s


def stop_on_signal(stopping: threading.Event, last_words: Callable[[], None]) -> None:
    """SIGTERM and SIGINT set `stopping`, from a thread of their own: a step that hangs holds the
    main thread, and Python runs signal handlers there. If the main thread has not ended the
    process in time, `last_words` runs and the process ends without it."""
    wanted = {signal.SIGTERM, signal.SIGINT}
    # Inherited by every thread started later, so that the signal is left to `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

    def wait() -> None:
        signal.sigwait(wanted)
        stopping.set()
        timer = threading.Timer(_STOP_S, give_up)
        timer.daemon = True
        timer.start()

    def give_up() -> None:
        print("the step under way did not end in time; leaving it", file=sys.stderr, flush=True)
        last_words()
        os._exit(1)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def serve_worker(launch: Launch) -> None:
    """Load, warm up, serve until told to stop. Raises EngineError."""
    stopping = threading.Event()
    last: list[Callable[[], None]] = []
    stop_on_signal(stopping, lambda: [word() for word in last] and None)

    from engine.core import build_core
    from engine.model.loaders import load_model
    from engine.serving.worker_service import Placed, WorkerService, start_server
    from telemetry.pipeline import Exporter

    settings = launch.settings
    clock = SystemClock(launch.clock)
    say_progress(f"loading the model {settings.model}")
    model = load_model(settings.model, settings.dtype, progress=say_progress)
    exporter = Exporter(launch.store_address)
    last.append(lambda: exporter.close(0.5))
    say_progress("warming up")
    core = build_core(settings, clock, launch.run_id, model, exporter)
    service = WorkerService(
        core,
        clock,
        engine=settings.engine,
        run_id=launch.run_id,
        pool=settings.pool,
        adapters={a.name: Placed(a.key, a.pages) for a in core.adapters},
        stop_tokens=frozenset(model.tokenizer.eos_ids),
        history=exporter,
    )
    server = start_server(service, launch.worker_address)
    say(READY)
    try:
        run_loop(core, service.publish, stopping, clock, launch.faults)
    finally:
        service.stop_admitting()
        server.stop(0.5).wait(1.0)
        core.close()
        exporter.close(2.0)


def main() -> None:
    try:
        serve_worker(Launch.read(Path(sys.argv[1])))
    except EngineError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
