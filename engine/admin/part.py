"""What a pool's workers are to be: their part of what is in force. Pure; tells nobody.

A tenant that moves is for a while in two parts: its new pool has it before the front sends anything
there, and its old pool lets it go only after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from engine.admin.in_force import InForce, served
from engine.config import Settings, Tenant
from telemetry.proto import tenantscope_pb2 as pb

# Of a tenant: what the front alone acts on. A worker writes it down, and a request under way
# carries what holds for it.
_FRONTS = Tenant("")
_OF_FRONT = {
    key: getattr(_FRONTS, key)
    for key in (
        "rpm", "tpm", "rpm_burst", "tpm_burst", "window", "concurrency", "queue",
        "queue_timeout_s", "deadline_s",
    )
}  # fmt: skip


class Need(IntEnum):
    """How much a worker has to do with a change."""

    NOTHING = 0
    RECORD = 1  # only write it down: the front does it
    ACT = 2  # do something that it cannot well refuse
    GAIN = 3  # serve a tenant or an adapter that it did not, or keep one on the device


@dataclass(frozen=True, slots=True)
class Part:
    """One pool's. `settings` name no key and no pool of a tenant."""

    settings: Settings
    pinned: frozenset[str]


class Parts:
    """Each pool's part of one thing in force: made when it is asked for, and once."""

    def __init__(self, make: Callable[[str], Part]) -> None:
        self._make = make
        self._made: dict[str, Part] = {}
        self._texts: dict[str, str] = {}

    def __getitem__(self, pool: str) -> Part:
        made = self._made.get(pool)
        if made is None:
            made = self._made[pool] = self._make(pool)
        return made

    def desired(self, pool: str, *, lenient: bool) -> pb.Desired:
        """As a worker is told it. `lenient`: an adapter that is refused is left out, not the
        whole."""
        wanted, text = self[pool], self._texts.get(pool)
        if text is None:
            text = self._texts[pool] = wanted.settings.dump()
        return pb.Desired(settings=text, pinned=sorted(wanted.pinned), lenient=lenient)


class Turn:
    """What a change is to each pool: what `was`, what holds in the middle of it (`mid`), while
    tenants are on the move, and what is `to_be`."""

    def __init__(self, now: InForce, then: InForce) -> None:
        self.was = Parts(lambda pool: part(now, pool))
        self.to_be = Parts(lambda pool: part(then, pool))
        self.mid = self.to_be
        if _moves(now.settings, then.settings):
            self.mid = Parts(lambda pool: during(now, then, pool))


def part(now: InForce, pool: str) -> Part:
    """Raises ConfigError for a pool that the settings have not."""
    own = served(now).of_pool(pool).without_keys()
    # Which pool a tenant names says nothing more inside of it.
    tenants = tuple(t if t.pool is None else replace(t, pool=None) for t in own.tenants)
    bare = replace(own, tenants=tenants)
    return Part(bare, now.pinned & {name for name, _ in bare.adapters})


def during(now: InForce, then: InForce, pool: str) -> Part:
    """The part of `then`, with the tenants that leave this pool for another one still in it, as
    they were."""
    before = {t.name: t for t in now.settings.tenants if now.settings.pool_of(t).name == pool}
    tenants = tuple(
        replace(before[t.name], pool=pool, adapters=t.adapters)
        if t.name in before and then.settings.pool_of(t).name != pool
        else t
        for t in then.settings.tenants
    )
    return part(replace(then, settings=replace(then.settings, tenants=tenants)), pool)


def need(was: Part, then: Part) -> Need:
    """What a worker that is as `was` has to do to be as `then`."""
    if was == then:
        return Need.NOTHING
    tenants = {t.name for t in was.settings.tenants}
    if any(t.name not in tenants for t in then.settings.tenants):
        return Need.GAIN
    if then.pinned - was.pinned or set(then.settings.adapters) - set(was.settings.adapters):
        return Need.GAIN
    if _workers_own(was) != _workers_own(then):
        return Need.ACT
    return Need.RECORD


def narrowed(now: InForce, then: InForce) -> InForce:
    """What is in force without the tenants and adapters that are gone from `then`: those are
    refused at the door before anybody forgets them."""
    there = {name for name, _ in then.settings.adapters}
    allowed = {t.name: set(t.adapters) for t in then.settings.tenants}
    tenants = tuple(
        replace(t, adapters=tuple(a for a in t.adapters if a in allowed[t.name]))
        for t in now.settings.tenants
        if t.name in allowed
    )
    adapters = tuple(a for a in now.settings.adapters if a[0] in there)
    return replace(now, settings=replace(now.settings, tenants=tenants, adapters=adapters))


def _moves(now: Settings, then: Settings) -> bool:
    """Whether a tenant is served by another pool."""
    was = {t.name: now.pool_of(t).name for t in now.tenants}
    return any(
        was.get(t.name, pool) != pool for t in then.tenants for pool in [then.pool_of(t).name]
    )


def _workers_own(part: Part) -> tuple[object, ...]:
    tenants = tuple(replace(t, adapters=(), **_OF_FRONT) for t in part.settings.tenants)
    return part.pinned, replace(part.settings, tenants=tenants)
