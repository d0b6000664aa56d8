"""The three strips above the overview's lists: the pool, who waits for what, the share over time.

Lines of one picture; knows no screen and judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.cells import clip, width
from console.formats import ABSENT, duration, percent, quantity
from console.lines import Glyphs, Line, Piece, cut, join, sparkline, stacked
from console.listing import shown_name
from console.marks import OLD_TOKEN_S, REASON_ROLES, figure
from console.panels import Snapshot, over

_LABEL_CELLS = 6


def strips_of(s: Snapshot, cells: int, glyphs: Glyphs) -> tuple[Line, Line, Line]:
    """The pool's bytes and slots, who waits for what, and the share over time."""
    return _pool(s, cells, glyphs), _wait(s, cells, glyphs), _shares(s, cells, glyphs)


def _labelled(label: str, pieces: Sequence[Piece], cells: int, ellipsis: str = "…") -> Line:
    return cut(Line((Piece(label.ljust(_LABEL_CELLS), "label"), *pieces)), cells, ellipsis)


def _pool(s: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    p = s.strip
    # So wide that shares and slots still fit beside it on 80 columns.
    bar = min(44, max(6, cells - 66))
    held = [
        (share, fill, role)
        for share, fill, role in (
            (p.kv_share, glyphs.fills[0], "kv"),
            (p.adapter_share, glyphs.fills[1], "adapter"),
            (p.cached_share, glyphs.fills[2], "cached"),
            (p.free_share, glyphs.fills[3], "free"),
        )
        if share is not None
    ]
    drawn = stacked(held, bar) if held else (Piece(glyphs.gap * bar, "dim"),)
    full = p.running is not None and p.slots is not None and p.running > p.slots - 0.5
    figures = [
        figure("KV", percent(p.kv_share), "kv"),
        figure("adapter", percent(p.adapter_share), "adapter"),
        figure("cache", percent(p.cached_share), "cached"),
        figure("free", percent(p.free_share), "free"),
        figure("slots", f"{_whole(p.running)}/{_whole(p.slots)}", "warn" if full else "value"),
        figure("preempts", quantity(p.preemptions)),
        figure("loads", quantity(p.loads)),
    ]
    room = cells - _LABEL_CELLS - bar - 4
    return _labelled("POOL", (Piece("["), *drawn, Piece("]  "), *join(figures, room)), cells,
                     glyphs.ellipsis)  # fmt: skip


def _whole(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _wait(s: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    """How many wait, by reason: seconds waited in a second are requests waiting on average."""
    waiting = over(s.wait.total_s, s.covered_s)
    rates = [(r, seconds / s.covered_s) for r, seconds in s.wait.by_reason if s.covered_s]
    lead = [Piece(f"{quantity(waiting)}: ", "warn" if waiting else "dim")]
    if waiting == 0.0:
        lead = [Piece("nobody waits  ", "dim")]
    figures = [figure(r, quantity(n), REASON_ROLES[r]) for r, n in rates if n]
    age = s.strip.last_token_age_s
    old = age is not None and age > OLD_TOKEN_S
    figures += [
        figure("oldest", duration(s.wait.oldest_s)),
        figure("last token", duration(age), "hurt" if old else "value"),
        [*figure("step", duration(s.strip.step_s)),
         Piece(f" (expected {duration(s.strip.expected_step_s)})", "dim")],
        [*figure("out", quantity(s.strip.output_tokens_per_s)), Piece(" tok/s", "dim")],
    ]  # fmt: skip
    room = cells - _LABEL_CELLS - width(lead[0].text)
    return _labelled("WAIT", (*lead, *join(figures, room)), cells, glyphs.ellipsis)


def _shares(s: Snapshot, cells: int, glyphs: Glyphs) -> Line:
    t = s.trend
    if t is None or t.tenant is None:
        return _labelled("SHARE", [Piece(ABSENT, "dim")], cells)
    row = next((r for r in s.tenants if r.name == t.tenant), None)
    fair = f" (fair {percent(row.fair_share)})" if row and row.fair_share is not None else ""
    name = clip(shown_name(t.tenant), 16, glyphs.ellipsis)
    now = t.share[-1] if t.share else None
    rest = None if now is None else 1.0 - now
    open_mark = "~" if s.provisional else ""
    fixed = _LABEL_CELLS + width(name) + 1 + 5 + width(fair) + 3 + len("the rest ") + 5 + 2
    n = max(4, min(len(t.share), (cells - fixed) // 2))
    share = t.share[-n:]
    others = [None if v is None else 1.0 - v for v in share]
    return _labelled(
        _minutes(len(share) * t.bucket_s),
        (
            Piece(f"{name} ", "named" if t.tenant == s.verdict.named else "value"),
            Piece(sparkline(share, glyphs) + open_mark, "bar"),
            Piece(f" {percent(now)}", "value"),
            Piece(fair, "dim"),
            Piece("   the rest ", "dim"),
            Piece(sparkline(others, glyphs) + open_mark, "free"),
            Piece(f" {percent(rest)}", "value"),
        ),
        cells,
        glyphs.ellipsis,
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}min" if seconds >= 60 else f"{seconds:.0f}s"
