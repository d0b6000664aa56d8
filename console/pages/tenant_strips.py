"""The upper half of a tenant's page: a line each of share, waits, KV, adapters, TTFT, SLO, quota.

Values in, lines out. Each line is a strip over the buckets and the figures of the last five
minutes; what does not fit is left out whole, the last first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from console.cells import clip, fit, width
from console.formats import ABSENT, duration, percent, quantity, span
from console.lines import Glyphs, Line, Piece, cut, join, sparkline, stacked
from console.marks import REASON_FILLS, REASON_ROLES
from console.marks import figure as told_figure
from console.pages.changes import values, word
from console.pages.history import (
    FOUND,
    History,
    hit_rate,
    kv_share,
    missed,
    refused,
    share,
    waited_s,
)
from console.pages.request_list import STATES
from console.panels import FEW, over
from console.wide_columns import byte_count
from telemetry.conventions import WAIT_REASONS
from telemetry.findings.limits import DEFAULT
from telemetry.plain import safe as plain

LABEL_CELLS = 7
OCTAVES = 20  # of the times to first token: 1 ms to 512 s and beyond
_ORDER = ("disk", "host", "loading", "device", "base", "unknown")
_NAMES = {**STATES, "base": "base", "unknown": "unknown"}
Told = Mapping[str, Any]
Figures = list[list[Piece]]


def figure(name: str, value: str, role: str = "value") -> list[Piece]:
    return told_figure(name, value, "dim" if value in ("0", "0s") else role)


def strip(
    label: str,
    series: Sequence[float | None],
    figures: Figures,
    cells: int,
    glyphs: Glyphs,
    *,
    top: float = 1.0,
    open_end: bool = False,
    role: str = "bar",
) -> Line:
    """A label, one character a bucket (the newest on the right) and figures. The strip takes at
    most half of the line, so that the first figures always fit."""
    room = max(8, (cells - LABEL_CELLS) // 2 - 2)
    shown = list(series[-room:])
    drawn = sparkline(shown, glyphs, top) if top > 0.0 else sparkline(shown, glyphs)
    mark = "~" if open_end else " "
    lead = [Piece(f"{label:<{LABEL_CELLS}}", "label"), Piece(drawn, role), Piece(mark, "dim")]
    used = sum(width(p.text) for p in lead) + 1
    return cut(Line((*lead, Piece(" "), *join(figures, cells - used))), cells, glyphs.ellipsis)


def share_lines(h: History, cells: int, glyphs: Glyphs) -> list[Line]:
    """What it got of the pool's service, and what was due to it, bucket by bucket."""
    got = over(h.summed("service"), h.summed("pool_service"))
    due = h.last("fair_share")
    above = got is not None and due is not None and got > 1.5 * due
    first = [
        [Piece(percent(got), "named" if above else "value")],
        figure("fair", percent(due)),
        figure("service", quantity(h.summed("service"))),
    ]
    fair = [
        [Piece("due to it while it had work waiting", "dim")],
    ]
    return [
        strip("SHARE", h.series(share), first, cells, glyphs, open_end=h.provisional),
        strip("FAIR", h.series(lambda b: b["fair_share"] or 0.0), fair, cells, glyphs,
              open_end=h.provisional, role="fair"),
    ]  # fmt: skip


def wait_lines(h: History, excess_s: float | None, cells: int, glyphs: Glyphs) -> list[Line]:
    """All its waiting bucket by bucket, and the last minutes' by reason as one bar. `excess_s` is
    what of it was beyond usual."""
    series = h.series(waited_s)
    most = max((v for v in series if v is not None), default=0.0)
    by = {r: h.summed(f"wait_{r}_s") for r in WAIT_REASONS}
    known = {r: s for r, s in by.items() if s}
    whole = sum(known.values())
    told = None if all(s is None for s in by.values()) else whole
    figures: Figures = [
        [Piece(span(told), "warn" if whole else "dim")],
        figure("excess", span(excess_s), "warn"),
        figure("front", duration(h.summed("wait_front_s"))),
        figure("stall", duration(h.summed("stall_s"))),
        figure("most", f"{span(most)} a bucket"),
    ]
    lines = [strip("WAIT", series, figures, cells, glyphs, top=most, open_end=h.provisional)]
    bar = max(8, (cells - LABEL_CELLS) // 2 - 2)
    parts = [(s / whole, glyphs.fills[REASON_FILLS[r]], REASON_ROLES[r]) for r, s in known.items()]
    drawn = stacked(parts, bar) if parts else (Piece(glyphs.gap * bar, "dim"),)
    reasons = [figure(r, span(s), REASON_ROLES[r]) for r, s in
               sorted(known.items(), key=lambda x: -x[1])]  # fmt: skip
    said = join(reasons, cells - LABEL_CELLS - bar - 2) if reasons else (
        Piece("it did not wait" if told is not None else ABSENT, "dim"),)  # fmt: skip
    pieces = (Piece(f"{'  by':<{LABEL_CELLS}}", "label"), *drawn, Piece("  "), *said)
    return [*lines, cut(Line(pieces), cells, glyphs.ellipsis)]


def pool_lines(h: History, cells: int, glyphs: Glyphs) -> list[Line]:
    """The bytes it holds, and how often its adapters were there when it came."""
    newest = h.newest
    held = None if newest is None else kv_share(newest)
    kv = [
        [Piece(percent(held), "kv"), Piece(" of the pool", "dim")],
        figure("now", byte_count(newest["kv_bytes_avg"] or 0.0 if newest else None)),
        figure("preempted", quantity(h.summed("preemptions_suffered")), "hurt"),
    ]
    lookups = h.summed("adapter_lookups")
    rate = over(h.summed("found_device"), lookups)
    found = {n: h.summed(f"found_{n}") for n in FOUND if n != "device"}
    moved = h.summed("swap_in_bytes", "swap_out_bytes")
    swap = over(moved, h.observed_s)
    hits = [
        [Piece(percent(rate), "value" if rate is not None else "dim"), Piece(" hit", "dim")],
        figure("of", quantity(lookups)),
        *(figure(STATES[n], quantity(v), "adapter") for n, v in found.items() if v),
        figure("swap/s", byte_count(swap), "adapter"),
        figure("evicted", quantity(h.summed("evictions_suffered")), "warn"),
    ]
    return [
        strip("KV", h.series(kv_share), kv, cells, glyphs, open_end=h.provisional, role="kv"),
        strip("ADAPT", h.series(hit_rate), hits, cells, glyphs, open_end=h.provisional,
              role="adapter"),
    ]  # fmt: skip


def ttft_lines(rows: Sequence[Told], cells: int, glyphs: Glyphs, most: int) -> list[Line]:
    """Times to the first token by where the adapter was found, one scale for all: what is cold
    stands apart from what hits. Under 20 samples the maximum is told."""
    by: dict[str, list[int]] = defaultdict(lambda: [0] * OCTAVES)
    facts: dict[str, Told] = {}
    for row in rows:
        by[row["state"]][row["octave"]] = row["requests"]
        facts[row["state"]] = row
    if not by:
        label = Piece(f"{'TTFT':<{LABEL_CELLS}}", "label")
        return [cut(Line((label, Piece("no request of it has had a first token", "dim"))), cells)]
    largest = max(max(c) for c in by.values())
    there = sorted(by, key=lambda s: _ORDER.index(s) if s in _ORDER else len(_ORDER))
    shown = sorted(there, key=lambda s: -facts[s]["n"])[:most]
    out: list[Line] = []
    for state in [s for s in there if s in shown]:
        f = facts[state]
        # No request is not an unknown number of them: a dot, and no gap.
        bars = [sparkline([n / largest], glyphs) if n else glyphs.dot for n in by[state]]
        few = f["n"] < FEW
        tail = (figure("max", duration(f["max_s"])) if few
                else figure("p99", duration(f["p99_s"])))  # fmt: skip
        figures = [tail, figure("p50", duration(None if few else f["p50_s"])),
                   figure("n", quantity(f["n"]))]  # fmt: skip
        name = clip(_NAMES.get(state, plain(str(state))), 8, glyphs.ellipsis)
        lead = [
            Piece(f"{'TTFT' if not out else '':<{LABEL_CELLS}}", "label"),
            Piece(fit(name, 8), "adapter"),
            Piece("1ms", "dim"),
            Piece("".join(bars), "bar"),
            Piece(">8m  ", "dim"),
        ]
        used = sum(width(p.text) for p in lead)
        out.append(cut(Line((*lead, *join(figures, cells - used))), cells, glyphs.ellipsis))
    return out


def slo_line(h: History, cells: int, glyphs: Glyphs) -> Line:
    """Misses of those judged, and how fast they use up what may be missed."""
    misses, judged = h.summed("slo_missed"), h.summed("slo_eligible")
    whole = None if misses is None else max(judged or 0.0, misses)
    part = over(misses, whole)
    budget = 1.0 - DEFAULT.objective
    burn = None if part is None else part / budget
    told = ABSENT if burn is None else f"{burn:.1f}x" if burn < 9.95 else f"{burn:.0f}x"
    by = {n: h.summed(f"slo_missed_{n}") for n in ("ttft", "tpot", "gap")}
    figures: Figures = [
        [Piece(f"{percent(part)}", "hurt" if misses else "dim"), Piece(" missed", "dim")],
        figure("of", quantity(whole)),
        figure("burn", told, "hurt" if burn is not None and burn >= 1.0 else "value"),
        *(figure(n, quantity(v), "hurt") for n, v in by.items() if v),
        figure("waiting", quantity(h.summed("missed_waiting")), "hurt"),
    ]  # fmt: skip
    return strip("MISS", h.series(missed), figures, cells, glyphs, open_end=h.provisional,
                 role="hurt")  # fmt: skip


def quota_line(h: History, held: str | None, cells: int, glyphs: Glyphs) -> Line:
    """What is left of its limits and what was refused: `held` are its values as a version of the
    policy has them. Levels are the front's: a worker's memory has none."""
    limits = values(held)
    figures: Figures = []
    for name, shown, level in (
        ("rpm", "rpm", h.last("quota_rpm_level")),
        ("tpm", "tpm", h.last("quota_tpm_level")),
        ("concurrency", "at once", h.last("concurrency_in_use")),
    ):
        limit = limits.get(name)
        if limit is None:
            used = f"{quantity(level)}, " if name == "concurrency" and level is not None else ""
            told = f"{used}no limit" if name in limits else f"{used}limit {ABSENT}"
            figures.append([Piece(f"{shown} {told}", "dim")])
            continue
        # Of buckets the rest is told, of places those in use: either way what is at its end is red.
        spent = level is not None and (level >= limit if name == "concurrency" else level < 1.0)
        verb = "in use" if name == "concurrency" else "left"
        figures.append([*figure(shown, quantity(level), "hurt" if spent else "value"),
                        Piece(f" {verb} of {word(name, limit)}", "dim")])  # fmt: skip
    why = refused(h)
    offered, admitted = h.summed("offered_requests"), h.summed("admitted_requests")
    reasons = " (" + ", ".join(f"{r} {n}" for r, n in why.items()) + ")" if why else ""
    figures.append([*figure("refused", quantity(sum(why.values()) if offered is not None else None),
                            "warn"), Piece(reasons, "dim")])  # fmt: skip
    figures.append(figure("admitted", f"{quantity(admitted)}/{quantity(offered)}"))
    lead = Piece(f"{'QUOTA':<{LABEL_CELLS}}", "label")
    return cut(Line((lead, *join(figures, cells - LABEL_CELLS))), cells, glyphs.ellipsis)
