"""The scheduler: who runs in the next step, who waits and why, who gives way.

Owns queues, running sequences and their pages; knows no tensors, threads or sockets. Continuous
batching with chunked prefill: running rows first, then prefill under way, then admissions in the
policy's order until the scan stops. Every call happens at an instant, under the ledger's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.clock import ClockBase
from engine.config import Limits
from engine.costs import CostModel, StepCost
from engine.memory.pool import PagePool, Short
from engine.memory.residency import Eviction, LoadOrder, Residency
from engine.scheduling.budget import StepBudget
from engine.scheduling.life import record
from engine.scheduling.plan import Segment, StepOutcome, StepPlan
from engine.scheduling.policies import POLICIES
from engine.scheduling.policies.base import Policy, Scan
from engine.scheduling.policies.counters import Counters
from engine.scheduling.prefetch import Prefetch
from engine.scheduling.request import Ask, Outcome, Request, State
from engine.scheduling.telling import Teller
from engine.scheduling.waits import SCHEDULED, SHARED, WaitBook
from telemetry.interference import adapter_group
from telemetry.ledger import Ledger
from telemetry.views import TenantWork

# Requests looked at in one plan at most: a step must not take longer the longer the queue is.
EXAMINED_MOST = 256


@dataclass(frozen=True, slots=True)
class Ending:
    """A request has ended. `reason` is stop, length, or a sentence about what went wrong."""

    request_id: str
    outcome: Outcome
    reason: str
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A step to execute; before it the evicted are forgotten and the loads begun, in order."""

    plan: StepPlan
    evicted: tuple[str, ...]
    orders: tuple[LoadOrder, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    tokens: tuple[tuple[str, int], ...]
    ended: tuple[Ending, ...]


class Scheduler:
    """One pool's scheduler. `plan` and `settle` alternate; the rest may come in between."""

    def __init__(
        self,
        limits: Limits,
        pool: PagePool,
        residency: Residency,
        counters: Counters,
        costs: CostModel,
        ledger: Ledger,
        base: ClockBase,
        *,
        policy: str = "vtc",
        now: float = 0.0,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._residency = residency
        self._counters = counters
        self._ledger = ledger
        self._base = base
        self._policy: Policy = POLICIES[policy]
        self.policy_version = 1
        self.costs = costs
        self._book = WaitBook(now)
        self._live: dict[str, Request] = {}
        self._queues: dict[str, deque[Request]] = {}
        self._running: list[Request] = []  # in order of admission
        self._examined: dict[str, Request] = {}  # waiting, with a reason of their own
        self._prefetch = Prefetch(
            residency, limits.prefetch, lambda r: self._pages(r.length), self._evicted
        )
        self._forgotten: list[str] = []
        self._ended: list[Ending] = []
        self._arrivals = 0
        self._step = 0
        self._step_started_s = now
        self._step_cost: StepCost | None = None
        self._tell = Teller(ledger, base, pool, residency, counters)

    # -- questions

    @property
    def policy(self) -> str:
        return self._policy.name

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(len(q) for q in self._queues.values())

    @property
    def expected_step_s(self) -> float:
        """What the cost model expects of the step planned last."""
        return self._step_cost.predicted_s if self._step_cost else 0.0

    def why_impossible(self, ask: Ask) -> str | None:
        """Why this request could never be served, in a sentence with both numbers."""
        if not ask.prompt or ask.max_tokens < 1:
            return (
                f"a prompt of {len(ask.prompt)} tokens and max_tokens {ask.max_tokens}: "
                "both must be at least 1"
            )
        tokens = len(ask.prompt) + ask.max_tokens
        if tokens > self._limits.max_context:
            return (
                f"prompt and max_tokens are {tokens} tokens; "
                f"a request may hold {self._limits.max_context}"
            )
        needed = self._pages(tokens - 1)  # the last token is never attended
        if ask.adapter is not None:
            if not self._residency.knows(ask.adapter):
                return f"adapter {ask.adapter_name or ask.adapter} is not known to this pool"
            needed += self._residency.pages_needed(ask.adapter)
        if needed > self._pool.pages:
            return (
                f"the request and its adapter need {needed} pages; the pool has {self._pool.pages}"
            )
        return None

    def _why_broken(self, ask: Ask) -> str | None:
        if ask.adapter is None:
            return None
        why = self._residency.broken(ask.adapter, self._ledger.now)
        return None if why is None else f"its adapter could not be loaded: {why}"

    # -- the outside world, between steps

    def submit(self, ask: Ask, joined_s: float) -> None:
        """A request that has waited since `joined_s` (booked with the ledger at that instant)."""
        self._book.advance(self._ledger.now)
        request = Request(ask, self._arrivals, joined_s, policy_version=self.policy_version)
        self._arrivals += 1
        self._live[ask.request_id] = request
        self._book.join(request.waits, joined_s)
        queue = self._queues.setdefault(ask.tenant, deque())
        if not queue:
            self._counters.arrived(ask.tenant, [t for t, q in self._queues.items() if q])
        queue.append(request)
        if ask.adapter is not None and self._residency.knows(ask.adapter):
            place = self._residency.place(ask.adapter)
            request.adapter_state = place.value
            self._ledger.count(ask.tenant, "adapter_lookups")
            self._ledger.count(ask.tenant, f"found_{place.value}")
            self._ledger.adapter(ask.adapter).lookups += 1
        impossible = self.why_impossible(ask) or self._why_broken(ask)
        if impossible is not None:
            self._end(request, Outcome.FAILED, impossible)

    def abort(self, request_id: str) -> None:
        request = self._live.get(request_id)
        if request is not None:
            self._book.advance(self._ledger.now)
            self._end(request, Outcome.ABORTED, "aborted by the client")

    def loaded(self, key: str, error: str | None) -> None:
        """A load has ended; `error` says why it failed. Who waits for a broken adapter fails."""
        now = self._ledger.now
        self._book.advance(now)
        arrived = self._residency.arrived(key, now, error)
        book = self._ledger.adapter(key)
        book.load_s += arrived.load_s
        self._ledger.count(arrived.tenant, "load_s", arrived.load_s)
        if error is None:
            book.loads += 1
            book.bytes = arrived.bytes
            book.resident.set(1, now)
            self._ledger.count(arrived.tenant, "swap_in_bytes", arrived.bytes)
            self._ledger.engine_count("loads")
            return
        self._tell.event("load", arrived.tenant, adapter=key, detail=f"load failed: {error}")
        for request in [r for r in self._live.values() if r.ask.adapter == key]:
            self._end(request, Outcome.FAILED, f"its adapter could not be loaded: {error}")

    def use_policy(self, policy: str) -> str:
        """Switch the policy; returns the name of the one it replaces. Counters go on."""
        previous = self._policy.name
        self._policy = POLICIES[policy]
        self.policy_version += 1
        self._ledger.policy_version(self.policy_version)
        return previous

    def overdue(self, now: float) -> None:
        """Book gap targets passed by sequences that have begun and get no token: running ones in
        a step that takes too long, and preempted ones (at the front of their queues)."""
        begun = list(self._running)
        for queue in self._queues.values():
            for request in queue:
                if not request.preemptions:
                    break
                begun.append(request)
        for request in begun:
            if request.last_token_s is not None:
                self._ledger.gap(request.ask.request_id, now - request.last_token_s)

    # -- the step

    def plan(self) -> Planned:
        """Decide the next step at the ledger's present instant."""
        now = self._ledger.now
        self._book.advance(now)
        self._step += 1
        self._grow(now)
        budget = StepBudget(self._limits.step_tokens, self._limits.adapters_per_step)
        segments: list[Segment] = []
        # Decode rows first, so that a long prefill never starves them; then whoever overtakes the
        # prefills under way, those prefills (who was left out last goes first), and admissions.
        decoding = [r for r in self._running if _decodes(r)]
        filling = [r for r in self._running if not _decodes(r)]
        before, self._examined = self._examined, {}
        self._prefetch.begin()
        self._continue(decoding, budget, segments)
        if filling:
            self._admit(budget, segments, now, filling)
            self._continue(filling, budget, segments)
        stop = self._admit(budget, segments, now, ())
        if stop is None:
            # Whoever arrives from now on waits for a slot, or for this step to end.
            stop = "slot" if len(self._running) >= self._limits.slots else "budget"
        for request in before.values():
            waits = request.state in (State.WAITING, State.PREEMPTED)
            if waits and request.ask.request_id not in self._examined:
                self._wait(request, SHARED)
        if self._queues and self._limits.prefetch:
            ahead = self._policy.scan(self._queues, self._counters)
            self._prefetch.look_ahead(ahead, self._examined.values(), now, idle=not self._running)
        self._book.flip(stop)
        for tenant in [t for t, q in self._queues.items() if not q]:
            del self._queues[tenant]
        plan = StepPlan(self._step, tuple(segments))
        self._step_cost = self.costs.of(plan) if segments else None
        self._step_started_s = now
        self._tell.begin(
            plan,
            self._step_cost,
            self.costs.version,
            stop,
            self._running,
            tuple(self._examined.values()),
            self._queues,
        )
        planned = Planned(plan, tuple(self._forgotten), self._prefetch.take_orders())
        self._forgotten = []
        return planned

    def settle(self, plan: StepPlan, outcome: StepOutcome) -> Settled:
        """Book what the step produced, at the ledger's present instant."""
        now = self._ledger.now
        self._book.advance(now)
        work: dict[str, TenantWork] = {}
        tokens: list[tuple[str, int]] = []
        stall, own = self._stall(now)
        for segment in plan.segments:
            request = self._live.get(segment.request_id)
            if request is None:
                continue
            failure = outcome.failed.get(segment.request_id)
            if failure is not None:
                self._end(request, Outcome.FAILED, failure)
                continue
            request.stall_s += stall - own.get(segment.request_id, 0.0)
            done = work.setdefault(request.tenant, TenantWork())
            self._computed(request, segment, done)
            if segment.samples:
                token = outcome.tokens[segment.request_id]
                tokens.append((segment.request_id, token))
                done.output += 1
                self._produced(request, token, now)
        for tenant in work:
            self._ledger.counter(tenant, self._counters.value(tenant))
        self._ledger.settle(work, now)
        return Settled(tuple(tokens), self.take_ended())

    def take_ended(self) -> tuple[Ending, ...]:
        ended, self._ended = tuple(self._ended), []
        return ended

    # -- running sequences

    def _continue(
        self, requests: Sequence[Request], budget: StepBudget, segments: list[Segment]
    ) -> None:
        """Give running sequences their part of the step, those left out last before the others."""
        for request in sorted(requests, key=lambda r: r.last_step):
            segment = self._segment(request, budget)
            if segment is None:
                self._wait(request, "budget", "budget")
            else:
                self._wait(request, SCHEDULED)
                segments.append(segment)

    def _segment(self, request: Request, budget: StepBudget) -> Segment | None:
        """The request's part of the step within the budget; None when nothing is left for it."""
        ask = request.ask
        if not budget.allows(ask.adapter):
            return None
        left = request.length - request.computed
        is_decode = _decodes(request)
        count = min(left, budget.tokens)
        budget.take(count, ask.adapter)
        request.last_step = self._step
        return Segment(
            ask.request_id,
            ask.tenant,
            ask.adapter,
            tuple(request.tokens(request.computed, request.computed + count)),
            request.computed,
            tuple(request.pages),
            samples=count == left,
            is_prefill=not is_decode,
            temperature=ask.temperature,
            seed=ask.seed,
            sampled=len(request.output),
        )

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._limits.page_tokens)

    def _grow(self, now: float) -> None:
        """Pages for the tokens that running sequences are about to write. The only place that
        preempts: admission never does."""
        for request in list(self._running):
            while request.state is State.RUNNING:
                missing = self._pages(request.length) - len(request.pages)
                if missing <= 0:
                    break
                pages = self._pool.try_take_kv(request.tenant, missing)
                if not isinstance(pages, Short):
                    request.pages += pages
                    break
                short, evictions = self._residency.make_room(missing, request.tenant, now)
                self._evicted(evictions)
                if short is not None:
                    self._give_way(request, now)

    def _give_way(self, grower: Request, now: float) -> None:
        """Preempt somebody so that `grower` may grow; it may be itself."""
        bound = self._limits.preemptions
        candidates = [r for r in self._running if r.preemptions < bound] or self._running
        victim = self._policy.victim(candidates, self._counters) or grower
        if victim is grower and len(self._running) == 1 and self._residency.pinned_bytes():
            self._residency.keep_only(set())  # nobody else gives way: adapters fetched ahead go
            return
        self._tell.blame("preemptions_caused", grower.tenant)
        self._leave_pages(victim, now)
        self._running.remove(victim)
        victim.state = State.PREEMPTED
        victim.preemptions += 1
        victim.computed = 0
        queue = self._queues.setdefault(victim.tenant, deque())
        place = next((i for i, r in enumerate(queue) if r.sequence > victim.sequence), len(queue))
        queue.insert(place, victim)
        self._wait(victim, SHARED)
        self._ledger.count(victim.tenant, "preemptions_suffered")
        self._ledger.engine_count("preemptions")
        self._tell.event(
            "preempt",
            victim.tenant,
            request_id=victim.ask.request_id,
            cause=grower.tenant,
            detail=f"gave back its pages after {victim.length} tokens",
        )

    def _leave_pages(self, request: Request, now: float) -> None:
        self._pool.give_back_kv(request.tenant, request.pages)
        request.pages = []
        if request.ask.adapter is not None and request.state is State.RUNNING:
            key = request.ask.adapter
            self._residency.release(key, request.tenant, now)
            if not self._pool.references(key):
                self._ledger.adapter(key).referenced.set(0, now)

    def _computed(self, request: Request, segment: Segment, done: TenantWork) -> None:
        start, stop = segment.start, segment.start + len(segment.tokens)
        again = max(0, min(stop, request.high_water) - start)
        fresh_from = max(start, request.high_water)
        done.prompt += max(0, min(stop, len(request.ask.prompt)) - fresh_from)
        done.recomputed += again
        request.recomputed += again
        request.computed = stop
        request.high_water = max(request.high_water, stop)

    def _produced(self, request: Request, token: int, now: float) -> None:
        ask = request.ask
        request.output.append(token)
        self._counters.charge_output(request.tenant)
        if request.first_token_s is None:
            self._book.bring_up(request.waits)
            request.waits.had_token = True
            request.first_token_s = now
            self._ledger.first_token(ask.request_id, request.tenant, now - ask.arrived_s)
        elif request.last_token_s is not None:
            gap = now - request.last_token_s
            if request.max_gap_s is None or gap > request.max_gap_s:
                request.max_gap_s = gap
            self._ledger.gap(ask.request_id, gap)
        request.last_token_s = now
        if token in ask.stop_tokens:
            self._end(request, Outcome.FINISHED, "stop")
        elif len(request.output) >= ask.max_tokens:
            self._end(request, Outcome.FINISHED, "length")

    def _stall(self, now: float) -> tuple[float, Mapping[str, float]]:
        """Seconds of this step spent on prefill, and each request's own part of them."""
        cost = self._step_cost
        if cost is None or cost.predicted_s <= 0:
            return 0.0, {}
        scale = min(1.0, (now - self._step_started_s) / cost.predicted_s)
        own = {request_id: s * scale for request_id, s in cost.own_prefill_s.items()}
        return sum(cost.prefill_s.values()) * scale, own

    # -- admission

    def _admit(
        self,
        budget: StepBudget,
        segments: list[Segment],
        now: float,
        filling: Sequence[Request],
    ) -> str | None:
        """Scan the waiting in policy order; returns the reason the scan stopped, which everyone
        it did not reach carries. None: it reached the end, or a head that does not overtake the
        prefills under way (`filling`)."""
        scan: Scan | None = None
        passed_by: list[Request] = []
        least_refused: int | None = None  # pages: whoever needs as many is short too
        for _ in range(EXAMINED_MOST):
            if not self._queues:
                return None
            if len(self._running) >= self._limits.slots:
                return "slot"
            if budget.tokens < 1:
                return "budget"
            scan = scan or self._policy.scan(self._queues, self._counters)
            request = scan.head()
            if request is None or not self._policy.overtakes(request, filling, self._counters):
                return None
            self._prefetch.look_at(request)
            adapter = request.ask.adapter
            if adapter is not None and not self._prefetch.on_device(adapter):
                self._prefetch.fetch(request, adapter, now, idle=not self._running)
                self._examine(request, adapter_group(adapter), "adapter")
                scan.passed()
                continue
            if not budget.allows(adapter):
                self._examine(request, "budget", "budget")
                return "budget"
            needed = self._pages(request.length)
            refused = least_refused is not None and needed >= least_refused
            if refused or not self._take_pages(request, needed, now):
                least_refused = needed if least_refused is None else min(needed, least_refused)
                self._examine(request, "kv", "kv")
                if request.bypassed >= self._limits.bypass:
                    return "kv"
                passed_by.append(request)
                scan.passed()
                continue
            self._start(request, now)
            scan.admitted()
            for other in passed_by:
                other.bypassed += 1
            segment = self._segment(request, budget)
            if segment is not None:
                segments.append(segment)
        return "budget"

    def _examine(self, request: Request, group: str, reason: str) -> None:
        self._examined[request.ask.request_id] = request
        self._wait(request, group, reason)

    def _take_pages(self, request: Request, needed: int, now: float) -> bool:
        """Pages for all tokens it has, leaving a watermark of one a running sequence; evicts idle
        adapters, never preempts."""
        running = len(self._running)
        if not self._prefetch.make_room(request, needed, running, now, idle=not running):
            return False
        pages = self._pool.try_take_kv(request.tenant, needed)
        if isinstance(pages, Short):
            return False
        request.pages = pages
        return True

    def _start(self, request: Request, now: float) -> None:
        """The request leaves its queue, is charged for its prompt once, and runs."""
        ask = request.ask
        self._queues[ask.tenant].remove(request)
        self._counters.left_queue(ask.tenant)
        if not request.charged_prompt:
            self._counters.charge_prompt(ask.tenant, len(ask.prompt))
            request.charged_prompt = True
        if ask.adapter is not None:
            self._residency.acquire(ask.adapter, ask.tenant, now)
            self._ledger.adapter(ask.adapter).referenced.set(1, now)
        request.state = State.RUNNING
        self._running.append(request)
        if request.first_scheduled_s is None:
            request.first_scheduled_s = now
            self._ledger.first_scheduled(ask.request_id)
        self._wait(request, SCHEDULED)

    # -- bookkeeping

    def _evicted(self, evictions: list[Eviction]) -> None:
        self._forgotten += [e.key for e in evictions]
        self._tell.evicted(evictions)

    def _wait(self, request: Request, group: str, reason: str = "") -> None:
        waits, tenant = request.waits, request.tenant
        if waits.group == group:
            return
        if waits.group != SCHEDULED:
            self._ledger.waits(tenant, waits.group, -1)
        if group != SCHEDULED:
            self._ledger.waits(tenant, group, +1)
        self._book.move(waits, group, reason)

    def _end(self, request: Request, outcome: Outcome, reason: str) -> None:
        now = self._ledger.now
        ask = request.ask
        self._wait(request, SCHEDULED)  # leaves whichever group it stood in
        self._book.bring_up(request.waits)
        if request.state is State.RUNNING:
            self._leave_pages(request, now)
            self._running.remove(request)
        else:
            queue = self._queues.get(ask.tenant)
            if queue is not None and request in queue:
                queue.remove(request)
                self._counters.left_queue(ask.tenant)
        if outcome is not Outcome.FINISHED and request.last_token_s is not None:
            self._ledger.gap(ask.request_id, now - request.last_token_s)
        if request.charged_prompt:
            never = len(ask.prompt) - min(request.high_water, len(ask.prompt))
            self._counters.refund_prompt(ask.tenant, never)
        request.state = State.ENDED
        del self._live[ask.request_id]
        self._ledger.ended(record(request, outcome, now, self._ledger.identity, self._base))
        ttft = request.first_token_s
        self._ended.append(
            Ending(
                ask.request_id,
                outcome,
                reason,
                len(ask.prompt),
                len(request.output),
                None if ttft is None else ttft - ask.arrived_s,
            )
        )


def _decodes(request: Request) -> bool:
    """All but its newest token are in pages: the next step is a decode row."""
    return bool(request.output) and request.length - request.computed == 1
