"""The report's charts as Vega-Lite specifications: plain values, no drawing, no network.

A name is only ever a value in the data: it is in no expression and no field name, and is written
as text. Colours are readable on white and on black; words take the page's own colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from postmortem.report.cells import percent1
from postmortem.report.model import Report
from telemetry.conventions import WAIT_REASONS
from telemetry.plain import clip, clock, safe, span_s

Spec = dict[str, Any]

WIDTH = 620
_NAME_CELLS = 24
# Okabe and Ito's palette: told apart by those who see no red or green too.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#B5A900")
_OTHERS = "#9A9A9A"
_MISSES = "#C2185B"
_AXIS = "#888888"
_REASONS = ["#0072B2", "#E69F00", "#D55E00", "#009E73"]
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_CONFIG: Spec = {
    "background": "transparent",
    "view": {"stroke": None},
    "font": "system-ui, sans-serif",
    "mark": {"aria": False},  # the table beside it is what is read aloud
    "axis": {"domainColor": _AXIS, "tickColor": _AXIS, "gridColor": _AXIS, "gridOpacity": 0.25},
}


def charts(report: Report, zone: tzinfo | None = None) -> dict[str, Spec]:
    """By the names of the figures; one that has nothing to show is not there."""
    made = {"curve": curve(report, zone), "waits": waits(report), "heat": heat(report)}
    return {name: spec for name, spec in made.items() if spec is not None}


def shown(name: str) -> str:
    return clip(safe(name), _NAME_CELLS) if name else '""'


def _labels(names: Sequence[str]) -> dict[str, str]:
    """What each name is called in a chart: two that look alike once clipped are told apart."""
    out: dict[str, str] = {}
    for name in names:
        label, n = shown(name), 2
        while label in out.values():
            label, n = f"{shown(name)} ({n})", n + 1
        out[name] = label
    return out


def _chart(**parts: Any) -> Spec:
    return {"$schema": _SCHEMA, "config": _CONFIG, **parts}


def curve(report: Report, zone: tzinfo | None) -> Spec | None:
    """Stacked shares, a bar a bucket, and misses below on the same axis. Buckets that were not
    heard have no bar."""
    c = report.curve
    if not c.tenants or not any(p.shares[-1] is not None for p in c.points):
        return None
    labels = _labels(c.tenants)
    names = [labels[t] for t in c.tenants]
    colours = list(COLOURS[: len(names)])
    if c.others:
        names.append(f"{c.others} others")
        colours.append(_OTHERS)
    first = c.points[0].start
    rows: list[Spec] = []
    misses: list[Spec] = []
    for p in c.points:
        # Minutes from the first bucket: an axis that no zone and no clock change can bend.
        at = {"a": (p.start - first) / 60, "b": (p.start + p.length_s - first) / 60,
              "clock": clock(p.start, zone)}  # fmt: skip
        below = 0.0
        for i, share in enumerate(p.shares[: len(names)]):
            if share is None:
                continue
            lo, hi = round(below, 4), round(below + share, 4)
            said = percent1(share)
            rows.append(at | {"tenant": names[i], "lo": lo, "hi": hi, "share": said})
            below += share
        if p.missed is not None:
            misses.append(at | {"missed": p.missed})
    x = {"field": "a", "type": "quantitative", "axis": None}
    mark = [p for p in c.points if p.in_incident]
    incident: list[Spec] = []
    if mark:
        ends = mark[-1].start + mark[-1].length_s
        incident = [{"a": (mark[0].start - first) / 60, "b": (ends - first) / 60}]
    last = c.points[-1]
    domain = [0, (last.start + last.length_s - first) / 60]
    ticks = _ticks(c.points[0].start, last.start + last.length_s, zone)
    scale = {"domain": domain, "nice": False}
    tooltip = [{"field": f, "type": "nominal"} for f in ("clock", "tenant", "share")]
    top: Spec = {
        "width": WIDTH,
        "height": 240,
        "data": {"values": rows},
        # Picking one in the legend leaves the others pale.
        "params": [{"name": "picked", "select": {"type": "point", "fields": ["tenant"]},
                    "bind": "legend"}],
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": x | {"scale": scale},
            "x2": {"field": "b"},
            "y": {"field": "lo", "type": "quantitative", "scale": {"domain": [0, 1]},
                  "axis": {"format": "%", "title": "share of the service"}},
            "y2": {"field": "hi"},
            "color": {"field": "tenant", "type": "nominal", "title": "tenant", "sort": None,
                      "scale": {"domain": names, "range": colours},
                      "legend": {"orient": "bottom", "columns": 4, "labelLimit": 160,
                                 "title": None}},
            "opacity": {"condition": {"param": "picked", "value": 1}, "value": 0.2},
            "tooltip": tooltip,
        },
    }  # fmt: skip
    band: Spec = {
        "width": WIDTH,
        "height": 6,
        "data": {"values": incident},
        "mark": {"type": "rect", "color": _MISSES},
        "encoding": {"x": x | {"scale": scale}, "x2": {"field": "b"}},
    }
    bottom: Spec = {
        "width": WIDTH,
        "height": 70,
        "layer": [
            {
                "data": {"values": misses},
                "mark": {"type": "rect", "color": _MISSES, "strokeWidth": 0},
                "encoding": {
                    "x": {"field": "a", "type": "quantitative", "scale": scale, "axis": None},
                    "x2": {"field": "b"},
                    "y": {"field": "missed", "type": "quantitative",
                          "axis": {"title": "misses", "tickCount": 3, "format": "d"}},
                    "y2": {"datum": 0},
                    "tooltip": [{"field": "clock", "type": "nominal"},
                                {"field": "missed", "type": "quantitative"}],
                },
            },
            {
                "data": {"values": ticks},
                "mark": {"type": "text", "baseline": "top", "dy": 6, "fontSize": 10},
                "encoding": {
                    "x": {"field": "a", "type": "quantitative", "scale": scale, "axis": None},
                    "y": {"datum": 0},
                    "text": {"field": "clock", "type": "nominal"},
                },
            },
        ],
    }  # fmt: skip
    parts = [top, *([band] if incident else []), bottom]
    return _chart(vconcat=parts, spacing=6, resolve={"scale": {"x": "independent"}})


def _ticks(start: float, end: float, zone: tzinfo | None) -> list[Spec]:
    """Some six instants on whole steps, as words."""
    steps = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    step = next((s for s in steps if (end - start) / s <= 7), 86400 * 7)
    at = -(-start // step) * step
    out = []
    while at <= end:
        out.append({"a": (at - start) / 60, "clock": clock(at, zone)[: 8 if step < 60 else 5]})
        at += step
    return out


def waits(report: Report) -> Spec | None:
    """Waits by reason of each of those hurt; a grey mark is what all of it usually is."""
    rows: list[Spec] = []
    usual: list[Spec] = []
    labels = _labels([w.tenant for w in report.reasons])
    for w in report.reasons:
        for reason, now in zip(WAIT_REASONS, w.now, strict=True):
            rows.append({"tenant": labels[w.tenant], "reason": reason, "seconds": now,
                         "waited": span_s(now)})  # fmt: skip
        usual.append({"tenant": labels[w.tenant], "reason": "usual", "seconds": sum(w.usual),
                      "waited": span_s(sum(w.usual))})  # fmt: skip
    if not any(r["seconds"] for r in rows):
        return None
    y = {"field": "tenant", "type": "nominal", "sort": None, "title": None,
         "scale": {"domain": list(labels.values())}, "axis": {"labelLimit": 180}}  # fmt: skip
    x = {"field": "seconds", "type": "quantitative", "title": "seconds waited"}
    tooltip = [{"field": f, "type": "nominal"} for f in ("tenant", "reason", "waited")]
    return _chart(
        width=WIDTH - 120,
        height={"step": 22},
        encoding={"y": y},
        layer=[
            {
                "data": {"values": rows},
                "mark": {"type": "bar"},
                "encoding": {
                    "x": x,
                    "color": {"field": "reason", "type": "nominal", "sort": None,
                              "scale": {"domain": list(WAIT_REASONS), "range": _REASONS},
                              "legend": {"orient": "bottom", "title": None}},
                    "tooltip": tooltip,
                },
            },
            {
                "data": {"values": usual},
                "mark": {"type": "tick", "color": _OTHERS, "thickness": 3},
                "encoding": {"x": x, "tooltip": tooltip},
            },
        ],
    )  # fmt: skip


def heat(report: Report) -> Spec | None:
    """Victims by holders; every cell says its seconds."""
    cells = report.heat.cells
    if not cells:
        return None
    victims = list(dict.fromkeys(c.victim for c in cells))
    held = list(dict.fromkeys(c.holder for c in cells if c.kind == "tenant"))
    labels = _labels([*victims, *(h for h in held if h not in victims)])
    order: dict[str, float] = {}
    rows: list[Spec] = []
    most = max(c.excess_s for c in cells)
    for c in cells:
        holder = labels[c.holder] if c.kind == "tenant" else f"({c.kind})"
        order[holder] = order.get(holder, 0.0) + c.excess_s
        rows.append({"victim": labels[c.victim], "holder": holder, "seconds": c.excess_s,
                     "said": span_s(c.excess_s), "dark": c.excess_s > 0.55 * most})  # fmt: skip
    columns = sorted(order, key=lambda h: (h.startswith("(") and h not in labels.values(),
                                           -order[h]))  # fmt: skip
    x = {"field": "holder", "type": "nominal", "sort": None, "title": "held by",
         "scale": {"domain": columns},
         "axis": {"labelAngle": -30, "labelLimit": 140, "orient": "top"}}  # fmt: skip
    y = {"field": "victim", "type": "nominal", "sort": None, "title": None,
         "scale": {"domain": [labels[v] for v in victims]},
         "axis": {"labelLimit": 180}}  # fmt: skip
    return _chart(
        width=min(WIDTH - 120, 64 * len(columns)),
        height={"step": 26},
        data={"values": rows},
        encoding={"x": x, "y": y},
        layer=[
            {
                "mark": {"type": "rect"},
                "encoding": {
                    "color": {"field": "seconds", "type": "quantitative",
                              "scale": {"scheme": "yelloworangered", "domainMin": 0},
                              "legend": {"title": "excess s", "gradientLength": 100}},
                    "tooltip": [{"field": f, "type": "nominal"}
                                for f in ("victim", "holder", "said")],
                },
            },
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {
                    "text": {"field": "said", "type": "nominal"},
                    "color": {"field": "dark", "type": "nominal", "legend": None,
                              "scale": {"domain": [False, True], "range": ["#222222", "#FFFFFF"]}},
                },
            },
        ],
        resolve={"scale": {"color": "independent"}},
    )  # fmt: skip
