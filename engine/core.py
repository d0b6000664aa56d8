"""The core of a worker: the step, the inbox, the timer. Ties scheduler, runner and ledger.

    planned = scheduler.plan()  ->  outcome = runner.execute(plan)  ->  scheduler.settle(...)

One thread (the core thread) steps; any thread may submit, abort, switch the policy or ask. The
ledger's lock orders them; it is never held while a step executes. Knows no tensors, no HTTP.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.between_steps import BetweenSteps
from engine.chronicle import Chronicle, KnownAdapter
from engine.clock import Clock
from engine.config import POLICIES, Settings, Tenant
from engine.core_values import CoreStatus, PolicyChange, StepResult
from engine.cost_scale import CostScale
from engine.costs import CostModel, Trim
from engine.errors import EngineError
from engine.integrity import Integrity
from engine.jumping import jump
from engine.ledger_timer import LedgerTimer
from engine.loading import LoadDone, Transfers
from engine.memory.moves import LoadOrder
from engine.memory.pool import PagePool
from engine.memory.prefix import PrefixCache
from engine.memory.residency import Residency
from engine.scheduling.endings import Ending
from engine.scheduling.plan import Runner, StepOutcome, StepPlan
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Ask
from engine.scheduling.rights import Rights
from engine.scheduling.scheduler import Scheduler
from engine.served_adapters import ServedAdapters
from engine.shared_view import SharedView
from engine.under_way import UnderWay
from telemetry.ledger.ledger import Ledger, PoolFacts
from telemetry.ledger.views import Identity, Targets
from telemetry.records import Batch, EngineRun

PrefixKeys = tuple[bytes, ...] | None


class _Complete(str):
    """The id of a request that is to finish; a plain one is to be aborted."""

    __slots__ = ()


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
        share_every_s: float | None = None,
    ) -> None:
        """`trim`: fit the cost model's scale to the first served steps; None = keep it as it is.
        `book`: the kind of ledger, where nobody reads the rows of the usual one. `share_every_s`:
        one of several replicas, which tells the others what it charges (`SharedView`)."""
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
        most, most_bytes = limits.host_adapters, limits.host_adapter_bytes
        residency = Residency(pool, prefix, host_cap=most, host_cap_bytes=most_bytes)
        for adapter in adapters:
            residency.register(adapter.key, adapter.pages, in_host=True)
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
        self._served = ServedAdapters(adapters, self._chronicle)
        self.adapter_key = self._served.key_of
        self.take_in, self.let_leave = self._served.take_in, self._served.let_leave
        self._view = SharedView(self.scheduler, share_every_s) if share_every_s else None
        self._scale = CostScale(trim, self.scheduler, self._chronicle)
        self._integrity = Integrity(self.scheduler, self._chronicle, now)
        self._under_way = UnderWay()
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

    @property
    def adapters(self) -> tuple[KnownAdapter, ...]:
        return self._served.known

    def submit(self, ask: Ask) -> None:
        """The request waits from now on; it is looked at when the next step is planned. Raises
        EngineError when a request of that id is still alive."""
        keys = self.scheduler.prefix_keys(ask)  # hashing a long prompt must not hold up a step
        with self.ledger.lock:
            self._under_way.takes(ask)
            joined = self.ledger.joined(
                ask.request_id, ask.tenant, ask.arrived_s, self._clock.now()
            )
            self._inbox.append((ask, joined, keys))
        self._notify()

    def abort(self, request_id: str) -> None:
        """Unknown or ended requests are ignored: an abort may cross an ending on its way."""
        self._tell(request_id)

    def complete(self, request_id: str) -> None:
        """Nothing more is wanted of a request, and what it gave is whole: it finishes."""
        self._tell(_Complete(request_id))

    def _tell(self, item: str) -> None:
        with self.ledger.lock:
            self._inbox.append(item)
        self._notify()

    def charged_elsewhere(self, charges: Mapping[str, float]) -> None:
        """Other replicas of the pool have charged so much service (unweighted) since the last time:
        the next plan goes by it. Nothing to do in a pool of one."""
        if self._view is not None:
            with self.ledger.lock:
                self._view.came(charges)

    def set_policy(
        self,
        policy: str,
        *,
        who: str,
        why: str,
        if_version: int = 0,
        tenants: tuple[Tenant, ...] | None = None,
        said: str = "",
        is_event: bool = True,
    ) -> PolicyChange:
        """In force from the next plan on. `tenants`: their weights and tiers are as here with it;
        limits the front applies, here they are recorded. `said`: what the event says instead of
        which policy came for which; `is_event` False: another replica of the pool says it. Raises
        EngineError for an unknown name or a version that is no longer in force."""
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
            if is_event:
                self._chronicle.event(
                    "policy", f"{said} by {who}: {why}" if why else f"{said} by {who}"
                )
            return PolicyChange(version, policy, previous)

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
        at_unix_s: float | None = None,
    ) -> None:
        """Write down what an operator did, now or at that instant. Any thread."""
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            self._chronicle.event(
                "admin",
                what,
                tenant=tenant,
                adapter=adapter,
                request_id=request_id,
                at_unix_s=at_unix_s,
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
        ends_of = getattr(self._runner, "ends", None)
        if until_s is None or ends_of is None or result.ended or not result.steps:
            return result
        if self._inbox or self._loads or self.between_steps:
            return result
        made, steps = jump(self.scheduler, self.ledger, ends_of, until_s)
        if not steps:
            return result
        self._steps += steps
        self._output_tokens += made
        return replace(result, made=result.made + made, steps=1 + steps)

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
                self._integrity.check(self.ledger.now)
                ended = self._over(self.scheduler.take_ended())
                return StepResult((), ended, charges=self._charges())
        outcome = self._execute(plan)
        with self.ledger.lock:
            self.ledger.tick(self._clock.now())
            settled = self.scheduler.settle(plan, outcome)
            if not outcome.failed and self._step_since is not None:
                self._scale.stepped(self.ledger.now - self._step_since, self._step_expected_s)
            self._step_since = None
            self._steps += 1
            self._output_tokens += settled.made
            waits = self._under_way.first_waits(settled, self.scheduler.waits_of)
            ended = self._over(settled.ended)
            return StepResult(
                settled.tokens, ended, settled.made, 1, outcome.logprobs, waits, self._charges()
            )

    def _charges(self) -> Mapping[str, float] | None:
        return None if self._view is None else self._view.due(self.ledger.now)

    def _over(self, ended: tuple[Ending, ...]) -> tuple[Ending, ...]:
        self._under_way.over(ended)
        return ended

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
        if self._view is not None:
            self._view.apply()
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
