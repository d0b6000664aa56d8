"""What people do: acknowledge, note, close, silence. Each is an event of the store.

Works on a store of a live process and on a closed folder alike: who evaluates takes the events up
at its next look. Raises StoreError with the fix; the rows it returns say what was done.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from telemetry.alerts import state
from telemetry.alerts.incident import LONGEST_NOTE, LONGEST_WHO, Incident
from telemetry.alerts.rules import ALERTS
from telemetry.alerts.silences import Silence, check
from telemetry.ask.reading import Result
from telemetry.errors import StoreError
from telemetry.otlp.decode import Decoded
from telemetry.settings import shown
from telemetry.source import StoreSource

if TYPE_CHECKING:
    from telemetry.store.store import Store

ACKNOWLEDGE, NOTE, CLOSE = "acknowledge", "note", "close"
SILENCE, UNSILENCE = "silence", "unsilence"
ACT_PARAMETERS = {"incident", "who", "text"}
SILENCE_PARAMETERS = {"alert", "pool", "tenant", "until", "reason", "who"}
UNSILENCE_PARAMETERS = {"silence", "who"}


def act(store: Store, what: str, parameters: Mapping[str, Any]) -> Result:
    """Acknowledge, note or close an incident."""
    now = time.time()
    who, text = _who(parameters), str(parameters["text"])
    if len(text) > LONGEST_NOTE:
        raise StoreError(f"a note of {len(text)} characters: {LONGEST_NOTE} are kept at most")
    if what == NOTE and not text.strip():
        raise StoreError("an empty note says nothing: give its text")
    incident = find(state.recall(StoreSource(store), now), str(parameters["incident"]))
    if what != NOTE and not incident.live:
        raise StoreError(f"{incident.id} is resolved already: only a note can be added")
    act_id = f"act-{uuid.uuid4().hex[:16]}"
    values = {"incident": incident.id, "act": what, "who": who, "text": text}
    store.ingest(Decoded((state.act_batch(incident.pool, act_id, now, values),)))
    return Result(("incident", "act", "who"), ((incident.id, what, who),))


def remark(store: Store, parameters: Mapping[str, Any]) -> Result:
    """A note on a pool's timeline that belongs to no incident."""
    who, text, pool = _who(parameters), str(parameters["text"]), str(parameters["pool"])
    if len(text) > LONGEST_NOTE or len(pool) > LONGEST_NOTE:
        raise StoreError(f"a note of {len(text)} characters: {LONGEST_NOTE} are kept at most")
    if not text.strip():
        raise StoreError("an empty note says nothing: give its text")
    act_id = f"act-{uuid.uuid4().hex[:16]}"
    values = {"incident": "", "act": NOTE, "who": who, "text": text}
    store.ingest(Decoded((state.act_batch(pool, act_id, time.time(), values),)))
    return Result(("pool", "act", "who"), ((pool, NOTE, who),))


def silence(store: Store, parameters: Mapping[str, Any]) -> Result:
    """Silence an alert, a pool, a tenant, or what is all that was given; empty text: any."""
    now = time.time()
    try:
        until = float(parameters["until"])
    except (TypeError, ValueError):
        raise StoreError(f"until = {shown(parameters['until'])}: expected unix seconds") from None
    alert, pool, tenant = (str(parameters[p] or "") or None for p in ("alert", "pool", "tenant"))
    reason = str(parameters["reason"] or "")
    for what, text in (("alert", alert), ("pool", pool), ("tenant", tenant), ("reason", reason)):
        if len(text or "") > LONGEST_NOTE:
            raise StoreError(
                f"{what} = {shown(text)}: {len(text or '')} characters, at most {LONGEST_NOTE}"
            )
    made = Silence(
        f"sil-{uuid.uuid4().hex[:8]}", alert, pool, tenant, until, reason, _who(parameters), now
    )
    check(made, ALERTS, now)
    store.ingest(Decoded((state.silence_batch(made, now),)))
    return Result(("silence", "until"), ((made.id, until),))


def unsilence(store: Store, parameters: Mapping[str, Any]) -> Result:
    """End a silence before its time."""
    now = time.time()
    name = str(parameters["silence"])
    known = state.recall(StoreSource(store), now).silences
    found = known.get(name)
    if found is None or not found.active(now):
        active = ", ".join(s.id for s in known.values() if s.active(now)) or "none"
        raise StoreError(f"no active silence {shown(name)}: there is {active}")
    ended = replace(found, removed_by=_who(parameters), seq=found.seq + 1)
    store.ingest(Decoded((state.silence_batch(ended, now),)))
    return Result(("silence", "removed_by"), ((ended.id, ended.removed_by),))


def find(known: state.Known, name: str) -> Incident:
    """By id. Raises StoreError naming those that are open."""
    found = known.incidents.get(name)
    if found is None:
        live = ", ".join(i.id for i in known.incidents.values() if i.live) or "none"
        raise StoreError(f"no incident {shown(name)}; open: {live}")
    return found


def _who(parameters: Mapping[str, Any]) -> str:
    who = str(parameters["who"] or "").strip()
    if not who:
        raise StoreError("who acts must be said: give a name")
    return who[:LONGEST_WHO]
