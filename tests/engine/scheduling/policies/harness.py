"""A toy pool in whole steps, and what is measured on a trace of it or of any other scheduler.

The toy is the paper's setting: a batch limited in slots and in tokens (prompt and whole output are
reserved), prompts computed in one step, no preemption, no adapters. Everything below `Trace` knows
nothing of it: whoever can fill one can be held to the same bounds.
Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from engine.scheduling.policies.counters import WP, WQ
from tests.engine.scheduling.policies.rig import Rig


@dataclass(slots=True)
class Moment:
    """After one event. `waiting`: counter of each tenant with waiting requests. `service`: charged
    to each tenant so far, unweighted. `at_s`: where there is a clock."""

    waiting: dict[str, float]
    service: dict[str, float]
    at_s: float = 0.0


@dataclass(slots=True)
class Asked:
    """One request: the moments it arrived and was admitted; `rested`: nothing of its tenant was
    waiting or running when it came."""

    tenant: str
    arrived: int
    rested: bool
    admitted: int | None = None


@dataclass
class Trace:
    moments: list[Moment] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    longest_prompt: int = 1
    batch_tokens: int = 1
    weights: Mapping[str, float] = field(default_factory=dict)

    def weight(self, tenant: str) -> float:
        return self.weights.get(tenant, 1.0)

    @property
    def u(self) -> float:
        """U = max(wp·L_input, wq·M), over the smallest weight there is."""
        smallest = min([1.0, *self.weights.values()])
        return max(WP * self.longest_prompt, WQ * self.batch_tokens) / smallest

    @property
    def tenants(self) -> list[str]:
        return sorted({t for m in self.moments for t in m.service} | {a.tenant for a in self.all()})

    def all(self) -> list[Asked]:
        return list(self.asked.values())


# -- measures: each returns the worst seen, to be held against a multiple of U


def counter_gap(trace: Trace) -> float:
    """Lemma 4.3: the widest gap between two waiting tenants' counters."""
    gaps = [max(m.waiting.values()) - min(m.waiting.values()) for m in trace.moments if m.waiting]
    return max(gaps, default=0.0)


def service_gap(trace: Trace) -> float:
    """Theorem 4.4: the largest difference of W/w of two tenants over any interval in which both
    are backlogged throughout."""
    worst, tenants = 0.0, trace.tenants
    for i, f in enumerate(tenants):
        for g in tenants[i + 1 :]:
            low = high = None
            for m in trace.moments:
                if f not in m.waiting or g not in m.waiting:
                    low = high = None
                    continue
                ahead = _served(trace, m, f) - _served(trace, m, g)
                low = ahead if low is None else min(low, ahead)
                high = ahead if high is None else max(high, ahead)
                worst = max(worst, high - low)
    return worst


def shortfall(trace: Trace) -> float:
    """Theorem 4.9: the most that any other tenant was given above a backlogged one, by weight,
    over any interval of its backlog."""
    worst = 0.0
    for f in trace.tenants:
        for g in trace.tenants:
            low = None
            for m in trace.moments:
                if f not in m.waiting:
                    low = None
                    continue
                ahead = _served(trace, m, g) - _served(trace, m, f)
                low = ahead if low is None else min(low, ahead)
                worst = max(worst, ahead - low)
    return worst


def served_before_dispatch(trace: Trace) -> float:
    """Theorem 4.11, as service instead of time (time is this over the capacity floor a): the most
    that was served to others between arrival and admission of a request whose tenant was at rest,
    over n - 1."""
    worst, others = 0.0, max(1, len(trace.tenants) - 1)
    for asked in trace.all():
        if asked.rested and asked.admitted is not None:
            first, last = trace.moments[asked.arrived], trace.moments[asked.admitted]
            served = sum(
                last.service.get(t, 0.0) - first.service.get(t, 0.0)
                for t in trace.tenants
                if t != asked.tenant
            )
            worst = max(worst, served / others)
    return worst


def below_equal_part(trace: Trace) -> float:
    """Theorem 4.13, read the other way round: a tenant that is backlogged over an interval gets at
    least T/n - 5U of it; one that asks for less does not stay backlogged, so all it asks for is
    dispatched. Returns the most that was missing to T/n. Weights must be equal."""
    worst, tenants = 0.0, trace.tenants
    for f in tenants:
        most = None
        for m in trace.moments:
            if f not in m.waiting:
                most = None
                continue
            total = sum(m.service.get(t, 0.0) for t in tenants)
            missing = total / len(tenants) - m.service.get(f, 0.0)
            most = missing if most is None else min(most, missing)
            worst = max(worst, missing - most)
    return worst


def most_served_within(trace: Trace, span_s: float) -> float:
    """The most that all tenants together were served in any time of that length."""
    sums = [(m.at_s, sum(m.service.values())) for m in trace.moments]
    worst, start = 0.0, 0
    for at_s, served in sums:
        while at_s - sums[start][0] > span_s:
            start += 1
        before = sums[max(0, start - 1)][1]
        worst = max(worst, served - before)
    return worst


def _served(trace: Trace, moment: Moment, tenant: str) -> float:
    return moment.service.get(tenant, 0.0) / trace.weight(tenant)


# -- the toy


class Toy:
    """`arrivals`: (step, tenant, prompt, out), any order."""

    def __init__(self, arrivals, *, policy="vtc", slots=8, tokens=400, **rig):
        self.rig = Rig(policy, **rig)
        self.slots, self.tokens, self.reserved = slots, tokens, 0
        self.arrivals = sorted(arrivals, key=lambda a: a[0])
        self.trace = Trace(
            longest_prompt=max(a[2] for a in arrivals),
            batch_tokens=tokens,
            weights=rig.get("weights") or {},
        )
        self.idle_with_fitting_head = 0

    def run(self) -> Trace:
        step, coming = 0, list(reversed(self.arrivals))
        while coming or self.rig.waiting or self.rig.running:
            while coming and coming[-1][0] <= step:
                self.arrive(*coming.pop()[1:])
            self.step()
            step += 1
        return self.trace

    def arrive(self, tenant, prompt, out):
        live = [*self.rig.waiting.values(), *self.rig.running.values()]
        rested = all(r.tenant != tenant for r in live)
        request = self.rig.arrive(tenant, prompt, out)
        self.moment()
        key = request.ask.request_id
        self.trace.asked[key] = Asked(tenant, len(self.trace.moments) - 1, rested)

    def step(self):
        scan, fresh = self.rig.policy.scan(), []
        while (head := scan.head()) is not None:
            need = head.prompt_tokens + head.ask.max_tokens
            if len(self.rig.running) >= self.slots or self.reserved + need > self.tokens:
                break
            self.rig.admit(head)
            scan.admitted()
            self.reserved += need
            fresh.append(head)
            self.moment()
            self.trace.asked[head.ask.request_id].admitted = len(self.trace.moments) - 1
        scan.close()
        if self.rig.decoding:
            for request in self.rig.step()[0]:
                self.reserved -= request.length
        for request in fresh:
            if self.rig.first_token(request):
                self.reserved -= request.length
        self.moment()

    def moment(self):
        rig = self.rig
        service = {
            t: rig.counters.unlifted(t) * rig.counters.weight(t)
            for t in {a.tenant for a in self.trace.all()}
        }
        waiting = {t: rig.counters.value(t) for t in rig.queues}
        self.trace.moments.append(Moment(waiting, service))


def traffic(seed: int, tenants: int, steps: int, longest_prompt: int, longest_out: int):
    """Arrivals of tenants that each come in their own way: floods, trickles, on and off."""
    draw, arrivals = Random(seed), []
    for i in range(tenants):
        kind = draw.choice(["flood", "steady", "trickle", "on-off"])
        prompt, out = draw.randint(1, longest_prompt), draw.randint(1, longest_out)
        for step in range(steps):
            rate = {"flood": 0.0, "steady": 0.3, "trickle": 0.04, "on-off": 0.6}[kind]
            if kind == "on-off" and (step // 40 + i) % 2:
                rate = 0.0
            count = steps // 2 if kind == "flood" and step == i else int(draw.random() < rate)
            for _ in range(count):
                size = (draw.randint(1, prompt), draw.randint(1, out))
                arrivals.append((step, "abcdefgh"[i], *size))
    return arrivals or [(0, "a", 1, 1)]
