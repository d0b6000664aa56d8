"""Candidate remedies as data, and how one changes a setup. Owns sizes and ranks; replays nothing.

Sizes are chosen from what was usual before the incident, with a margin, and the sentence of a
remedy says from what. Each remedy is a list of changes of settings: the same list is replayed and
written down as TOML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.config import Limits, PoolSpec, Tenant
from engine.simulation.setup import Setup, adapter_pages
from postmortem.whatif.model import CAPACITY, POOL, REVERT, SETTING, TIER, Change, Remedy
from postmortem.whatif.rebuild import Changed
from postmortem.whatif.usual import Usual

MARGIN = 1.5  # over the most that was usual
DEDICATED = "dedicated"
_REVERTED = ("weight", "tier", "rpm", "tpm", "concurrency", "queue", "rpm_burst", "tpm_burst")
_FAIR = ("vtc", "vtc-predicted", "deficit-round-robin", "lcf")


@dataclass(frozen=True, slots=True)
class Facts:
    """What candidates are made from. `usual` by culprit, None where nothing is known of before;
    `victims_adapters` are the simulated adapters that victims' requests name."""

    setup: Setup
    victims: tuple[str, ...]
    culprits: tuple[str, ...]
    usual: dict[str, Usual | None]
    victims_adapters: tuple[str, ...]
    changed: Changed | None

    @property
    def limits(self) -> Limits:
        return self.setup.pools[0].limits

    def tenant(self, name: str) -> Tenant:
        return next(t for t in self.setup.tenants if t.name == name)


def candidates(facts: Facts) -> tuple[Remedy, ...]:
    """Every remedy that applies, cheapest first."""
    made = (make(facts) for make in MAKERS.values())
    return tuple(sorted((m for m in made if m is not None), key=lambda m: m.rank))


def apply(remedy: Remedy, setup: Setup) -> Setup:
    """The setup with the remedy's changes."""
    for change in remedy.changes:
        setup = _changed(setup, change)
    return setup


def _changed(setup: Setup, c: Change) -> Setup:
    values: dict[str, Any] = {c.key: c.value}
    if c.table == "settings":
        return replace(setup, **values)
    if c.table == "limits":
        first, *others = setup.pools
        return replace(
            setup, pools=(replace(first, limits=replace(first.limits, **values)), *others)
        )
    if c.table == "pool":
        limits = setup.pools[0].limits
        return replace(setup, pools=(*setup.pools, PoolSpec(c.who, int(c.value or 1), limits)))
    if c.table == "costs":
        costs = setup.machine.costs.scaled(1 / float(c.value or 1))
        return replace(setup, machine=replace(setup.machine, costs=costs))
    if c.table == "tenant":
        tenants = tuple(replace(t, **values) if t.name == c.who else t for t in setup.tenants)
        return replace(setup, tenants=tenants)
    raise ValueError(f"a change of {c.table!r}: expected settings, limits, tenant, pool or costs")


# ---------------------------------------------------------------- the candidates


def _revert(f: Facts) -> Remedy | None:
    if f.changed is None:
        return None
    before, after = f.changed.before, f.changed.after
    changes: list[Change] = []
    if before.policy != after.policy:
        changes.append(Change("settings", "policy", before.policy))
    was = {t.name: t for t in before.tenants}
    for now in after.tenants:
        then = was.get(now.name, now)
        for key in _REVERTED:
            value = getattr(then, key)
            if value != getattr(now, key):
                changes.append(Change("tenant", key, value, now.name))
    if not changes:
        return None
    return Remedy("revert", REVERT, f"undo the change {f.changed.words}", tuple(changes))


def _vtc(f: Facts) -> Remedy | None:
    if f.setup.policy in _FAIR:
        return None
    changes = (Change("settings", "policy", "vtc"),)
    return Remedy("vtc", SETTING, f"share by VTC instead of {f.setup.policy}", changes)


def _cap(f: Facts) -> Remedy | None:
    def cap(usual: Usual | None) -> int:
        if usual is None or not usual.most_under_way:
            active = max(2, len(f.setup.tenants))
            return max(1, f.limits.slots // active)
        return max(1, math.ceil(MARGIN * usual.most_under_way))

    return _limit(f, "cap", "concurrency", cap, "under way at once", "most_under_way")


def _rpm(f: Facts) -> Remedy | None:
    def rpm(usual: Usual | None) -> int | None:
        if usual is None or not usual.most_requests_a_minute:
            return None
        return max(1, math.ceil(MARGIN * usual.most_requests_a_minute))

    return _limit(f, "rpm", "rpm", rpm, "requests a minute", "most_requests_a_minute")


def _tpm(f: Facts) -> Remedy | None:
    def tpm(usual: Usual | None) -> int | None:
        if usual is None or not usual.most_tokens_a_minute:
            return None
        return max(usual.largest_tokens, math.ceil(MARGIN * usual.most_tokens_a_minute))

    return _limit(f, "tpm", "tpm", tpm, "tokens a minute", "most_tokens_a_minute")


def _limit(
    f: Facts,
    name: str,
    key: str,
    size: Callable[[Usual | None], int | None],
    unit: str,
    source: str,
) -> Remedy | None:
    """A limit on each culprit that is tighter than its present one, of a size from its usual."""
    changes: list[Change] = []
    said: list[str] = []
    for tenant in f.culprits:
        usual = f.usual.get(tenant)
        limit = size(usual)
        present = getattr(f.tenant(tenant), key)
        if limit is None or (present is not None and present <= limit):
            continue
        changes.append(Change("tenant", key, limit, tenant))
        most = getattr(usual, source) if usual is not None else 0
        if most:
            said.append(f"{limit:,} {unit} ({MARGIN:g}x the most it had before, {most:,.0f})")
        else:
            said.append(f"{limit:,} {unit} (an even part of the slots: it had nothing before)")
    if not changes:
        return None
    return Remedy(name, SETTING, f"limit it to {'; '.join(said)}", tuple(changes), f.culprits)


def _weight(f: Facts) -> Remedy | None:
    changes = [
        Change("tenant", "weight", max(0.001, f.tenant(t).weight / 4), t) for t in f.culprits
    ]
    if f.setup.policy not in _FAIR:
        changes.insert(0, Change("settings", "policy", "vtc"))
    if not f.culprits:
        return None
    what = "share by VTC, its weight a quarter of what it is"
    return Remedy("weight", SETTING, what, tuple(changes), f.culprits)


def _chunk(f: Facts) -> Remedy | None:
    now = f.limits.step_tokens
    half = max(f.limits.slots + 16, now // 2)
    if half >= now:
        return None
    what = f"steps of {half} tokens instead of {now}: shorter chunks of prefill"
    return Remedy("chunk", SETTING, what, (Change("limits", "step_tokens", half),))


def _adapter_floor(f: Facts) -> Remedy | None:
    """Room for the victims' adapters that KV cannot take: what a pin does, for all of them."""
    machine, limits = f.setup.machine, f.limits
    sizes = {a.name: a.rank for a in f.setup.adapters}
    pages = sum(adapter_pages(machine, sizes[a]) for a in f.victims_adapters if a in sizes)
    need = min(pages * machine.page_bytes, limits.pool_bytes // 2)
    if not need or need <= limits.adapter_floor_bytes:
        return None
    what = (
        f"keep {need:,} bytes of the pool for adapters: the {len(f.victims_adapters)} that "
        "those hurt use"
    )
    changes = (Change("limits", "adapter_floor_bytes", need),)
    return Remedy("adapter-floor", SETTING, what, changes)


def _tier(f: Facts) -> Remedy | None:
    others = [t.tier for t in f.setup.tenants if t.name not in f.culprits]
    lowest = max(others, default=0) + 1
    changes = tuple(Change("tenant", "tier", lowest, t) for t in f.culprits)
    if not changes or lowest > 1000:
        return None
    what = f"tier {lowest}: everybody else goes first"
    return Remedy("tier", TIER, what, changes, f.culprits)


def _dedicated(f: Facts) -> Remedy | None:
    if not f.culprits or len(f.setup.pools) > 1:
        return None
    # The name must not be the pool's own.
    name = DEDICATED if f.setup.pools[0].name != DEDICATED else f"{DEDICATED}-2"
    changes = [Change("pool", "replicas", 1, name)]
    changes += [Change("tenant", "pool", name, t) for t in f.culprits]
    what = "a second worker of the same size, for it alone"
    return Remedy("dedicated-pool", POOL, what, tuple(changes), f.culprits)


def _slots(f: Facts) -> Remedy | None:
    more = 2 * f.limits.slots
    changes = (Change("limits", "slots", more),)
    return Remedy("slots", CAPACITY, f"{more} slots instead of {f.limits.slots}", changes)


def _pages(f: Facts) -> Remedy | None:
    more = 2 * f.limits.pool_bytes
    what = f"a pool of {more:,} bytes, twice what it is"
    return Remedy("pages", CAPACITY, what, (Change("limits", "pool_bytes", more),))


def _faster(f: Facts) -> Remedy | None:
    what = "a machine twice as fast: every step in half the time"
    return Remedy("faster", CAPACITY, what, (Change("costs", "speed", 2.0),))


MAKERS: dict[str, Callable[[Facts], Remedy | None]] = {
    "revert": _revert,
    "vtc": _vtc,
    "cap": _cap,
    "rpm": _rpm,
    "tpm": _tpm,
    "weight": _weight,
    "chunk": _chunk,
    "adapter-floor": _adapter_floor,
    "tier": _tier,
    "dedicated-pool": _dedicated,
    "slots": _slots,
    "pages": _pages,
    "faster": _faster,
}
NAMES: Sequence[str] = tuple(MAKERS)
LIMITS = ("cap", "rpm", "tpm")  # remedies that may refuse in normal hours
