"""What a caller reads of its quota: the 429, the 400 of what never fits, the rate-limit headers.

Pure over the door's answers. The same numbers stand in the body and in the headers.
"""

from __future__ import annotations

from typing import Any

from engine.config import Tenant
from engine.scheduling.quota import QuotaDoor, Refused
from engine.serving.api.openai import ApiError
from engine.serving.api.turns import TurnRefused


def limit_headers(door: QuotaDoor, tenant: Tenant, now_s: float) -> dict[str, str]:
    """`x-ratelimit-*` of the dimensions that have a limit; resets in seconds until full again."""
    view = door.view(tenant.name, now_s)
    resets = door.resets_s(tenant.name, now_s)
    headers: dict[str, str] = {}
    for what, limit, left, reset_s in (
        ("requests", view.rpm_limit, view.rpm_level, resets[0]),
        ("tokens", view.tpm_limit, view.tpm_level, resets[1]),
    ):
        if limit is None or left is None:
            continue
        headers[f"x-ratelimit-limit-{what}"] = str(limit)
        headers[f"x-ratelimit-remaining-{what}"] = str(max(0, int(left)))
        if reset_s is not None:
            headers[f"x-ratelimit-reset-{what}"] = f"{reset_s}s"
    return headers


def refused(door: QuotaDoor, tenant: Tenant, why: Refused, now_s: float) -> ApiError:
    """The door's refusal: 429 with what is used up and when to come back, or 400 where no wait
    would help."""
    facts: dict[str, Any] = {
        "dimension": why.reason,
        "limit": plain(why.limit),
        "used": plain(why.used),
    }
    if why.reason == "impossible":
        return ApiError(400, why.sentence, code="request_too_large", extra=facts)
    facts |= {"reserved": _reserved(door, tenant, why, now_s), "reset_s": why.retry_after_s}
    if why.is_estimate:
        facts["retry_after_is_estimate"] = True
    headers = limit_headers(door, tenant, now_s)
    if why.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, why.retry_after_s))
    return ApiError(
        429,
        why.sentence,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers=headers,
        extra=facts,
    )


def front_full(door: QuotaDoor, tenant: Tenant, full: TurnRefused, now_s: float) -> ApiError:
    """Too many long prompts wait to be tokenized: the tenant's own (429), or everybody's (503)."""
    whose = "your long prompts wait" if full.own else "long prompts wait"
    return ApiError(
        429 if full.own else 503,
        f"{full.limit} of {whose} to be tokenized: send it again in a moment",
        kind="rate_limit_error" if full.own else "service_unavailable",
        code="rate_limit_exceeded" if full.own else "front_busy",
        headers=limit_headers(door, tenant, now_s) | {"Retry-After": "1"},
        extra={
            "dimension": "front",
            "limit": full.limit,
            "used": full.limit,
            "reserved": 0,
            "reset_s": 1,
            "retry_after_is_estimate": True,
        },
    )


def _reserved(door: QuotaDoor, tenant: Tenant, why: Refused, now_s: float) -> float | int:
    """Of what is used, what requests under way hold: tokens in part, places whole. A request of
    the minute is spent, not held."""
    view = door.view(tenant.name, now_s)
    if why.reason == "tpm":
        return view.reserved_tokens
    if why.reason in ("concurrency", "queue"):
        return plain(why.used)
    return 0


def plain(number: float) -> float | int:
    return int(number) if number == int(number) else number
