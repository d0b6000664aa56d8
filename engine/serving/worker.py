"""The worker process: one model, one core, one hot loop. Owns the process's life and signals.

The main thread steps the core. Beside it live only the core's timer, the loader, the exporter and
the gRPC threads; HTTP, the tokenizer and the store are other processes'.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.clock import SystemClock
from engine.collector import few_collections
from engine.errors import EngineError
from engine.parallel.cut import check_pools_cut
from engine.serving.device import dtype_on, settle
from engine.serving.faults import NO_FAULTS, FaultyRunner
from engine.serving.launch import READY, Launch, say, say_progress
from engine.serving.loop_watch import LoopWatch, ends
from engine.threads import bound_spinning

if TYPE_CHECKING:
    from engine.core import EngineCore
    from engine.core_values import StepResult
    from engine.scheduling.plan import Runner

_IDLE_S = 0.5
_STOP_S = 4.0  # then the process ends, frozen step or not


def run_loop(
    core: EngineCore,
    publish: Callable[[StepResult], None],
    stopping: threading.Event,
    turned: Callable[[], None] = lambda: None,
) -> None:
    """Step while there is work, until `stopping`. The only caller of `core.step`. `turned` hears of
    every turn, also of those without work."""
    while not stopping.is_set():
        if core.wait_for_work(_IDLE_S):
            publish(core.step())
        turned()


def stop_on_signal(
    stopping: threading.Event,
    last_words: Callable[[], object],
    within_s: float = _STOP_S,
    serving: threading.Event | None = None,
) -> None:
    """SIGTERM and SIGINT set `stopping`, from a thread of their own: a step that hangs holds the
    main thread, and Python runs signal handlers there. If the main thread has not ended the
    process after `within_s`, `last_words` runs and the process ends without it. Until `serving`
    is set there is nothing to bring to an end (a model loads, or is fetched): it ends at once."""
    wanted = {signal.SIGTERM, signal.SIGINT}
    # Inherited by every thread started later, so that the signal is left to `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

    def give_up() -> None:
        print("what was under way did not end in time; leaving it", file=sys.stderr, flush=True)
        last_words()
        os._exit(1)

    def wait() -> None:
        signal.sigwait(wanted)
        stopping.set()
        if serving is not None and not serving.is_set():
            os._exit(0)
        timer = threading.Timer(within_s, give_up)
        timer.daemon = True
        timer.start()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def serve_worker(launch: Launch) -> None:
    """Load, warm up, serve until told to stop. Raises EngineError."""
    settle(launch.settings.all_pools()[0], launch.worker.replica)
    check_pools_cut(launch.settings)
    stopping = threading.Event()
    serving = threading.Event()
    last_words: list[Callable[[], object]] = []
    stop_on_signal(stopping, lambda: [word() for word in last_words], serving=serving)

    from engine.admin.adapters import AdapterNames
    from engine.admin.shelf import LibraryShelf
    from engine.admin.worker import Operator
    from engine.build import build
    from engine.model.loaders import load_model
    from engine.serving.worker_service import WorkerService, start_server
    from telemetry.pipeline.exporter import Exporter

    settings, place = launch.settings, launch.worker
    clock = SystemClock(launch.clock)
    say_progress(f"loading the model {settings.model}")
    dtype = dtype_on(settings.all_pools()[0].device, settings.dtype)
    model = load_model(settings.model, dtype, progress=say_progress)
    exporter = Exporter(launch.store_address)
    last_words.append(lambda: exporter.close(0.5))
    say_progress("warming up")
    faulty: list[FaultyRunner] = []

    def wrap(runner: Runner) -> Runner:
        if launch.faults == NO_FAULTS:
            return runner
        faulty.append(FaultyRunner(runner, launch.faults, clock, stopping.wait))
        return faulty[0]

    def lost(why: str) -> None:
        """Half a model, or none, answers nobody: the process ends, and is started again."""
        print(f"error: {why}", file=sys.stderr, flush=True)
        exporter.close(0.5)
        os._exit(1)

    built = build(
        settings,
        clock,
        launch.run_id,
        model,
        exporter,
        wrap=wrap,
        say=say_progress,
        replica=place.replica,
        lost=lost,
    )
    eos = frozenset(model.tokenizer.eos_ids)
    del model  # where it is cut, the runner has its own part
    core = built.core
    names = AdapterNames(core.adapters, dict(settings.adapters))
    service = WorkerService(
        core,
        clock,
        engine=settings.engine,
        run_id=launch.run_id,
        pool=settings.pool,
        adapters=names,
        stop_tokens=eos,
        history=exporter,
        operator=Operator(
            core, settings, names, LibraryShelf(built.library, built.most_adapter_pages)
        ),
    )
    server = start_server(service, place.address)
    for runner in faulty:
        runner.arm()

    watch = LoopWatch(settings.hung_s, ends("a step", lambda: exporter.close(0.5)))
    watch.start()
    serving.set()
    say(READY)
    try:
        with few_collections():  # or some steps wait for a walk over the whole model and queue
            run_loop(core, service.publish, stopping, watch.turned)
    finally:
        watch.stop()
        service.stop_admitting()
        server.stop(0.5).wait(1.0)
        core.close()
        exporter.close(2.0)


def main() -> None:
    bound_spinning()
    try:
        serve_worker(Launch.take(Path(sys.argv[1])))
    except EngineError as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
