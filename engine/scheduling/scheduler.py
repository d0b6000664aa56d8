"""The scheduler: who runs in the next step, who waits and why, who gives way.

Composes the rooms of scheduling (waiting, admission, running, prefetch) into a step; knows no
tensors, threads or sockets. Continuous batching with chunked prefill: running rows first, then
prefill under way, then admissions in the policy's order until the scan stops. Every call happens
at an instant, under the ledger's lock. A step costs what changes in it, not what runs in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from engine.clock import ClockBase
from engine.config import Limits
from engine.costs import CostModel
from engine.memory.pool import PagePool
from engine.memory.prefix import PrefixCache
from engine.memory.residency import LoadOrder, Residency
from engine.scheduling.admission import Admission
from engine.scheduling.budget import StepBudget
from engine.scheduling.endings import UNLOADED, Ending, Endings
from engine.scheduling.fitting import why_impossible
from engine.scheduling.orders import Orders
from engine.scheduling.parts import Part, segments
from engine.scheduling.plan import Segment, StepOutcome, StepPlan
from engine.scheduling.plan_cost import PlanCost, plan_cost
from engine.scheduling.policies.counters import Counters
from engine.scheduling.prefetch import Prefetch
from engine.scheduling.request import Ask, Outcome, Request, State
from engine.scheduling.rights import Rights
from engine.scheduling.running import Running
from engine.scheduling.settling import Settled, Settling
from engine.scheduling.telling import Teller
from engine.scheduling.waiting import Waiting
from engine.scheduling.waits import WaitBook, Waits
from telemetry.ledger.ledger import Ledger

TIMEOUTS = {
    "queue_timeout": "queue_timeout: it waited longer than its tenant lets a request wait",
    "deadline": "deadline: it was not finished in the time its tenant gives a request",
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A step to execute; before it the evicted are forgotten, host copies dropped, loads begun."""

    plan: StepPlan
    evicted: tuple[str, ...]
    dropped: tuple[str, ...]
    orders: tuple[LoadOrder, ...]


class Scheduler:
    """One pool's scheduler. `plan` and `settle` alternate; the rest may come in between."""

    def __init__(
        self,
        limits: Limits,
        pool: PagePool,
        residency: Residency,
        prefix: PrefixCache | None,
        counters: Counters,
        costs: CostModel,
        ledger: Ledger,
        base: ClockBase,
        *,
        rights: Rights | None = None,
        policy: str = "vtc",
        now: float = 0.0,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._residency = residency
        self._counters = counters
        self._ledger = ledger
        self._base = base
        self._rights = rights or Rights()
        self._prefix = prefix
        self.policy_version = 1
        self.costs = costs
        self._book = WaitBook(now)
        self._tell = Teller(ledger, base, pool, residency, counters)
        self._waiting = Waiting(ledger, self._book, counters, self._rights, policy)
        self._running = Running(limits, pool, residency, prefix, self._waiting, ledger, self._tell)
        self._endings = Endings(self._waiting, self._running, self._book, ledger, base)
        self._settling = Settling(
            self._waiting, self._running, self._endings, prefix, self._book, ledger
        )
        self._prefetch = Prefetch(
            residency,
            limits.prefetch,
            lambda r: self._running.pages_for(r.length),
            self._tell.evicted,
        )
        self._admission = Admission(
            limits,
            pool,
            prefix,
            self._waiting,
            self._running,
            self._prefetch,
            ledger,
        )
        self.orders = Orders(
            limits,
            pool,
            residency,
            counters,
            self._rights,
            self._waiting,
            self._running,
            self._endings,
            ledger,
            self._tell,
        )
        self._arrivals = 0
        self._step = 0
        self._step_started_s = now
        self._step_cost: PlanCost | None = None
        self._parts: list[Part] = []
        self._shared_reason = "budget"

    # -- questions

    @property
    def policy(self) -> str:
        return self._waiting.policy.name

    @property
    def counters(self) -> Counters:
        """Of virtual tokens, shadow ones under other policies: to be read."""
        return self._counters

    @property
    def backlogged(self) -> Iterable[str]:
        """The tenants with something waiting."""
        return self._waiting.queues.keys()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return self._waiting.count

    @property
    def expected_step_s(self) -> float:
        """What the cost model expects of the step planned last."""
        return self._step_cost.predicted_s if self._step_cost else 0.0

    @property
    def next_due_s(self) -> float | None:
        """When the next queue timeout or deadline passes, or an adapter may leave."""
        due, leaves = self._waiting.next_due_s, self.orders.next_due_s
        if due is None or leaves is None:
            return leaves if due is None else due
        return min(due, leaves)

    def check_integrity(self) -> None:
        """Every page is in exactly one place, and everybody's books say the same. Raises
        ValueError naming what is not so."""
        self._pool.check_integrity()
        self._residency.check_integrity()
        if self._prefix is not None:
            self._prefix.check_integrity()
        held = [p for r in self._running.sequences.values() for p in r.pages[r.shared :]]
        if len(set(held)) != len(held):
            raise ValueError("two sequences hold one page")
        if any(not len(q) for q in self._waiting.queues.values()):
            raise ValueError("an empty queue stands among those that wait")

    # -- the outside world, between steps

    def prefix_keys(self, ask: Ask) -> tuple[bytes, ...] | None:
        """Keys of the prompt's whole pages in the prefix cache. Pure: any thread may ask."""
        if self._prefix is None:
            return None
        return self._prefix.keys(self._rights.prefix_salt(ask.tenant), ask.adapter, ask.prompt)

    def submit(self, ask: Ask, joined_s: float, keys: tuple[bytes, ...] | None) -> None:
        """A request that has waited since `joined_s` (booked with the ledger at that instant);
        `keys` as `prefix_keys` gives them."""
        self._book.advance(self._ledger.now)
        request = Request(
            ask,
            self._arrivals,
            joined_s,
            self._ledger.index(ask.tenant),
            self._rights.group(ask),
            ask.tenant,
            len(ask.prompt),
            keys=keys,
            policy_version=self.policy_version,
        )
        self._arrivals += 1
        if ask.counted_with is not None:
            self._endings.count_with(request, ask.counted_with)
        self._endings.live[ask.request_id] = request
        self._waiting.add(request)
        if ask.adapter is not None and self._residency.knows(ask.adapter):
            found = self._residency.place(ask.adapter).found
            request.adapter_state = found
            self._ledger.count(ask.tenant, "adapter_lookups")
            self._ledger.count(ask.tenant, f"found_{found}")
            self._ledger.adapter(ask.adapter).lookups += 1
        impossible = why_impossible(
            ask, self._limits, self._pool, self._residency, self._ledger.now
        )
        if impossible is not None:
            self._endings.end(request, Outcome.FAILED, impossible)

    def abort(self, request_id: str, reason: str = "aborted by the client") -> None:
        request = self._endings.live.get(request_id)
        if request is not None:
            self._book.advance(self._ledger.now)
            self._endings.end(request, Outcome.ABORTED, reason)

    def preempt(self, tenant: str) -> int:
        """A tenant's sequences above its fair share wait again; returns how many."""
        self._book.advance(self._ledger.now)
        return self.orders.preempt(tenant)

    def complete(self, request_id: str) -> None:
        """Nothing more is wanted of it, and what it gave is a whole answer."""
        request = self._endings.live.get(request_id)
        if request is not None:
            self._book.advance(self._ledger.now)
            self._endings.end(request, Outcome.FINISHED, "stop")

    def charged_elsewhere(self, charges: Mapping[str, float]) -> None:
        """Other replicas of the pool have charged so much service since the last time: one view of
        who had what. Between two steps."""
        self._waiting.charged_elsewhere(charges)

    def waits_of(self, request_id: str) -> Waits | None:
        """Of a request that is not over."""
        request = self._endings.live.get(request_id)
        return None if request is None else request.waits

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
        for request in [r for r in self._endings.live.values() if r.ask.adapter == key]:
            self._endings.end(request, Outcome.FAILED, f"its adapter could not be loaded: {error}")

    def unload(self, key: str) -> bool:
        """Make an adapter unknown. Whoever waits for it fails; whoever runs with it goes on, and
        then it leaves. True: it has left already."""
        self._book.advance(self._ledger.now)
        gone = self._residency.unload(key, self._ledger.now)
        if gone:
            self._ledger.adapter(key).resident.set(0, self._ledger.now)
        for request in [r for r in self._endings.live.values() if r.ask.adapter == key]:
            if request.state is not State.RUNNING:
                self._endings.end(request, Outcome.FAILED, UNLOADED)
        return gone

    def use_policy(self, policy: str) -> str:
        """Switch the policy; returns the name of the one it replaces. Counters go on."""
        previous = self.policy
        self._waiting.use_policy(policy)
        for request in self._running.cohort.rows.values():
            self._running.cohort.sync(request)
            self._waiting.policy.joined_decode(request)
        self.policy_version += 1
        self._ledger.policy_version(self.policy_version)
        return previous

    def overdue(self, now: float) -> None:
        """Book gap targets passed by sequences that have begun and get no token: running ones in
        a step that takes too long, and preempted ones."""
        cohort = self._running.cohort
        for request in (*self._running.sequences.values(), *self._waiting.preempted.values()):
            last = cohort.last_token_s(request)
            if last is not None:
                self._ledger.gap(request.ask.request_id, now - last)

    # -- the step

    def plan(self) -> Planned:
        """Decide the next step at the ledger's present instant."""
        now = self._ledger.now
        self._book.advance(now)
        self._step += 1
        step, limits = self._step, self._limits
        waiting, running, cohort = self._waiting, self._running, self._running.cohort
        for request, reason in waiting.overdue(now):
            self._endings.end(request, Outcome.TIMED_OUT, TIMEOUTS[reason])
        self.orders.leave_now()
        waiting.begin_plan()
        self._prefetch.begin(self.expected_step_s)
        running.compose(step)
        for request in running.grow(now):
            # Its adapter drained, and may have left with it: it could never start again.
            if request.ask.adapter is not None and not self._residency.knows(request.ask.adapter):
                self._endings.end(request, Outcome.FAILED, UNLOADED)
        # Decode rows first, so that a long prefill never starves them; then whoever overtakes the
        # prefills under way, those prefills (who was left out last goes first), and admissions.
        budget = self._budget()
        parts: list[Part] = []
        stop: str | None = None
        if running.filling:
            filling = sorted(running.filling.values(), key=lambda r: r.last_step)
            self._admission.admit(budget, parts, now, step, filling)
            for request in filling:
                part = running.part(request, budget, step)
                if part is not None:
                    parts.append(part)
                elif not budget.has_place(request.ask.adapter):
                    # Else new rows would keep the adapters of this step in the next ones too, and
                    # a prefill under way would wait for its place for ever.
                    stop = "budget"
        if stop is None:
            stop = self._admission.admit(budget, parts, now, step, ())
        if stop is None:
            # Whoever arrives from now on waits for a slot, or for this step to end.
            stop = "slot" if len(running) >= limits.slots else "budget"
        waiting.end_plan(stop)
        self._shared_reason = stop
        self._look_ahead(now)
        self._parts = parts
        self._step_started_s = now
        cost = None
        if parts or cohort.rows:
            cost = plan_cost(self.costs, cohort, parts, budget.beside)
        self._step_cost = cost
        plan = self._as_plan(step, parts, budget.beside)
        self._tell.begin(step, cost, plan, self.costs.version, stop, waiting.examined.values())
        left = self._residency.take_left()
        for key in left:
            self._ledger.adapter(key).resident.set(0, now)
        return Planned(
            plan,
            self._tell.take_forgotten() + left,
            self._residency.take_dropped() + left,
            self._prefetch.take_orders(),
        )

    def _look_ahead(self, now: float) -> None:
        """Adapters for those who come next, while the step runs."""
        residency, waiting = self._residency, self._waiting
        if residency.everything_on_device:
            residency.keep_only(())
            return
        ahead = waiting.policy.scan()
        try:
            idle = not len(self._running)
            self._prefetch.look_ahead(ahead, waiting.examined.values(), now, idle=idle)
        finally:
            ahead.close()

    def _budget(self) -> StepBudget:
        limits, costs, cohort = self._limits, self.costs, self._running.cohort
        rows, adapters = len(cohort), len(cohort.adapters)
        seconds = None
        if limits.step_s is not None and rows:
            seconds = limits.step_s - costs.totals(0, rows, cohort.context, adapters)
        return StepBudget(
            limits.step_tokens - rows,
            limits.adapters_per_step - adapters,
            cohort.adapters,
            seconds,
            costs,
            limits.page_tokens,
        )

    def _as_plan(self, step: int, parts: list[Part], beside: Mapping[str, int]) -> StepPlan:
        cohort = self._running.cohort
        prefill = context = 0
        for part in parts:
            prefill += part.count
            context += part.context_tokens
        adapters = len(cohort.adapters)
        for adapter in beside:
            adapters += adapter not in cohort.adapters
        return StepPlan.of_totals(
            step,
            prefill,
            len(cohort),
            context + cohort.context,
            adapters,
            partial(self._segments, step, parts),
        )

    def _segments(self, step: int, parts: list[Part]) -> tuple[Segment, ...]:
        if step != self._step:
            raise ValueError(f"step {step} is over: its segments can no longer be made")
        cohort = self._running.cohort
        return segments(cohort, tuple(cohort.rows.values()), parts)

    def settle(self, plan: StepPlan, outcome: StepOutcome) -> Settled:
        """Book what the step produced, at the ledger's present instant."""
        now = self._ledger.now
        self._book.advance(now)
        return self._settling.settle(
            outcome, self._parts, self._step_cost, now - self._step_started_s
        )

    def take_ended(self) -> tuple[Ending, ...]:
        return self._endings.take()

    # -- jumping over identical steps

    def steady_steps(self, most: int) -> int:
        """How many further steps would be like the last one if nothing came from outside: only
        decode rows, the same ones, nobody who could start, grow or finish."""
        waiting, running = self._waiting, self._running
        if not running.steady or not running.cohort.rows:
            return 0
        if waiting.count:
            if self._shared_reason != "slot" or len(running) < self._limits.slots:
                return 0
            if self._limits.prefetch and not self._residency.everything_on_device:
                return 0  # counters change who the heads are, and so what is fetched for them
        return running.cohort.steady_steps(most)

    def jump(self, ends: Sequence[float], predicted_s: Sequence[float]) -> int:
        """Decode steps of exactly these predicted lengths have ended at these instants. Returns
        the tokens made. Only after `steady_steps`, and within what it allowed."""
        cohort, costs, steps = self._running.cohort, self.costs, len(ends)
        rows, adapters = len(cohort), len(cohort.adapters)
        first = cohort.decode_cost_s(costs.decode_row_s, costs.context_token_s, costs.adapter_s, {})
        total = steps * first + costs.context_token_s * (steps * (steps - 1) / 2) * cohort.rows_of
        self._ledger.jump(
            self._step + 1,
            self._ledger.now,
            ends,
            predicted_s,
            total,
            steps * cohort.rows_of,
            rows,
            [cohort.context + i * rows for i in range(steps)],
            adapters,
            costs.version,
        )
        now = self._ledger.now
        self._book.advance(now)
        self._step += steps
        cohort.jumped(ends)
        self._counters.stepped(steps)
        self._waiting.policy.stepped(steps)
        return steps * rows

    @property
    def decode_totals(self) -> tuple[int, int, int]:
        """Rows, keys attended and adapters of the next step if only the cohort takes part."""
        cohort = self._running.cohort
        return len(cohort), cohort.context, len(cohort.adapters)
