"""Puts alerts into the store's process: the ears on the hub, the couriers, the thread that looks.

Owns the thread and its end. Looks never run beside each other, and ingest never waits for one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from telemetry.alerts.delivery import Courier
from telemetry.alerts.ears import Ears
from telemetry.alerts.evaluate import AlertStats, Evaluator
from telemetry.alerts.incident import Incident
from telemetry.alerts.settings import DEFAULTS, AlertSettings, secret_of
from telemetry.otlp.decode import Decoded
from telemetry.records import Batch
from telemetry.source import StoreSource

if TYPE_CHECKING:
    from telemetry.service.hearing import Hub
    from telemetry.store.store import Store

log = logging.getLogger(__name__)

_LEAVE_S = 1.0


class Alerts:
    """The alerts of one store process. `start` once, `stop` once; `tick` is for who turns the
    clock by hand."""

    def __init__(self, store: Store, hub: Hub, settings: AlertSettings) -> None:
        self.settings = settings
        self._hub = hub
        self._store = store
        self._stop = threading.Event()
        ears = Ears(time.monotonic)
        couriers: list[Courier] = []
        self._couriers = couriers
        self._evaluator = Evaluator(
            StoreSource(store), self._write, ears, settings, couriers, time.time, time.monotonic
        )
        for target in settings.targets:
            try:
                secret = secret_of(target)
            except KeyError as e:
                log.error("alerts: %s is off: the variable %s is not set", target.name, e.args[0])
                continue
            couriers.append(Courier(target, secret, self._evaluator.received))
        hub.add("alerts", ears, cells=False)
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tick(self) -> None:
        self._evaluator.tick()

    def stats(self) -> AlertStats:
        return self._evaluator.stats()

    def current(self) -> tuple[Incident, ...]:
        """The newest incident of each pool."""
        return self._evaluator.current()

    def stop(self) -> None:
        """Bounded: what a courier has not delivered is told after the next start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)
        for courier in self._couriers:
            courier.stop(_LEAVE_S / max(1, len(self._couriers)))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._evaluator.tick()
            except Exception:
                # The next look may do better; serving and ingest do not depend on any.
                log.exception("alerts: a look failed")
            self._stop.wait(self.settings.every_s)

    def _write(self, batches: tuple[Batch, ...]) -> None:
        decoded = Decoded(batches)
        self._store.ingest(decoded)
        self._hub.hear(decoded)


def attach(
    store: Store, hub: Hub, stack: contextlib.ExitStack, settings: AlertSettings | None = None
) -> Alerts | None:
    """Start the alerts of a store's process, to be stopped with `stack`; None where they are off.

    Settings that cannot be used are said and replaced by the defaults, which tell nobody:
    incidents are recorded all the same. Call it before the server starts.
    """
    chosen = _settings(store) if settings is None else settings
    if not chosen.enabled:
        log.info("alerts are off")
        return None
    alerts = Alerts(store, hub, chosen)
    stack.callback(alerts.stop)
    alerts.start()
    return alerts


def _settings(store: Store) -> AlertSettings:
    from telemetry.settings import SettingsError
    from telemetry.store import settings as store_settings

    try:
        return store_settings.read(store.folder).alerts
    except SettingsError as e:
        log.error("alerts: %s: the defaults are taken, and nobody is told of anything", e)
        return DEFAULTS
