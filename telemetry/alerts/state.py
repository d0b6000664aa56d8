"""What survives a restart: incidents, acts and silences as events of the store, and back.

Every state of an incident is an event of kind `incident_state` (JSON); every transition is told in
a sentence too, kind `incident`. An act of a person is `incident_act`, a silence `silence_state`.
`fold` makes the present of them: in any order, any number of times. Owns the forms; writes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from telemetry.alerts.incident import (
    HeldBy,
    Incident,
    Note,
    Said,
    State,
    acknowledge,
    add_note,
    close,
)
from telemetry.alerts.silences import LONGEST_S, Silence
from telemetry.conventions import Emitter
from telemetry.plain import clip, safe
from telemetry.records import Batch, EventRecord
from telemetry.store.shelf import STORE

log = logging.getLogger(__name__)

INCIDENT = "incident"
INCIDENT_STATE = "incident_state"
INCIDENT_ACT = "incident_act"
SILENCE_STATE = "silence_state"
LOOKBACK_S = LONGEST_S + 2 * 86_400.0
_ACTS = {"acknowledge": acknowledge, "note": add_note, "close": close}
_LONGEST_SAID = 500


class Asks(Protocol):
    """Whatever answers named queries (`telemetry.source.Source` does)."""

    def query(self, name: str, **parameters: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Known:
    """Incidents and silences by id, and the acts that were taken."""

    incidents: Mapping[str, Incident] = field(default_factory=dict)
    silences: Mapping[str, Silence] = field(default_factory=dict)
    acts: frozenset[str] = frozenset()

    def latest(self) -> dict[str, Incident]:
        """The newest incident of each pool."""
        out: dict[str, Incident] = {}
        for i in sorted(self.incidents.values(), key=lambda i: (i.live, i.first_seen)):
            out[i.pool] = i
        return out


# ---------------------------------------------------------------- out


def state_batch(incident: Incident, now: float, *, say: bool) -> Batch:
    """The incident's state as events of one transaction; `say`: a transition, in a sentence."""
    pool, event_id = incident.pool, f"{incident.id}/{incident.seq}"
    detail = json.dumps(asdict(incident), separators=(",", ":"))
    rows = [
        EventRecord(
            engine=STORE, run_id=STORE, pool=pool, event_id=event_id, at=now,
            kind=INCIDENT_STATE, detail=detail,
        )
    ]  # fmt: skip
    if say:
        holds = incident.holders[0].tenant if incident.holders else None
        rows.append(
            EventRecord(
                engine=STORE, run_id=STORE, pool=pool, event_id=f"{event_id}/said", at=now,
                kind=INCIDENT, tenant=holds, detail=sentence(incident),
            )
        )  # fmt: skip
    return _batch(pool, rows)


def sentence(incident: Incident) -> str:
    """One line for a ticker: which incident, what became of it, what it is."""
    what = incident.notice_what or incident.state.value
    return clip(
        safe(f"{incident.id} {what} ({incident.severity}): {incident.headline}"), _LONGEST_SAID
    )


def act_batch(pool: str, act_id: str, at: float, values: Mapping[str, str]) -> Batch:
    detail = json.dumps(dict(values))
    row = EventRecord(
        engine=STORE, run_id=STORE, pool=pool, event_id=act_id, at=at, kind=INCIDENT_ACT,
        detail=detail,
    )  # fmt: skip
    return _batch(pool, [row])


def silence_batch(silence: Silence, now: float) -> Batch:
    row = EventRecord(
        engine=STORE, run_id=STORE, pool=STORE, event_id=f"{silence.id}/{silence.seq}", at=now,
        kind=SILENCE_STATE, detail=json.dumps(asdict(silence)),
    )  # fmt: skip
    return _batch(STORE, [row])


def _batch(pool: str, rows: list[EventRecord]) -> Batch:
    return Batch(STORE, STORE, pool, Emitter.WORKER, True, 1, logs=tuple(rows))


# ---------------------------------------------------------------- in


def recall(source: Asks, now: float) -> Known:
    """All that is still of interest. Raises StoreError where the store cannot answer."""
    answer = source.query("alert_events", start=now - LOOKBACK_S, end=float("inf"), states=True)
    return fold(answer.rows)


def fold(rows: Iterable[tuple[Any, ...]], known: Known | None = None) -> Known:
    """Add rows of `alert_events` (at, kind, event_id, pool, detail) to what is known. Of an
    incident the state of the highest number counts; an act is taken once. A row that cannot be read
    (its text was forgotten with a tenant, or a newer version wrote it) is logged and left out."""
    base = known or Known()
    incidents, silences = dict(base.incidents), dict(base.silences)
    acts: list[tuple[float, str, dict[str, Any]]] = []
    for at, kind, event_id, _, detail in rows:
        try:
            values = json.loads(detail)
            if kind == INCIDENT_STATE:
                state = incident_from(values)
                if state.id not in incidents or incidents[state.id].seq < state.seq:
                    incidents[state.id] = state
            elif kind == SILENCE_STATE:
                silence = Silence(**_known_fields(Silence, values))
                if silence.id not in silences or silences[silence.id].seq < silence.seq:
                    silences[silence.id] = silence
            elif kind == INCIDENT_ACT and event_id not in base.acts:
                acts.append((float(at), str(event_id), values))
        except (ValueError, TypeError, KeyError) as e:
            log.warning("event %s of kind %s cannot be read and is left out: %s", event_id, kind, e)
    for at, act_id, values in sorted(acts, key=lambda a: a[:2]):
        does, incident = _ACTS.get(values.get("act", "")), incidents.get(values.get("incident", ""))
        if does is not None and incident is not None:
            note = Note(act_id, at, str(values.get("who", "")), str(values.get("text", "")))
            incidents[incident.id] = does(incident, note)
    return Known(incidents, silences, base.acts | {a for _, a, _ in acts})


def incident_from(values: dict[str, Any]) -> Incident:
    """The inverse of `asdict`. Raises KeyError, TypeError, ValueError for what is no incident."""
    v = _known_fields(Incident, values)
    v["state"] = State(v["state"])
    v["alerts"] = tuple(
        Said(**_known_fields(Said, a)
             | {"evidence": tuple((n, x, u) for n, x, u in a.get("evidence", ()))})
        for a in v.get("alerts", ())
    )  # fmt: skip
    v["holders"] = tuple(HeldBy(**_known_fields(HeldBy, h)) for h in v.get("holders", ()))
    for name in ("notes", "acks"):
        v[name] = tuple(Note(**_known_fields(Note, n)) for n in v.get(name, ()))
    for name in ("hurt", "lines", "muted"):
        v[name] = tuple(v.get(name, ()))
    v["told"] = tuple((str(t), int(n)) for t, n in v.get("told", ()))
    return Incident(**v)


def _known_fields(row: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """What this version knows of; a newer one may have written more."""
    return {f.name: values[f.name] for f in fields(row) if f.name in values}
