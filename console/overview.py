"""The overview: who holds the pool, who is hurt, since when, what changed. Lines, no screen.

`overview_lines` is the whole screen of a size; the screen and `--once` print the same. The words of
the verdict are its own, never made up here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from console.cells import clip, width
from console.formats import (
    ABSENT,
    HALF_A_DAY_S,
    clock,
    day,
    duration,
    quantity,
    when,
    whole,
    zone,
)
from console.lines import (
    SENTENCE_GAP,
    UNICODE,
    Glyphs,
    Line,
    Piece,
    cut,
    rule,
    side_by_side,
    spread,
    wrap,
)
from console.listing import holds_lines, hurt_lines, shown_name
from console.marks import LEVEL_MARKS
from console.others import other_lines
from console.panels import LIVE, Lamps, Level, Snapshot
from console.strips import strips_of
from console.table import USUAL
from telemetry.plain import safe as plain

LEAST_CELLS, LEAST_LINES = 40, 10
FLAT_LINES = 11  # below it only the verdict stands above the lists
LOW_LINES = 18  # below it the strips make room for the lists
TALL_LINES = 32
_LEAST_POOL_CELLS = 9


@dataclass(frozen=True, slots=True)
class Look:
    """What the picture does not say: how to draw it, and how the reader stands to it.

    `banner`: the source does not answer, in its words; `age_s`: how long ago it did. `held`:
    paused, the picture is not the newest. `keys` is the last line. `admin`: actions are allowed.
    `phases`: what is played says where it has got to, and under which policy.
    """

    glyphs: Glyphs = UNICODE
    tz: tzinfo | None = None
    banner: str | None = None
    age_s: float = 0.0
    held: bool = False
    admin: bool = False
    keys: tuple[Piece, ...] = ()
    phases: bool = False


def overview_lines(s: Snapshot, cells: int, lines: int, look: Look) -> tuple[Line, ...]:
    """The screen, exactly `lines` high and at most `cells` wide; a stale picture is grey."""
    if cells < LEAST_CELLS or lines < LEAST_LINES:
        return too_small(cells, lines)
    foot = (cut(Line(look.keys), cells),) if look.keys else ()
    head = (header_line(s, cells, look), *banner_lines(look, cells))
    body = body_lines(s, cells, lines - len(head) - len(foot), look)
    if s.stale or look.banner is not None:
        body = tuple(greyed(line) for line in body)
    blank = (Line(),) * (lines - len(head) - len(body) - len(foot))
    return (*head, *body, *blank, *foot)[:lines]


def too_small(cells: int, lines: int) -> tuple[Line, ...]:
    words = f"too small: {cells}x{lines}, {LEAST_CELLS}x{LEAST_LINES} at least"
    parts = wrap(words, max(1, cells))[:lines]
    return tuple(Line((Piece(p, "warn"),)) for p in parts)


def greyed(line: Line) -> Line:
    """Figures of another time: readable, and not to be taken for those of now."""
    return Line(tuple(Piece(p.text, "dim") for p in line.pieces), row=line.row)


def header_line(s: Snapshot, cells: int, look: Look) -> Line:
    """Which pool, the three lamps, what time, how old the figures are, what may be done."""
    lamps = s.lamps
    engines = f"{lamps.heard}/{lamps.known} engine{'' if lamps.known == 1 else 's'}"
    missing = lamps.heard < lamps.known or not lamps.known
    right: list[list[Piece]] = [
        [Piece(f"{clock(s.now, look.tz)} ", "value"), Piece(zone(s.now, look.tz), "dim")],
        _mode(s, look),
        _age(s, look),
        _store(lamps),
        _collector(lamps),
        [Piece("ADMIN" if look.admin else "RO", "warn" if look.admin else "dim")],
    ]
    # Where it is tight what matters least goes first: that nothing may be done, that nothing was
    # lost, the time. Whether the figures are old, or not the store's, always stays.
    spared = [i for i, may in ((5, not look.admin), (4, not lamps.lost), (0, True)) if may]
    while True:
        tail = [p for group in right if group for p in (Piece("  "), *group)][1:]
        fixed = sum(width(p.text) for p in tail) + width(engines) + 2
        if fixed + _LEAST_POOL_CELLS <= cells or not spared:
            break
        right[spared.pop(0)] = []
    if fixed - width(engines) > cells:
        return cut(Line(tuple(tail), "head"), cells, look.glyphs.ellipsis)
    title = [Piece("tenantscope", "title"), Piece("  ")] if fixed + 24 < cells else []
    label = [Piece("pool ", "dim")] if cells >= USUAL else []
    # One pool of several looks like all of them: nothing on the screen is of the others.
    others = len(s.pools) - 1
    more = [Piece(f" +{others} pool{'' if others == 1 else 's'}", "warn")] if others > 0 else []
    if fixed + sum(width(p.text) for p in (*label, *more)) + _LEAST_POOL_CELLS > cells:
        more = [Piece(f" +{others}", "warn")] if others > 0 else []
    elif more and fixed + sum(width(p.text) for p in (*title, *label, *more)) + 12 > cells:
        title = []
    room = max(1, cells - fixed - sum(width(p.text) for p in (*title, *label, *more)) - 1)
    pool = ABSENT if s.pool is None else clip(shown_name(s.pool), room, look.glyphs.ellipsis)
    left = [
        *title,
        *label,
        Piece(pool, "value"),
        *more,
        Piece("  "),
        Piece(engines, "warn" if missing else "dim"),
    ]
    return spread(left, tail, cells, "head")


def _mode(s: Snapshot, look: Look) -> list[Piece]:
    if look.held or s.edge is not None:
        behind = "" if s.edge is None else f" {duration(max(0.0, s.edge - s.now))} back"
        return [Piece(f"HELD{behind}", "warn")]
    mode = s.mode.partition(" of ")[0] if s.mode.startswith("REPLAY") else s.mode
    role = "good" if s.mode == LIVE and not s.stale else "warn" if s.stale else "value"
    return [Piece(mode, role)]


def _age(s: Snapshot, look: Look) -> list[Piece]:
    if s.data_age_s is None:
        return [Piece("no data", "warn")]
    # Figures of now grow older on the screen too; those of another time have their age.
    standing = s.mode == LIVE and s.edge is None and not look.held
    age = whole(s.data_age_s + (look.age_s if standing else 0.0))
    if s.stale:
        return [Piece(f"STALE data {age}", "warn")]
    return [Piece(f"data {age}{'~' if s.provisional else ''}", "dim")]


def _store(lamps: Lamps) -> list[Piece]:
    if lamps.store_down_s is not None:
        since = f" {whole(lamps.store_down_s)}" if lamps.store_down_s >= 1.0 else ""
        return [Piece(f"STORE DOWN{since}", "hurt")]
    return [Piece("PARTIAL", "warn")] if lamps.notes else []


def _collector(lamps: Lamps) -> list[Piece]:
    if lamps.lost is None:
        return []
    return [Piece(f"lost {quantity(lamps.lost)}", "hurt" if lamps.lost else "dim")]


def banner_lines(look: Look, cells: int) -> tuple[Line, ...]:
    if look.banner is None:
        return ()
    words = f"no fresh figures for {whole(look.age_s)}: {plain(look.banner)}; trying again"
    text = clip(words, cells - 3, look.glyphs.ellipsis)
    return (Line((Piece("!! ", "hurt"), Piece(text, "value")), "hurt"),)


def body_lines(s: Snapshot, cells: int, lines: int, look: Look) -> tuple[Line, ...]:
    """All but header, banner and keys, at most `lines`."""
    strips: tuple[Line, ...] = strips_of(s, cells, look.glyphs)
    if lines < LOW_LINES:
        strips = strips[1:2] if lines >= FLAT_LINES else ()
    flat = lines < FLAT_LINES
    most = 2 if flat else 3 if lines < LOW_LINES else 4 if lines < TALL_LINES else 9
    beside = 1 if lines < LOW_LINES else 2 if lines < TALL_LINES else 6
    said = [
        *phase_lines(s, cells, look),
        *note_lines(s.lamps, cells, look),
        *verdict_part(s, cells, most, look.glyphs.ellipsis),
        *other_lines(s, cells, beside, look.glyphs),
    ]
    room = lines - len(said) - len(strips)
    if s.account is None:
        return (*said, *strips, Line((Piece("  no engine has been heard yet", "dim"),)))[:lines]
    since = room // 4 if room >= 10 else 0
    lists = room - since
    hurt = hurt_lines(s.account, cells, max(3, lists // 2), look.glyphs)
    holds = holds_lines(s.account, cells, max(3, lists - len(hurt)), look.glyphs)
    since = room - len(hurt) - len(holds)
    ticks = ticker_part(s, cells, since, look) if since >= 2 else ()
    return (*said, *strips, *hurt, *holds, *ticks)[:lines]


def phase_lines(s: Snapshot, cells: int, look: Look) -> tuple[Line, ...]:
    """What is being played now, and the policy in force."""
    if not look.phases:
        return ()
    phase = "the play has not begun" if s.phase is None else plain(s.phase)
    version = "" if s.policy_version is None else f" v{s.policy_version}"
    policy = ABSENT if s.policy is None else plain(s.policy)
    left = [Piece(f"{look.glyphs.point} ", "phase"), Piece(phase, "phase")]
    right = [Piece("policy ", "dim"), Piece(policy, "value"), Piece(version, "dim")]
    return (spread(left, right, cells, "head"),)


def note_lines(lamps: Lamps, cells: int, look: Look) -> tuple[Line, ...]:
    """What the answer lacks: from whose memory it is, which days could not be read."""
    if not lamps.notes:
        return ()
    down = "from engines, 60 min in memory; " if lamps.store_down_s is not None else ""
    words = f"{down}{'; '.join(lamps.notes)}"
    return (cut(Line((Piece("!  ", "warn"), Piece(plain(words), "warn"))), cells,
                look.glyphs.ellipsis),)  # fmt: skip


def verdict_part(s: Snapshot, cells: int, most: int, ellipsis: str = "…") -> tuple[Line, ...]:
    """Sentences, then exclusions: where not all fit the last line is kept for the exclusions.
    A quiet pool needs one line. Old figures exclude nothing, and say first how old they are."""
    v = s.verdict
    split = len(v.lines) - v.excluded
    mark, role = LEVEL_MARKS[v.level]
    room = max(10, cells - 3)
    words = [plain(line).replace("…", ellipsis) for line in v.lines]  # names come cut already
    if s.stale and s.data_age_s is not None and split > 0:
        # "ok QUIET" over an engine that is gone would be believed.
        words[0] = f"{whole(s.data_age_s)} ago: {words[0]}"
        mark = LEVEL_MARKS[Level.UNKNOWN][0] if v.level is Level.QUIET else mark
    said = [x for line in words[:split] for x in wrap(line, room, ellipsis)]
    out = [x for line in words[split:] for x in wrap(line, room, ellipsis)]
    if v.level is Level.QUIET or s.stale:
        out = []  # of a silent engine nothing is ruled out: it may be frozen since
    if len(said) + len(out) > most:
        # Each sentence's beginning says more than the whole of the first ones.
        said = [clip(line, room, ellipsis) for line in words[:split]]
        out = _heads(words[split:], room) if out else []
    kept = said[: max(1, most - min(1, len(out)))]
    shown = [*kept, *out[: max(0, most - len(kept))]]
    lines = []
    for i, text in enumerate(shown):
        strong = role if i == 0 and v.level is not Level.UNKNOWN else "text"
        lines.append(
            Line((Piece("   " if i else f"{mark} ", role), Piece(text, strong)), "verdict")
        )
    return tuple(lines)


def _heads(exclusions: Sequence[str], cells: int) -> list[str]:
    """Which causes were looked at, without their figures: `NOT engine   NOT adapters`."""
    heads = [x.partition(":")[0] for line in exclusions for x in line.split(SENTENCE_GAP) if x]
    return list(side_by_side(heads, cells))


def ticker_part(s: Snapshot, cells: int, lines: int, look: Look) -> tuple[Line, ...]:
    """What changed and what was alerted, the newest last, under a rule that says since when."""
    if s.filling:
        words = Line((Piece("what has changed is still being read", "dim"),))
        return (rule("SINCE", "", cells, look.glyphs), words)
    ticks = s.ticker[-(lines - 1) :]
    since = ticks[0].at if ticks else s.now
    old = s.now - since > HALF_A_DAY_S
    begun = day(since, look.tz) if old else f"{datetime.fromtimestamp(since, look.tz):%H:%M}"
    out = [rule(f"SINCE {begun}" if ticks else "SINCE", "", cells, look.glyphs)]
    for t in ticks:
        hurt = t.kind in ("fault", "lost", "quarantine", "incident")
        word = {"policy": "CHANGE", "incident": "ALERT"}.get(t.kind, t.kind.upper())
        pieces = (
            Piece(f"{when(t.at, s.now, look.tz)} ", "dim"),
            Piece(f"{word:<7}", "hurt" if hurt else "phase"),
            Piece(plain(t.text)),
        )
        out.append(cut(Line(pieces), cells, look.glyphs.ellipsis))
    if not ticks:
        out.append(Line((Piece("nothing has changed", "dim"),)))
    return tuple(out)


def plain_text(s: Snapshot, cells: int, lines: int, look: Look) -> str:
    """The overview for a pipe or a log: no blank tail, no keys."""
    drawn = overview_lines(s, cells, lines, replace(look, keys=()))
    text = "\n".join(line.plain.rstrip() for line in drawn).rstrip()
    return text + "\n"
