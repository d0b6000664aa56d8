"""Admission: the scan in policy order that starts waiting requests, until it stops.

Owns the scan rule: whoever is looked at and refused carries its own reason, everyone not reached
the reason for which the scan stopped. Who is short of pages, for its KV or its adapter, is passed
by a bounded number of times and then stops the scan. Admission may evict idle adapters and cached
prefixes; it never preempts.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import Limits
from engine.memory.pool import PagePool, Short
from engine.memory.prefix import PrefixCache
from engine.scheduling.budget import StepBudget
from engine.scheduling.parts import Part
from engine.scheduling.policies.order import Scan
from engine.scheduling.prefetch import Prefetch
from engine.scheduling.request import Request
from engine.scheduling.running import Running
from engine.scheduling.waiting import Waiting
from telemetry.ledger.interference import ADAPTER_SHORT, adapter_group
from telemetry.ledger.ledger import Ledger

# Requests looked at in one scan at most: a step must not take longer the longer the queue is.
EXAMINED_MOST = 64
# Of one tenant's at least so many, when its share of them is less: a flood of requests for one
# adapter that is on its way must not use up the looks at everybody else.
EXAMINED_LEAST = 8
# Requests of a tenant for an adapter that was just looked at stand behind the one that was: they
# are marked, not looked at, so that they do not hide the tenant's others. At most so many a scan,
# shared by tenant like the looks.
MARKED_MOST = 192


class Admission:
    def __init__(
        self,
        limits: Limits,
        pool: PagePool,
        prefix: PrefixCache | None,
        waiting: Waiting,
        running: Running,
        prefetch: Prefetch,
        ledger: Ledger,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._prefix = prefix
        self._waiting = waiting
        self._running = running
        self._prefetch = prefetch
        self._ledger = ledger

    def admit(
        self,
        budget: StepBudget,
        parts: list[Part],
        now: float,
        step: int,
        filling: Sequence[Request],
    ) -> str | None:
        """Scan the waiting in policy order; returns the reason the scan stopped, which everyone
        it did not reach carries. None: it reached the end, or a head that does not overtake the
        prefills under way (`filling`)."""
        if not self._waiting.queues:
            return None
        if len(self._running) >= self._limits.slots:
            return "slot"
        if budget.tokens < 1:
            return "budget"
        scan = self._waiting.policy.scan()
        try:
            return self._scan(scan, budget, parts, now, step, filling)
        finally:
            scan.close()

    def _scan(
        self,
        scan: Scan,
        budget: StepBudget,
        parts: list[Part],
        now: float,
        step: int,
        filling: Sequence[Request],
    ) -> str | None:
        waiting, running, prefetch = self._waiting, self._running, self._prefetch
        slots = self._limits.slots
        bar = waiting.policy.bar(filling)
        passed_by: list[Request] = []
        least_refused: int | None = None  # pages: whoever needs as many is short too
        refused_of: dict[str, int] = {}
        each = max(EXAMINED_LEAST, EXAMINED_MOST // len(waiting.queues))
        awaited: dict[tuple[str, str], str] = {}  # (tenant, adapter) -> why it is waited for
        marked_of: dict[str, int] = {}
        marks = max(EXAMINED_LEAST, MARKED_MOST // len(waiting.queues))
        looks = 0
        while looks < EXAMINED_MOST:
            if len(running) >= slots:
                return "slot"
            if budget.tokens < 1:
                return "budget"
            request = scan.head()
            if request is None or (filling and not waiting.policy.passes(request, bar)):
                return None
            prefetch.look_at(request)
            adapter = request.ask.adapter
            if adapter is not None and not prefetch.on_device(adapter):
                pair = (request.tenant, adapter)
                if pair in awaited:
                    waiting.examine(request, awaited[pair], "adapter")
                    self._next(scan, request, marked_of, marks)
                    continue
                looks += 1
                patient = request.bypassed < self._limits.bypass
                idle = not len(running)
                ordered = prefetch.fetch(request, adapter, now, idle=idle, grace=patient)
                group = awaited[pair] = adapter_group(adapter) if ordered else ADAPTER_SHORT
                waiting.examine(request, group, "adapter")
                if not ordered:  # no pages: passed by as often as others that are short of them
                    if not patient:
                        return "kv"
                    passed_by.append(request)
                self._next(scan, request, refused_of, each)
                continue
            looks += 1
            if not budget.allows(adapter):
                waiting.examine(request, "budget", "budget")
                return "budget"
            needed = running.pages_for(request.length)
            refused = least_refused is not None and needed >= least_refused
            if refused or not self._take_pages(request, needed, now):
                least_refused = needed if least_refused is None else min(needed, least_refused)
                waiting.examine(request, "kv", "kv")
                if request.bypassed >= self._limits.bypass:
                    return "kv"
                passed_by.append(request)
                self._next(scan, request, refused_of, each)
                continue
            self._start(request, now)
            scan.admitted()
            for other in passed_by:
                other.bypassed += 1
            part = running.part(request, budget, step)
            if part is None:  # it has what it needs, but the step has no time left for it
                return "budget"
            parts.append(part)
        return "budget"

    @staticmethod
    def _next(scan: Scan, request: Request, refused_of: dict[str, int], each: int) -> None:
        """The request stays: go on to its tenant's next one, or to others' when `each` stayed."""
        tenant = request.tenant
        refused = refused_of[tenant] = refused_of.get(tenant, 0) + 1
        if refused < each:
            scan.passed()
        else:
            scan.left()

    def _take_pages(self, request: Request, needed: int, now: float) -> bool:
        """Pages for all tokens it has that no cached prefix holds, leaving a watermark of one a
        running sequence; evicts what nobody uses, never preempts."""
        tenant, prefix, running = request.tenant, self._prefix, len(self._running)
        keys = self._cached_keys(request) if prefix is not None else ()
        needed -= len(keys)
        if running and self._prefetch.lacks(request, needed, running):
            return False  # holding the prefix would leave even less to evict
        held = prefix.hold(keys, tenant, now) if prefix is not None and keys else []
        pages: list[int] | Short = Short(needed)
        if self._prefetch.make_room(request, needed, running, now, idle=not running):
            pages = self._pool.try_take_kv(tenant, needed)
        if isinstance(pages, Short):
            if prefix is not None and held:
                prefix.release(held, tenant, now)
            return False
        request.pages = held + pages
        request.shared = len(held)
        request.computed = len(held) * self._limits.page_tokens
        return True

    def _cached_keys(self, request: Request) -> tuple[bytes, ...]:
        """Keys of its prompt's leading pages that are cached, leaving a token to compute."""
        prefix = self._prefix
        if prefix is None or not request.keys:
            return ()
        most = (request.length - 1) // self._limits.page_tokens
        return request.keys[: min(most, len(prefix.match(request.keys)))]

    def _start(self, request: Request, now: float) -> None:
        """The request leaves its queue, is charged for its uncached prompt once, and runs."""
        waiting, tenant = self._waiting, request.tenant
        waiting.take_out(request)
        if not request.charged_prompt:
            request.charged_prompt = True
            request.cached = request.high_water = request.computed
            charged = request.prompt_tokens - request.cached
            waiting.counters.charge_prompt(tenant, charged)
            waiting.queues.charged(request, charged)
        elif request.computed > request.high_water:
            # What it had not come to when it was preempted, somebody else has computed since.
            found = max(0, min(request.computed, request.prompt_tokens) - request.high_water)
            request.cached += found
            request.high_water = request.computed
            waiting.counters.refund_prompt(tenant, found)
            waiting.queues.charged(request, -found)
            waiting.policy.changed(tenant)
        waiting.policy.admitted(request)
        self._running.start(request, now)
        if request.first_scheduled_s is None:
            request.first_scheduled_s = now
            self._ledger.first_scheduled(request.ask.request_id)
