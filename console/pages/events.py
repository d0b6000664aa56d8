"""Events and changes: all that happened to the pool, and who says so; Enter goes to the instant.

A pure page; the words of an event are its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from console.cells import clip, fit
from console.detail import Ask, Asks
from console.formats import when
from console.lines import Line, Piece, Row, cut
from console.listing import shown_name
from console.pages.changes import EVENT
from console.panels import LIVE, Snapshot
from console.screens import GoTo, Page, Place, Say, Scene, Step, reach
from console.table import VAST, WIDE
from telemetry.conventions import EVENT_KINDS
from telemetry.plain import safe as plain
from telemetry.watch.name_filter import NameFilter

WHICH = ("news", "changes", "alerts", "faults", "pressure", "every")
SPANS = {"24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0, "1h": 3600.0}
MOST = 1000
WORDS = {"policy": "CHANGE", "incident": "ALERT", "incident_act": "NOTED"}
BAD = ("fault", "lost", "quarantine", "incident")
ROOMY = 10  # lines from which on the chosen event is told whole
Told = Mapping[str, Any]


class EventsPage(Page):
    name: ClassVar[str] = "events"
    title: ClassVar[str] = "EVENTS"
    filter_hint: ClassVar[str] = "kind, source or words match this (!this: the others)"

    def wants(self, picture: Snapshot, place: Place) -> Asks:
        start, end = reach(picture, SPANS[place.switch("span", "24h")])
        # Events of this very instant belong to the picture too.
        return (
            Ask.of("events", "events_page", start, max(end, _edge(picture)),
                   pool=picture.pool or "", which=place.switch("only", WHICH[0]), most=MOST),
        )  # fmt: skip

    def heading(self, scene: Scene) -> str:
        place, rows = scene.place, scene.detail.rows("events")
        kept = len(_kept(scene))
        matching = rows[0]["matching"] if rows else 0
        said = [
            place.switch("only", WHICH[0]),
            f"last {place.switch('span', '24h')}",
            "newest first",
            f"{kept} of {matching}" if kept < matching else f"{matching}",
        ]
        if place.filter:
            said.append(f"filter {plain(place.filter)}")
        return ", ".join(said)

    def rows(self, scene: Scene) -> Sequence[Row]:
        return [_row(e) for e in _kept(scene)]

    def lines(self, scene: Scene) -> Sequence[Line]:
        events, place, e = _kept(scene), scene.place, scene.look.glyphs.ellipsis
        if not events:
            if not scene.detail.heard:
                return ()
            words = "nothing of this kind has happened: z looks back further, o at other kinds"
            return (cut(Line((Piece(f"  {words}", "dim"),)), scene.cells, e),)
        told = 3 if scene.lines >= ROOMY else 0
        room = max(1, scene.lines - told)
        first = min(place.first, max(0, len(events) - 1))
        shown = events[first : first + room]
        out = [self._line(x, scene) for x in shown]
        if told:
            chosen = next((x for x in shown if _row(x) == place.cursor), shown[0])
            out += [Line()] * (room - len(shown))
            out += whole(chosen, scene, told)
        return out

    def _line(self, event: Told, scene: Scene) -> Line:
        e, cells = scene.look.glyphs.ellipsis, scene.cells
        kind = str(event["kind"])
        pieces = [
            Piece(f"{when(event['at_s'], scene.picture.now, scene.look.tz)} ", "dim"),
            Piece(fit(WORDS.get(kind, plain(kind).upper()), 8), "hurt" if kind in BAD else "phase"),
        ]
        if cells >= WIDE:
            pieces.append(Piece(fit(clip(source_of(event), 14, e), 15), "dim"))
        if cells >= VAST:
            pieces.append(Piece(fit(clip(concerns(event), 24, e), 25), "value"))
        pieces.append(Piece(sentence(event)))
        return replace(cut(Line(tuple(pieces)), cells, e), row=_row(event))

    def turn(self, scene: Scene, what: str) -> Place:
        place = scene.place
        if what == "only":
            place = place.next_of("only", WHICH)
        elif what == "span":
            place = place.next_of("span", tuple(SPANS))
        else:
            return place
        return replace(place, first=0, cursor=None)

    def enter(self, scene: Scene) -> Step | None:
        cursor = scene.place.cursor
        event = next((x for x in _kept(scene) if _row(x) == cursor), None)
        if event is None:
            return Say("choose an event first (up, down or a click); Enter goes to its instant")
        return GoTo(event["at_s"])


def _edge(picture: Snapshot) -> float:
    """Now, live in tens of seconds: not another question for every picture. Of a record that is
    played nothing is shown before it happened; of an instant gone to its own event is."""
    if picture.edge is not None or not picture.mode.startswith((LIVE, "REPLAY")):
        return picture.now + 1e-3
    tens = picture.now // 10.0 * 10.0
    return tens + 10.0 if picture.mode == LIVE else tens


def _row(event: Told) -> Row:
    return Row(EVENT, repr(float(event["at_s"])), f"{event['run_id']}/{event['event_id']}",
               event["tenant"])  # fmt: skip


def source_of(event: Told) -> str:
    """Who says so: the worker, the front, the store, a demo; of an unknown kind its engine."""
    kind = EVENT_KINDS.get(str(event["kind"]))
    return kind.by if kind is not None else plain(str(event["engine"]))


def concerns(event: Told) -> str:
    """Whom and what it is about."""
    parts = [shown_name(event["tenant"]) if event["tenant"] is not None else "",
             plain(event["adapter"] or "")]  # fmt: skip
    return " ".join(p for p in parts if p)


def sentence(event: Told) -> str:
    """What happened, in its own words; of what has none in those of its columns."""
    detail = event["detail"]
    if event["kind"] == "incident_act":
        return _act(detail)
    if detail:
        return plain(str(detail))
    cause = event["cause_tenant"]
    words = [concerns(event), f"for {shown_name(cause)}" if cause is not None else ""]
    return " ".join(w for w in words if w) or plain(str(event["kind"]))


def _act(detail: str | None) -> str:
    """What a person did to an incident: `bob noted on main-17: pods look fine`."""
    try:
        said = json.loads(detail or "")
        act, who = str(said["act"]), str(said.get("who") or "somebody")
        incident, text = str(said.get("incident", "")), str(said.get("text") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return plain(detail or "")
    return plain(f"{who}: {act} {incident}{': ' if text else ''}{text}")


def whole(event: Told, scene: Scene, lines: int) -> list[Line]:
    """One event told in full under the list, at most `lines`."""
    e = scene.look.glyphs.ellipsis
    value = event["value"]
    about = [
        f"from {source_of(event)}",
        f"engine {plain(str(event['engine']))}",
        f"about {concerns(event)}" if concerns(event) else "",
        f"request {plain(event['request_id'])}" if event["request_id"] else "",
        f"for {shown_name(event['cause_tenant'])}" if event["cause_tenant"] is not None else "",
        f"value {value:g}" if value is not None else "",
    ]
    head = cut(Line((Piece(f"   {', '.join(a for a in about if a)}", "dim"),)), scene.cells, e)
    room = max(10, scene.cells - 3)
    text, out = sentence(event), [head]
    while text and len(out) < lines:
        last = len(out) == lines - 1
        part = clip(text, room, e) if last else _head(text, room)
        out.append(Line((Piece("   "), Piece(part, "value"))))
        text = "" if last else text[len(part) :].lstrip()
    return out + [Line()] * (lines - len(out))


def _head(text: str, cells: int) -> str:
    """As many whole words as fit, or a part of one that is too long."""
    cut_at = clip(text, cells, "")
    if cut_at == text or " " not in cut_at:
        return cut_at or text[:1]
    return cut_at.rpartition(" ")[0] or cut_at


def _kept(scene: Scene) -> list[Told]:
    """The events that the filter leaves. Raises QueryError where it cannot be used."""
    rows: list[Told] = list(scene.detail.rows("events"))
    if not scene.place.filter:
        return rows
    texts = [f"{x['kind']} {source_of(x)} {concerns(x)} {sentence(x)}" for x in rows]
    keeps = NameFilter(scene.place.filter, time.monotonic).keeps(texts)
    return [x for x, k in zip(rows, keeps, strict=True) if k]
