"""FCFS: what everybody runs. Looks at no counter and keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduling.policies.base import Policy
from engine.scheduling.policies.order import Entry
from engine.scheduling.request import Request


class Fcfs(Policy):
    """The earliest arrival goes next, whoever sent it. No tenant has had less than another: no
    head overtakes inside a tier, and the latest admitted gives way."""

    __slots__ = ()
    name = "fcfs"

    def rank(self, name: str, sequence: int, supposed: float) -> Entry:
        return (self.tiers.get(name, 0), 0.0, sequence, name)

    def suppose(self, request: Request, supposed: float) -> float:
        return supposed

    def gives_way(self, running: Sequence[Request]) -> Request:
        return running[-1]
