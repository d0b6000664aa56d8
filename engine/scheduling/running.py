"""The running sequences: who decodes, who prefills, who grows, and who gives way.

Owns sequences, their pages and their places in the cohort; admits nobody. The only place that
preempts: a running sequence that must grow may take the pages of another, admission never does.
"""

from __future__ import annotations

from engine.config import Limits
from engine.memory.pool import PagePool, Short
from engine.memory.prefix import PrefixCache
from engine.memory.residency import Residency
from engine.scheduling.budget import StepBudget
from engine.scheduling.cohort import Cohort
from engine.scheduling.parts import Part
from engine.scheduling.request import Request, State
from engine.scheduling.telling import Teller
from engine.scheduling.waiting import Waiting
from engine.scheduling.waits import SCHEDULED
from telemetry.ledger.ledger import Ledger


class Running:
    """`prefix` None: nothing is cached."""

    def __init__(
        self,
        limits: Limits,
        pool: PagePool,
        residency: Residency,
        prefix: PrefixCache | None,
        waiting: Waiting,
        ledger: Ledger,
        tell: Teller,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._residency = residency
        self._prefix = prefix
        self._waiting = waiting
        self._ledger = ledger
        self._tell = tell
        self.sequences: dict[int, Request] = {}  # in order of admission
        self.cohort = Cohort(limits.page_tokens)
        self.filling: dict[int, Request] = {}
        self._ready: dict[int, Request] = {}  # prefilled: decode from the next plan on
        self._benched: dict[int, Request] = {}  # decode, but the step has no room for them

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def steady(self) -> bool:
        """Only the cohort runs, and nobody is about to join it."""
        return not (self.filling or self._ready or self._benched)

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self._limits.page_tokens)

    # -- in and out

    def start(self, request: Request, now: float) -> None:
        """It has its pages, and its adapter is on the device."""
        adapter, tenant = request.ask.adapter, request.tenant
        if adapter is not None:
            self._residency.acquire(adapter, tenant, now)
            self._ledger.adapter(adapter).referenced.set(1, now)
        request.state = State.RUNNING
        self.sequences[request.sequence] = request
        self.filling[request.sequence] = request
        self._ledger.runs(tenant, +1)

    def leave(self, request: Request, now: float) -> None:
        """It stops running, for whatever reason: pages, references and its place are back."""
        number, tenant = request.sequence, request.tenant
        if request.decoding_since >= 0:
            self._decodes_no_more(request)
        else:
            self.filling.pop(number, None)
            self._ready.pop(number, None)
            self._benched.pop(number, None)
        self.takes_part(request, False)
        del self.sequences[number]
        self._ledger.runs(tenant, -1)
        pages, shared = request.pages, request.shared
        if shared:
            if self._prefix is None:
                raise ValueError("pages of a prefix cache, but there is none")
            self._prefix.release(pages[:shared], tenant, now)
            pages = pages[shared:]
        self._pool.give_back_kv(tenant, pages)
        request.pages = []
        request.shared = 0
        adapter = request.ask.adapter
        if adapter is not None:
            self._residency.release(adapter, tenant, now)
            if not self._pool.references(adapter):
                self._ledger.adapter(adapter).referenced.set(0, now)

    def takes_part(self, request: Request, does: bool) -> None:
        if request.in_step is not does:
            request.in_step = does
            self._ledger.in_step(request.tenant, 1 if does else -1)

    # -- prefill

    def part(self, request: Request, budget: StepBudget, step: int) -> Part | None:
        """The request's part of the step within the budget; None: nothing is left for it, and it
        waits for budget."""
        adapter, start = request.ask.adapter, request.computed
        left = request.prompt_tokens + request.produced - start
        count = budget.chunk(left, start, adapter) if budget.allows(adapter) else 0
        if not count:
            self._waiting.move(request, "budget", "budget")
            self.takes_part(request, False)
            return None
        self._waiting.move(request, SCHEDULED)
        self.takes_part(request, True)
        request.last_step = step
        return Part(request, start, count, count == left)

    def decodes(self, request: Request) -> None:
        """Its prefill is complete and a token sampled: it decodes from the next plan on."""
        del self.filling[request.sequence]
        self._ready[request.sequence] = request

    # -- the cohort

    def compose(self, step: int) -> None:
        """Decide whose rows decode in this step. All of them, unless the step has no room."""
        cohort, limits = self.cohort, self._limits
        if not self._ready and not self._benched:
            return
        fits = not self._benched and len(cohort) + len(self._ready) <= limits.step_tokens
        if fits:
            adapters = {r.ask.adapter for r in self._ready.values()} - {None}
            new = sum(1 for a in adapters if a not in cohort.adapters)
            fits = len(cohort.adapters) + new <= limits.adapters_per_step
        if fits:
            width = self._ledger.width
            for request in self._ready.values():
                cohort.join(request, width)
                self._joined(request)
            self._ready.clear()
        else:
            self._rotate(step)

    def _joined(self, request: Request) -> None:
        self._waiting.move(request, SCHEDULED)
        self.takes_part(request, True)
        self._waiting.policy.joined_decode(request)
        self._waiting.counters.decoding(request.tenant, +1)
        self._waiting.queues.decoding(request, +1)

    def _decodes_no_more(self, request: Request) -> None:
        self.cohort.leave(request)
        self._waiting.policy.left_decode(request)
        self._waiting.counters.decoding(request.tenant, -1)
        self._waiting.queues.decoding(request, -1)

    def _rotate(self, step: int) -> None:
        """More rows or adapters than a step takes: those left out last go first."""
        waiting = sorted(self._benched.values(), key=lambda r: r.last_step)
        order = [*waiting, *self._ready.values(), *self.cohort.rows.values()]
        tokens, adapters = self._limits.step_tokens, self._limits.adapters_per_step
        inside: set[str] = set()
        self._ready.clear()
        joining = []
        for request in order:
            adapter = request.ask.adapter
            if tokens and (adapter is None or adapter in inside or len(inside) < adapters):
                tokens -= 1
                if adapter is not None:
                    inside.add(adapter)
                if request.decoding_since < 0:
                    joining.append(request)
                continue
            if request.decoding_since >= 0:
                self._decodes_no_more(request)
                request.last_step = step - 1
            self._benched[request.sequence] = request
            self.takes_part(request, False)
            self._waiting.move(request, "budget", "budget")
        width = self._ledger.width
        for request in joining:
            self._benched.pop(request.sequence, None)
            self.cohort.join(request, width)
            self._joined(request)

    # -- growth and preemption

    def grow(self, now: float) -> list[Request]:
        """Pages for the tokens that the cohort is about to write. Returns who gave way for them:
        they wait again."""
        gave_way: list[Request] = []
        cohort, size = self.cohort, self._limits.page_tokens
        try_take = self._pool.try_take_kv
        for request in cohort.growing():
            while request.decoding_since >= 0:
                length = cohort.length(request)
                held = request.pages
                missing = -(-length // size) - len(held)
                if missing <= 0:
                    break
                pages = try_take(request.tenant, missing)
                if not isinstance(pages, Short):
                    held += pages
                    cohort.wants_page(request, length, len(held))
                    break
                short, evictions = self._residency.make_room(missing, request.tenant, now)
                self._tell.evicted(evictions)
                if short is None:
                    continue
                # With nobody else to give way, adapters fetched ahead or pinned go.
                if len(self.sequences) > 1 or not self._residency.let_go_of_pins():
                    gave_way.append(self._give_way(request, now))
        return gave_way

    def _give_way(self, grower: Request, now: float) -> Request:
        """Preempt somebody so that `grower` may grow; it may be itself."""
        bound = self._limits.preemptions
        everybody = list(self.sequences.values())
        for row in self.cohort.rows.values():
            self.cohort.sync(row)
        candidates = [r for r in everybody if r.preemptions < bound] or everybody
        victim = self._waiting.policy.victim(candidates) or grower
        self._tell.blame("preemptions_caused", grower.tenant)
        self.put_back(victim, now, grower.tenant)
        return victim

    def put_back(self, victim: Request, now: float, cause: str | None) -> None:
        """A running sequence gives its pages and its slot back and waits again. Its row must be
        up to date (`Cohort.sync`). `cause`: who grew; None = a person said so."""
        length = self.cohort.length(victim)
        self.leave(victim, now)
        victim.state = State.PREEMPTED
        victim.preemptions += 1
        victim.computed = 0
        self._waiting.put_back(victim)
        self._ledger.count(victim.tenant, "preemptions_suffered")
        self._ledger.engine_count("preemptions")
        by = "" if cause is not None else ", by an operator"
        self._tell.event(
            "preempt",
            victim.tenant,
            request_id=victim.ask.request_id,
            cause=cause,
            detail=f"gave back its pages after {length} tokens{by}",
        )
