"""GET /v1/usage: what a caller used, and what is left of its quota. Asks the store; keeps nothing.

A caller is told of itself only: the question that goes to the store is about one tenant.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from engine.scheduling.quota import QuotaView
from engine.serving.api.openai import ApiError
from engine.serving.api.reading import bad
from telemetry.errors import NotAllowed, StoreBusy, StoreUnreachable, TelemetryError

PERIODS = ("day", "month")
MOST_DAYS = {"day": 31, "month": 366}
_DAY_S = 86_400.0
_AT_ONCE = 4
_EACH_AT_ONCE = 2  # of one tenant: it must not take all the turns
_PATIENCE_S = 5.0


class Rows(Protocol):
    def dicts(self) -> list[dict[str, Any]]: ...


class Ask(Protocol):
    """`StoreClient.query`."""

    def __call__(self, name: str, **parameters: Any) -> Rows: ...


class OwnUsage:
    """`ask` blocks: it is called on a thread, a few at once at most. None = there is no store."""

    def __init__(self, ask: Ask | None, view: Callable[[str, float], QuotaView]) -> None:
        self._ask = ask
        self._view = view
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._asking: Counter[str] = Counter()

    async def of(
        self, tenant: str, query: Mapping[str, str], now_s: float, now_unix_s: float
    ) -> dict[str, Any]:
        """The answer's body. Raises ApiError: 400 for a question that is none, 503 with the
        reason when the store does not answer."""
        by, days = _period(query)
        start = now_unix_s - days * _DAY_S
        start -= start % _DAY_S  # whole days, UTC
        rows = await self._rows(tenant, by, start, now_unix_s)
        return {
            "object": "usage",
            "tenant": tenant,
            "by": by,
            "from": start,
            "to": now_unix_s,
            "data": [_shown(row) for row in rows],
            "quota": _quota(self._view(tenant, now_s)),
        }

    async def _rows(self, tenant: str, by: str, start: float, end: float) -> list[dict[str, Any]]:
        ask = self._ask
        if ask is None:
            raise _unavailable("this front was started without a store")
        if self._turns.locked() or self._asking[tenant] >= _EACH_AT_ONCE:
            raise _unavailable("too many ask at once")

        def blocking() -> list[dict[str, Any]]:
            found = ask("usage_of", tenant=tenant, start=start, end=end, by=by)
            return found.dicts()

        self._asking[tenant] += 1
        try:
            async with self._turns, asyncio.timeout(_PATIENCE_S):
                return await asyncio.to_thread(blocking)
        except TimeoutError:
            raise _unavailable("the store did not answer in time") from None
        except NotAllowed:
            raise _unavailable("the collector answers no questions of this engine's") from None
        except StoreBusy:
            raise _unavailable("the store is busy") from None
        except StoreUnreachable:
            raise _unavailable("the store is not up") from None
        except TelemetryError:
            # Its text may name a path, or a row that is somebody else's.
            raise _unavailable("the store could not say") from None
        finally:
            self._asking[tenant] -= 1


def _period(query: Mapping[str, str]) -> tuple[str, int]:
    for name in query:
        if name not in ("by", "days"):
            raise bad(name[:80], query[name], "unknown parameter; known: by, days")
    by = query.get("by", "day")
    if by not in PERIODS:
        raise bad("by", by, f"expected one of {', '.join(PERIODS)}")
    most = MOST_DAYS[by]
    text = query.get("days", "1" if by == "day" else "31")
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 0 < int(text) <= most):
        raise bad("days", text, f"expected a whole number from 1 to {most}")
    return by, int(text)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    total = row["prompt_tokens"] + row["cached_tokens"] + row["output_tokens"]
    return {k: v for k, v in row.items() if k != "tenant"} | {"total_tokens": total}


def _quota(view: QuotaView) -> dict[str, Any]:
    """What is left now; null = no limit."""
    return {
        "requests_per_minute": {"limit": view.rpm_limit, "left": _left(view.rpm_level)},
        "tokens_per_minute": {
            "limit": view.tpm_limit,
            "left": _left(view.tpm_level),
            "reserved": view.reserved_tokens,
        },
        "concurrency": {"limit": view.concurrency_limit, "used": view.concurrency},
    }


def _left(level: float | None) -> int | None:
    return None if level is None else max(0, int(level))


def _unavailable(reason: str) -> ApiError:
    return ApiError(
        503,
        f"usage cannot be had now: {reason}; ask again later, serving is not touched by it",
        kind="service_unavailable",
        code="usage_unavailable",
        headers={"Retry-After": "5"},
    )
