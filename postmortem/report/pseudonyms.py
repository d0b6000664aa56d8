"""A window as one tenant may see it: every other tenant called `tenant A`, `tenant B`, ...

Names are taken away before anything is judged or worded, so that no format can bring them back.
Text that people wrote (details, notes, reasons, parameters) goes altogether: nobody can say whom
it names. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from postmortem.report.detection import incidents
from postmortem.report.requests import Requests
from telemetry.alerts.incident import Incident, Note, Words
from telemetry.alerts.state import INCIDENT, INCIDENT_ACT, INCIDENT_STATE, SILENCE_STATE
from telemetry.ask.rows_report import ReportLives
from telemetry.charged import Cell
from telemetry.records import EngineRun, EventRecord, PolicyRecord
from telemetry.window import Bucket, Window

SOMEBODY = "an operator"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PEOPLES = (INCIDENT, INCIDENT_STATE, INCIDENT_ACT, SILENCE_STATE)


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """`reader` keeps its name; `of` maps every other tenant's name to what it is called here."""

    reader: str
    of: Mapping[str, str]

    def name(self, tenant: str) -> str:
        """A name that is met for the first time is nobody's here."""
        return tenant if tenant == self.reader else self.of.get(tenant, "another tenant")

    def maybe(self, tenant: str | None) -> str | None:
        return None if tenant is None else self.name(tenant)

    def plain(self, text: str, instead: str) -> str:
        """`text`, unless another's name stands in it as a word."""
        for other in self.of:
            if other and re.search(rf"(?<!\w){re.escape(other)}(?!\w)", text, re.IGNORECASE):
                return instead
        return text


def pseudonyms(window: Window, reader: str) -> Pseudonyms:
    """The same names for the same window. Their order tells nothing of the true ones."""
    buckets = (*window.past, *window.buckets)
    met = {t for b in buckets for t in b.tenants}
    met |= {n for b in buckets for c in b.matrix for n in (c.victim, c.holder) if n}
    met |= {r.tenant for r in window.requests}
    met |= {t for e in window.events for t in (e.tenant, e.cause_tenant) if t}
    others = sorted(met - {reader}, key=lambda t: _mixed(window, t))
    taken, of, i = {*met, reader}, {}, 0
    for tenant in others:
        while (label := f"tenant {_letters(i)}") in taken:
            i += 1
        of[tenant] = label
        i += 1
    return Pseudonyms(reader, of)


def _mixed(window: Window, tenant: str) -> bytes:
    seed = f"{window.pool}\0{window.start:.6f}\0{tenant}"
    return hashlib.sha256(seed.encode(errors="surrogatepass")).digest()


def _mark(window: Window, adapter: str) -> str:
    return f"adapter {_mixed(window, adapter).hex()[:8]}"


def _letters(i: int) -> str:
    out = ""
    i += 1
    while i:
        i, rest = divmod(i - 1, 26)
        out = _LETTERS[rest] + out
    return out


# ---------------------------------------------------------------- the window


def seen_by(window: Window, names: Pseudonyms) -> Window:
    """The window with the others' names taken away."""
    pool = names.plain(window.pool, "pool")
    heard = window.engines | {e for b in window.past for e in b.engines}
    engines = {e: names.plain(e, f"engine {i}") for i, e in enumerate(sorted(heard), 1)}
    return replace(
        window,
        pool=pool,
        buckets=tuple(_bucket(b, names, engines) for b in window.buckets),
        past=tuple(_bucket(b, names, engines) for b in window.past),
        requests=_lives(window, names, pool),
        events=(
            *(
                _event(e, window, names, pool, engines)
                for e in window.events
                if e.kind not in _PEOPLES
            ),
            *_incidents(window, pool),
        ),
        policies=tuple(_policy(p, pool, engines) for p in window.policies),
        runs=tuple(_run(r, names, pool, engines) for r in window.runs),
        engines=frozenset(engines.get(e, e) for e in window.engines),
    )


def _bucket(b: Bucket, names: Pseudonyms, engines: Mapping[str, str]) -> Bucket:
    matrix: dict[Cell, float] = {}
    for c, s in b.matrix.items():
        holder = names.name(c.holder) if c.kind == "tenant" else ""
        cell = Cell(names.name(c.victim), c.reason, c.kind, holder)
        matrix[cell] = matrix.get(cell, 0.0) + s
    return replace(
        b,
        engines=frozenset(engines.get(e, e) for e in b.engines),
        tenants={names.name(t): replace(row, tenant=names.name(t)) for t, row in b.tenants.items()},
        matrix=matrix,
    )


def _lives(window: Window, names: Pseudonyms, pool: str) -> tuple[Any, ...]:
    """What findings look at; what is told of requests comes in sums."""
    adapters = {
        r.adapter: _mark(window, r.adapter) for r in window.requests if r.adapter is not None
    }
    return tuple(
        ReportLives(
            pool,
            names.name(r.tenant),
            r.arrived,
            r.ended,
            None if r.adapter is None else adapters[r.adapter],
        )
        for r in window.requests
    )


def _event(
    e: EventRecord, window: Window, names: Pseudonyms, pool: str, engines: Mapping[str, str]
) -> EventRecord:
    own = e.tenant == names.reader
    return replace(
        e,
        pool=pool,
        engine=engines.get(e.engine, e.engine),
        event_id="",
        tenant=names.maybe(e.tenant),
        cause_tenant=names.maybe(e.cause_tenant),
        request_id=e.request_id if own else None,
        # Which two are the same counts for what is found; what it is called does not.
        adapter=e.adapter if own or e.adapter is None else _mark(window, e.adapter),
        detail=None,
    )


def _policy(p: PolicyRecord, pool: str, engines: Mapping[str, str]) -> PolicyRecord:
    who = SOMEBODY if p.who else None
    return replace(p, pool=pool, engine=engines.get(p.engine, p.engine), who=who, why=None,
                   parameters=None)  # fmt: skip


def _run(r: EngineRun, names: Pseudonyms, pool: str, engines: Mapping[str, str]) -> EngineRun:
    return replace(r, pool=pool, engine=engines.get(r.engine, r.engine),
                   model=names.plain(r.model, "model"), config=None)  # fmt: skip


def _incidents(window: Window, pool: str) -> Iterable[EventRecord]:
    """Incidents with nothing but their times, severities and alerts."""
    for i, was in enumerate(incidents(window), start=1):
        bare = _bare(was, f"incident {i}", pool)
        yield EventRecord(
            engine="store", run_id="store", pool=pool, event_id=f"incident {i}", at=was.last_seen,
            kind=INCIDENT_STATE, detail=json.dumps(asdict(bare)),
        )  # fmt: skip


def _bare(was: Incident, label: str, pool: str) -> Incident:
    nothing = Words()
    return replace(
        was,
        id=label,
        pool=pool,
        engine="",
        alerts=tuple(replace(a, sentence="", tenant=None, evidence=()) for a in was.alerts),
        hurt=nothing.hurt,
        holders=nothing.holders,
        lines=nothing.lines,
        notes=tuple(_note(n) for n in was.notes),
        acks=tuple(_note(n) for n in was.acks),
        closed_by=None if was.closed_by is None else SOMEBODY,
        told=(),
    )


def _note(n: Note) -> Note:
    return replace(n, act_id="", who=SOMEBODY, text="")


# ---------------------------------------------------------------- what a store was asked


def requests_seen_by(requests: Requests, names: Pseudonyms) -> Requests:
    """Sums by tenant under the names used here; single requests are the reader's own only."""
    own: list[dict[str, Any]] = [
        {**row, "engine": names.plain(row["engine"], "engine")}
        for row in requests.worst
        if row["tenant"] == names.reader
    ]
    return replace(
        requests,
        now={names.name(t): x for t, x in requests.now.items()},
        usual={names.name(t): x for t, x in requests.usual.items()},
        worst=tuple(own),
    )
