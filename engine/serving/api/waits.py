"""What a caller waited for, as response headers: for those who ask with `x-tenantscope-waits: 1`.

Seconds by reason up to the first token; a wait behind other tenants names no tenant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.serving.api.choice import Choice

REQUEST_HEADER = "x-tenantscope-waits"
REASONS = ("front", "slot", "budget", "kv", "adapter", "prefill")


def wanted(headers: Mapping[str, str]) -> bool:
    return headers.get(REQUEST_HEADER, "").strip().lower() in ("1", "true", "yes")


def header_of(reason: str) -> str:
    return f"x-tenantscope-wait-{reason}-s"


def headers(front_s: float, choices: Sequence[Choice]) -> dict[str, str]:
    """Of the choice that had its first token first; nothing where none had one."""
    told = next((c.flight.waits for c in choices if c.flight.waits is not None), None)
    if told is None:
        return {}
    seconds = [front_s, *(getattr(told, reason) for reason in REASONS[1:])]
    pairs = zip(REASONS, seconds, strict=True)
    return {header_of(reason): f"{max(0.0, value):.6f}" for reason, value in pairs}


def none(choices: Sequence[Choice]) -> dict[str, str]:
    return {}
