"""What became of it: the effect of an act while it settles, and how long changes still hold. Pure.

Compares the last minute before an act with what was observed since; says so where nothing was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.account import TenantNow, others
from console.act.values import Change, EngineState
from console.formats import ABSENT, percent
from console.lines import UNICODE, Glyphs, Line, Piece, cut, join
from console.marks import ttft_text
from console.panels import Latency, Mark, Snapshot, count, over, total
from telemetry.plain import name as short
from telemetry.plain import safe as plain
from telemetry.records import TenantMinute

SHOWN_S = 300.0  # how long the effect of an act is looked at
NAME_CELLS = 20
NONE = Latency(0, None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the victims together and of the tenant that was acted on, over the same minutes."""

    ttft: Latency = NONE
    missed_share: float | None = None
    share: float | None = None
    known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An act that took place, and how things stood before it. `at`: unix seconds of the picture's
    clock."""

    at: float
    what: str
    tenant: str
    victims: tuple[str, ...]
    before: Figures


def remembered(picture: Snapshot, what: str, tenant: str) -> Done:
    """An act to be looked at: those hurt now are its victims, or all others where nobody is."""
    known = picture.account.tenants if picture.account is not None else ()
    hurt = [t.name for t in known if t.row.mark is Mark.HURT and t.name != tenant]
    victims = tuple(hurt or sorted(picture.verdict.victims - {tenant}))
    return Done(
        at=picture.now,
        what=what,
        tenant=tenant,
        victims=victims,
        before=figures(picture, tenant, victims, None),
    )


def figures(picture: Snapshot, tenant: str, victims: Sequence[str], since: float | None) -> Figures:
    """Of the picture's last minute; with `since` only of buckets that begin after it."""
    if picture.account is None:
        return Figures()
    known = picture.account.tenants

    def lately(t: TenantNow) -> list[TenantMinute]:
        return [m for m in t.minutes if since is None or m.bucket_start >= since]

    every = [m for t in known for m in lately(t)]
    if not every:
        return Figures()
    # Where nobody is hurt all the others stand for those who might be.
    chosen = [t for t in known if t.name in victims] if victims else [
        t for t in known if t.name != tenant]  # fmt: skip
    theirs = [m for t in chosen for m in lately(t)]
    counts = [m.ttft for m in theirs if m.ttft is not None]
    merged = tuple(map(sum, zip(*counts, strict=True))) if counts else None
    own = [m for t in known if t.name == tenant for m in lately(t)]
    return Figures(
        ttft=others([TenantNow(row=t.row, ttft_counts=merged) for t in chosen[:1]]).ttft,
        missed_share=over(
            count([m.slo_missed for m in theirs]), count([m.slo_eligible for m in theirs])
        ),
        share=over(total([m.service for m in own]) or 0.0, total([m.service for m in every])),
        known=True,
    )


def after_line(done: Done, picture: Snapshot, cells: int, glyphs: Glyphs = UNICODE) -> Line | None:
    """One line for as long as the effect is looked at; None when that is over."""
    age = picture.now - done.at
    if not 0.0 <= age <= SHOWN_S:
        return None
    now = figures(picture, done.tenant, done.victims, done.at)
    minutes, seconds = divmod(int(age), 60)
    name = short(done.tenant, NAME_CELLS).replace(UNICODE.ellipsis, glyphs.ellipsis)
    head = f"{done.what} {name} {minutes}:{seconds:02d}"
    was = done.before
    theirs = [
        ("TTFT", _short(was.ttft), _short(now.ttft)),
        ("miss", percent(was.missed_share), percent(now.missed_share)),
    ]
    # What nobody knows is left out.
    told = [x for x in theirs if x[1:] != (ABSENT, ABSENT)] or theirs
    whom = "victims' " if done.victims else "others' "
    groups: list[list[Piece]] = [[Piece("AFTER ", "label"), Piece(head, "value")]]
    for i, (figure, before, after) in enumerate(told):
        label = f"{'' if i else whom}{figure} "
        groups.append([Piece(label, "dim"), *_change(before, after, now.known)])
    share = _change(percent(was.share), percent(now.share), now.known)
    groups.append([Piece("share ", "dim"), *share])
    if not now.known:
        groups.append([Piece("no bucket has begun since", "dim")])
    return cut(Line(join(groups, cells)), cells, glyphs.ellipsis)


def _short(ttft: Latency) -> str:
    """The 99th percentile, or of few samples the maximum, which it says."""
    return ttft_text(ttft).partition("/")[0]


def _change(was: str, now: str, known: bool) -> tuple[Piece, ...]:
    return (Piece(f"{was} > ", "dim"), Piece(now if known else ABSENT, "value"))


def in_force_line(
    states: Sequence[EngineState], now: float, cells: int, glyphs: Glyphs = UNICODE
) -> Line | None:
    """Every change in force, the one that ends first at the front; None where there is none."""
    held = [c for s in states for c in s.in_force]
    if not held:
        return None
    held.sort(key=lambda c: (c.until is None, c.until or 0.0, c.number))
    pieces = [Piece("SET   ", "label"), Piece(f"{len(held)}  ", "warn")]
    for i, c in enumerate(held):
        pieces += [
            Piece("; " if i else "", "dim"),
            Piece(f"{left(c, now)}: ", "warn"),
            Piece(plain(c.what), "value"),
            Piece(f" ({plain(c.who)})", "dim"),
        ]
    return cut(Line(tuple(pieces)), cells, glyphs.ellipsis)


def left(change: Change, now: float) -> str:
    """How long a change still holds: `14:31 left`, `2h05 left`, `permanent`."""
    if change.until is None:
        return "permanent"
    seconds = int(max(0.0, change.until - now))
    if seconds < 3600:
        return f"{seconds // 60}:{seconds % 60:02d} left"
    hours, rest = divmod(seconds // 60, 60)
    return f"{hours}h{rest:02d} left" if hours < 48 else f"{hours // 24}d left"
