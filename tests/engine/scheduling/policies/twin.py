"""The same policies written the slow way: lists searched from scratch, a charge a token.

An oracle for order and counters. Shares nothing with the engine's policies but the requests.
"""

from __future__ import annotations

from math import floor

WP, WQ = 1.0, 2.0


class Twin:
    def __init__(self, name, *, weights=None, tiers=None, share_by=None, knobs):
        self.weights, self.tiers = weights or {}, tiers or {}
        self.share_by = {t for t, by in (share_by or {}).items() if by != "none"}
        self.quantum = knobs.quantum_tokens
        self.first_prediction = knobs.first_prediction_tokens
        self.waiting = []
        self.made = {}  # sequence -> output tokens, of everybody admitted
        self.decoding = []
        self.value, self.unlifted, self.lifts = {}, {}, {}
        self.last = {}
        self.group_value, self.group_last = {}, {}
        self.switch(name)

    # -- the policy's own state

    def switch(self, name):
        self.name = name
        self.own, self.own_last = dict(self.value), dict(self.last)
        self.predictions, self.averages = {}, {}
        self.spent, self.passes, self.places, self.round_of = {}, {}, {}, {}
        self.joined = 0
        for tenant in sorted({r.tenant for r in self.waiting}, key=self.first):
            self.join(tenant)

    def tier(self, tenant):
        return self.tiers.get(tenant, 0)

    def weight(self, tenant):
        return self.weights.get(tenant, 1.0)

    def first(self, tenant):
        return min(r.sequence for r in self.waiting if r.tenant == tenant)

    def join(self, tenant):
        now = self.round_of.get(self.tier(tenant), 0)
        self.joined += 1
        self.places[tenant] = self.joined
        self.passes[tenant] = max(now, self.passes.get(tenant, 0.0))
        self.spent[tenant] = max(now * self.quantum, self.spent.get(tenant, 0.0))

    def predict(self, request):
        average = self.averages.get(request.tenant, self.first_prediction)
        return min(round(average), request.ask.max_tokens)

    # -- charges

    def charge(self, request, amount, own=True):
        tenant = request.tenant
        for counter in (self.value, self.unlifted, self.own if own else {}):
            counter[tenant] = counter.get(tenant, 0.0) + amount / self.weight(tenant)
        if tenant in self.spent:
            self.spent[tenant] += amount / self.weight(tenant)
        key = (tenant, request.group)
        self.group_value[key] = self.group_value.get(key, 0.0) + amount

    def charge_own(self, tenant, amount):
        self.own[tenant] = self.own.get(tenant, 0.0) + amount / self.weight(tenant)

    def token(self, request):
        self.made[request.sequence] += 1
        predicted = self.predictions.get(request.sequence, 0)
        self.charge(request, WQ, own=self.made[request.sequence] > predicted)

    # -- events

    def lift(self, counter, last, who, waiting, scope):
        own = counter.get(who, 0.0)
        if waiting:
            target = min(counter.get(w, 0.0) for w in waiting)
        elif scope in last:
            target = counter.get(last[scope], 0.0)
        else:
            target = own
        counter[who] = max(own, target)
        return counter[who] > own

    def arrive(self, request):
        tenant, tier = request.tenant, self.tier(request.tenant)
        others = {r.tenant for r in self.waiting if self.tier(r.tenant) == tier}
        groups = {(tenant, r.group) for r in self.waiting if r.tenant == tenant}
        if tenant not in others:
            if self.lift(self.value, self.last, tenant, others, tier):
                self.lifts[tenant] = self.lifts.get(tenant, 0) + 1
            self.lift(self.own, self.own_last, tenant, others, tier)
            self.join(tenant)
        key = (tenant, request.group)
        if key not in groups:
            self.lift(self.group_value, self.group_last, key, groups, tenant)
        self.waiting.append(request)

    def leaves(self, request):
        self.waiting.remove(request)
        for last in (self.last, self.own_last):
            last[self.tier(request.tenant)] = request.tenant
        self.group_last[request.tenant] = (request.tenant, request.group)

    def admit(self, request):
        tenant, tier = request.tenant, self.tier(request.tenant)
        if self.name == "round-robin":
            now = self.passes[tenant]
        else:
            now = floor(self.spent[tenant] / self.quantum)
        self.round_of[tier] = max(now, self.round_of.get(tier, 0))
        self.leaves(request)
        if request.sequence not in self.made:
            self.made[request.sequence] = 0
            self.charge(request, WP * request.prompt_tokens)
            if self.name == "vtc-predicted":
                self.predictions[request.sequence] = self.predict(request)
                self.charge_own(tenant, WQ * self.predictions[request.sequence])
        if not request.preemptions:
            self.passes[tenant] += 1.0 / self.weight(tenant)

    def first_token(self, request, finished):
        self.token(request)
        if finished:
            self.ends(request, True)
        else:
            self.decoding.append(request)

    def step(self, done, steps):
        for _ in range(steps):
            for request in self.decoding:
                self.token(request)
        for request in done:
            self.decoding.remove(request)
            self.ends(request, True)

    def ends(self, request, finished):
        made = self.made.pop(request.sequence, 0)
        predicted = self.predictions.pop(request.sequence, 0)
        if predicted > made:
            self.charge_own(request.tenant, -WQ * (predicted - made))
        if finished:
            old = self.averages.get(request.tenant, self.first_prediction)
            self.averages[request.tenant] = (4.0 * old + made) / 5.0

    def elsewhere(self, tenant, service):
        for counter in (self.value, self.unlifted, self.own):
            counter[tenant] = counter.get(tenant, 0.0) + service / self.weight(tenant)
        if tenant in self.spent:
            self.spent[tenant] += service / self.weight(tenant)
        if service > 0:
            for last in (self.last, self.own_last):
                last[self.tier(tenant)] = tenant

    def preempt(self, request):
        if request in self.decoding:
            self.decoding.remove(request)
        if request.tenant not in self.places:
            self.join(request.tenant)
        self.waiting.append(request)

    def abort(self, request, refunded):
        if request in self.decoding:
            self.decoding.remove(request)
        if request in self.waiting:
            self.leaves(request)
        self.ends(request, False)
        if refunded:
            self.charge(request, -WP * refunded)

    # -- order

    def next(self, gone=(), supposed=()):
        """Who goes next. `gone`: passed or supposed in this scan; `supposed`: the latter."""
        found = [
            (self.rank(tenant, gone, supposed), self.candidate(tenant, gone, supposed))
            for tenant in {r.tenant for r in self.waiting}
        ]
        found = [f for f in found if f[1] is not None]
        return min(found, key=lambda f: f[0])[1] if found else None

    def candidate(self, tenant, gone, supposed):
        left = [r for r in self.waiting if r.tenant == tenant and r not in gone]
        if not left:
            return None
        if tenant not in self.share_by:
            return min(left, key=lambda r: r.sequence)

        def standing(group):
            extra = sum(
                WP * r.prompt_tokens
                for r in supposed
                if r.tenant == tenant and r.group == group and not r.charged_prompt
            )
            first = min(r.sequence for r in left if r.group == group)
            whole = min(r.sequence for r in self.waiting if (r.tenant, r.group) == (tenant, group))
            touched = any(r.tenant == tenant and r.group == group for r in gone)
            return (self.group_value[(tenant, group)] + extra, first if touched else whole, group)

        group = min({r.group for r in left}, key=standing)
        return min([r for r in left if r.group == group], key=lambda r: r.sequence)

    def rank(self, tenant, gone, supposed):
        candidate = self.candidate(tenant, gone, supposed)
        if candidate is None:
            return None
        touched = any(r.tenant == tenant for r in gone)
        sequence = candidate.sequence if touched else self.first(tenant)
        mine = [r for r in supposed if r.tenant == tenant]
        fresh = [r for r in mine if not r.charged_prompt]
        extra = sum(WP * r.prompt_tokens for r in fresh) / self.weight(tenant)
        tier = self.tier(tenant)
        if self.name == "fcfs":
            return (tier, 0.0, sequence, tenant)
        if self.name == "vtc":
            return (tier, self.value.get(tenant, 0.0) + extra, sequence, tenant)
        if self.name == "lcf":
            return (tier, self.unlifted.get(tenant, 0.0) + extra, sequence, tenant)
        if self.name == "vtc-predicted":
            extra += sum(WQ * self.predict(r) for r in fresh) / self.weight(tenant)
            return (tier, self.own.get(tenant, 0.0) + extra, sequence, tenant)
        if self.name == "round-robin":
            turns = sum(1 for r in mine if not r.preemptions)
            key = self.passes[tenant] + turns / self.weight(tenant)
        else:
            key = floor((self.spent[tenant] + extra) / self.quantum)
        return (tier, key, self.places[tenant], tenant)
