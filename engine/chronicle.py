"""A run's own rows: the run, its adapters, the versions of its policy, and events of the core.

Owns their wording and numbering; decides nothing. Every call under the ledger's lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.clock import ClockBase
from engine.config import Settings, Tenant
from engine.costs import CostModel
from engine.event_log import EventLog
from telemetry.ledger.ledger import Ledger
from telemetry.records import AdapterRecord, EngineRun, PolicyRecord


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """An adapter as the core needs it: identity, name, size. `warnings`: what is odd about it."""

    key: str
    name: str
    pages: int
    bytes: int
    rank: int
    synthetic: bool
    warnings: tuple[str, ...] = ()


class Chronicle:
    def __init__(self, ledger: Ledger, settings: Settings, base: ClockBase) -> None:
        self._ledger = ledger
        self._settings = settings
        self._base = base
        self._log = EventLog(ledger, base, "c")
        self._run: EngineRun | None = None
        self._written = {t.name: t for t in settings.tenants}  # into the run's row

    def announce(
        self,
        run: EngineRun,
        adapters: Iterable[KnownAdapter],
        left_out: Iterable[str],
        policy: str,
    ) -> None:
        """The run, its adapters, the names of those left out, the policy it starts with."""
        self._run = run
        self._ledger.log(run)
        for a in adapters:
            self.adapter(a)
        for name in left_out:
            self.event("fault", f"adapter {name!r} was left out: its folder is refused")
        self.policy(1, policy, None, "start", "the policy the worker started with")
        self.event("start", f"worker started with policy {policy}")

    def adapter(self, known: KnownAdapter) -> None:
        """An adapter that is served from now on."""
        who = self._ledger.identity
        self._ledger.log(
            AdapterRecord(
                engine=who.engine,
                run_id=who.run_id,
                pool=who.pool,
                adapter=known.key,
                name=known.name,
                rank=known.rank,
                bytes=known.bytes,
                synthetic=known.synthetic,
            )
        )
        for warning in known.warnings:
            self.event("fault", f"adapter {known.name!r}: {warning}", adapter=known.key)

    def tenants(self, tenants: tuple[Tenant, ...]) -> None:
        """The limits that the next version of the policy is recorded with. Who comes is written
        into the run's row, too: what it was promised is read there. Who goes stays in it."""
        self._settings = replace(self._settings, tenants=tenants)
        came = {t.name: t for t in tenants if t.name not in self._written}
        if came and self._run is not None:
            self._written.update(came)
            whole = replace(self._settings, tenants=tuple(self._written.values()))
            self._run = replace(self._run, config=json.dumps(whole.public()))
            self._ledger.log(self._run)

    def costs(self, costs: CostModel) -> None:
        """The cost model has a new version."""
        if self._run is not None:
            self._run = replace(self._run, cost_version=costs.version, costs=costs.dump())
            self._ledger.log(self._run)

    def policy(self, version: int, policy: str, previous: str | None, who: str, why: str) -> None:
        i = self._ledger.identity
        self._ledger.log(
            PolicyRecord(
                engine=i.engine,
                run_id=i.run_id,
                pool=i.pool,
                version=version,
                at=self._base.unix(self._ledger.now),
                policy=policy,
                previous=previous,
                who=who,
                why=why,
                parameters=json.dumps(
                    {
                        t.name: {
                            "weight": t.weight,
                            "tier": t.tier,
                            "rpm": t.rpm,
                            "tpm": t.tpm,
                            "concurrency": t.concurrency,
                        }
                        for t in self._settings.tenants
                    }
                ),
            )
        )

    def event(
        self,
        kind: str,
        detail: str,
        value: float | None = None,
        *,
        tenant: str | None = None,
        adapter: str | None = None,
        request_id: str | None = None,
        at_unix_s: float | None = None,
    ) -> None:
        self._log.event(
            kind,
            tenant,
            adapter=adapter,
            request_id=request_id,
            detail=detail,
            value=value,
            at_unix_s=at_unix_s,
        )
