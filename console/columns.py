"""The tenant table's columns, as data: what each shows, how wide, which go first when space is
short. Draws no screen. Names are data: escaped, clipped by cell width, never markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from console.cells import clip, fit, width
from console.formats import ABSENT, duration, percent, quantity, span
from console.lines import Glyphs, Line, Piece, cut, gauge
from console.panels import Holder, Latency, Mark, TenantRow
from telemetry.conventions import TENANT
from telemetry.plain import safe as plain

SEPARATOR = 1
LONGEST_NAME = 28
FAR_ABOVE_FAIR = 1.5

Cell = tuple[str, str]  # text, role
Format = Callable[[TenantRow, int, Glyphs], Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `priority` 0 is always there; higher ones go first when the line is narrow.
    `most` > width: takes up spare width to there."""

    key: str
    title: str
    width: int
    format: Format
    align: str = "right"
    priority: int = 0
    most: int = 0


MARKS = {Mark.HURT: "!!", Mark.NAMED: "* ", Mark.MISSING: "! ", Mark.NONE: "  "}
MARK_ROLES = {
    Mark.HURT: "hurt",
    Mark.NAMED: "named",
    Mark.MISSING: "warn",
    Mark.NONE: "text",
}


def holder_name(holder: Holder) -> str:
    """A tenant by its name; what is no tenant in brackets, so that neither passes for the other."""
    return plain(holder.name) if holder.kind == TENANT else f"({plain(holder.kind)})"


def _mark(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    return MARKS[row.mark], MARK_ROLES[row.mark]


def _name(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    role = "aside" if row.folded else MARK_ROLES[row.mark]
    return clip(plain(row.name), cells, glyphs.ellipsis), role


def _bar(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    if row.service_share is None:
        return ABSENT, "dim"
    return gauge(row.service_share, cells, glyphs, row.fair_share), _share_role(row, "bar")


def _share(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    return percent(row.service_share), _share_role(row, "value")


def _share_role(row: TenantRow, usual: str) -> str:
    """Above its fair share is worth a colour only where somebody was due something."""
    if row.service_share is None:
        return "dim"
    above = row.fair_share is not None and row.service_share > FAR_ABOVE_FAIR * row.fair_share
    return "named" if above and not row.folded else usual


def _behind(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    if row.behind is None:
        return ABSENT, "dim"
    reason = f" {row.behind_reason}" if row.behind_reason else ""
    share = f" {percent(row.behind.share)}"
    name = holder_name(row.behind)
    # Where it is tight the share goes first, then the name is cut; the reason stays.
    if width(name + share + reason) <= cells:
        name += share
    role = "named" if row.behind.kind == TENANT else "aside"
    return clip(name, cells - width(reason), glyphs.ellipsis) + reason, role


def _ttft(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    text = ttft_text(row.ttft)
    if width(text) > cells:
        text = text.rpartition("/")[0]
    return text, "hurt" if row.slo_missed else _known(row.ttft.max_s)


def ttft_text(ttft: Latency) -> str:
    """p99/n; under 20 samples the maximum, and it says so."""
    if not ttft.n:
        return ABSENT
    if ttft.p99_s is None or ttft.few:
        return f"max {duration(ttft.max_s)}/{quantity(ttft.n)}"
    return f"{duration(ttft.p99_s)}/{quantity(ttft.n)}"


def _p50(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    value = None if row.ttft.few else row.ttft.p50_s
    return duration(value), _known(value)


def _missed(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    return percent(row.missed_share), "hurt" if row.slo_missed else _known(row.missed_share)


def _missed_of(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
    if row.slo_eligible is None or row.slo_missed is None:
        return ABSENT, "dim"
    text = f"{quantity(row.slo_missed)}/{quantity(row.slo_eligible)}"
    return text, "hurt" if row.slo_missed else "text"


def _known(value: float | None) -> str:
    return "dim" if value is None else "text"


def _number(
    get: Callable[[TenantRow], float | None], show: Callable[[float | None], str]
) -> Format:
    """A plain number; nothing (0) and not known (-) recede."""

    def cell(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
        value = get(row)
        return show(value), "text" if value else "dim"

    return cell


def _warned(
    get: Callable[[TenantRow], float | None], show: Callable[[float | None], str]
) -> Format:
    def cell(row: TenantRow, cells: int, glyphs: Glyphs) -> Cell:
        value = get(row)
        return show(value), "warn" if value else "dim"

    return cell


COLUMNS: tuple[Column, ...] = (
    Column("mark", "", 2, _mark, "left"),
    Column("name", "tenant", 10, _name, "left", most=LONGEST_NAME),
    Column("bar", "service", 10, _bar, "left", priority=5, most=24),
    Column("share", "share", 5, _share),
    Column("fair", "fair", 4, _number(lambda r: r.fair_share, percent), priority=1),
    Column("kv", "KV", 4, _number(lambda r: r.kv_share, percent), priority=1),
    Column("running", "run", 3, _number(lambda r: r.running, quantity), priority=2),
    Column("waiting", "wait", 4, _warned(lambda r: r.waiting, quantity)),
    Column("oldest", "oldest", 6, _number(lambda r: r.oldest_wait_s, duration), priority=1),
    Column("excess", "excess", 6, _warned(lambda r: r.excess_wait_s, span), priority=4),
    Column("p50", "p50", 5, _p50, priority=5),
    Column("ttft", "TTFT p99/n", 12, _ttft),
    Column("missed", "miss", 4, _missed),
    Column("missed_of", "of", 9, _missed_of, priority=6),
    Column("rejected", "429", 4, _number(lambda r: r.rejected, quantity), priority=3),
    Column("tokens", "tok/s", 5, _number(lambda r: r.output_tokens_per_s, quantity), priority=3),
    Column("behind", "waits behind", 13, _behind, "left", most=26),
)


def choose(columns: Sequence[Column], cells: int) -> tuple[Column, ...]:
    """The columns that fit into `cells`, spare width handed to those that can use it."""
    kept = list(columns)
    while _needed(kept) > cells and any(c.priority for c in kept):
        worst = max(c.priority for c in kept)
        kept.remove(next(c for c in reversed(kept) if c.priority == worst))
    spare = max(0, cells - _needed(kept))
    growing = [i for i, c in enumerate(kept) if c.most > c.width]
    while spare and growing:
        for i in list(growing):
            if spare:
                kept[i] = replace(kept[i], width=kept[i].width + 1)
                spare -= 1
            if kept[i].width >= kept[i].most:
                growing.remove(i)
    return tuple(kept)


def _needed(columns: Sequence[Column]) -> int:
    return sum(c.width for c in columns) + SEPARATOR * max(0, len(columns) - 1)


def heading(columns: Sequence[Column], cells: int) -> Line:
    text = (" " * SEPARATOR).join(fit(c.title, c.width, c.align) for c in columns)
    return cut(Line((Piece(text, "head"),), "head"), cells)


def table_line(row: TenantRow, columns: Sequence[Column], cells: int, glyphs: Glyphs) -> Line:
    """One tenant's line."""
    pieces: list[Piece] = []
    for i, column in enumerate(columns):
        text, role = column.format(row, column.width, glyphs)
        if i:
            pieces.append(Piece(" " * SEPARATOR))
        pieces.append(Piece(fit(text, column.width, column.align), role))
    tint = {Mark.HURT: "hurt", Mark.NAMED: "named"}.get(row.mark, "")
    return cut(Line(tuple(pieces), tint), cells)
