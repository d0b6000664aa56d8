"""How it was noticed: onset, first signal, alert, first act of a person, recovery. Pure.

Reads the rows of events and policies only; what they do not tell is said to be absent.
"""

from __future__ import annotations

from postmortem.report.parts import Noticed
from telemetry.alerts.incident import Incident
from telemetry.alerts.rules import INFO
from telemetry.alerts.state import INCIDENT, INCIDENT_ACT, INCIDENT_STATE, SILENCE_STATE, fold
from telemetry.case import Case
from telemetry.plain import name
from telemetry.records import EventRecord, PolicyRecord
from telemetry.window import Window

NO_ALERTS = "absent: no incident is stored for this time; was the store's process judging then?"


def incidents(window: Window) -> tuple[Incident, ...]:
    """The incidents whose events lie in the window, as they were at its end."""
    kinds = (INCIDENT_STATE, INCIDENT_ACT, SILENCE_STATE)
    rows = [
        (e.at, e.kind, e.event_id, e.pool, e.detail)
        for e in window.events
        if e.kind in kinds and e.detail
    ]
    known = fold(rows).incidents.values()
    return tuple(
        sorted((i for i in known if i.pool == window.pool), key=lambda i: (i.first_seen, i.id))
    )


def detection(case: Case) -> tuple[Noticed, ...]:
    """Five steps, in order; empty where there was no incident."""
    episode = case.incident
    if episode is None:
        return ()
    onset = episode.onset
    # Noticed before the onset too: what led to the incident begins inside its first bucket.
    ours = [
        i
        for i in incidents(case.window)
        if i.first_seen < episode.end + 2 * episode.bucket_s
        and (i.resolved_at is None or i.resolved_at >= onset)
    ]
    told = [e for e in case.window.events if e.kind == INCIDENT and e.at >= onset]
    return (
        Noticed("onset", onset, 0.0, "first bucket outside the baseline, judged afterwards",
                "tenant_minute"),
        _signal(ours, told, onset),
        _alert(ours, onset),
        _act(case.window, ours, onset),
        _recovery(case),
    )  # fmt: skip


def _signal(ours: list[Incident], told: list[EventRecord], onset: float) -> Noticed:
    said = [(a.first_seen, a.alert) for i in ours for a in i.alerts]
    if said:
        at, alert = min(said)
        return Noticed("first signal", at, at - onset, alert, "event incident_state")
    if told:
        return Noticed("first signal", told[0].at, told[0].at - onset, "an incident was opened",
                       "event incident")  # fmt: skip
    return Noticed("first signal", None, None, NO_ALERTS, "event")


def _alert(ours: list[Incident], onset: float) -> Noticed:
    said = [(a.first_seen, a.alert, a.severity) for i in ours for a in i.alerts
            if a.severity != INFO]  # fmt: skip
    if not said:
        what = "absent: nothing above info was raised" if ours else NO_ALERTS
        return Noticed("alert", None, None, what, "event")
    at, alert, severity = min(said)
    silenced = ", silenced" if any(i.silenced for i in ours) else ""
    return Noticed("alert", at, at - onset, f"{alert} ({severity}{silenced})",
                   "event incident_state")  # fmt: skip


def _act(window: Window, ours: list[Incident], onset: float) -> Noticed:
    acts = [(n.at, f"acknowledged by {name(n.who)}", "event incident_act")
            for i in ours for n in i.acks]  # fmt: skip
    acts += [(n.at, f"noted by {name(n.who)}", "event incident_act") for i in ours for n in i.notes]
    acts += [(p.at, _changed(p), "policy") for p in window.policies
             if p.version > 1 and onset <= p.at < window.end]  # fmt: skip
    if not acts:
        return Noticed(
            "first human act", None, None,
            "absent: nobody acknowledged, noted or changed a policy, as far as the rows tell",
            "event, policy",
        )  # fmt: skip
    at, what, source = min(acts)
    return Noticed("first human act", at, at - onset, what, source)


def _changed(policy: PolicyRecord) -> str:
    by = f" by {name(policy.who)}" if policy.who else ""
    return f"policy {name(policy.policy)} (v{policy.version}) put in force{by}"


def _recovery(case: Case) -> Noticed:
    episode, window = case.incident, case.window
    if episode is None or episode.end >= window.end:
        return Noticed("recovery", None, None, "absent: not inside the window asked for",
                       "tenant_minute")  # fmt: skip
    if not any(b.known and b.start <= episode.end < b.end for b in window.asked):
        return Noticed("recovery", None, None, "absent: what follows was not observed",
                       "engine_minute")  # fmt: skip
    return Noticed("recovery", episode.end, episode.end - episode.onset,
                   "misses and waits of those hurt are back to usual", "tenant_minute")  # fmt: skip
