"""What an engine says of itself to an operator, what is asked of it, what it answers. Values only.

Instants are unix seconds, spans seconds; a limit of None is no limit.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

IN_FORCE = "in force"  # a change's state while it holds
NO_LIMIT = "none"
TIERS = {0: "normal", 10: "low", 100: "lowest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """What holds for one tenant, and what it has under way."""

    tenant: str
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    weight: float = 1.0
    tier: int = 0
    pool: str = ""
    under_way: int = 0
    running: int = 0
    waiting: int = 0
    draining: bool = False
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterState:
    name: str
    place: str = ""
    requests: int = 0  # under way with it
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change by an operator. `until` None: it does not end by itself."""

    number: int
    at: float
    until: float | None
    who: str
    why: str
    what: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One look at one engine. `silent`: why what runs and waits is not known, else empty."""

    address: str
    engine: str
    pool: str
    version: int
    policy: str = ""
    tenants: tuple[TenantState, ...] = ()
    adapters: tuple[AdapterState, ...] = ()
    changes: tuple[Change, ...] = ()
    pools: tuple[str, ...] = ()
    silent: str = ""

    def tenant(self, name: str) -> TenantState | None:
        return next((t for t in self.tenants if t.tenant == name), None)

    def adapter(self, name: str) -> AdapterState | None:
        return next((a for a in self.adapters if a.name == name), None)

    @property
    def in_force(self) -> tuple[Change, ...]:
        return tuple(c for c in self.changes if c.state == IN_FORCE)

    @property
    def marks(self) -> frozenset[tuple[int, str]]:
        """Every change with its state: what is new in a later look is not among them."""
        return frozenset((c.number, c.state) for c in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One act, as one engine is asked for it. `method` is the service's own name for it."""

    address: str
    method: str
    engine: str = ""  # only if it is this one; empty: whoever answers
    tenant: str = ""
    adapter: str = ""
    values: tuple[tuple[str, str], ...] = ()
    who: str = ""
    why: str = ""
    if_version: int = 0
    ttl_s: float = 0.0
    permanent: bool = False
    dry_run: bool = True


class No(enum.Enum):
    """Why an engine did not do it."""

    REFUSED = "refused"  # it cannot be, as it was asked for
    MOVED = "moved"  # somebody else has changed something since
    SILENT = "silent"  # no answer in time: it may have been done


@dataclass(frozen=True, slots=True)
class Part:
    """What one engine, or one of its workers, did."""

    where: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of an order. `no` None: the engine took it, which parts did is in `parts`."""

    address: str
    effect: str = ""
    until: float | None = None
    version: int = 0
    parts: tuple[Part, ...] = ()
    no: No | None = None
    why_not: str = ""

    @property
    def ok(self) -> bool:
        return self.no is None and all(p.ok for p in self.parts)


@dataclass(frozen=True, slots=True)
class Looked:
    """The last look at every door: who answered, and what the others said (address, why not)."""

    states: tuple[EngineState, ...] = ()
    closed: tuple[tuple[str, str], ...] = field(default=())

    def at(self, address: str) -> EngineState | None:
        return next((s for s in self.states if s.address == address), None)

    def serving(self, tenant: str) -> tuple[EngineState, ...]:
        return tuple(s for s in self.states if s.tenant(tenant) is not None)


def last_change(states: Sequence[EngineState]) -> tuple[EngineState, Change] | None:
    """The newest change in force on any engine."""
    held = [(c.at, c.number, s, c) for s in states for c in s.in_force]
    if not held:
        return None
    _, _, state, change = max(held, key=lambda h: (h[0], h[1]))
    return state, change


def tier_word(tier: int) -> str:
    return TIERS.get(tier, str(tier))


def limit_word(limit: int | None) -> str:
    return NO_LIMIT if limit is None else str(limit)
