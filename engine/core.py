"""The core of a worker: the step, the inbox, the timer. Ties scheduler, runner and ledger.

    planned = scheduler.plan()  ->  outcome = runner.execute(plan)  ->  scheduler.settle(...)

One thread (the core thread) steps; any thread may submit, abort, switch the policy or ask. The
ledger's lock orders them; it is never held while a step executes. Knows no tensors, no HTTP.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.between_steps import BetweenSteps
from engine.chronicle import Chronicle, KnownAdapter
from engine.clock import Clock
from engine.config import POLICIES, Settings, Tenant
from engine.costs import CostModel, Trim
from engine.errors import EngineError
from engine.ledger_timer import LedgerTimer
from engine.loading import LoadDone, Transfers
from engine.memory.moves import LoadOrder
from engine.memory.pool import PagePool
from engine.memory.prefix import PrefixCache
from engine.memory.residency import Residency
from engine.scheduling.endings import Ending
from engine.scheduling.plan import Runner, StepOutcome, StepPlan, TokenLogprobs
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Ask
from engine.scheduling.rights import Rights
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.settling import Settled
from engine.scheduling.waits import FirstWaits
from telemetry.ledger.ledger import Ledger, PoolFacts
from telemetry.ledger.views import Identity, Targets
from telemetry.records import Batch, EngineRun

CHECK_EVERY_S = 60.0  # of idleness
MOST_JUMPED = 4096  # steps at once

PrefixKeys = tuple[bytes, ...] | None

# (costs, rows, context tokens, adapters, most steps, until, longest step) -> ends, predictions:
# how a runner in virtual time says when decode steps like the last one would end.
JumpEnds = Callable[
    [CostModel, int, int, int, int, float, float | None], tuple[list[float], list[float]]
]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave to the outside: tokens in order, then who ended."""

    tokens: tuple[tuple[str, int], ...] = ()
    ended: tuple[Ending, ...] = ()
    made: int = 0  # tokens, whether anybody wants to know them or not
    steps: int = 0  # executed: more than one when identical ones were jumped over
    logprobs: Mapping[str, TokenLogprobs] | None = None  # of the tokens' requests that asked
    waits: Mapping[str, FirstWaits] | None = None  # of those that had their first token and asked


class _Complete(str):
    """The id of a request that is to finish; a plain one is to be aborted."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PolicyChange:
    version: int
    policy: str
    previous: str


@dataclass(frozen=True, slots=True)
class CoreStatus:
    policy: str
    policy_version: int
    running: int
    waiting: int
    last_token_age_s: float
    steps: int
    output_tokens: int
    pages: int
    free_pages: int
    now_s: float
    frozen: bool  # a step has run for over ten times what the cost model expects


class EngineCore:
    """One pool. `emit` takes what the ledger has to send; it must not block."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        clock: Clock,
        runner: Runner,
        transfers: Transfers,
        pool: PagePool,
        costs: CostModel,
        adapters: tuple[KnownAdapter, ...] = (),
        *,
        emit: Callable[[Batch], None] = lambda batch: None,
        trim: Trim | None = None,
        book: type[Ledger] = Ledger,
    ) -> None:
        """`trim`: fit the cost model's scale to the first served steps; None = keep it as it is.
        `book`: the kind of ledger, where nobody reads the rows of the usual one."""
        self._trim = trim
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._runner = runner
        self._transfers = transfers
        self._pool = pool
        now = clock.now()
        self.ledger = book(
            identity,
            PoolFacts(settings.limits.slots, pool.pages * pool.page_bytes),
            wall_s=clock.base.wall_s,
            bucket_s=settings.bucket_s,
            start_s=now,
            targets={
                t.name: Targets(t.slo.ttft_s, t.slo.tpot_s, t.slo.max_gap_s)
                for t in settings.tenants
            },
            weights={t.name: t.weight for t in settings.tenants},
        )
        limits = settings.limits
        prefix = PrefixCache(pool, limits.page_tokens) if limits.prefix_cache else None
        pool.listener = self.ledger
        residency = Residency(pool, prefix, host_cap=limits.host_adapters)
        for adapter in adapters:
            residency.register(adapter.key, adapter.pages, in_host=True)
        self.adapters = adapters
        self._by_name = {a.name: a for a in adapters}
        counters = Counters(
            {t.name: t.weight for t in settings.tenants},
            {t.name: t.tier for t in settings.tenants if t.tier},
        )
        self.ledger.counter_of = counters.value
        self.scheduler = Scheduler(
            limits,
            pool,
            residency,
            prefix,
            counters,
            costs,
            self.ledger,
            clock.base,
            rights=Rights({t.name: t for t in settings.tenants}, settings.knobs),
            policy=settings.policy,
            now=now,
        )
        self._chronicle = Chronicle(self.ledger, settings, clock.base)
        self._checked_s = now
        self._alive: set[str] = set()
        self._telling: set[str] = set()  # whose waits are to be told with their first token
        self._wake = threading.Condition()
        self._inbox: deque[tuple[Ask, float, PrefixKeys] | str] = deque()
        self._loads: deque[LoadDone] = deque()
        self.between_steps = BetweenSteps(self.ledger.lock, self._notify)
        self._ordered: list[LoadOrder] = []  # loads that an operator's order began
        self._steps = 0
        self._output_tokens = 0
        self._stepped = False  # the last step may have made room: plan once more
        self._step_since: float | None = None
        self._step_expected_s = 0.0
        self._timer = LedgerTimer(
            self.ledger, self.scheduler, clock, self._chronicle, emit, settings.provisional_s
        )
        transfers.on_done(self._load_done)

    # -- any thread

    def adapter_key(self, name: str) -> str | None:
        """Content hash of a named adapter; None when no such adapter is known."""
        known = self._by_name.get(name)
        return known.key if known else None

    def submit(self, ask: Ask) -> None:
        """The request waits from now on; it is looked at when the next step is planned. Raises
        EngineError when a request of that id is still alive."""
        keys = self.scheduler.prefix_keys(ask)  # hashing a long prompt must not hold up a step
        with self.ledger.lock:
            if ask.request_id in self._alive:
                raise EngineError(f"request id {ask.request_id!r} is in use: ids are used once")
            self._alive.add(ask.request_id)
            if ask.tell_waits:
                self._telling.add(ask.request_id)
            joined = self.ledger.joined(
                ask.request_id, ask.tenant, ask.arrived_s, self._clock.now()
            )
            self._inbox.append((ask, joined, keys))
        self._notify()

    def abort(self, request_id: str) -> None:
        """Unknown or ended requests are ignored: an abort may cross an ending on its way."""
        with self.ledger.lock:
            self._inbox.append(request_id)
        self._notify()

    def complete(self, request_id: str) -> None:
        """Nothing more is wanted of a request, and what it gave is whole: it finishes."""
        with self.ledger.lock:
            self._inbox.append(_Complete(request_id))
        self._notify()

    def set_policy(
        self,
        policy: str,
        *,
        who: str,
        why: str,
        if_version: int = 0,
        tenants: tuple[Tenant, ...] | None = None,
        said: str = "",
    ) -> PolicyChange:
        """In force from the next plan on. `tenants`: their weights and tiers are as here with it;
        limits the front applies, here they are recorded. `said`: what the event says instead of
        which policy came for which. Raises EngineError for an unknown name or a version that is no
        longer in force."""
        if policy not in POLICIES:
            raise EngineError(f"policy {policy!r} is not known: use one of {', '.join(POLICIES)}")
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            version = self.scheduler.policy_version
            if if_version and if_version != version:
                raise EngineError(
                    f"policy version {if_version} is no longer in force, {version} is: look again"
                )
            if tenants is not None:
                self.scheduler.orders.use_tenants({t.name: t for t in tenants})
                self._chronicle.tenants(tenants)
            previous = self.scheduler.use_policy(policy)
            version = self.scheduler.policy_version
            self._chronicle.policy(version, policy, previous, who, why)
            said = said or f"{previous} -> {policy}"
            self._chronicle.event(
                "policy", f"{said} by {who}: {why}" if why else f"{said} by {who}"
            )
            return PolicyChange(version, policy, previous)

    def take_in(self, known: KnownAdapter, scheduler: Scheduler) -> None:
        """An adapter is served from now on, under its name. Within `between_steps`."""
        was = self._by_name.get(known.name)
        scheduler.orders.take_in(known.key, known.pages)
        self.adapters = (*(a for a in self.adapters if a.name != known.name), known)
        self._by_name = {a.name: a for a in self.adapters}
        self._chronicle.adapter(known)
        if was is not None:
            self._leave_if_nameless(was.key, scheduler)

    def let_leave(self, name: str, scheduler: Scheduler) -> None:
        """The name is no adapter's any more; its bytes go when no request needs them and no other
        name is theirs. Within `between_steps`."""
        gone = self._by_name.pop(name, None)
        self.adapters = tuple(a for a in self.adapters if a.name != name)
        if gone is not None:
            self._leave_if_nameless(gone.key, scheduler)

    def _leave_if_nameless(self, key: str, scheduler: Scheduler) -> None:
        if all(a.key != key for a in self.adapters):
            scheduler.orders.let_leave(key)

    def pin(self, keys: Mapping[str, str], scheduler: Scheduler) -> None:
        """Exactly these adapters (key -> whose load it is) stay on the device. Within
        `between_steps`."""
        for order in scheduler.orders.pin(keys):
            self._ordered.append(order)

    def operated(
        self,
        what: str,
        *,
        tenant: str | None = None,
        adapter: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Write down what an operator did. Any thread."""
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            self._chronicle.event(
                "admin", what, tenant=tenant, adapter=adapter, request_id=request_id
            )

    def status(self) -> CoreStatus:
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            now = self.ledger.now
            since = self._step_since
            frozen = since is not None and now - since > max(1.0, 10 * self._step_expected_s)
            return CoreStatus(
                self.scheduler.policy,
                self.scheduler.policy_version,
                self.scheduler.running,
                self.scheduler.waiting + sum(not isinstance(i, str) for i in self._inbox),
                self.ledger.last_token_age_s,
                self._steps,
                self._output_tokens,
                self._pool.pages,
                self._pool.free_pages,
                now,
                frozen,
            )

    # -- the core thread

    def wait_for_work(self, timeout_s: float) -> bool:
        """Block until a step is worth planning, at most `timeout_s`."""
        with self._wake:
            if not self._has_work():
                due = self.scheduler.next_due_s
                if due is not None:
                    timeout_s = min(timeout_s, max(0.0, due - self._clock.now()))
                self._wake.wait(timeout_s)
            return self._has_work()

    def _has_work(self) -> bool:
        if self._inbox or self._loads or self._stepped or self.scheduler.running:
            return True
        if self.between_steps:
            return True
        due = self.scheduler.next_due_s
        return due is not None and due <= self._clock.now()

    def step(self, until_s: float | None = None) -> StepResult:
        """Plan, execute, settle. Loads begun by the plan run beside the step.

        `until_s`: nothing comes from outside before that instant; a runner in virtual time may
        then jump over steps that are like the one just made."""
        result = self._one_step()
        jump = getattr(self._runner, "ends", None)
        if until_s is None or jump is None or result.ended or not result.steps:
            return result
        made, steps = self._jump(jump, until_s)
        if not steps:
            return result
        return StepResult(result.tokens, result.ended, result.made + made, 1 + steps)

    def _jump(self, ends_of: JumpEnds, until_s: float) -> tuple[int, int]:
        scheduler, ledger = self.scheduler, self.ledger
        if self._inbox or self._loads or self.between_steps:
            return 0, 0
        most = scheduler.steady_steps(MOST_JUMPED)
        if most < 2:
            return 0, 0
        due = scheduler.next_due_s
        until_s = min(until_s, ledger.next_seal_s, math.inf if due is None else due)
        rows, context, adapters = scheduler.decode_totals
        ends, predicted = ends_of(
            scheduler.costs, rows, context, adapters, most, until_s, ledger.smallest_gap_s
        )
        if not ends:
            return 0, 0
        with ledger.lock:
            made = scheduler.jump(ends, predicted)
            self._steps += len(ends)
            self._output_tokens += made
        return made, len(ends)

    def _one_step(self) -> StepResult:
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            self._take_in()
            planned = self.scheduler.plan()
            plan = planned.plan
            if not plan.empty:
                self._step_since = self.ledger.now
                self._step_expected_s = self.scheduler.expected_step_s
        for key in planned.evicted:
            self._transfers.forget(key)
        for key in planned.dropped:
            self._transfers.drop_copy(key)
        ordered, self._ordered = self._ordered, []
        for order in (*ordered, *planned.orders):
            self._transfers.begin(order)
        self._stepped = not plan.empty
        if plan.empty:
            with self.ledger.lock:
                self._check_integrity()
                return StepResult((), self._over(self.scheduler.take_ended()))
        outcome = self._execute(plan)
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            settled = self.scheduler.settle(plan, outcome)
            if not outcome.failed:
                self._scale_costs()
            self._step_since = None
            self._steps += 1
            self._output_tokens += settled.made
            waits = self._first_waits(settled) if self._telling else None
            ended = self._over(settled.ended)
            return StepResult(settled.tokens, ended, settled.made, 1, outcome.logprobs, waits)

    def _first_waits(self, settled: Settled) -> dict[str, FirstWaits]:
        over = {e.request_id: e.request.waits for e in settled.ended}
        told = {}
        for request_id, _ in settled.tokens:
            if request_id not in self._telling:
                continue
            self._telling.discard(request_id)
            waits = over.get(request_id) or self.scheduler.waits_of(request_id)
            if waits is not None:
                told[request_id] = FirstWaits.of(waits)
        return told

    def _check_integrity(self) -> None:
        """When there is nothing to do, look whether every page is where the books say."""
        now = self.ledger.now
        if now - self._checked_s < CHECK_EVERY_S or self.scheduler.waiting:
            return
        self._checked_s = now
        try:
            self.scheduler.check_integrity()
        except ValueError as e:
            print(f"the pool's books are wrong: {e}", file=sys.stderr, flush=True)
            self._chronicle.event("fault", f"the pool's books are wrong: {e}")

    def _over(self, ended: tuple[Ending, ...]) -> tuple[Ending, ...]:
        self._alive.difference_update(e.request_id for e in ended)
        if self._telling:
            self._telling.difference_update(e.request_id for e in ended)
        return ended

    def _scale_costs(self) -> None:
        if self._trim is None or self._step_since is None or self._step_expected_s <= 0:
            return
        duration = self.ledger.now - self._step_since
        factor = self._trim.offer(duration, self._step_expected_s)
        if factor is None:
            return
        self.scheduler.costs = self.scheduler.costs.scaled(factor)
        self._chronicle.event(
            "costs", f"cost model scaled by {factor:.2f} after the first served steps"
        )
        self._chronicle.costs(self.scheduler.costs)

    def _execute(self, plan: StepPlan) -> StepOutcome:
        """A runner that raises fails the rows of this step and nobody else."""
        try:
            return self._runner.execute(plan)
        except Exception as e:
            # The text may hold anything: it is for the operator, not for answers or the store.
            print(f"step {plan.step} failed: {e!r}", file=sys.stderr, flush=True)
            reason = f"the step failed ({type(e).__name__})"
            with self.ledger.lock:
                self._chronicle.event("fault", reason)
            return StepOutcome({}, {s.request_id: reason for s in plan.segments})

    def _take_in(self) -> None:
        while self._loads:
            done = self._loads.popleft()
            self.scheduler.loaded(done.key, done.error)
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, _Complete):
                self.scheduler.complete(item)
            elif isinstance(item, str):
                self.scheduler.abort(item)
            else:
                self.scheduler.submit(*item)
        self.between_steps.carry_out(self.scheduler)

    def _load_done(self, done: LoadDone) -> None:
        self._loads.append(done)
        self._notify()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    # -- the timer

    def start(self) -> None:
        """Start the timer."""
        self._timer.start()

    def tick(self) -> None:
        """Let time pass in the ledger and send what is due; a frozen step accrues here."""
        self._timer.tick()

    def close(self) -> None:
        """Stop the timer and send what is left. The core thread must have stopped stepping."""
        self._timer.stop()
        self._transfers.close()
        self._timer.last_words("the worker stops")

    def announce(self, run: EngineRun, left_out: tuple[str, ...] = ()) -> None:
        """Log the run, its adapters, the names of those left out, the policy it starts with."""
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            self._chronicle.announce(run, self.adapters, left_out, self.scheduler.policy)
