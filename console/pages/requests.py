"""Requests that have ended: a life-line each, scaled to the widest, newest or slowest first.

A request has a row when it has ended: those under way are in the pool's and the tenants' figures.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from console.detail import Ask, Asks
from console.lines import Line, Piece, Row, cut
from console.listing import shown_name
from console.pages.lives import legend
from console.pages.request_list import Told, about_lines, adapter_of, request_lines, row_of
from console.panels import Snapshot
from console.screens import TENANT, Open, Page, Place, Say, Scene, Step, reach
from console.table import WIDE
from telemetry.plain import safe as plain
from telemetry.watch.name_filter import NameFilter

ONLY = ("all", "missed", "refused", "failed", "preempted", "retries")
SORTS = ("newest", "slowest", "ttft")
SPANS = {"1h": 3600.0, "6h": 21_600.0, "24h": 86_400.0, "15min": 900.0}
MOST = 500
ROOMY = 12  # lines from which on the chosen request is told in words too


class RequestsPage(Page):
    name: ClassVar[str] = "requests"
    title: ClassVar[str] = "REQUESTS"
    filter_hint: ClassVar[str] = "tenant, adapter, outcome or id matches this (!this: the others)"

    def wants(self, picture: Snapshot, place: Place) -> Asks:
        start, end = reach(picture, SPANS[place.switch("span", "1h")])
        one = _one(place)
        ask = Ask.of(
            "requests", "requests_page", start, end, pool=picture.pool or "", one=one is not None,
            tenant=one or "", which=place.switch("only", ONLY[0]), sort=place.sort or SORTS[0],
            most=MOST,
        )  # fmt: skip
        return (ask,)

    def heading(self, scene: Scene) -> str:
        place, one = scene.place, _one(scene.place)
        rows, kept = scene.detail.rows("requests"), len(_kept(scene))
        matching = rows[0]["matching"] if rows else 0
        only = place.switch("only", ONLY[0])
        count = f"{kept} of {matching}" if kept < matching else f"{matching}"
        said = [
            count if only == ONLY[0] else f"{count} {only}",
            f"of {shown_name(one)}" if one is not None else "of all tenants",
            f"{place.sort or SORTS[0]} first",
            f"last {place.switch('span', '1h')}",
        ]
        if place.filter:
            said.append(f"filter {plain(place.filter)}")
        return ", ".join(said)

    def rows(self, scene: Scene) -> Sequence[Row]:
        return [row_of(r) for r in _kept(scene)]

    def lines(self, scene: Scene) -> Sequence[Line]:
        rows, place = _kept(scene), scene.place
        e = scene.look.glyphs.ellipsis
        if not rows:
            if not scene.detail.heard:
                return ()
            words = "no request that has ended matches: z looks back further, o at others"
            return (cut(Line((Piece(f"  {words}", "dim"),)), scene.cells, e),)
        told = scene.lines >= ROOMY
        about = 2 if scene.cells >= WIDE else 3
        room = max(1, scene.lines - (2 + about if told else 1))
        first = min(place.first, max(0, len(rows) - 1))
        shown = rows[first : first + room]
        body = request_lines(shown, scene.picture.now, scene.cells, scene.look,
                             of_one=_one(place) is not None)  # fmt: skip
        if not told:
            return body
        chosen = next((r for r in shown if row_of(r) == place.cursor),
                      shown[0])  # fmt: skip
        blank = (Line(),) * max(0, room - len(shown))
        key = cut(Line((Piece(f"   {legend(scene.cells - 3)}", "dim"),)), scene.cells, e)
        return (*body, *blank, key, *about_lines(chosen, scene.cells, scene.look, about))

    def turn(self, scene: Scene, what: str) -> Place:
        place = scene.place
        if what == "sort":
            at = SORTS.index(place.sort) if place.sort in SORTS else 0
            return _afresh(place, sort=SORTS[(at + 1) % len(SORTS)])
        if what == "only":
            return _afresh(place.next_of("only", ONLY))
        if what == "span":
            return _afresh(place.next_of("span", tuple(SPANS)))
        if what == "everyone" and place.tenant is not None:
            return _afresh(place.next_of("everyone", ("no", "yes")))
        return place

    def enter(self, scene: Scene) -> Step | None:
        cursor = scene.place.cursor
        row = next((r for r in _kept(scene) if cursor == row_of(r)), None)
        if row is None:
            return Say("choose a request first (up, down or a click); Enter opens its tenant")
        return Open(TENANT, row["tenant"])


def _one(place: Place) -> str | None:
    """The tenant whose requests alone are shown."""
    return None if place.switch("everyone", "no") == "yes" else place.tenant


def _afresh(place: Place, sort: str | None = None) -> Place:
    return replace(place, first=0, cursor=None, sort=place.sort if sort is None else sort)


def _kept(scene: Scene) -> list[Told]:
    """The rows that the filter leaves. Raises QueryError where it cannot be used."""
    rows: list[Told] = list(scene.detail.rows("requests"))
    if not scene.place.filter:
        return rows
    texts = [
        " ".join((str(r["tenant"]), adapter_of(r), str(r["outcome"]), str(r["request_id"])))
        for r in rows
    ]
    keeps = NameFilter(scene.place.filter, time.monotonic).keeps(texts)
    return [r for r, k in zip(rows, keeps, strict=True) if k]
