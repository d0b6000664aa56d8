"""Alerts: findings asked every ten seconds in the store's process, and what becomes of them."""

from __future__ import annotations

from telemetry.alerts.attach import Alerts, attach
from telemetry.alerts.delivery import TargetStats
from telemetry.alerts.evaluate import AlertStats

__all__ = ["AlertStats", "Alerts", "TargetStats", "attach"]
