"""What is sent: the webhook's JSON (its shape is published in docs/alerts.md) and Alertmanager's.

Pure. Names of tenants are values of the JSON, never labels and never parts of a URL.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

from telemetry.alerts.incident import Incident, Note, Said
from telemetry.alerts.settings import AlertSettings, runbook_url
from telemetry.plain import clip, safe

VERSION = 1
SIGNATURE = "X-Tenantscope-Signature"
DEDUP = "X-Tenantscope-Dedup-Key"
EXPIRES_AFTER_RESENDS = 4  # an Alertmanager hears so many times less before it forgets
_LONGEST_LABEL = 128
_LONGEST_SUMMARY = 500


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dedup_key(incident: Incident) -> str:
    """The same however often a transition is delivered."""
    return f"{incident.id}/{incident.notice}"


def webhook_body(incident: Incident, settings: AlertSettings) -> bytes:
    """One transition: the incident as it is, and what became of it."""
    shape: dict[str, Any] = {
        "version": VERSION,
        "dedup_key": dedup_key(incident),
        "transition": incident.notice_what,
        "at": iso(incident.notice_at),
        "incident": incident_shape(incident, settings),
    }
    return json.dumps(shape, separators=(",", ":")).encode()


def incident_shape(incident: Incident, settings: AlertSettings) -> dict[str, Any]:
    return {
        "id": incident.id,
        "pool": incident.pool,
        "engine": incident.engine,
        "state": incident.state.value,
        "severity": incident.severity,
        "first_seen": iso(incident.first_seen),
        "last_seen": iso(incident.last_seen),
        "resolved_at": iso(incident.resolved_at) if incident.resolved_at is not None else None,
        "headline": incident.headline,
        "lines": list(incident.lines),
        "hurt": list(incident.hurt),
        "hurt_count": incident.hurt_count,
        "holders": [
            {"tenant": h.tenant, "strength": h.strength, "confidence": h.confidence,
             "share": h.share}
            for h in incident.holders
        ],
        "alerts": [_said(a, settings) for a in incident.alerts],
        "notes": [_note(n) for n in incident.notes],
        "acknowledged": [_note(n) for n in incident.acks],
        "closed_by": incident.closed_by,
        "silenced": incident.silenced,
    }  # fmt: skip


def _said(alert: Said, settings: AlertSettings) -> dict[str, Any]:
    return {
        "alert": alert.alert,
        "severity": alert.severity,
        "sentence": alert.sentence,
        "strength": alert.strength,
        "tenant": alert.tenant,
        "first_seen": iso(alert.first_seen),
        "last_seen": iso(alert.last_seen),
        "firing": alert.firing,
        "evidence": [{"name": n, "value": v, "unit": u} for n, v, u in alert.evidence],
        "runbook_url": runbook_url(settings, alert.alert),
    }


def _note(note: Note) -> dict[str, Any]:
    return {"at": iso(note.at), "who": note.who, "text": note.text}


def signature(secret: str, at: float, body: bytes) -> str:
    """`t=UNIX,v1=HEX`: HMAC-SHA256 over `UNIX.body`, so that an old one cannot be sent again."""
    stamp = str(int(at))
    mac = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256)
    return f"t={stamp},v1={mac.hexdigest()}"


def alertmanager_body(incident: Incident, settings: AlertSettings, now: float) -> bytes:
    """A list for `POST /api/v2/alerts`: one alert an alert name, the incident's id among labels."""
    return json.dumps([_alert(incident, a, settings, now) for a in incident.alerts]).encode()


def _alert(incident: Incident, said: Said, settings: AlertSettings, now: float) -> dict[str, Any]:
    live = incident.live and said.firing
    ended = incident.resolved_at if incident.resolved_at is not None else said.last_seen
    until = now + EXPIRES_AFTER_RESENDS * settings.resend_s if live else ended
    labels = {
        "alertname": said.alert,
        "severity": said.severity,
        "engine": incident.engine,
        "pool": incident.pool,
        "incident": incident.id,
    }
    annotations = {
        "summary": clip(safe(incident.headline), _LONGEST_SUMMARY),
        "description": clip(safe(said.sentence), _LONGEST_SUMMARY),
        "runbook_url": runbook_url(settings, said.alert),
    }
    if incident.acks:
        annotations["acknowledged_by"] = clip(safe(incident.acks[-1].who), _LONGEST_LABEL)
    return {
        "labels": {k: clip(safe(v), _LONGEST_LABEL) for k, v in labels.items()},
        "annotations": annotations,
        "startsAt": iso(said.first_seen),
        "endsAt": iso(max(until, said.first_seen)),
    }
