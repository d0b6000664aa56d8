"""Whether the replay of what happened is true enough to conclude from. Pure.

The victims' requests together decide, and each victim's own where there are enough of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from postmortem.whatif.model import (
    FEW,
    MOST_IMPUTED,
    TOLERANCE,
    Fidelity,
    Outcome,
    TenantNumbers,
    TtftError,
)
from telemetry.plain import name, percent


def compare(recorded: Outcome, replayed: Outcome, victims: Iterable[str]) -> Fidelity:
    """The victims' TTFT p50 and p99 within 25%, imputed requests at most 10%."""
    together = _error(recorded.hurt, replayed.hurt)
    errors = [] if together is None else [together]
    for tenant in victims:
        found = _error(recorded.of(tenant), replayed.of(tenant))
        if found is not None:
            errors.append(found)
    problem = _problem(errors, recorded.hurt.n, replayed)
    return Fidelity(tuple(errors), replayed.imputed_share, problem)


def _error(was: TenantNumbers | None, made: TenantNumbers | None) -> TtftError | None:
    if was is None or made is None:
        return None
    a50, a99, b50, b99 = was.ttft_p50_s, was.ttft_p99_s, made.ttft_p50_s, made.ttft_p99_s
    if a50 is None or a99 is None or b50 is None or b99 is None:
        return None
    return TtftError(was.tenant, was.n, a50, b50, a99, b99)


def _problem(errors: list[TtftError], n: int, replayed: Outcome) -> str | None:
    if not errors or errors[0].tenant:
        return (
            f"those hurt have {n} requests in the window, {FEW} are needed to compare a replay "
            "with what was recorded"
        )
    off = [e for e in errors if not e.holds]
    if off:
        worst = max(off, key=lambda e: max(e.p50_error, e.p99_error))
        whose = f"of {name(worst.tenant)}" if worst.tenant else "of those hurt"
        return (
            f"the replay of what happened is off by {percent(worst.p50_error)} at p50 and "
            f"{percent(worst.p99_error)} at p99 of the TTFT {whose}; at most "
            f"{percent(TOLERANCE)} would prove something"
        )
    if replayed.imputed_share > MOST_IMPUTED:
        return (
            f"{percent(replayed.imputed_share)} of the requests served have a made-up length; at "
            f"most {percent(MOST_IMPUTED)} would prove something"
        )
    return None
