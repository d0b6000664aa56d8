"""The form as lines: what holds, what is typed, what is expected, what the engines say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from console.act.form import REASON, SPAN, Field, Form, Stage
from console.act.values import Answer, Looked
from console.cells import clip, width
from console.formats import clock
from console.lines import UNICODE, Glyphs, Line, Piece, cut, join, rule, wrap
from telemetry.plain import name as short
from telemetry.plain import safe as plain

NAME_CELLS = 40
_LABEL, _NOW = 13, 14
_RULE_CELLS = 8  # of the first line beside its words
_MOST_ANSWERS = 8  # lines of what the engines say
ROOMY_LINES = 12  # below it the columns have no heading
_KEYS = {
    Stage.TYPING: ("Enter: try it first, nothing changes", "up, down: fields", "esc: leave it"),
    Stage.TRYING: ("asking what it would change ...", "esc: leave it"),
    Stage.TRIED: ("Enter: do it", "esc: back, nothing has changed"),
    Stage.DOING: ("being done ...", "esc: close; what became of it is told"),
    Stage.DONE: ("Enter: close",),
    Stage.MOVED: ("Enter: try it again on top of that", "esc: back, nothing has changed"),
}
_SHORT_KEYS = _KEYS | {  # where those do not fit: how to leave before how to move
    Stage.TYPING: ("Enter: try it first", "esc: leave it", "up, down: fields"),
    Stage.TRYING: ("asking ...", "esc: leave it"),
    Stage.TRIED: ("Enter: do it", "esc: back"),
    Stage.DOING: ("being done ...", "esc: close"),
    Stage.MOVED: ("Enter: try it again", "esc: back"),
}
_KEYS_GAP = 4


def form_lines(
    form: Form,
    looked: Looked,
    cells: int,
    lines: int,
    glyphs: Glyphs = UNICODE,
    tz: tzinfo | None = None,
) -> tuple[Line, ...]:
    """At most `lines` lines of at most `cells`; the last one says what the keys do now. `tz` is
    the zone of the clocks, None the reader's."""
    inner = max(20, cells - 2)
    out = [_title(form, looked, cells, glyphs)]
    typing = form.stage is Stage.TYPING
    if form.fields and lines >= ROOMY_LINES:
        out.append(_row("", "now", "new", "head", cells, glyphs))
    beside = all(_hinted(f) <= cells for f in form.fields)
    for i, field in enumerate(form.fields):
        if typing or field.typed:  # what was left as it is need not be looked at again
            out.append(_field(field, typing and i == form.at, beside, cells, glyphs))
    said = _said(form, inner, glyphs, tz)
    expected = _text("expected", form.expected, "text", inner, glyphs)
    hint = [] if beside or not typing else _hint(form.fields[form.at], inner, glyphs)
    below = [*hint, *expected, *said, *_text("^y copies", form.what_if, "dim", inner, glyphs)]
    foot = _foot(form.stage, cells)
    room = lines - len(out) - 1
    if len(below) > room:  # what the engines say goes before what is only expected
        below = [*said, *expected, *hint]
    if room < len(said):
        out = out[: max(1, lines - 1 - len(said))]
    kept = below[: max(0, lines - len(out) - 1)]
    if kept and len(below) > len(kept):  # what there is no room for is not passed over in silence
        more = Piece(f" {glyphs.ellipsis}", "dim")
        kept[-1] = cut(Line((*kept[-1].pieces, more)), cells, glyphs.ellipsis)
    return (*out, *kept, foot)[-lines:]


def _title(form: Form, looked: Looked, cells: int, glyphs: Glyphs) -> Line:
    """Which act, on whom, on which engines: the name gives way to the others."""
    title, note = form.title.upper(), _engines(form, looked, cells)
    if form.tenant:
        room = min(NAME_CELLS, cells - width(title) - width(note) - _RULE_CELLS)
        name = clip(short(form.tenant, NAME_CELLS), max(1, room), glyphs.ellipsis)
        title = f"{title} {name.replace(UNICODE.ellipsis, glyphs.ellipsis)}"
    return rule(title, note, cells, glyphs)


def _foot(stage: Stage, cells: int) -> Line:
    """What the keys do now, as much of it as fits whole."""
    for keys in (_KEYS[stage], _SHORT_KEYS[stage]):
        pieces = join([[Piece(k, "title")] for k in keys], cells - 1, _KEYS_GAP)
        line = cut(Line((Piece(" "), *pieces)), cells)
        if len(pieces) == 2 * len(keys) - 1:  # none is left out
            break
    return line


def _hinted(field: Field) -> int:
    """Cells that a field takes with its hint beside it; what is typed takes the place of most."""
    typed = field.typed if field.choices or field.key == SPAN else ""
    return 2 + _LABEL + _NOW + width(plain(typed)) + 3 + width(field.hint)


def _hint(field: Field, cells: int, glyphs: Glyphs) -> list[Line]:
    """The hint of the field that is typed into, where there is no room beside it."""
    return _text("", field.hint, "dim", cells, glyphs)


def _engines(form: Form, looked: Looked, cells: int) -> str:
    names = []
    for aim in form.aims:
        state = looked.at(aim.address)
        where = aim.engine if state is None else f"{aim.engine}/{state.pool}"
        names.append(f"{plain(where)} v{aim.version}")
    text = ", ".join(names)
    return text if width(text) <= cells // 2 else f"{len(names)} engines"


def _row(label: str, now: str, new: str, role: str, cells: int, glyphs: Glyphs) -> Line:
    text = f"  {label:<{_LABEL}}{now:<{_NOW}}{new}"
    return cut(Line((Piece(text, role),)), cells, glyphs.ellipsis)


def _field(field: Field, at: bool, beside: bool, cells: int, glyphs: Glyphs) -> Line:
    now = clip(plain(field.now), _NOW - 1, glyphs.ellipsis)
    typed = plain(field.typed)
    room = max(8, cells - 2 - _LABEL - _NOW - 2)
    if width(typed) >= room:  # what is being typed is what is looked at: its end stays
        typed = glyphs.ellipsis + typed[-(room // 2) :]
    pieces = [
        Piece(f"{glyphs.point} " if at else "  ", "title"),
        Piece(f"{field.key:<{_LABEL}}", "label" if at else "dim"),
        Piece(now + " " * max(1, _NOW - width(now)), "dim"),
        Piece(typed, "value"),
        Piece("_" if at and not field.choices else "", "title"),
    ]
    if at and beside and field.hint and (field.choices or not field.typed or field.key == SPAN):
        pieces.append(Piece(f"  {field.hint}", "dim"))
    elif field.key == REASON and not field.typed and not at:
        pieces.append(Piece("-", "dim"))
    return cut(Line(tuple(pieces)), cells, glyphs.ellipsis)


def _said(form: Form, cells: int, glyphs: Glyphs, tz: tzinfo | None) -> list[Line]:
    """What the engines said to the trial or to the act, or what is wrong with what is typed."""
    out: list[Line] = []
    if form.trouble:
        out += _text("!!", form.trouble, "hurt", cells, glyphs)
    if form.stage is Stage.MOVED:
        out += _text("!!", "not done: somebody has changed something meanwhile", "hurt", cells,
                     glyphs)  # fmt: skip
        for c in form.meanwhile[-4:]:
            words = f"{clock(c.at, tz)} {c.who}: {c.what} ({c.state})"
            out += _text("", words, "warn", cells, glyphs)
        return out
    words = "it would" if form.stage is Stage.TRIED else "done"
    for answer in form.answers:
        out += _answer(answer, words, cells, glyphs, tz)
    return out[:_MOST_ANSWERS]


def _answer(
    answer: Answer, words: str, cells: int, glyphs: Glyphs, tz: tzinfo | None
) -> list[Line]:
    if answer.no is not None:
        return _text("!!", f"not done: {answer.why_not}", "hurt", cells, glyphs)
    out = _text(words, answer.effect, "value", cells, glyphs)
    for part in answer.parts:
        role = "text" if part.ok else "hurt"
        mark = "" if part.ok else "refused: "
        out += _text("", f"{part.where}: {mark}{part.detail}", role, cells, glyphs)
    if answer.until is not None:
        ends = f"until {clock(answer.until, tz)}, then it reverts by itself"
        out += _text("", ends, "dim", cells, glyphs)
    return out


def _text(label: str, text: str, role: str, cells: int, glyphs: Glyphs) -> list[Line]:
    """A labelled sentence on as many lines as it takes."""
    if not text:
        return []
    told = plain(text).replace(UNICODE.ellipsis, glyphs.ellipsis)  # names are cut elsewhere
    parts: Sequence[str] = wrap(told, max(10, cells - _LABEL), glyphs.ellipsis)
    return [
        Line((Piece(f"  {'' if i else label:<{_LABEL}}", "label"), Piece(part, role)))
        for i, part in enumerate(parts)
    ]
