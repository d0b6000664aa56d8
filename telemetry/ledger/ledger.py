"""The ledger: what every tenant asked for, got, and waited for behind whom, by the bucket.

Owns time and the open bucket; never touches queues, tensors, sockets or files. It is told events,
each at an instant under `lock` after `tick(now)` (only `tick`, `begin`, `settle`, `jump`, `take`
take the lock themselves); a timer thread only lets time pass, so that a frozen step still
accrues. Time never goes back. Buckets are cut at multiples of `bucket_s` of UTC. A step costs a
few numpy calls over the tenants present, an event some plain writes; rows are made outside the
lock by `Taken`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from telemetry.ledger.costs import Owed, accumulate
from telemetry.ledger.events import Events
from telemetry.ledger.interference import ADAPTER_SHORT, SHARED, adapter_group
from telemetry.ledger.steps import StepBook
from telemetry.ledger.taken import WP, WQ, Bucket, Taken, bucket_keys, sample_row
from telemetry.ledger.tenants import COLUMN, N_COLUMNS
from telemetry.ledger.vectors import Vector
from telemetry.ledger.views import Identity, StepView, Targets, TenantWork
from telemetry.records import Batch

__all__ = ["ADAPTER_SHORT", "SHARED", "WP", "WQ", "Ledger", "PoolFacts", "adapter_group"]

_OUTPUT = COLUMN["output_tokens"]
_PROMPT, _CACHED = COLUMN["prompt_tokens"], COLUMN["cached_tokens"]
_RECOMPUTED = COLUMN["recomputed_tokens"]


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Sizes that do not change during a run."""

    slots: int
    pool_bytes: int


class Ledger(Events):
    """One worker's ledger. See the module's docstring for who may call what."""

    def __init__(
        self,
        identity: Identity,
        facts: PoolFacts,
        *,
        wall_s: float,
        bucket_s: float,
        start_s: float = 0.0,
        targets: Mapping[str, Targets] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(start_s, targets or {}, weights or {})
        self.identity = identity
        self.lock = threading.RLock()
        self.counter_of: Callable[[str], float] | None = None  # virtual token counters
        self._facts = facts
        self._wall_s = wall_s
        self._bucket_s = bucket_s
        self._step = StepBook(self._engine, bucket_s, start_s)
        self._bucket_unix = (wall_s + start_s) // bucket_s * bucket_s
        self._bucket_end = self._bucket_unix + bucket_s - wall_s
        self._observed_from = start_s
        self._owed = Owed()
        self._sampled = partial(sample_row, identity, wall_s)
        self._seq = 0
        self._sealed: list[Bucket] = []

    # -- time

    def tick(self, now: float) -> None:
        """Let time pass up to `now`; seals the buckets that end on the way."""
        with self.lock:
            if now > self.now:
                self._until(now)

    def _until(self, now: float) -> None:
        if now <= self.now:
            return
        while now >= self._bucket_end:
            self._integrate(self._bucket_end)
            self._seal(self._bucket_end)
        self._integrate(now)

    def _integrate(self, until: float) -> None:
        start = self.now
        passed = until - start
        if passed <= 0:
            return
        self._pass(until, *self._step.split(start, passed))
        if self._populace:
            self._engine.token_age(until - self._last_progress_s)

    def _pass(self, until: float, table_s: float, lost_s: float) -> None:
        self._matrix.advance(table_s, lost_s)
        self._engine.passed(until - self.now)
        self.now = until
        self._into = until - self._observed_from
        if self._slo.next_due_s < until:
            self._slo.due(until)

    # -- steps

    def begin(self, view: StepView, now: float) -> None:
        """From `now` until the next call the step is as `view` says."""
        with self.lock:
            if now > self.now:
                self._until(now)
            self._step.begin(view, self.now)
            predicted, matrix = view.predicted_s, self._matrix
            prefill: dict[int, float] = {}
            if view.prefill_cost_s:
                prefill = {self.index(t): s for t, s in view.prefill_cost_s.items()}
            matrix.use_costs(view.decode_cost_s, prefill)
            if prefill and predicted:
                matrix.stall({i: s / predicted for i, s in prefill.items() if s})
            else:
                matrix.stall({})
            matrix.shared_reason(view.shared_reason)
            pinned = view.pinned_bytes
            matrix.pool(view.free_bytes + view.cached_bytes - pinned, pinned)
            if view.blame:
                matrix.blame(view.blame)
            engine = self._engine
            engine.cached_bytes, engine.free_bytes = view.cached_bytes, view.free_bytes

    def settle(
        self,
        work: Mapping[str, TenantWork],
        decoded: Vector | None,
        now: float,
        *,
        failed_prefill_tokens: int = 0,
        failed_decode_rows: int = 0,
    ) -> None:
        """Book the step's tokens and costs, when they are there. `work` are tokens by tenant of
        prefills and of rows booked by themselves, `decoded` output tokens by index; what failed
        was planned (`begin`) and gave nothing."""
        with self.lock:
            if now > self.now:
                self._until(now)
            count = self._tenants.count
            made = 0
            for tenant, done in work.items():
                at = self.index(tenant) * N_COLUMNS
                count[at + _PROMPT] += done.prompt
                count[at + _CACHED] += done.cached
                count[at + _RECOMPUTED] += done.recomputed
                count[at + _OUTPUT] += done.output
                made += done.output + done.prompt + done.recomputed
            output = b"" if decoded is None else decoded.tobytes()
            if made or output.lstrip(b"\0"):
                self._last_progress_s = self.now
            if self._owed.owe(
                self._step.settled(failed_prefill_tokens, failed_decode_rows),
                self._matrix.costs,
                output,
            ):
                self._owed.pay(self._tenants, self._engine)
            self._matrix.stall({})  # what passes until the next plan stalls nobody

    def jump(
        self,
        first_step: int,
        start: float,
        ends: Sequence[float],
        predicted_s: Sequence[float],
        decode_cost_sum_s: Vector,
        decoded_sum: Vector,
        decode_rows: int,
        context_tokens: Sequence[int],
        adapters: int,
        cost_version: int,
    ) -> None:
        """Steps of decode rows only, as many as `ends`, like the one in force: the first from
        `start`, each to its instant in `ends`; the same as `begin` and `settle` for each.

        Nobody joins, leaves, waits for budget or changes what he holds meanwhile. The sums are
        over all these steps. Raises ValueError when they reach the end of the bucket.
        """
        with self.lock:
            self._until(start)
            if ends[-1] >= self._bucket_end:
                raise ValueError(
                    f"steps until {ends[-1]} s reach the end of the bucket at {self._bucket_end} s:"
                    " jump less far"
                )
            start = self.now
            if self._populace:
                then = self._last_progress_s
                for end in ends:
                    self._engine.token_age(end - then)
                    if decode_rows:
                        then = end
            self._last_progress_s = ends[-1] if decode_rows else self._last_progress_s
            billed_s = self._matrix.use_costs(decode_cost_sum_s, {}).total()
            self._matrix.stall({})
            table_s, lost_s = self._step.repeat(
                first_step,
                start,
                ends,
                predicted_s,
                decode_rows,
                context_tokens,
                adapters,
                cost_version,
                billed_s,
            )
            if ends[-1] > start:  # the clock may stand still: what lasts no time is no maximum
                self._pass(ends[-1], table_s, lost_s)
            t = self._tenants
            accumulate(t.engine_s, decode_cost_sum_s)
            accumulate(t.output, decoded_sum)

    # -- the way out

    @property
    def next_seal_s(self) -> float:
        """When the open bucket ends."""
        return self._bucket_end

    @property
    def has_sealed(self) -> bool:
        """Whether a bucket has been sealed since the last `take`."""
        return bool(self._sealed)

    def take(self, now: float) -> Taken:
        """What is to be sent: buckets sealed since the last call, then the open one as it is."""
        with self.lock:
            self._until(now)
            buckets = [*self._sealed, self._bucket(self.now, sealed=False)]
            self._sealed = []
            logs, self._logs = self._logs, []
            return Taken(self.identity, self._weights, buckets, logs)

    def collect(self, now: float) -> list[Batch]:
        """The same as rows, at once. Not for a thread that holds `lock` for others."""
        return self.take(now).batches()

    def _seal(self, end: float) -> None:
        self._sealed.append(self._bucket(end, sealed=True))
        for facts in self._step.take_samples():
            self._logs.append((self._sampled, facts))
        self._tenants.restart(self._matrix.present())
        self._matrix.drain()
        for key, book in list(self._adapters.items()):
            if book.idle():
                del self._adapters[key]
            else:
                book.restart(end)
        self._engine.restart()
        self._bucket_unix += self._bucket_s
        self._bucket_end = self._bucket_unix + self._bucket_s - self._wall_s
        self._observed_from = end
        self._into = 0.0

    def _bucket(self, end: float, *, sealed: bool) -> Bucket:
        """Copies of everything, in a few numpy calls and one call a tenant for its counter."""
        matrix, facts = self._matrix, self._facts
        matrix.close()
        self._owed.pay(self._tenants, self._engine)
        numbers = self._tenants.numbers(self._into, end)
        names, counter_of = numbers.names, self.counter_of
        observed = end - self._observed_from
        keys = bucket_keys(self._bucket_unix, self._bucket_s, self.identity)
        common = {"observed_seconds": observed, "policy_version": float(self._policy_version)}
        self._seq += 1
        return Bucket(
            sealed=sealed,
            seq=self._seq,
            start=self._bucket_unix,
            bucket_s=self._bucket_s,
            observed_s=observed,
            policy_version=self._policy_version,
            engine=self._engine.row(
                keys, common, facts.slots, facts.pool_bytes, self.last_token_age_s
            ),
            tenants=numbers,
            counters=[
                None if counter_of is None or name is None else counter_of(name) for name in names
            ],
            reading=matrix.window.reading(names, matrix.owns.copy(), matrix.awaited()),
            adapters=[(key, book.numbers(end)) for key, book in self._adapters.items()],
        )
