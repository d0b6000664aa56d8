"""The policies by name."""

from __future__ import annotations

from engine.scheduling.policies.base import Policy
from engine.scheduling.policies.fcfs import Fcfs
from engine.scheduling.policies.vtc import Vtc

POLICIES: dict[str, Policy] = {p.name: p for p in (Vtc(), Fcfs())}
