"""A snapshot as lines: the wording and layout that plain text and the live screen share.

`render_text` is the whole picture for a pipe, a log or a test; the functions above it give one
panel each. Draws nothing, reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from console.cells import clip, width
from console.columns import COLUMNS, choose, heading, holder_name, table_line
from console.formats import ABSENT, clock, duration, percent, quantity, span, whole, zone
from console.lines import (
    UNICODE,
    Glyphs,
    Line,
    Piece,
    cut,
    join,
    rule,
    sparkline,
    spread,
    stacked,
    wrap,
)
from console.panels import LIVE, Level, Snapshot, TenantRow
from telemetry.conventions import TENANT
from telemetry.plain import safe as plain

LABEL_CELLS = 6
VERDICT_LINES = 6
SLOW_STEP = 1.25  # measured over expected
OLD_TOKEN_S = 2.0
ADVICE_NAME_CELLS = 20

LEVEL_MARKS = {
    Level.HURT: ("!!", "hurt"),
    Level.WARN: ("! ", "warn"),
    Level.QUIET: ("ok", "good"),
    Level.UNKNOWN: ("? ", "dim"),
}
REASON_NAMES = {"kv": "KV"}
REASON_ROLES = {"slot": "slot", "budget": "budget", "kv": "kv", "adapter": "adapter"}


def header_lines(
    s: Snapshot, cells: int, glyphs: Glyphs = UNICODE, tz: tzinfo | None = None
) -> tuple[Line, ...]:
    """Which pool, which policy, what time; below it where the figures come from and how old."""
    engines = "1 engine" if s.engines == 1 else f"{s.engines} engines"
    policy = ABSENT if s.policy is None else plain(s.policy)
    version = "" if s.policy_version is None else f" v{s.policy_version}"
    pool = ABSENT if s.pool is None else plain(s.pool)
    first = spread(
        [
            Piece("tenantscope", "title"),
            Piece(f"  pool {clip(pool, 24, glyphs.ellipsis)} {glyphs.dot} {engines}", "dim"),
        ],
        [
            Piece("policy ", "dim"),
            Piece(policy, "value"),
            Piece(version, "dim"),
            Piece(f"   {clock(s.now, tz)} ", "value"),
            Piece(zone(s.now, tz), "dim"),
        ],
        cells,
        "head",
    )
    phase = [Piece(f"{glyphs.point} ", "phase"), Piece(plain(s.phase), "phase")] if s.phase else []
    second = spread(phase, _freshness(s, glyphs), cells, "head")
    return (first, second)


def _freshness(s: Snapshot, glyphs: Glyphs) -> list[Piece]:
    if s.data_at is None:
        return [Piece(s.mode, "value"), Piece(" no data yet", "dim")]
    pieces = [Piece(s.mode, "value")]
    age = f" data {whole(s.data_age_s)} old"
    if s.stale:
        pieces.append(Piece(f" {glyphs.dot} STALE:{age}", "warn"))
    elif s.mode == LIVE:  # a replay's figures are as old as the recording: its label says so
        opened = ", bucket open" if s.provisional else ""
        pieces.append(Piece(f" {glyphs.dot}{age}{opened}", "dim"))
    return pieces


def verdict_lines(s: Snapshot, cells: int, most: int = VERDICT_LINES) -> tuple[Line, ...]:
    """The verdict's sentences, wrapped; the mark says the level without colour."""
    mark, role = LEVEL_MARKS[s.verdict.level]
    out: list[Line] = []
    for sentence in s.verdict.lines:
        for part in wrap(plain(sentence), max(10, cells - 3)):
            lead = Piece(f"{mark} " if not out else "   ", role)
            strong = role if not out and s.verdict.level is not Level.UNKNOWN else "text"
            out.append(Line((lead, Piece(part, strong)), "verdict"))
    return tuple(out[:most])


def strip_lines(s: Snapshot, cells: int, glyphs: Glyphs = UNICODE) -> tuple[Line, ...]:
    """Pool, steps, waiting, whom the waiting was charged to, and how it came about."""
    bar = min(44, max(16, cells - 62))
    return (
        _pool_line(s, cells, bar, glyphs),
        _step_line(s, cells, glyphs),
        _wait_line(s, cells, bar, glyphs),
        _held_line(s, cells, glyphs),
        _trend_line(s, cells, glyphs),
    )


def _labelled(label: str, pieces: Sequence[Piece], cells: int) -> Line:
    return cut(Line((Piece(label.ljust(LABEL_CELLS), "label"), *pieces)), cells)


def _figure(name: str, value: str, role: str = "value") -> list[Piece]:
    return [Piece(f"{name} ", "dim"), Piece(value, "dim" if value == ABSENT else role)]


def _pool_line(s: Snapshot, cells: int, bar: int, glyphs: Glyphs) -> Line:
    p = s.strip
    parts = [
        (p.kv_share, glyphs.fills[0], "KV", "kv"),
        (p.adapter_share, glyphs.fills[1], "adapter", "adapter"),
        (p.cached_share, glyphs.fills[2], "cache", "cached"),
        (p.free_share, glyphs.fills[3], "free", "free"),
    ]
    known = [(share, fill, role) for share, fill, _, role in parts if share is not None]
    blank = [Piece(glyphs.gap * bar, "dim")]
    drawn = stacked(known, bar) if known else blank
    figures = [_figure(name, percent(share), role) for share, _, name, role in parts]
    slots = f"{quantity(p.running)}/{quantity(p.slots)}"
    full = p.running is not None and p.slots is not None and p.running > p.slots - 0.5
    figures.append(_figure("slots", slots, "warn" if full else "value"))
    return _labelled("POOL", (*drawn, Piece("  "), *join(figures, cells)), cells)


def _step_line(s: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    p = s.strip
    groups = []
    ratio = p.step_s / p.expected_step_s if p.step_s is not None and p.expected_step_s else None
    slow = ratio is not None and ratio > SLOW_STEP
    step = [Piece(duration(p.step_s), "warn" if slow else "value")]
    step.append(Piece(f", expected {duration(p.expected_step_s)}", "dim"))
    if slow:
        step.append(Piece(f" ({ratio:.1f}{glyphs.times} slower)", "warn"))
    groups.append(step)
    age = p.last_token_age_s
    old = age is not None and age > OLD_TOKEN_S
    groups.append(_figure("last token", duration(age), "hurt" if old else "value"))
    groups.append([*_figure("out", quantity(p.output_tokens_per_s)), Piece(" tok/s", "dim")])
    groups.append([*_figure("prefill", quantity(p.prefill_tokens_per_s)), Piece(" tok/s", "dim")])
    for name, value in (("preempt", p.preemptions), ("evict", p.evictions), ("load", p.loads)):
        groups.append(_figure(name, quantity(value)))
    return _labelled("STEP", join(groups, cells - LABEL_CELLS), cells)


def _wait_line(s: Snapshot, cells: int, bar: int, glyphs: Glyphs) -> Line:
    w = s.wait
    if w.total_s is None:
        drawn: Sequence[Piece] = [Piece(glyphs.gap * bar, "dim")]
        figures: list[list[Piece]] = []
    elif w.total_s == 0.0:
        drawn = [Piece(" " * bar)]
        figures = []
    else:
        shares = [
            (seconds / w.total_s, glyphs.fills[min(i, 3)], REASON_ROLES[reason])
            for i, (reason, seconds) in enumerate(w.by_reason)
        ]
        drawn = stacked(shares, bar)
        figures = [
            _figure(
                REASON_NAMES.get(reason, reason), percent(seconds / w.total_s), REASON_ROLES[reason]
            )
            for reason, seconds in w.by_reason
            if seconds > 0.0
        ]
    now = _figure("now", quantity(w.waiting), "warn" if w.waiting else "value")
    oldest = _figure("oldest", duration(w.oldest_s))
    if w.total_s == 0.0 and not w.waiting:
        now, oldest = [Piece("nobody waits", "dim")], []
    groups = [g for g in (now, oldest, *figures) if g]
    return _labelled(
        "WAIT", (*drawn, Piece("  "), *join(groups, cells - LABEL_CELLS - bar - 2)), cells
    )


def _held_line(s: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    """Whom the window's waiting was charged to: what is left out is summed, so that it closes."""
    if not s.holders:
        text = "no waiting was charged to anybody" if s.wait.total_s == 0.0 else ABSENT
        return _labelled("HELD", [Piece(text, "dim")], cells)
    whole = sum(h.charged_s for h in s.holders)
    tail = [Piece(f"of {span(whole)} waited in {duration(s.covered_s)}", "dim")]
    room = cells - LABEL_CELLS - width(tail[0].text) - 2
    groups: list[list[Piece]] = []
    used = 0
    for i, h in enumerate(s.holders):
        name = clip(holder_name(h), ADVICE_NAME_CELLS, glyphs.ellipsis)
        group = [
            Piece(f"{name} ", "named" if h.kind == TENANT else "aside"),
            Piece(percent(h.share), "value"),
        ]
        rest = sum(x.share for x in s.holders[i + 1 :])
        reserve = width("  the rest >99%") if rest > 0.0 else 0
        need = sum(width(p.text) for p in group) + (2 if groups else 0)
        if groups and used + need + reserve > room:
            left = sum(x.share for x in s.holders[i:])
            groups.append([Piece("the rest ", "dim"), Piece(percent(left), "value")])
            break
        groups.append(group)
        used += need
    return _labelled("HELD", join([*groups, tail], cells - LABEL_CELLS), cells)


def _trend_line(s: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    t = s.trend
    if t is None:
        return _labelled("TREND", [Piece(ABSENT, "dim")], cells)
    name = ABSENT if t.tenant is None else clip(plain(t.tenant), 14, glyphs.ellipsis)
    note = f"  {glyphs.dot} {duration(t.bucket_s)} each"
    fixed = LABEL_CELLS + width(name) + 1 + 5 + 2 + len("missed ") + 5 + width(note)
    n = max(4, min(len(t.share), (cells - fixed) // 2))
    share, missed = t.share[-n:], t.missed[-n:]
    return _labelled(
        "TREND",
        (
            Piece(f"{name} ", "named" if t.tenant == s.verdict.named else "dim"),
            Piece(sparkline(share, glyphs), "bar"),
            Piece(f" {percent(share[-1])}", "value"),
            Piece("  missed ", "dim"),
            Piece(sparkline(missed, glyphs), "hurt"),
            Piece(f" {percent(missed[-1])}", "value"),
            Piece(note, "dim"),
        ),
        cells,
    )


def tenant_lines(
    rows: Sequence[TenantRow], covered_s: float, cells: int, glyphs: Glyphs = UNICODE
) -> tuple[Line, ...]:
    """The table: a rule, the heading, one line a row."""
    columns = choose(COLUMNS, cells)
    note = f"last {duration(covered_s)}" if covered_s else ""
    return (
        rule("TENANTS", note, cells, glyphs),
        heading(columns, cells),
        *(table_line(row, columns, cells, glyphs) for row in rows),
    )


def ticker_lines(
    s: Snapshot, lines: int, cells: int, glyphs: Glyphs = UNICODE, tz: tzinfo | None = None
) -> tuple[Line, ...]:
    """The newest changes, newest last, under a rule; at most `lines` in all."""
    out = [rule("CHANGES", "", cells, glyphs)]
    ticks = s.ticker[-(lines - 1) :] if lines > 1 else ()
    for t in ticks:
        role = "hurt" if t.kind == "fault" else "phase" if t.kind in ("policy", "mark") else "value"
        pieces = (
            Piece(f"{clock(t.at, tz)} ", "dim"),
            Piece(f"{t.kind.upper():<7}", role),
            Piece(f" {plain(t.text)}"),
        )
        out.append(cut(Line(pieces), cells, glyphs.ellipsis))
    if not ticks and lines > 1:
        out.append(Line((Piece("nothing has changed", "dim"),)))
    return tuple(out)


def render_text(
    s: Snapshot,
    cells: int = 80,
    *,
    tenants: int = 12,
    ticks: int = 4,
    glyphs: Glyphs = UNICODE,
    tz: tzinfo | None = None,
) -> str:
    """The whole picture as plain text, `cells` wide (at least 40), ending in a newline.

    Deterministic for a snapshot, a width and a zone. Names and details are escaped: what is
    printed can only be seen, not obeyed by a terminal.
    """
    cells = max(40, cells)
    lines = (
        *header_lines(s, cells, glyphs, tz),
        *verdict_lines(s, cells),
        *strip_lines(s, cells, glyphs),
        *tenant_lines(s.top(tenants), s.covered_s, cells, glyphs),
        *ticker_lines(s, ticks + 1, cells, glyphs, tz),
    )
    return "\n".join(line.plain.rstrip() for line in lines) + "\n"


def summary_line(s: Snapshot, tz: tzinfo | None = None) -> str:
    """One line for a log: time, phase, policy, waiting, misses, the verdict's first sentence."""
    eligible = sum(t.slo_eligible or 0 for t in s.tenants)
    missed = sum(t.slo_missed or 0 for t in s.tenants)
    misses = percent(missed / eligible) if eligible else ABSENT
    parts = [
        clock(s.now, tz),
        plain(s.phase) if s.phase else s.mode,
        plain(s.policy) if s.policy else ABSENT,
        f"waiting {quantity(s.wait.waiting)}",
        f"missed {misses}",
        f"out {quantity(s.strip.output_tokens_per_s)} tok/s",
        plain(s.verdict.lines[0]) if s.verdict.lines else s.verdict.level.value,
    ]
    return " | ".join(parts)
