"""How a store process begins to feed third parties: settings to a running `Outbound`, or none.

Owns no thread and no queue. What cannot be used is said in the log and sends nothing; the store
works on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from telemetry.errors import StoreError
from telemetry.outbound.settings import Outgoing
from telemetry.service.hearing import Hub
from telemetry.settings import SettingsError

if TYPE_CHECKING:
    from telemetry.outbound.outbound import Outbound
    from telemetry.prometheus.counting import Counting
    from telemetry.source import Source

log = logging.getLogger(__name__)


def outgoing_of(outgoing: Outgoing, otlp_to: str | None) -> Outgoing:
    """What the store's settings say, and the command line. Raises StoreError for the latter."""
    try:
        return outgoing.with_endpoint(otlp_to)
    except SettingsError as e:
        raise StoreError(f"--otlp-to: {e}") from None


def begin(
    outgoing: Outgoing,
    counting: Counting,
    source: Source,
    hub: Hub,
    stack: contextlib.ExitStack,
    *,
    strict: bool,
) -> Outbound | None:
    """Join the hub, until the stack ends; None where nothing can be sent. `counting` has joined
    before. Raises SettingsError, when `strict`, for a header or certificate that is missing."""
    from telemetry.outbound.outbound import Outbound

    # Every request would be a line in the store's log.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        outbound = Outbound(outgoing, counting)
    except SettingsError as e:
        if strict:
            raise
        log.error("nothing is exported: %s", e)
        return None
    stack.callback(outbound.stop)
    try:
        outbound.learn(source.read("engine_run", float("-inf"), time.time()))
    except StoreError as e:
        log.error("traces of runs that began before do not name their model: %s", e)
    hub.add("exports", outbound)
    for export in outgoing.exports:
        log.info("%s sent to %s", " and ".join(export.signals), export.endpoint.url)
    return outbound
