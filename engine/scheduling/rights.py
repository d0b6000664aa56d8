"""What the scheduler must know of the tenants: tiers, inner sharing, whose prefixes are shared.

Owns what the settings say, and an operator changes; decides nothing. A tenant nobody configured
has the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.config import PolicyKnobs, Tenant
from engine.scheduling.request import Ask


class Rights:
    def __init__(
        self, tenants: Mapping[str, Tenant] | None = None, knobs: PolicyKnobs | None = None
    ) -> None:
        self._tenants = tenants or {}
        self.knobs = knobs or PolicyKnobs()
        self.tiers = {t.name: t.tier for t in self._tenants.values() if t.tier}
        self.share_by = {t.name: t.share_by for t in self._tenants.values() if t.share_by != "none"}
        self._groups = {
            t.name: t.prefix_group for t in self._tenants.values() if t.prefix_group is not None
        }

    def take(self, tenants: Mapping[str, Tenant]) -> None:
        """Tiers and prefix groups are as here from now on. How a tenant shares inside stays: its
        queue is made for that (`Orders` sees to those that come). In place: policies read the same
        mapping."""
        self._tenants = dict(tenants)
        for t in tenants.values():  # who goes ends what it has here in the tier it had
            if t.tier:
                self.tiers[t.name] = t.tier
            else:
                self.tiers.pop(t.name, None)
        self._groups = {
            t.name: t.prefix_group for t in tenants.values() if t.prefix_group is not None
        }

    def knows(self, tenant: str) -> bool:
        return tenant in self._tenants

    def group(self, ask: Ask) -> str:
        """Inside the tenant: what its share is split by."""
        split = self.share_by.get(ask.tenant)
        if split == "adapter":
            return ask.adapter or ""
        if split == "key":
            return ask.key_id or ""
        return ""

    def prefix_salt(self, tenant: str) -> str:
        """Requests share cached prefixes when this is the same. Framed, so that no name of a
        group can be that of a tenant."""
        group = self._groups.get(tenant)
        return f"tenant:{tenant}" if group is None else f"group:{group}"
