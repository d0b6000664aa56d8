"""The two lists of the overview, HURT and HOLDS, as columns and lines. Draws no screen.

What is printed adds up: both lists, with those that are no tenants, close to one total.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from console.account import EXCESS, REMEMBERED, WAITED, Account, TenantNow, closing, top
from console.cells import clip, width
from console.formats import ABSENT, duration, percent, quantity, span
from console.lines import Glyphs, Line, Piece, Row, cut
from console.marks import MARK_ROLES, MARKS, holder_name, ttft_text
from console.panels import Mark, count, over, total
from console.table import VAST, WIDE, Cell, Field, cells_of, chosen, titles
from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT
from telemetry.plain import safe as plain

FINE_S = 20.0  # sums below it are told in tenths
# Mark and name take the list's own name as their title.
_NAME_CELLS, _LONGEST_NAME = 10, 40


@dataclass(frozen=True, slots=True)
class Listed:
    """A tenant's line: `seconds` and `slots` are rounded so that the column adds up."""

    now: TenantNow
    seconds: str
    slots: str


Format = Callable[[Listed, int, Glyphs], Cell]


def shown_name(name: str) -> str:
    """A name as a list shows it: escaped, and the empty one as such."""
    return plain(name) if name else '""'


def _hurt_mark(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    mark = x.now.row.mark
    if mark is Mark.NAMED and x.now.missed:
        mark = Mark.MISSING
    return MARKS[mark], MARK_ROLES[mark]


def _holds_mark(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    named = x.now.row.mark is Mark.NAMED
    return ("* ", "named") if named else ("  ", "text")


def _name(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    role = "aside" if x.now.row.folded else MARK_ROLES[x.now.row.mark]
    text = x.now.name if x.now.row.folded else shown_name(x.now.name)
    return clip(text, cells, glyphs.ellipsis), role


def _seconds(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    return x.seconds, "dim" if x.seconds in (ABSENT, "0s", "0.0s") else "warn"


def _slots(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    return x.slots, "dim" if x.slots in (ABSENT, "0") else "text"


def _miss(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    share = x.now.missed_share
    return percent(share), "hurt" if share else "dim"


def _ttft(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    ttft = x.now.ttft
    return ttft_text(ttft), "dim" if not ttft.n else "hurt" if x.now.missed else "text"


def _behind(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    holder = x.now.behind
    if holder is None:
        return ABSENT, "dim"
    reason = x.now.behind_reason or ""
    name = holder_name(holder) if holder.kind == TENANT else plain(holder.kind)
    if holder.kind == TENANT and not holder.name:
        name = '""'
    room = cells - width(reason) - 1
    name = clip(name, room, glyphs.ellipsis)
    gap = " " * max(1, min(9, room) - width(name) + 1)
    return clip(f"{name}{gap}{reason}", cells, glyphs.ellipsis), (
        "named" if holder.kind == TENANT else "aside"
    )


def _share_behind(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    return percent(x.now.behind.share if x.now.behind else None), "dim"


def _plain(get: Callable[[TenantNow], float | None], show: Callable[[float | None], str]) -> Format:
    def cell(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
        value = get(x.now)
        return show(value), "text" if value else "dim"

    return cell


def _minutes(column: str) -> Callable[[TenantNow], float | None]:
    def get(t: TenantNow) -> float | None:
        return total([getattr(m, column) for m in t.minutes])

    return get


def _waited(reason: str) -> Format:
    return _plain(_minutes(f"wait_{reason}_s"), duration)


def swapped_per_s(t: TenantNow) -> float | None:
    """Adapter bytes moved in and out a second; None where nobody counted them."""
    moved = total([v for m in t.minutes for v in (m.swap_in_bytes, m.swap_out_bytes)])
    return over(0.0 if moved is None and t.covered_s else moved, t.covered_s)


def _swap(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    rate = swapped_per_s(x.now)
    if rate is None:
        return ABSENT, "dim"
    return (f"{rate / 1e6:.1f}M/s" if rate >= 5e4 else "<.1M/s", "text") if rate else ("0", "dim")


def _rpm(x: Listed, cells: int, glyphs: Glyphs) -> Cell:
    """Admitted and offered, a minute each."""
    seconds = x.now.covered_s
    admitted = count([m.admitted_requests for m in x.now.minutes])
    offered = count([m.offered_requests for m in x.now.minutes])
    if not seconds or offered is None:
        return ABSENT, "dim"
    text = "/".join(ABSENT if v is None else quantity(round(v * 60 / seconds))
                    for v in (admitted, offered))  # fmt: skip
    return text, "warn" if admitted is not None and admitted < offered else "text"


_MARK_AND_NAME = ("mark", "name")


def _list(mark: Format, *fields: Field[Listed]) -> tuple[Field[Listed], ...]:
    name = Field("name", "", _NAME_CELLS, _name, "left", most=_LONGEST_NAME)
    return (Field("mark", "", 2, mark, "left"), name, *fields)


HURT = _list(
    _hurt_mark,
    Field("wait", "excess wait", 11, _seconds),
    Field("miss", "miss", 5, _miss, priority=1),
    Field("oldest", "oldest", 6, _plain(lambda t: t.row.oldest_wait_s, duration), priority=2),
    Field("ttft", "TTFT p99/n", 13, _ttft, priority=2),
    Field("refused", "429", 5, _plain(lambda t: t.row.rejected, quantity), priority=3),
    Field("slot", "slot", 5, _waited("slot"), priority=6, since=WIDE),
    Field("budget", "budget", 6, _waited("budget"), priority=6, since=WIDE),
    Field("kv", "kv", 5, _waited("kv"), priority=6, since=WIDE),
    Field("adapter", "adapter", 7, _waited("adapter"), priority=6, since=WIDE),
    Field("stall", "stall", 5, _plain(_minutes("stall_s"), duration), priority=7, since=VAST),
    Field("waiting", "waiting", 7, _plain(lambda t: t.row.waiting, quantity), priority=7,
          since=VAST),
    Field("tokens", "tok/s", 6, _plain(lambda t: t.row.output_tokens_per_s, quantity),
          priority=7, since=VAST),
    Field("share", "of it", 5, _share_behind, priority=7, since=WIDE),
    Field("behind", "behind", 13, _behind, "left", most=36),
)  # fmt: skip

HOLDS = _list(
    _holds_mark,
    Field("share", "share", 6, _plain(lambda t: t.row.service_share, percent)),
    Field("fair", "fair", 5, _plain(lambda t: t.row.fair_share, percent), priority=1),
    Field("kv", "KV", 5, _plain(lambda t: t.row.kv_share, percent), priority=1),
    Field("slots", "slots", 6, _slots, priority=1),
    Field("swap", "swap/s", 8, _swap, priority=3),
    Field("rpm", "adm/off rpm", 12, _rpm, priority=2),
    Field("tokens", "tok/s", 6, _plain(lambda t: t.row.output_tokens_per_s, quantity),
          priority=6, since=WIDE),
    Field("engine", "engine s", 8, _plain(_minutes("engine_seconds"), duration), priority=6,
          since=WIDE),
    Field("prompt", "prompt", 7, _plain(_minutes("prompt_tokens"), quantity), priority=7,
          since=VAST),
    Field("preempts", "preempts", 8, _plain(_minutes("preemptions_caused"), quantity), priority=7,
          since=VAST),
    Field("evicts", "evicts", 7, _plain(_minutes("evictions_caused"), quantity), priority=7,
          since=VAST),
    Field("held", "charged excess", 15, _seconds),
)  # fmt: skip

_ORDER = (SELF, CAPACITY, POLICY, OTHERS)


def hurt_lines(a: Account, cells: int, lines: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """A heading and at most `lines` - 1 tenants, closing with the others."""
    if not any(t.wait_s or t.missed or t.row.rejected for t in a.hurt):
        beyond = "" if a.basis == WAITED else " beyond usual"
        words = f"nobody waited{beyond}, missed a target or was refused"
        quiet = cut(Line((Piece(f"  {words}", "dim"),)), cells, glyphs.ellipsis)
        return (_title("HURT", HURT, a, cells, glyphs), quiet)
    shown = top(a.hurt, max(1, lines - 1))
    seconds = closing([t.wait_s or 0.0 for t in shown], a.total_s, _digits(a))
    rows = [Listed(t, _told(t.wait_s, s, a), ABSENT) for t, s in zip(shown, seconds, strict=True)]
    return (
        _title("HURT", HURT, a, cells, glyphs),
        *(_line(r, HURT, cells, glyphs, "hurt") for r in rows),
    )


def holds_lines(a: Account, cells: int, lines: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """A heading, at most `lines` - 2 tenants with the others last, and those that are no tenants
    with the total."""
    shown = top(a.holds, max(1, lines - 2))
    apart = dict.fromkeys(_ORDER, 0.0) | dict(a.not_tenants)
    parts = [*(t.held_s or 0.0 for t in shown), *apart.values()]
    known = a.basis != WAITED  # else nobody is charged yet, and there is nothing to close
    seconds = closing(parts, a.total_s, _digits(a)) if known else parts
    running = [t.row.running or 0.0 for t in shown]
    slots = closing(running, sum(running))
    rows = [
        Listed(
            t,
            _told(t.held_s, s, a),
            ABSENT if t.row.running is None else f"{n:.0f}",
        )
        for t, s, n in zip(shown, seconds, slots, strict=False)
    ]
    rest = {k: s for k, s in zip(apart, seconds[len(shown) :], strict=True) if s}
    return (
        _title("HOLDS", HOLDS, a, cells, glyphs),
        *(_line(r, HOLDS, cells, glyphs, "holds") for r in rows),
        _closing_line(rest, a, cells, glyphs),
    )


def _told(known: float | None, rounded: float, a: Account) -> str:
    return ABSENT if known is None else _s(rounded, a)


def _digits(a: Account) -> int:
    return 1 if 0.0 < a.total_s < FINE_S else 0


def _s(seconds: float, a: Account) -> str:
    return f"{seconds:.{_digits(a)}f}s"


def _closing_line(rest: dict[str, float], a: Account, cells: int, glyphs: Glyphs) -> Line:
    apart = ", ".join(f"{plain(k)} {_s(s, a)}" for k, s in rest.items()) or "nothing"
    left = f"  (not tenants: {apart}; total {_s(a.total_s, a)})"
    if a.basis == WAITED:
        left = "  (whom the waits are charged to is still being read)"
    asides = [f"last {span(a.span_s)}"]
    if a.gaps:
        asides.append(f"{a.gaps} not observed")
    if a.short:
        asides.append(f"{a.short} in part")
    line = Line((Piece(left, "aside"),))
    for right in (f"window: {', '.join(asides)}", ", ".join(asides), asides[0]):
        room = cells - width(left) - width(right)
        if room >= 1:
            return Line((*line.pieces, Piece(" " * room), Piece(right, "dim")))
    return cut(line, cells, glyphs.ellipsis)


def _title(
    name: str, fields: Sequence[Field[Listed]], a: Account, cells: int, glyphs: Glyphs
) -> Line:
    """The heading says of which seconds the list is: without a baseline none are excess."""
    names = {"excess wait": "wait", "charged excess": "charged"} if a.basis != EXCESS else {}
    line = titles(chosen(fields, cells), cells, f"{glyphs.rule}{name} ")
    text = line.plain
    for was, now in names.items():
        text = text.replace(was, now.rjust(len(was)))
    lead = len(f"{glyphs.rule}{name} ")
    return Line((Piece(text[:lead], "label"), Piece(text[lead:], "head")), "head")


def _line(
    x: Listed, fields: Sequence[Field[Listed]], cells: int, glyphs: Glyphs, part: str
) -> Line:
    tint = {Mark.HURT: "hurt", Mark.NAMED: "named"}.get(x.now.row.mark, "")

    def made() -> Line:
        return cells_of(x, chosen(fields, cells), cells, glyphs, tint)

    if x.now.row.folded:  # it adds up all others' minutes: once a picture, not at every key
        return REMEMBERED.of(x.now, ("line", part, x.seconds, x.slots, cells, glyphs), made)
    return replace(made(), row=Row("tenant", x.now.name, part))
