"""Whether the replay of what happened is true enough to conclude from. Pure.

The victims' requests together decide, and each victim's own where there are enough of them. Of very
many victims some fall out of a true replay by chance (a p99 of fewer than a hundred requests is one
request's); how many that are here, a second replay of the same arrivals a moment apart says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from postmortem.whatif.model import (
    FACTOR,
    FEW,
    MANY,
    MOST_IMPUTED,
    MOST_OFF,
    TOLERANCE,
    Fidelity,
    Outcome,
    TenantNumbers,
    TtftError,
)
from telemetry.plain import name, percent

SHOWN = 5  # of the tenants of whom nothing is claimed, by name


def compare(
    recorded: Outcome, replayed: Outcome, victims: Iterable[str], again: Outcome | None = None
) -> Fidelity:
    """The victims' TTFT p50 and p99 within 25%, together and each; imputed requests at most 10%.

    `again`: the same replayed a moment apart. Where at least MANY victims are compared, as many of
    them may be further off as are off between these two, and two standard deviations of the
    difference; none with a p50 off by FACTOR, or by more than the most between these two.
    """
    named = tuple(victims)
    together = _error(recorded.hurt, replayed.hurt)
    each = _errors(recorded, replayed, named)
    errors = each if together is None else (together, *each)
    chance = None if again is None else _errors(replayed, again, named)
    problem = _problem(together, each, chance, recorded.hurt.n, replayed)
    off = tuple(e.tenant for e in each if not e.holds) if problem is None else ()
    return Fidelity(
        errors,
        replayed.imputed_share,
        problem,
        off,
        None if chance is None else sum(not e.holds for e in chance),
    )


def may_be_chance(fidelity: Fidelity) -> bool:
    """Whether a second replay could show that what is off is chance."""
    together = next((e for e in fidelity.errors if not e.tenant), None)
    return (
        together is not None
        and together.holds
        and len(fidelity.errors) - 1 >= MANY
        and fidelity.imputed_share <= MOST_IMPUTED
    )


def _errors(was: Outcome, made: Outcome, victims: tuple[str, ...]) -> tuple[TtftError, ...]:
    before = {n.tenant: n for n in was.tenants}
    after = {n.tenant: n for n in made.tenants}
    found = (_error(before.get(t), after.get(t)) for t in victims)
    return tuple(e for e in found if e is not None)


def _error(was: TenantNumbers | None, made: TenantNumbers | None) -> TtftError | None:
    if was is None or made is None:
        return None
    a50, a99, b50, b99 = was.ttft_p50_s, was.ttft_p99_s, made.ttft_p50_s, made.ttft_p99_s
    if a50 is None or a99 is None or b50 is None or b99 is None:
        return None
    return TtftError(was.tenant, was.n, a50, b50, a99, b99)


def _problem(
    together: TtftError | None,
    each: tuple[TtftError, ...],
    chance: tuple[TtftError, ...] | None,
    n: int,
    replayed: Outcome,
) -> str | None:
    if together is None:
        return (
            f"those hurt have {n} requests in the window, {FEW} are needed to compare a replay "
            "with what was recorded"
        )
    if not together.holds:
        return _told(together, f"at most {percent(TOLERANCE)} would prove something")
    off = [e for e in each if not e.holds]
    if off and (chance is None or len(each) < MANY):
        worst = max(off, key=lambda e: max(e.p50_error, e.p99_error))
        return _told(worst, f"at most {percent(TOLERANCE)} would prove something")
    if off and chance is not None:
        strange = _strange(off, each, chance)
        if strange is not None:
            return strange
    if replayed.imputed_share > MOST_IMPUTED:
        return (
            f"{percent(replayed.imputed_share)} of the requests served have a made-up length; at "
            f"most {percent(MOST_IMPUTED)} would prove something"
        )
    return None


def _strange(
    off: list[TtftError], each: tuple[TtftError, ...], chance: tuple[TtftError, ...]
) -> str | None:
    """Why it is not chance that these are off; None = it can be."""
    by_chance = sum(not e.holds for e in chance)
    # Of the difference of two counts, each of them chance.
    spread = math.sqrt(2 * by_chance * max(0.0, 1 - by_chance / max(1, len(chance))))
    most = int(by_chance + 2 * spread)
    most = min(most, int(MOST_OFF * len(each)))
    if len(off) > most:
        return (
            f"the replay of what happened is off by more than {percent(TOLERANCE)} for {len(off)} "
            f"of {len(each)} victims; between two replays of the same {by_chance} are, and "
            f"{most} may be"
        )
    furthest = max(FACTOR, max((e.factor for e in chance), default=1.0))
    worst = max(off, key=lambda e: e.factor)
    if worst.factor >= furthest:
        return _told(worst, f"between two replays of the same nobody's p50 is {furthest:.1f} times")
    return None


def unclaimed(fidelity: Fidelity) -> str | None:
    """Of whom nothing is claimed, as a sentence; None = of nobody."""
    if not fidelity.off:
        return None
    shown = ", ".join(map(name, fidelity.off[:SHOWN]))
    more = f" and {len(fidelity.off) - SHOWN} more" if len(fidelity.off) > SHOWN else ""
    return (
        f"nothing is claimed of {len(fidelity.off)} of the {len(fidelity.errors) - 1} victims "
        f"compared ({shown}{more}): the replay of what happened is off by more than "
        f"{percent(TOLERANCE)} for them; between two replays of the same, arrivals a moment apart, "
        f"it is for {fidelity.by_chance}"
    )


def _told(e: TtftError, rule: str) -> str:
    whose = f"of {name(e.tenant)}" if e.tenant else "of those hurt"
    return (
        f"the replay of what happened is off by {percent(e.p50_error)} at p50 and "
        f"{percent(e.p99_error)} at p99 of the TTFT {whose}; {rule}"
    )
