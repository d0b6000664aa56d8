"""The incident: one a pool, with the alerts and tenants inside it, and how it lives. Pure values.

`advance` says what becomes of it at a look; people's acts are `acknowledge`, `note` and `close`.
A *notice* is a transition that somebody is to be told of: they are counted, so that what was told
once is told once.
"""

from __future__ import annotations

import enum
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from telemetry.alerts.rules import SEVERITIES, Condition, worst

MOST_TENANTS = 50
MOST_NOTES = 100
LONGEST_NOTE = 2000
LONGEST_WHO = 100
LONGEST_TENANT = 256


class State(enum.StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Said:
    """One alert inside an incident. `firing` is no longer so once its condition has cleared."""

    alert: str
    severity: str
    sentence: str
    strength: str | None
    tenant: str | None
    first_seen: float
    last_seen: float
    firing: bool = True
    evidence: tuple[tuple[str, float | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Who holds, and how strongly that is claimed; `share` is of the victims' excess."""

    tenant: str
    strength: str
    confidence: str | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """An act of a person: `act_id` is that of its event, so that it is taken once."""

    act_id: str
    at: float
    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """What the verdict says of the incident: its lines, whom it hurts and who holds."""

    lines: tuple[str, ...] = ()
    hurt: tuple[str, ...] = ()
    holders: tuple[HeldBy, ...] = ()


@dataclass(frozen=True, slots=True)
class Incident:
    """Instants are unix seconds of the store's clock. `severity` never falls. `notice` counts what
    is to be told, `told` says by target what was. `hurt`: the verdict's victims (`hurt_judged`), or
    who misses its targets while there is no verdict. `muted`: alerts that a person closed and that
    have not cleared since."""

    id: str
    pool: str
    engine: str
    state: State
    severity: str
    first_seen: float
    last_seen: float
    resolved_at: float | None = None
    alerts: tuple[Said, ...] = ()
    hurt: tuple[str, ...] = ()
    hurt_count: int = 0
    hurt_judged: bool = False
    holders: tuple[HeldBy, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    acks: tuple[Note, ...] = ()
    closed_by: str | None = None
    silenced: bool = False
    muted: tuple[str, ...] = ()
    seq: int = 0
    notice: int = 0
    notice_what: str = ""
    notice_at: float = 0.0
    told: tuple[tuple[str, int], ...] = field(default=())

    @property
    def live(self) -> bool:
        return self.state is not State.RESOLVED

    @property
    def headline(self) -> str:
        firing = [a for a in self.alerts if a.firing] or list(self.alerts)
        said = self.lines or tuple(a.sentence for a in firing)
        return "; ".join(said[:2]) if said else self.state.value

    def told_to(self, target: str) -> int:
        return dict(self.told).get(target, 0)


def incident_id(pool: str, at: float) -> str:
    """`inc-<pool>-<UTC minute>-<4 hex>`: safe in a URL, a label and a shell whatever the pool is
    called; the digits tell pools apart that look alike."""
    plain = re.sub(r"[^a-z0-9]+", "-", pool.lower()).strip("-")[:24] or "pool"
    minute = datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H%M")
    mark = zlib.crc32(f"{pool}\0{at:.6f}".encode(errors="surrogatepass")) & 0xFFFF
    return f"inc-{plain}-{minute}-{mark:04x}"


def advance(
    was: Incident | None, pool: str, engine: str, firing: Sequence[Condition], now: float,
    rejoin_s: float, words: Words | None = None,
) -> Incident | None:  # fmt: skip
    """The pool's incident after a look; None where there is none and nothing fires.

    `firing` are the conditions that fire now; `words` the verdict's, where it was asked.
    """
    here = [c for c in firing if was is None or c.rule.alert not in was.muted]
    if was is not None and was.muted:
        names = {c.rule.alert for c in firing}
        was = replace(was, muted=tuple(a for a in was.muted if a in names))
    if was is not None and was.live:
        return _goes_on(was, here, now, words) if here else resolve(was, now)
    if not here:
        return was
    # A clock set back makes the difference negative: that is no reason for a new incident either.
    if was is not None and was.resolved_at is not None and now - was.resolved_at < rejoin_s:
        return _reopened(was, here, now, words)
    severity = worst(tuple(c.rule.severity for c in here))
    made = Incident(incident_id(pool, now), pool, engine, State.OPEN, severity, now, now)
    return _notice(_filled(made, here, now, words), "opened", now)


def _goes_on(was: Incident, here: Sequence[Condition], now: float, words: Words | None) -> Incident:
    severity = worst((was.severity, *(c.rule.severity for c in here)))
    now_is = _filled(replace(was, severity=severity), here, now, words)
    if severity == was.severity:
        return now_is
    # Whoever acknowledged a warning has not acknowledged a page.
    return _notice(replace(now_is, state=State.OPEN), "rose", now)


def _reopened(
    was: Incident, here: Sequence[Condition], now: float, words: Words | None
) -> Incident:
    severity = worst((was.severity, *(c.rule.severity for c in here)))
    acknowledged = was.acks and severity == was.severity and was.closed_by is None
    state = State.ACKNOWLEDGED if acknowledged else State.OPEN
    again = replace(was, state=state, severity=severity, resolved_at=None, closed_by=None)
    return _notice(_filled(again, here, now, words), "reopened", now)


def resolve(was: Incident, now: float, by: str | None = None) -> Incident:
    """The end: all clear, or a person says so; then what fires still is muted until it clears."""
    muted = tuple(a.alert for a in was.alerts if a.firing) if by is not None else was.muted
    alerts = tuple(replace(a, firing=False) for a in was.alerts)
    ended = replace(was, state=State.RESOLVED, resolved_at=now, alerts=alerts, closed_by=by,
                    muted=muted)  # fmt: skip
    return _notice(ended, "resolved", now)


def _notice(incident: Incident, what: str, now: float) -> Incident:
    return replace(incident, notice=incident.notice + 1, notice_what=what, notice_at=now)


def renotify(incident: Incident, now: float) -> Incident:
    """Told once more: a page that nobody acknowledged."""
    return _notice(incident, "repeated", now)


def _filled(was: Incident, here: Sequence[Condition], now: float, words: Words | None) -> Incident:
    alerts = {a.alert: replace(a, firing=False) for a in was.alerts}
    for c in here:
        old = alerts.get(c.rule.alert)
        f = c.finding
        severity = worst((c.rule.severity, old.severity)) if old else c.rule.severity
        unknown = old is not None and f.holds.value != "yes"
        alerts[c.rule.alert] = Said(
            c.rule.alert,
            severity,
            old.sentence if old and unknown else f.sentence,
            old.strength if old and unknown else f.strength.value if f.strength else None,
            old.tenant if old and unknown else f.tenant,
            old.first_seen if old else now,
            now,
            True,
            old.evidence if old and unknown else tuple(
                (e.name, e.value, e.unit) for e in f.evidence
            ),
        )  # fmt: skip
    concerned = [t for c in here if c.rule.alert.startswith(_BURN) for t in c.tenants]
    said = words or Words(was.lines, (), was.holders)
    judged = was.hurt_judged or bool(said.hurt)
    # A tenant that misses by its own doing burns, and is nobody's victim: the verdict knows.
    before = was.hurt if was.hurt_judged or not judged else ()
    hurt = tuple(dict.fromkeys((*before, *(said.hurt if judged else concerned))))
    return replace(
        was,
        last_seen=now,
        alerts=tuple(sorted(alerts.values(), key=_place)),
        hurt=hurt[:MOST_TENANTS],
        hurt_count=max(was.hurt_count if was.hurt_judged == judged else 0, len(hurt)),
        hurt_judged=judged,
        holders=said.holders,
        lines=said.lines,
    )


def _place(alert: Said) -> tuple[bool, int, float]:
    return (not alert.firing, -SEVERITIES.index(alert.severity), alert.first_seen)


_BURN = "TenantscopeGoodputBurn"  # whom these concern is hurt; whom a surge concerns is not


# ---------------------------------------------------------------- what people do


def acknowledge(was: Incident, note: Note) -> Incident:
    if _known(was, note) or not was.live:
        return was
    return replace(was, state=State.ACKNOWLEDGED, acks=(*was.acks, note)[-MOST_NOTES:])


def add_note(was: Incident, note: Note) -> Incident:
    return was if _known(was, note) else replace(was, notes=(*was.notes, note)[-MOST_NOTES:])


def close(was: Incident, note: Note) -> Incident:
    if _known(was, note):
        return was
    noted = replace(was, notes=(*was.notes, note)[-MOST_NOTES:])
    return resolve(noted, note.at, note.who) if was.live else noted


def _known(was: Incident, note: Note) -> bool:
    return any(n.act_id == note.act_id for n in (*was.notes, *was.acks))


def told(was: Incident, target: str, notice: int) -> Incident:
    """The target has taken the notice."""
    if was.told_to(target) >= notice:
        return was
    return replace(was, told=tuple(sorted((dict(was.told) | {target: notice}).items())))
