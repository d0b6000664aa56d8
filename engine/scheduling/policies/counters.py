"""Virtual token counters, one a tenant: charges, lifts, refunds. Algorithm 2 of VTC.

Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024. Kept under every
policy, so that the imbalance is visible under FCFS too. Counters are for scheduling: they are
divided by weight; *service* (unweighted) is the ledger's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

WP = 1.0  # charge of a prompt token
WQ = 2.0  # charge of an output token


class Counters:
    """c_i per tenant. `waiting` tenants are passed in: the counters know no queues."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)
        self._counters: dict[str, float] = {}
        self._last_left: str | None = None
        self.lifts: dict[str, int] = {}

    def weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    def value(self, tenant: str) -> float:
        return self._counters.get(tenant, 0.0)

    def arrived(self, tenant: str, waiting: Iterable[str]) -> None:
        """Lift on the arrival of a request of a tenant that had nothing waiting.

        `waiting`: the tenants with waiting requests, without this one. Nobody waits: lift to the
        tenant whose request left the queue last; else to the smallest counter that waits.
        """
        own = self.value(tenant)
        floor = min((self.value(t) for t in waiting), default=None)
        if floor is None:
            floor = self.value(self._last_left) if self._last_left is not None else own
        if floor > own:
            self._counters[tenant] = floor
            self.lifts[tenant] = self.lifts.get(tenant, 0) + 1
        else:
            self._counters[tenant] = own

    def left_queue(self, tenant: str) -> None:
        self._last_left = tenant

    def prompt_charge(self, tenant: str, tokens: int) -> float:
        """What admitting `tokens` uncached prompt tokens would add."""
        return WP * tokens / self.weight(tenant)

    def charge_prompt(self, tenant: str, tokens: int) -> None:
        self._add(tenant, self.prompt_charge(tenant, tokens))

    def refund_prompt(self, tenant: str, tokens: int) -> None:
        """Give back the charge of prompt tokens that were never computed."""
        self._add(tenant, -self.prompt_charge(tenant, tokens))

    def charge_output(self, tenant: str, tokens: int = 1) -> None:
        self._add(tenant, WQ * tokens / self.weight(tenant))

    def take_lifts(self) -> dict[str, int]:
        lifts, self.lifts = self.lifts, {}
        return lifts

    def _add(self, tenant: str, amount: float) -> None:
        self._counters[tenant] = self._counters.get(tenant, 0.0) + amount
