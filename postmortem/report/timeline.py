"""What happened when, and which rows say so. Pure; words events only."""

from __future__ import annotations

from postmortem.report.detection import incidents
from postmortem.report.model import Moment
from telemetry.alerts.incident import Incident
from telemetry.attribution import RESOURCES
from telemetry.case import Case
from telemetry.findings.change import changes
from telemetry.plain import name
from telemetry.window import Bucket, value_in

BEFORE_S = 600.0  # how far before the window the timeline reaches
MATTERS = 0.2  # of the pool: a smaller tenant's rise is not in the timeline
ASKED = RESOURCES[:2]  # what a tenant asks for; the other resources may only be held for longer
_SOURCES = {"policy": "policy", "start": "engine_run"}
_MOST_NOTES = 10

# What comes first among moments of one bucket: causes before effects.
_PLACE = {"change": 0, "mark": 0, "demand": 1, "onset": 2, "miss": 3, "alert": 4, "act": 5,
          "end": 6, "also": 7}  # fmt: skip


def timeline(case: Case) -> tuple[Moment, ...]:
    """Changes and marks from ten minutes before, then the incident's own moments; oldest first."""
    window = case.window
    since = min(window.start, case.start) - BEFORE_S
    out = [
        Moment(c.at, "change", c.what, _SOURCES.get(c.kind, f"event {c.kind}"))
        for c in changes(window, since, window.end)
    ]
    for e in window.events:
        if e.kind == "mark" and since <= e.at < window.end:
            out.append(Moment(e.at, "mark", e.detail or "", "event mark"))
    for i in incidents(window):
        out += [m for m in _alerts(i) if since <= m.at < window.end]
    for episode in case.others:
        what = f"{len(episode.tenants)} hurt: a second incident, not judged here"
        out.append(Moment(episode.onset, "also", what, "tenant_minute"))
    if case.incident is not None:
        out += _episode(case)
    return tuple(sorted(out, key=lambda m: (m.at, _PLACE.get(m.kind, 1))))


def _alerts(incident: Incident) -> list[Moment]:
    out = [
        Moment(a.first_seen, "alert", f"{a.alert} ({a.severity}): {incident.id}", "event incident")
        for a in incident.alerts
    ]
    out += [Moment(n.at, "act", f"acknowledged by {name(n.who)}", "event incident_act")
            for n in incident.acks[:_MOST_NOTES]]  # fmt: skip
    for n in incident.notes[:_MOST_NOTES]:
        said = f": {n.text}" if n.text else ""
        out.append(Moment(n.at, "act", f"note by {name(n.who)}{said}", "event incident_act"))
    if incident.resolved_at is not None:
        out.append(
            Moment(incident.resolved_at, "alert", f"{incident.id} is over", "event incident")
        )
    return out


def _episode(case: Case) -> list[Moment]:
    incident, window = case.incident, case.window
    if incident is None:
        return []
    names = {v.tenant for v in case.victims or case.hurt}
    out = [
        Moment(incident.onset, "onset", "the first bucket outside the baseline", "tenant_minute")
    ]
    first = next((b for b in case.buckets for t in names if _missed(b, t)), None)
    if first is not None:
        who = sorted(t for t in names if _missed(first, t))
        more = f" and {len(who) - _MOST_NAMES} more" if len(who) > _MOST_NAMES else ""
        said = f"first miss: {', '.join(who[:_MOST_NAMES])}{more}"
        out.append(Moment(first.start, "miss", said, "tenant_minute"))
    out += [Moment(at, "demand", what, "tenant_minute") for at, what in _rose(case)]
    if incident.end < window.end:
        out.append(Moment(incident.end, "end", _after(case, incident.end), "tenant_minute"))
    return out


_MOST_NAMES = 6


def _after(case: Case, end: float) -> str:
    if any(b.known and b.start <= end < b.end for b in case.window.asked):
        return "misses and waits of those hurt are back to usual"
    return "the last bucket outside the baseline; what follows was not observed"


def _missed(bucket: Bucket, tenant: str) -> bool:
    return bool(value_in(bucket, tenant, "slo_missed"))


def _rose(case: Case) -> list[tuple[float, str]]:
    """Buckets in which the demand of a tenant that rose first passed twice its usual."""
    out: list[tuple[float, str]] = []
    near = [
        b for b in case.window.buckets if case.start - BEFORE_S <= b.start < case.end and b.known
    ]
    asking = {
        r.tenant for r in case.rises if r.rose and r.pool_share >= MATTERS and r.resource in ASKED
    }
    for tenant in sorted(asking):
        usual = case.baseline.rate(tenant, "offered_tokens")
        if usual is None:
            continue
        for b in near:
            offered = value_in(b, tenant, "offered_tokens") or 0.0
            if b.observed_s and offered > 0 and offered / b.observed_s > 2 * usual:
                out.append((b.start, f"{tenant} begins to ask for more than twice its usual"))
                break
    return out
