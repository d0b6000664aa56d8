"""Quotas at the door: requests and tokens a minute, concurrency, bounded queues.

All dimensions are asked in one step: all allow, or nothing is charged. Prompt + max_tokens are
reserved at admission and settled to the real count; a rejection charges nothing. Pure: the clock
(monotonic) is passed in; a limit of None is none, 0 is blocked.
"""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.errors import EngineError
from engine.scheduling.quota_reasons import Refused, foreseen, refusal, refusal_of_several
from engine.scheduling.windows import Window, make_window

__all__ = [
    "Admitted",
    "Levels",
    "QuotaDoor",
    "QuotaView",
    "Refused",
    "TicketSpent",
    "UnknownTenant",
]


class UnknownTenant(EngineError):
    """A tenant that the settings do not name; there is nothing to count it against."""


class TicketSpent(EngineError):
    """A reservation was given back twice: a fault of the caller, and it would lend out tokens."""


class Admitted(NamedTuple):
    """A reservation. Give it back with `settle` or `refund`, once."""

    tenant: str
    tokens: int  # prompt + max_tokens
    prompt_tokens: int
    number: int
    at_s: float
    mark: Any  # where in the tokens' window it was taken from
    pool: str  # where its place in the queue is, wherever the tenant is served by then


class Levels(NamedTuple):
    """What is left in the windows (None = no limit) and how many requests are under way."""

    rpm: float | None
    tpm: float | None
    concurrency: int


class QuotaView(NamedTuple):
    """A tenant's quota as an operator reads it. Tokens count prompt + output.

    All tokens ever reserved = `reserved_tokens` + `settled_tokens` + `returned_tokens`.
    """

    tenant: str
    window: str
    rpm_level: float | None
    rpm_limit: int | None
    tpm_level: float | None
    tpm_limit: int | None
    concurrency: int
    concurrency_limit: int | None
    queue_limit: int
    reserved_tokens: int  # of requests under way
    settled_tokens: int  # of requests that ended: what they really cost
    returned_tokens: int  # reserved once, and given back
    oldest_reservation_s: float | None  # age of the oldest request under way


class _Pool:
    """What the tenants of one pool share: its bounds, and how many requests it has."""

    __slots__ = ("limits", "name", "queue", "under_way")

    def __init__(self, spec: PoolSpec) -> None:
        self.name = spec.name
        self.limits: Limits = spec.limits
        self.queue = spec.limits.queue * spec.replicas
        self.under_way = 0


class _State:
    """One tenant's counts."""

    __slots__ = (
        "changed",
        "concurrency",
        "open",
        "pool",
        "queue",
        "reserved",
        "returned",
        "rpm",
        "settled",
        "tenant",
        "tpm",
    )

    def __init__(self, tenant: Tenant, pool: _Pool, now_s: float) -> None:
        self.tenant = tenant
        self.pool = pool
        self.rpm = _window(tenant.window, tenant.rpm, tenant.rpm_burst, now_s)
        self.tpm = _window(tenant.window, tenant.tpm, tenant.tpm_burst, now_s)
        self.concurrency = tenant.concurrency
        self.queue = pool.limits.queue_per_tenant if tenant.queue is None else tenant.queue
        self.open: OrderedDict[int, Admitted] = OrderedDict()
        self.reserved = self.settled = self.returned = 0
        self.changed = 0  # tickets up to this number were counted by windows that are gone


class QuotaDoor:
    """All tenants' quotas of one front, over all its pools: however many replicas a pool has, and
    wherever a tenant is moved to, it has one quota. One thread. The cost of a call does not depend
    on how many tenants there are, nor, averaged over calls, on how many requests are under way."""

    def __init__(self, settings: Settings, now_s: float = 0.0) -> None:
        self._settings = settings
        self._pools = {spec.name: _Pool(spec) for spec in settings.all_pools()}
        self._number = 0
        self._states = {t.name: _State(t, self._pool_of(t), now_s) for t in settings.tenants}

    def admit(
        self, tenant: str, prompt_tokens: int, max_tokens: int, now_s: float
    ) -> Admitted | Refused:
        """Reserve, or say why not. Raises UnknownTenant."""
        state = self._states.get(tenant)
        if state is None:
            raise _unknown(tenant, self._states)
        tokens = prompt_tokens + max_tokens
        pool, rpm, tpm, under_way = state.pool, state.rpm, state.tpm, len(state.open)
        if (
            (rpm is not None and not rpm.fits(1, now_s))
            or (tpm is not None and not tpm.fits(tokens, now_s))
            or (state.concurrency is not None and under_way >= state.concurrency)
            or under_way >= state.queue
            or pool.under_way >= pool.queue
            or tokens > pool.limits.max_context
        ):
            why = refusal(state, tokens, now_s)
            if why is not None:
                return why
        return self._reserve(state, prompt_tokens, tokens, now_s)

    def admit_together(
        self, tenant: str, prompt_tokens: int, max_tokens: int, count: int, now_s: float
    ) -> tuple[Admitted, ...] | Refused:
        """Reserve `count` answers to one prompt, each a request of its own, or say why not all of
        them. The first carries the prompt's tokens: they count once. Raises UnknownTenant."""
        if count == 1:
            alone = self.admit(tenant, prompt_tokens, max_tokens, now_s)
            return alone if isinstance(alone, Refused) else (alone,)
        state = self._state(tenant)
        refused = refusal_of_several(state, prompt_tokens, max_tokens, count, now_s)
        if refused is not None:
            return refused
        return tuple(
            self._reserve(state, prompt, prompt + max_tokens, now_s)
            for prompt in (prompt_tokens, *[0] * (count - 1))
        )

    def foresee(
        self,
        tenant: str,
        least_tokens: int,
        likely_tokens: int,
        max_tokens: int,
        count: int,
        now_s: float,
    ) -> Refused | None:
        """Why `count` answers to a prompt that has not been counted yet are surely not let in: it
        has `least_tokens`, and likely `likely_tokens`. None: count it, and ask `admit_together`.
        Reserves nothing. Raises UnknownTenant."""
        state = self._state(tenant)
        return foreseen(state, least_tokens, likely_tokens, max_tokens, count, now_s)

    def _reserve(self, state: _State, prompt_tokens: int, tokens: int, now_s: float) -> Admitted:
        if state.rpm is not None:
            state.rpm.take(1, now_s)
        mark = None if state.tpm is None else state.tpm.take(tokens, now_s)
        self._number = number = self._number + 1
        pool = state.pool
        ticket = Admitted(state.tenant.name, tokens, prompt_tokens, number, now_s, mark, pool.name)
        state.open[number] = ticket
        state.reserved += tokens
        pool.under_way += 1
        return ticket

    def resets_s(self, tenant: str, now_s: float) -> tuple[int | None, int | None]:
        """Whole seconds until requests and tokens are full again if nothing more is asked; None
        without a limit, and for one of 0. Raises UnknownTenant."""
        state = self._state(tenant)
        return _full_again_s(state.rpm, now_s), _full_again_s(state.tpm, now_s)

    def settle(
        self,
        ticket: Admitted,
        output_tokens: int,
        now_s: float,
        *,
        prompt_tokens: int | None = None,
    ) -> None:
        """The request has ended with this many tokens: what was reserved beyond comes back, to
        the window it was reserved in. `prompt_tokens`: so many of the prompt were computed, when
        it ended before all of them were. Raises TicketSpent."""
        prompt = ticket.prompt_tokens if prompt_tokens is None else prompt_tokens
        self._close(ticket, prompt + output_tokens, now_s)

    def refund(self, ticket: Admitted, now_s: float) -> None:
        """The request never produced anything: all its tokens come back. The request itself
        stays counted: it was made. Raises TicketSpent."""
        self._close(ticket, 0, now_s)

    def change(self, tenant: Tenant, now_s: float) -> None:
        """New limits for a tenant, or another pool, from now on. What is under way stays counted
        against its concurrency, and in the pool it is in; a limit that is another one begins full.
        Raises UnknownTenant."""
        state = self._state(tenant.name)
        new = _State(tenant, self._pool_of(tenant), now_s)
        old = state.tenant
        same = tenant.window == old.window
        if not (same and (tenant.rpm, tenant.rpm_burst) == (old.rpm, old.rpm_burst)):
            state.rpm = new.rpm
        if not (same and (tenant.tpm, tenant.tpm_burst) == (old.tpm, old.tpm_burst)):
            state.tpm, state.changed = new.tpm, self._number
        state.tenant, state.pool = tenant, new.pool
        state.concurrency, state.queue = new.concurrency, new.queue

    def put(self, tenant: Tenant, now_s: float) -> None:
        """As `change`; one that was not known is from now on."""
        if tenant.name in self._states:
            self.change(tenant, now_s)
        else:
            self._states[tenant.name] = _State(tenant, self._pool_of(tenant), now_s)

    def levels(self, tenant: str, now_s: float) -> Levels:
        """Raises UnknownTenant."""
        state = self._state(tenant)
        return Levels(
            None if state.rpm is None else state.rpm.left(now_s),
            None if state.tpm is None else state.tpm.left(now_s),
            len(state.open),
        )

    def view(self, tenant: str, now_s: float) -> QuotaView:
        """Raises UnknownTenant."""
        state = self._state(tenant)
        own = state.tenant
        oldest = next(iter(state.open.values()), None)
        return QuotaView(
            tenant,
            own.window,
            None if state.rpm is None else state.rpm.left(now_s),
            own.rpm,
            None if state.tpm is None else state.tpm.left(now_s),
            own.tpm,
            len(state.open),
            own.concurrency,
            state.queue,
            state.reserved,
            state.settled,
            state.returned,
            None if oldest is None else max(0.0, now_s - oldest.at_s),
        )

    def open_tickets(self, tenant: str) -> list[Admitted]:
        """The reservations under way, oldest first. Raises UnknownTenant."""
        return list(self._state(tenant).open.values())

    def _pool_of(self, tenant: Tenant) -> _Pool:
        return self._pools[self._settings.pool_of(tenant).name]

    def _state(self, tenant: str) -> _State:
        state = self._states.get(tenant)
        if state is None:
            raise _unknown(tenant, self._states)
        return state

    def _close(self, ticket: Admitted, cost_tokens: int, now_s: float) -> None:
        state = self._states[ticket.tenant]
        if state.open.pop(ticket.number, None) is None:
            raise TicketSpent(
                f"reservation {ticket.number} of tenant {ticket.tenant!r} was given back already: "
                "settle or refund a request once, when it ends"
            )
        self._pools[ticket.pool].under_way -= 1
        state.reserved -= ticket.tokens
        state.settled += cost_tokens
        unused = ticket.tokens - cost_tokens
        state.returned += unused
        if state.tpm is not None and unused and ticket.number > state.changed:
            state.tpm.give_back(unused, ticket.mark, now_s)


def _window(kind: str, limit: int | None, burst: int | None, now_s: float) -> Window | None:
    return None if limit is None else make_window(kind, limit, burst, now_s)


def _full_again_s(window: Window | None, now_s: float) -> int | None:
    if window is None or not window.largest:
        return None
    if window.fits(window.largest, now_s):
        return 0
    return window.wait_s(window.largest, now_s)


def _unknown(tenant: str, known: Iterable[str]) -> UnknownTenant:
    near = difflib.get_close_matches(tenant, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownTenant(
        f"tenant {tenant!r} is not in the settings{hint}: give it a [[tenant]] table"
    )
