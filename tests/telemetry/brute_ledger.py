"""A ledger that loops over everything: every waiting request times every holder, each interval.

The oracle of the incremental one: the same events, the definitions of the table of reasons taken
word by word, no index, no cumulative vector, no mark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from telemetry.conventions import CAPACITY, POLICY, SELF, TENANT
from telemetry.ledger.views import StepView

Key = tuple[str, str, str, str]  # victim, reason, holder kind, holder


@dataclass
class BruteBucket:
    charges: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    waits: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    levels: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    oldest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sums: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    engine: dict[str, float] = field(default_factory=lambda: defaultdict(float))


class BruteLedger:
    def __init__(self, bucket_s: float, names: list[str]) -> None:
        self.bucket_s = bucket_s
        self.names = names  # by index, as the ledger's vectors have them: see `named`
        self.now = 0.0
        self.sealed: list[BruteBucket] = []
        self.open = BruteBucket()
        self.waiting: dict[str, tuple[str, str, float]] = {}  # request -> tenant, group, since
        self.running: dict[str, int] = defaultdict(int)
        self.rows: dict[str, int] = defaultdict(int)
        self.kv: dict[str, float] = defaultdict(float)
        self.adapters: dict[str, float] = defaultdict(float)
        self.view = StepView(0)
        self.decode: Mapping[str, float] = {}
        self.since = 0.0
        self.stalling = False
        self.blame: dict[str, Mapping[str | None, float]] = {}
        self.progress_s = 0.0

    # -- events

    def begin(self, view: StepView, decode: Mapping[str, float]) -> None:
        if self.view.predicted_s is not None:
            self.open.engine["steps"] += 1
        self.view, self.decode, self.since = view, decode, self.now
        self.stalling = True
        awaited = {g for _, g, _ in self.waiting.values()}
        for key, blame in view.blame.items():
            if f"adapter:{key}" in awaited:
                self.blame[key] = blame
        if view.predicted_s is not None:
            self.open.engine["predicted_s"] += view.predicted_s

    def settle(self, outputs: Mapping[str, float]) -> None:
        for t, n in outputs.items():
            self.open.sums[t, "output_tokens"] += n
        for part in (self.decode, self.view.prefill_cost_s):
            for t, cost in part.items():
                self.open.sums[t, "engine_seconds"] += cost
        if self.view.predicted_s is not None:
            billed = sum(self.decode.values()) + sum(self.view.prefill_cost_s.values())
            self.open.engine["base_cost_s"] += max(0.0, self.view.predicted_s - billed)
        self.stalling = False

    def wait(self, request: str, tenant: str, group: str) -> None:
        self.waiting[request] = (tenant, group, self.now)

    def move(self, request: str, group: str) -> None:
        tenant, was, since = self.waiting[request]
        self.waiting[request] = (tenant, group, since)
        self._forget(was)

    def unwait(self, request: str) -> None:
        tenant, was, since = self.waiting.pop(request)
        self._age(tenant, since)
        self._forget(was)

    def _forget(self, group: str) -> None:
        if group not in {g for _, g, _ in self.waiting.values()}:
            self.blame.pop(group.removeprefix("adapter:"), None)

    def _age(self, tenant: str, since: float) -> None:
        self.open.oldest[tenant] = max(self.open.oldest[tenant], self.now - since)

    # -- time

    def advance(self, until: float) -> None:
        while True:
            end = (len(self.sealed) + 1) * self.bucket_s
            if until < end:
                break
            self._pass(end)
            self.look()
            self.sealed.append(self.open)
            self.open = BruteBucket()
        self._pass(until)

    def look(self) -> None:
        """Ages of the waits under way, as a bucket's rows state them."""
        for tenant, _, since in self.waiting.values():
            self._age(tenant, since)

    def _pass(self, until: float) -> None:
        cut = until
        if self.view.predicted_s is not None:
            cut = min(until, max(self.now, self.since + self.view.predicted_s))
        self._interval(cut - self.now, lost=False)
        self._interval(until - cut, lost=True)
        self.now = until

    def _interval(self, seconds: float, *, lost: bool) -> None:
        if seconds <= 0:
            return
        b = self.open
        if self.view.predicted_s is None:
            b.engine["idle_s"] += seconds
        else:
            b.engine["busy_s"] += seconds
            b.engine["capacity_s"] += seconds if lost else 0.0
        counts: dict[str, int] = defaultdict(int)
        for tenant, group, _ in self.waiting.values():
            counts[tenant] += 1
            reason = self._reason(group)
            b.waits[tenant, reason] += seconds
            for (kind, holder), share in self._holders(group, reason, lost).items():
                who = (SELF, "") if (kind, holder) == (TENANT, tenant) else (kind, holder)
                b.charges[(tenant, reason, *who)] += seconds * share
        for tenant, n in counts.items():
            b.levels[tenant, "waiting"] += n * seconds
            b.levels[tenant, "backlogged"] += seconds
        for tenant in self.names:
            b.levels[tenant, "running"] += self.running[tenant] * seconds
            b.levels[tenant, "kv"] += self.kv[tenant] * seconds
            b.levels[tenant, "adapters"] += self.adapters[tenant] * seconds
        if self.stalling and not lost and self.view.predicted_s:
            self._stall(seconds)

    def _stall(self, seconds: float) -> None:
        whole = self.view.predicted_s or 0.0
        for victim, rows in self.rows.items():
            for holder, cost in self.view.prefill_cost_s.items():
                part = seconds * cost / whole
                if holder != victim:
                    self.open.charges[victim, "stall", TENANT, holder] += rows * part
                elif rows:
                    self.open.charges[victim, "stall", SELF, ""] += (rows - 1) * part

    def _reason(self, group: str) -> str:
        if group == "shared":
            return self.view.shared_reason
        return "adapter" if group.startswith("adapter") else group

    def _holders(self, group: str, reason: str, lost: bool) -> dict[tuple[str, str], float]:
        if lost:
            return {(CAPACITY, ""): 1.0}
        if group.startswith("adapter:"):
            blame = self.blame.get(group.removeprefix("adapter:"), {None: 1.0})
            return {((SELF, "") if t is None else (TENANT, t)): s for t, s in blame.items()}
        slot: dict[tuple[str, str], float] = {
            (TENANT, t): float(n) for t, n in self.running.items()
        }
        if reason in ("kv", "adapter"):
            held: dict[tuple[str, str], float] = defaultdict(float)
            for part in (self.kv, self.adapters):
                for t, size in part.items():
                    held[TENANT, t] += size
            v = self.view
            held[CAPACITY, ""] = max(0.0, v.free_bytes + v.cached_bytes - v.pinned_bytes)
            held[POLICY, ""] = v.pinned_bytes
            return _shares(held)
        if reason == "budget":
            costs: dict[tuple[str, str], float] = defaultdict(float)
            for costs_of in (self.decode, self.view.prefill_cost_s):
                for t, cost in costs_of.items():
                    costs[TENANT, t] += cost
            if sum(costs.values()) > 0:
                return _shares(costs)
        return _shares(slot)


def _shares(weights: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    total = sum(weights.values())
    if total <= 0:
        return {(CAPACITY, ""): 1.0}
    return {h: w / total for h, w in weights.items()}
