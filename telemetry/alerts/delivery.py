"""Takes notices to one target: a thread, a bounded queue, retries with back-off, counts.

Never blocks who offers, never follows a redirect, always verifies TLS, never logs a secret. What
cannot be delivered is counted and said. Knows HTTP; judges nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from telemetry.alerts.bodies import DEDUP, SIGNATURE, signature
from telemetry.alerts.settings import ALERTMANAGER, Target
from telemetry.cut_off import CutOff

log = logging.getLogger(__name__)

BOUND = 256
ATTEMPTS = 8
BACKOFF_S, MOST_BACKOFF_S = 1.0, 60.0
ALERTS_PATH = "/api/v2/alerts"
_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Parcel:
    """One delivery. `counts` is False for what only keeps an Alertmanager's alert alive: nobody
    waits for its receipt, and it is not tried again (the next one comes)."""

    incident: str
    notice: int
    dedup_key: str
    body: bytes
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Receipt:
    """A parcel that was taken (`ok`), or given up."""

    target: str
    parcel: Parcel
    ok: bool


@dataclass(frozen=True, slots=True)
class TargetStats:
    """Since the start: parcels taken, given up after all attempts, dropped by a full queue; and
    those that wait now. `last_error` names no secret."""

    target: str
    kind: str
    delivered: int
    failed: int
    dropped: int
    queued: int
    last_error: str | None


class Undelivered(Exception):
    """An attempt failed; `again` says whether another can help."""

    def __init__(self, why: str, again: bool) -> None:
        super().__init__(why)
        self.again = again


class Courier:
    """One target's thread. `offer` from any thread; `stop` once."""

    def __init__(
        self,
        target: Target,
        secret: str | None,
        done: Callable[[Receipt], None],
        *,
        attempts: int = ATTEMPTS,
        backoff_s: float = BACKOFF_S,
        bound: int = BOUND,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`done` is called on the courier's thread: it must be quick."""
        self.target = target
        self._secret = secret
        self._done = done
        self._attempts, self._backoff_s, self._bound = attempts, backoff_s, bound
        self._clock = clock
        self._queue: deque[Parcel] = deque()
        self._gate = threading.Condition()
        self._stop = threading.Event()
        self._delivered = self._failed = self._dropped = 0
        self._under_way = 0
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"alerts-{target.name}", daemon=True)
        self._thread.start()

    def offer(self, parcel: Parcel) -> None:
        """Queue it. Of parcels that only keep alive an incident has one at most; a full queue gives
        up its oldest, counted."""
        gone = None
        with self._gate:
            if not parcel.counts:
                kept = [p for p in self._queue if p.counts or p.incident != parcel.incident]
                self._queue = deque(kept)
            if len(self._queue) >= self._bound:
                gone = self._queue.popleft()
                self._dropped += 1
            self._queue.append(parcel)
            self._gate.notify()
        if gone is not None:
            log.error("alerts: the queue of %s is full: %s dropped", self.target.name,
                      gone.dedup_key)  # fmt: skip
            self._done(Receipt(self.target.name, gone, False))

    def stats(self) -> TargetStats:
        with self._gate:
            return TargetStats(
                self.target.name,
                self.target.kind,
                self._delivered,
                self._failed,
                self._dropped,
                len(self._queue) + self._under_way,
                self._last_error,
            )

    def stop(self, timeout_s: float = 0.5) -> None:
        """What has not gone by then is left; the store knows what was told and what was not."""
        self._stop.set()
        with self._gate:
            self._gate.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        import httpx

        # The environment's proxies and .netrc are not for secrets of ours.
        with httpx.Client(
            timeout=self.target.timeout_s, follow_redirects=False, trust_env=False
        ) as client:
            while True:
                with self._gate:
                    self._gate.wait_for(lambda: bool(self._queue) or self._stop.is_set())
                    if self._stop.is_set():
                        return
                    parcel = self._queue.popleft()
                    self._under_way = 1
                receipt = self._carry(client, parcel)
                with self._gate:
                    self._under_way = 0
                if receipt is not None:
                    self._done(receipt)

    def _carry(self, client: Any, parcel: Parcel) -> Receipt | None:
        """None: told to stop before it was settled."""
        attempts = self._attempts if parcel.counts else 1
        for attempt in range(attempts):
            try:
                send(client, self.target, self._secret, parcel, self._clock())
            except Undelivered as e:
                with self._gate:
                    self._last_error = str(e)
                if not e.again or attempt + 1 == attempts:
                    break
                if self._stop.wait(min(MOST_BACKOFF_S, self._backoff_s * 2**attempt)):
                    return None
            else:
                with self._gate:
                    self._delivered += 1
                    self._last_error = None
                return Receipt(self.target.name, parcel, True)
        with self._gate:
            self._failed += 1
        log.error("alerts: %s was not delivered to %s: %s", parcel.dedup_key, self.target.name,
                  self._last_error)  # fmt: skip
        return Receipt(self.target.name, parcel, False)


def send(client: Any, target: Target, secret: str | None, parcel: Parcel, now: float) -> None:
    """One attempt. Raises Undelivered; its reason holds no secret and no part of the URL."""
    import httpx

    headers = {"Content-Type": "application/json", "User-Agent": "tenantscope",
               DEDUP: parcel.dedup_key}  # fmt: skip
    url = target.url
    if target.kind == ALERTMANAGER:
        url = url.rstrip("/")
        url = url if url.endswith(ALERTS_PATH) else url + ALERTS_PATH
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
    elif secret is not None:
        headers[SIGNATURE] = signature(secret, now, parcel.body)
    late = Undelivered(f"no answer in {target.timeout_s:g} s", True)
    cut = CutOff()
    try:
        with cut.within(target.timeout_s):
            asked = client.stream("POST", url, content=parcel.body, headers=headers,
                                  extensions={"trace": cut})  # fmt: skip
            with asked as answer:
                code = answer.status_code  # what else it says is not read
    except httpx.TimeoutException:
        raise late from None
    except httpx.HTTPError as e:
        if cut.over:
            raise late from None
        raise Undelivered(f"{type(e).__name__}: cannot be reached", True) from None
    except (httpx.InvalidURL, ValueError, UnicodeError) as e:
        raise Undelivered(f"{type(e).__name__}: the address cannot be used", False) from None
    finally:
        cut.close()
    if 200 <= code < 300:
        return
    if 300 <= code < 400:
        raise Undelivered(
            f"answered {code}: a redirect is not followed; give its end as url", False
        )
    raise Undelivered(f"answered {code}", code >= 500 or code in _AGAIN)
