"""The store process: `python -m telemetry.service --store DIR --listen unix:/path.sock`.

Owns the process's birth and death, and who listens to what is committed. The server is
`telemetry.service.server`; the rows are the store's.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry import alerts, narration
from telemetry.ask.reading import Result
from telemetry.errors import StoreBusy, StoreError
from telemetry.outbound import start as outbound_start
from telemetry.outbound.told import told
from telemetry.service import liveness
from telemetry.service.client import StoreClient
from telemetry.service.hearing import Hub
from telemetry.service.listen import Listen
from telemetry.service.methods import Served
from telemetry.service.server import StoreServer
from telemetry.settings import SettingsError
from telemetry.source import StoreSource
from telemetry.store import settings as store_settings
from telemetry.store import upkeep
from telemetry.store.settings import StoreSettings
from telemetry.store.store import Store
from telemetry.watch import service as watch_service

if TYPE_CHECKING:
    from telemetry.alerts import Alerts
    from telemetry.outbound.outbound import Outbound
    from telemetry.prometheus.counting import Counting

__all__ = ["Options", "StoreClient", "StoreServer", "main", "run"]

log = logging.getLogger(__name__)

_HOUSEKEEPING_S = 60.0
_END_S = 4.8
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_RETRY = 0, 1, 2, 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """What one store process is to do. `settings` is read instead of the folder's own page;
    `metrics_fd` is a listening socket inherited. `strict`, for a process a person started: settings
    that cannot be used end it, and Ctrl-C is told from an end; else it says so and runs on the
    defaults, so that rows are kept."""

    store: Path
    listens: tuple[Listen, ...]
    metrics: str | None = None
    metrics_fd: int | None = None
    settings: Path | None = None
    strict: bool = False
    otlp_to: str | None = None  # an OTLP endpoint that is fed too, with the defaults
    any_date: bool = False  # take rows far ahead, and of days that are kept no more


def _housekeeping(store: Store, stop: threading.Event) -> None:
    """Close days that have ended and drop what is older than it is kept, until told to stop."""
    day: str | None = None
    while not stop.wait(_HOUSEKEEPING_S):
        day = upkeep.turn_of_day(store, time.time(), day)


def _counting(store: Store, hub: Hub) -> Counting:
    """Running totals, for whoever shows them."""
    from telemetry.prometheus import port as metrics_port
    from telemetry.prometheus.counting import Counting

    counting = Counting(time.time())
    try:
        metrics_port.recall(counting, StoreSource(store), time.time())
    except StoreError as e:
        log.error("what is delivered again will be counted again: %s", e)
    hub.add("metrics", counting)
    return counting


def _metrics(
    options: Options,
    counting: Counting,
    exports: Outbound | None,
    watching: Alerts | None,
    stack: contextlib.ExitStack,
) -> None:
    """Serve Prometheus. Raises StoreError."""
    from telemetry.prometheus import port as metrics_port

    if options.metrics_fd is not None:
        listening = socket.socket(fileno=options.metrics_fd)
    else:
        assert options.metrics is not None
        listening = metrics_port.listen(options.metrics)
    port = metrics_port.MetricsPort(counting, listening, exports, watching)
    stack.callback(port.stop)
    log.info("metrics at %s", port.url)


def _attach(
    store: Store,
    options: Options,
    settings: StoreSettings,
    hub: Hub,
    stack: contextlib.ExitStack,
) -> tuple[list[Served], dict[str, Callable[[], Result]]]:
    """Everybody who follows the store as it fills, a call a room; returns the handlers they serve,
    and the questions they answer from memory. What a room holds is let go by `stack`, after the
    server has stopped. Raises StoreError."""
    served: list[Served] = []
    live: dict[str, Callable[[], Result]] = {}
    exports: Outbound | None = None
    shows_metrics = options.metrics is not None or options.metrics_fd is not None
    watching = alerts.attach(store, hub, stack, settings.alerts)
    outgoing = outbound_start.outgoing_of(settings.outgoing, options.otlp_to)
    if shows_metrics or outgoing.exports:
        counting = _counting(store, hub)
        if outgoing.exports:
            exports = outbound_start.begin(
                outgoing, counting, StoreSource(store), hub, stack, strict=options.strict
            )
        if shows_metrics:
            _metrics(options, counting, exports, watching, stack)
    served.append(watch_service.attach(store, hub, stack))
    live[liveness.EXPORTS] = lambda: told(exports.stats() if exports is not None else None)
    return served, live


def _settings(options: Options) -> StoreSettings:
    """Raises SettingsError where that is to end the process."""
    try:
        return store_settings.read(options.store, options.settings)
    except SettingsError as e:
        if options.strict:
            raise
        log.error("the store's settings are not used, the defaults are: %s", e)
        return StoreSettings()


def _give_up() -> None:
    log.error("not ended within %g s: left as it is, nothing acknowledged is lost", _END_S)
    os._exit(EXIT_FAILED)


def run(
    options: Options,
    ready: Callable[[StoreServer], object],
    stop: threading.Event | None = None,
) -> int:
    """Open, serve until SIGTERM, SIGINT or `stop`, drain, close. `ready` is told when rows are
    taken. What goes wrong before is one sentence on stderr; returns the exit code: 0 ended when
    told to, 1 failed, 2 settings, 3 busy, 130 interrupted.
    """
    is_whole_process = stop is None
    stop = ended = stop or threading.Event()
    told: list[int] = []

    def tell(number: int, frame: object) -> None:
        told.append(number)
        ended.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, tell)
    too_long = threading.Timer(_END_S, _give_up)
    too_long.daemon = True
    with contextlib.ExitStack() as stack:
        if not is_whole_process:
            stack.callback(too_long.cancel)  # the last of all
        try:
            settings = _settings(options)
            store = Store.open(options.store, None if options.any_date else time.time)
            stack.callback(store.close)
            hub = Hub(time.time)
            served, live = _attach(store, options, settings, hub, stack)
            listens = (
                *options.listens,
                *(replace(one, must=options.strict) for one in settings.listen),
            )
            server = StoreServer(store, listens, hub.hear, served, live=live)
        except StoreBusy as e:
            print(f"store: {narration.one_line(e)}", file=sys.stderr)
            return EXIT_RETRY
        except SettingsError as e:
            print(f"store: {narration.one_line(e)}", file=sys.stderr)
            return EXIT_USAGE
        except StoreError as e:
            print(f"store: {narration.one_line(e)}", file=sys.stderr)
            return EXIT_FAILED
        server.start()
        stack.callback(server.stop)
        threading.Thread(
            target=_housekeeping, args=(store, stop), name="store-housekeeping", daemon=True
        ).start()
        ready(server)
        stop.wait()
        # Whatever hangs on the way out (a disk, say): what is not acknowledged by then is not lost,
        # and what is committed is safe from a kill.
        too_long.start()
    return EXIT_INTERRUPTED if options.strict and told == [signal.SIGINT] else EXIT_OK


GC_OBJECTS = 50_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the store process. Exit codes: 0 ended by a signal, 1 failed, 2 usage, 3 busy."""
    parser = argparse.ArgumentParser(prog="telemetry.service", description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, required=True, help="the store's folder")
    parser.add_argument("--listen", required=True, help="unix:/path.sock or 127.0.0.1:port")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus there (loopback)")
    parser.add_argument("--metrics-fd", type=int, help="the same, on a listening socket inherited")
    parser.add_argument("--otlp-to", metavar="URL", help="send metrics and traces there")
    parser.add_argument(
        "--any-date", action="store_true", help="take rows of any date: recordings, replays"
    )
    arguments = parser.parse_args(argv)
    # A minute is tens of thousands of rows that live for a moment and have no cycles: to look for
    # some every 700 objects takes nearly half of its decoding.
    gc.set_threshold(GC_OBJECTS)
    narration.begin("store")
    os.umask(0o077)
    options = Options(
        arguments.store,
        (Listen(arguments.listen),),
        arguments.metrics,
        arguments.metrics_fd,
        otlp_to=arguments.otlp_to,
        any_date=arguments.any_date,
    )
    return run(options, lambda server: print(f"ready {server.address}", flush=True))


if __name__ == "__main__":
    sys.exit(main())
