"""A policy with its queues and counters, driven as a scheduler drives it; no pool, no time.

Owns the order of the calls (as the Policy docstring has it) and each request's tokens.
"""

from __future__ import annotations

from engine.config import PolicyKnobs
from engine.scheduling.policies import make_policy
from engine.scheduling.policies.counters import Counters
from engine.scheduling.policies.queues import Queues
from engine.scheduling.request import Ask, Request


def make_request(sequence, tenant, prompt, out, group=""):
    ask = Ask(f"r{sequence}", tenant, range(prompt), out, 0.0, 0.0)
    return Request(ask, sequence, 0.0, group=group, tenant=tenant, prompt_tokens=prompt)


class Rig:
    def __init__(
        self,
        name="vtc",
        *,
        weights=None,
        tiers=None,
        share_by=None,
        knobs=None,
        predictor=None,
    ):
        self.tiers = tiers or {}
        self.knobs = knobs or PolicyKnobs(quantum_tokens=64, first_prediction_tokens=6)
        self.predictor = predictor
        self.counters = Counters(weights or {}, self.tiers)
        self.queues = Queues(self.counters.steps, share_by)
        self.switch(name)
        self.arrivals = 0
        self.waiting: dict[int, Request] = {}
        self.running: dict[int, Request] = {}  # in order of admission
        self.decoding: dict[int, Request] = {}

    def switch(self, name):
        self.policy = make_policy(
            name, self.queues, self.counters, self.tiers, self.knobs, self.predictor
        )

    # -- into and out of the queue

    def arrive(self, tenant, prompt=8, out=8, group=""):
        request = make_request(self.arrivals, tenant, prompt, out, group)
        self.arrivals += 1
        self.waiting[request.sequence] = request
        if self.queues.append(request):
            self.counters.enters(tenant)
            self.policy.arrived(tenant)
        return request

    def _leaves(self, request):
        tenant = request.tenant
        del self.waiting[request.sequence]
        emptied = self.queues.remove(request)
        self.counters.left_queue(tenant)
        if emptied:
            self.counters.leaves(tenant)
            self.policy.emptied(tenant)
        else:
            self.policy.changed(tenant)

    def admit(self, request):
        """The caller tells its scan afterwards."""
        if not request.charged_prompt:
            request.charged_prompt = True
            self.counters.charge_prompt(request.tenant, request.prompt_tokens)
            self.queues.charged(request, request.prompt_tokens)
        self._leaves(request)
        self.policy.admitted(request)
        self.running[request.sequence] = request

    def elsewhere(self, tenant, service):
        """Another replica has charged it, or given back to it."""
        fell = self.counters.charged_elsewhere({tenant: service})
        self.policy.elsewhere([tenant] if service > 0 else [], fell)

    # -- running

    def compute(self, request, tokens):
        """A chunk of its prefill."""
        request.computed = min(request.computed + tokens, request.length)
        request.high_water = max(request.high_water, request.computed)

    def first_token(self, request):
        """Its prefill is complete and a token is sampled. Returns whether it has finished."""
        self.compute(request, request.length)
        request.produced += 1
        self.counters.charge_output(request.tenant)
        self.queues.produced(request)
        self.policy.produced_first(request)
        if request.produced >= request.ask.max_tokens:
            self._ends(request, finished=True)
            return True
        self.decoding[request.sequence] = request
        self.counters.decoding(request.tenant, 1)
        self.queues.decoding(request, 1)
        self.policy.joined_decode(request)
        return False

    def _decodes_no_more(self, request):
        del self.decoding[request.sequence]
        self.counters.decoding(request.tenant, -1)
        self.queues.decoding(request, -1)
        self.policy.left_decode(request)

    def step(self, steps=1):
        """Decode steps at once; at most until the first row finishes. Returns the finished."""
        if self.decoding:
            steps = min(steps, *[r.ask.max_tokens - r.produced for r in self.decoding.values()], 99)
        self.counters.stepped(steps)
        self.policy.stepped(steps)
        for request in self.decoding.values():
            request.produced += steps
            request.computed += steps
        done = [r for r in self.decoding.values() if r.produced >= r.ask.max_tokens]
        for request in done:
            self._decodes_no_more(request)
            self._ends(request, finished=True)
        return done, steps

    def _ends(self, request, finished):
        del self.running[request.sequence]
        self.policy.ended(request, finished)

    def preempt(self, request):
        if request.sequence in self.decoding:
            self._decodes_no_more(request)
        del self.running[request.sequence]
        request.preemptions += 1
        request.computed = 0
        self.waiting[request.sequence] = request
        if self.queues.insert(request):
            self.counters.returns(request.tenant)
            self.policy.arrived(request.tenant)
        else:
            self.policy.changed(request.tenant)

    def abort(self, request):
        """Returns the prompt tokens refunded."""
        if request.sequence in self.decoding:
            self._decodes_no_more(request)
        rest = 0
        if request.charged_prompt:
            rest = max(0, request.prompt_tokens - request.high_water)
        if request.sequence in self.waiting:
            self._leaves(request)
            self.policy.ended(request, False)
        else:
            self._ends(request, finished=False)
        if rest:
            self.counters.refund_prompt(request.tenant, rest)
            self.queues.charged(request, -rest)
            self.policy.changed(request.tenant)
        return rest
