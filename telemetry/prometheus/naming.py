"""Which tenants have series of their own. Owns the names given; counts nothing.

A name once given is kept for the life of the process, and there are only so many: whatever
senders call their tenants, the number of series has a bound.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from telemetry.prometheus.exposed import OTHER
from telemetry.records import EngineRun

TOP = 20  # by service, and by SLO misses
MOST_NAMES = 128
_BUCKETS_RANKED = 2  # the newest and the one before: a bucket just begun says little
_FORGOTTEN_S = 7200.0

Place = tuple[str, str, str]  # engine, run, pool
_Ranked = tuple[Sequence[str], Sequence[float], Sequence[float]]  # names, service, misses
_BY: tuple[Literal[1], Literal[2]] = (1, 2)


class Naming:
    """Names for: tenants with targets in the settings (all tenants, where they are few), then
    whoever is among the `top` by service or by SLO misses in a bucket, while free names last.

    Only tenants that some engine's settings list are ever named; one called "other" is not, for
    that is everybody else's name.
    """

    def __init__(self, top: int = TOP, most: int = MOST_NAMES) -> None:
        if most < 2 * top:
            raise ValueError(f"{most} names for the {top} first by service and by misses: too few")
        self._top = top
        self._most = most
        self._known: set[str] = set()
        self._named: dict[str, None] = {}
        self._left_out: set[str] = set()
        self._recent: dict[Place, dict[float, _Ranked]] = {}

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(self._named)

    @property
    def left_out(self) -> int:
        """How many were to be named when no name was free."""
        return len(self._left_out)

    def label(self, tenant: str) -> str:
        return tenant if tenant in self._named else OTHER

    def learn(self, run: EngineRun) -> None:
        """Take the tenants of an engine's settings; those with targets are named at once, as far
        as names are left for those who will be first. So are all, where there are so few."""
        tenants = _tenants_of(run.config)
        self._known.update(t["name"] for t in tenants)
        at_once = self._most - 2 * self._top
        few = len(self._known) <= at_once
        for tenant in tenants:
            slo = tenant.get("slo")
            promised = isinstance(slo, Mapping) and any(v is not None for v in slo.values())
            if few or promised:
                self._give(tenant["name"], at_once)

    def rank(
        self,
        place: Place,
        start: float,
        names: Sequence[str],
        service: Sequence[float],
        misses: Sequence[float],
    ) -> None:
        """Hear a bucket's newest state (two numbers a tenant) and name who is first now."""
        for gone in [p for p, b in self._recent.items() if max(b) < start - _FORGOTTEN_S]:
            del self._recent[gone]  # a run that is over
        buckets = self._recent.setdefault(place, {})
        buckets[start] = (tuple(names), service, misses)
        while len(buckets) > _BUCKETS_RANKED:
            del buckets[min(buckets)]
        for which in _BY:
            score: dict[str, float] = {}
            for ranked in buckets.values():
                for name, value in zip(ranked[0], ranked[which], strict=True):
                    if value > 0 and name in self._known:
                        score[name] = score.get(name, 0.0) + value
            for name in heapq.nlargest(self._top, score, key=lambda n: (score[n], n)):
                self._give(name, self._most)

    def _give(self, name: str, most: int) -> None:
        if name in self._named or name == OTHER:
            return
        if len(self._named) < most:
            self._named[name] = None
            self._left_out.discard(name)
        elif len(self._left_out) < 10 * self._most:
            self._left_out.add(name)


def _tenants_of(config: str | None) -> list[dict[str, Any]]:
    """The tenants of a run's settings; none when the text is not what `serve` writes."""
    try:
        tenants = json.loads(config or "{}").get("tenants", [])
    except (ValueError, AttributeError):
        return []
    if not isinstance(tenants, list):
        return []
    return [t for t in tenants if isinstance(t, dict) and isinstance(t.get("name"), str)]
